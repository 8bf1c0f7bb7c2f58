//! Body framing: where a body ends, and what of the raw bytes is payload.
//!
//! Fed with raw bytes in any split by the server (request bodies) and the client half (response bodies). Decodes in
//! place: payload is moved to the front of the bytes it came in, so nothing is copied to another buffer. Changes with
//! the framing rules of HTTP/1.1. Never reads, never buffers, never interprets payload.

use crate::error::Malformed;
use crate::limits::{CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};

/// How a message says where its body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// No body.
    #[default]
    None,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// Up to the end of the connection (responses only).
    Close,
}

/// What one call of a decoder found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decoded {
    /// Payload bytes, at the front of the region.
    pub payload_bytes: usize,
    /// Raw bytes used up. Less than the region only when the body has ended: the rest is not part of it.
    pub consumed_bytes: usize,
    /// The body has ended.
    pub is_finished: bool,
}

/// Decoder for any framing.
#[derive(Debug)]
pub enum BodyDecoder {
    /// Payload bytes still to come.
    Length(u64),
    /// Chunks.
    Chunked(ChunkDecoder),
    /// Everything is payload.
    Close,
}

impl BodyDecoder {
    /// A decoder at the start of a body.
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::Length(0),
            Framing::Length(bytes) => Self::Length(bytes),
            Framing::Chunked => Self::Chunked(ChunkDecoder::default()),
            Framing::Close => Self::Close,
        }
    }

    /// Decodes a region in place.
    ///
    /// Errors: broken chunk framing; the decoder must not be used after one.
    pub fn decode(&mut self, raw: &mut [u8]) -> Result<Decoded, Malformed> {
        match self {
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(raw.len());
                *left -= taken as u64;
                Ok(Decoded { payload_bytes: taken, consumed_bytes: taken, is_finished: *left == 0 })
            }
            Self::Chunked(decoder) => decoder.decode(raw),
            Self::Close => Ok(Decoded { payload_bytes: raw.len(), consumed_bytes: raw.len(), is_finished: false }),
        }
    }

    /// How much payload stands at the front of the region whose decoding failed: what came well before the fault.
    pub(crate) fn payload_before_fault(&self) -> usize {
        match self {
            Self::Chunked(decoder) => decoder.kept_before_fault,
            Self::Length(_) | Self::Close => 0,
        }
    }

    /// Says whether the body has ended by its own framing.
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(decoder) => decoder.step == Step::Done,
            Self::Close => false,
        }
    }

    /// Says whether the connection's end is a proper end of the body here.
    pub fn may_end(&self) -> bool {
        matches!(self, Self::Close) || self.is_finished()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    #[default]
    SizeFirst,
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerFirst,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

/// Incremental decoder of chunked bodies. Extensions and trailers are skipped, both bounded.
#[derive(Debug, Default)]
pub struct ChunkDecoder {
    step: Step,
    /// Size read so far, then payload of this chunk still to come.
    left: u64,
    /// Bytes of this size line, or of all trailers.
    line_bytes: usize,
    /// Payload of the region in which a fault was found.
    kept_before_fault: usize,
}

impl ChunkDecoder {
    /// Decodes a region in place; see [`BodyDecoder::decode`].
    ///
    /// Cost: one pass; payload is moved with one `memmove` a chunk, framing is looked at byte by byte.
    pub fn decode(&mut self, raw: &mut [u8]) -> Result<Decoded, Malformed> {
        let (mut at, mut kept) = (0, 0);
        while at < raw.len() && self.step != Step::Done {
            if self.step == Step::Data {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(raw.len() - at);
                if at != kept {
                    raw.copy_within(at..at + taken, kept);
                }
                (at, kept) = (at + taken, kept + taken);
                self.left -= taken as u64;
                if self.left == 0 {
                    self.step = Step::DataCr;
                }
            } else {
                let step = self.framing_byte(raw[at]);
                self.step = step.inspect_err(|_| self.kept_before_fault = kept)?;
                at += 1;
            }
        }
        Ok(Decoded { payload_bytes: kept, consumed_bytes: at, is_finished: self.step == Step::Done })
    }

    fn framing_byte(&mut self, byte: u8) -> Result<Step, Malformed> {
        match self.step {
            Step::SizeFirst | Step::Size => self.size_byte(byte),
            Step::Extension => {
                self.count(CHUNK_LINE_BYTES_MAX, "chunk-size line too long")?;
                line_byte(byte, Step::Extension, Step::SizeLf)
            }
            Step::SizeLf if byte == b'\n' => {
                self.line_bytes = 0;
                Ok(if self.left == 0 { Step::TrailerFirst } else { Step::Data })
            }
            Step::DataCr if byte == b'\r' => Ok(Step::DataLf),
            Step::DataLf if byte == b'\n' => Ok(Step::SizeFirst),
            Step::TrailerFirst if byte == b'\r' => Ok(Step::EndLf),
            Step::TrailerFirst | Step::Trailer => {
                self.count(TRAILER_BYTES_MAX, "trailers too long")?;
                line_byte(byte, Step::Trailer, Step::TrailerLf)
            }
            Step::TrailerLf if byte == b'\n' => Ok(Step::TrailerFirst),
            Step::EndLf if byte == b'\n' => Ok(Step::Done),
            Step::SizeLf | Step::TrailerLf | Step::EndLf => Err(Malformed("lone CR in chunk framing")),
            Step::DataCr | Step::DataLf => Err(Malformed("chunk longer than its size")),
            Step::Data | Step::Done => Ok(self.step),
        }
    }

    fn size_byte(&mut self, byte: u8) -> Result<Step, Malformed> {
        self.count(CHUNK_LINE_BYTES_MAX, "chunk-size line too long")?;
        let is_first = self.step == Step::SizeFirst;
        if let Some(digit) = (byte as char).to_digit(16) {
            let size = if is_first { 0 } else { self.left };
            self.left = size.checked_mul(16).ok_or(Malformed("chunk size too large"))? | u64::from(digit);
            return Ok(Step::Size);
        }
        match byte {
            _ if is_first => Err(Malformed("chunk size missing or not a hexadecimal number")),
            b'\r' => Ok(Step::SizeLf),
            b';' => Ok(Step::Extension),
            _ => Err(Malformed("chunk size not a hexadecimal number")),
        }
    }

    fn count(&mut self, max: usize, message: &'static str) -> Result<(), Malformed> {
        self.line_bytes += 1;
        if self.line_bytes > max { Err(Malformed(message)) } else { Ok(()) }
    }
}

/// One byte of a line whose content nobody reads.
fn line_byte(byte: u8, same: Step, end: Step) -> Result<Step, Malformed> {
    match byte {
        b'\r' => Ok(end),
        b'\t' | b' '..=b'~' | 0x80.. => Ok(same),
        _ => Err(Malformed("control byte in chunk framing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `raw` in pieces that end at `cuts`; gives payload, raw bytes used and whether the end was found.
    fn decode_split(framing: Framing, raw: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize, bool), Malformed> {
        let mut decoder = BodyDecoder::new(framing);
        let (mut payload, mut used, mut start) = (Vec::new(), 0, 0);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (raw.len() + 1)).chain([raw.len()]).collect();
        ends.sort_unstable();
        for end in ends {
            let mut piece = raw[start..end].to_vec();
            let found = decoder.decode(&mut piece)?;
            assert!(found.consumed_bytes == piece.len() || found.is_finished);
            assert_eq!(found.is_finished, decoder.is_finished());
            payload.extend_from_slice(&piece[..found.payload_bytes]);
            used += found.consumed_bytes;
            start = end;
            if found.is_finished {
                break;
            }
        }
        Ok((payload, used, decoder.is_finished()))
    }

    fn check(raw: &str, want: Result<(&str, usize), &'static str>) {
        let got = decode_split(Framing::Chunked, raw.as_bytes(), &[]);
        match want {
            Ok((payload, used)) => assert_eq!(got, Ok((payload.as_bytes().to_vec(), used, true)), "{raw:?}"),
            Err(message) => assert_eq!(got, Err(Malformed(message)), "{raw:?}"),
        }
        let single: Vec<usize> = (0..raw.len()).collect();
        assert_eq!(decode_split(Framing::Chunked, raw.as_bytes(), &single), got, "byte by byte {raw:?}");
    }

    #[test]
    fn chunked_bodies_decode_or_fail_by_the_letter() {
        check("5\r\nhello\r\n0\r\n\r\n", Ok(("hello", 15)));
        check("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", Ok(("hello", 20)));
        check("0\r\n\r\n", Ok(("", 5)));
        check("0\r\n\r\nGET", Ok(("", 5)));
        check("A;name=\"v\"\r\n0123456789\r\n000\r\n\r\n", Ok(("0123456789", 31)));
        check("1\r\na\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\nnext", Ok(("a", 27)));
        check("\r\n", Err("chunk size missing or not a hexadecimal number"));
        check(";ext\r\n", Err("chunk size missing or not a hexadecimal number"));
        check(" 5\r\n", Err("chunk size missing or not a hexadecimal number"));
        check("+5\r\n", Err("chunk size missing or not a hexadecimal number"));
        check("0x5\r\nhello\r\n", Err("chunk size not a hexadecimal number"));
        check("5 \r\nhello\r\n", Err("chunk size not a hexadecimal number"));
        check("5\nhello", Err("chunk size not a hexadecimal number"));
        check("5;a\nhello", Err("control byte in chunk framing"));
        check("5\rhello", Err("lone CR in chunk framing"));
        check("5\r\nhellooo", Err("chunk longer than its size"));
        check("5\r\nhello\n0\r\n", Err("chunk longer than its size"));
        check("10000000000000000\r\n", Err("chunk size too large"));
        check("0\r\n\rx", Err("lone CR in chunk framing"));
        check("0\r\na: b\n\r\n", Err("control byte in chunk framing"));
    }

    #[test]
    fn size_lines_and_trailers_are_bounded() {
        check(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "e".repeat(100_000)), Err("chunk-size line too long"));
        check(&format!("{}5\r\n", "0".repeat(300)), Err("chunk-size line too long"));
        check(&format!("0\r\nx: {}\r\n\r\n", "t".repeat(TRAILER_BYTES_MAX)), Err("trailers too long"));
        check(&format!("0\r\n{}\r\n", "a: b\r\n".repeat(2000)), Err("trailers too long"));
        let longest = format!("1;{}\r\na\r\n0\r\n\r\n", "e".repeat(CHUNK_LINE_BYTES_MAX - 3));
        check(&longest, Ok(("a", longest.len())));
    }

    #[test]
    fn a_length_takes_its_bytes_and_no_more() {
        assert_eq!(decode_split(Framing::Length(3), b"abcdef", &[1]), Ok((b"abc".to_vec(), 3, true)));
        assert_eq!(decode_split(Framing::Length(9), b"abcdef", &[]), Ok((b"abcdef".to_vec(), 6, false)));
        assert_eq!(decode_split(Framing::None, b"abc", &[]), Ok((Vec::new(), 0, true)));
        assert!(BodyDecoder::new(Framing::None).is_finished());
        assert!(!BodyDecoder::new(Framing::Length(1)).may_end());
        assert!(BodyDecoder::new(Framing::Close).may_end());
        assert!(!BodyDecoder::new(Framing::Chunked).may_end());
    }

    fn encode(chunks: &[Vec<u8>], extension: bool, trailers: bool) -> Vec<u8> {
        let mut raw = Vec::new();
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            let extension = if extension { ";k=v" } else { "" };
            raw.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            raw.extend_from_slice(chunk);
            raw.extend_from_slice(b"\r\n");
        }
        raw.extend_from_slice(if trailers { b"0\r\nA: b\r\nC: d\r\n\r\n" } else { b"0\r\n\r\n" });
        raw
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_payload(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
            extension in any::<bool>(),
            trailers in any::<bool>(),
        ) {
            let raw = encode(&chunks, extension, trailers);
            let body_bytes = raw.len();
            let mut wire = raw;
            wire.extend_from_slice(b"GET / HTTP/1.1\r\n");
            let got = decode_split(Framing::Chunked, &wire, &cuts);
            prop_assert_eq!(got, Ok((chunks.concat(), body_bytes, true)));
        }

        #[test]
        fn any_split_of_garbage_fails_or_passes_alike(
            raw in prop::collection::vec(prop::sample::select(b"0123aF;\r\n x".to_vec()), 0..60),
            cuts in prop::collection::vec(any::<usize>(), 0..6),
        ) {
            let whole = decode_split(Framing::Chunked, &raw, &[]);
            prop_assert_eq!(decode_split(Framing::Chunked, &raw, &cuts), whole);
        }
    }
}
