//! Chunked decoder: any split of the bytes gives what a plain second reader finds in the whole.
//!
//! The input's first byte says how many of the following bytes are piece sizes; the rest is the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_http::body::{BodyDecoder, Framing};
use llmgw_http::limits::{CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};

/// Payload, bytes used and whether the end was found; nothing for broken framing.
type Found = Option<(Vec<u8>, usize, bool)>;

fuzz_target!(|input: &[u8]| {
    let Some((&size_count, rest)) = input.split_first() else { return };
    let (sizes, raw) = rest.split_at(usize::from(size_count % 32).min(rest.len()));
    let found = decode(raw, sizes);
    assert_eq!(found, read_plainly(raw), "any split gives what a plain reader finds");
    if let Some((payload, used, true)) = &found {
        let written = write(payload, sizes);
        assert_eq!(decode(&written, sizes), Some((payload.clone(), written.len(), true)), "written again, read again");
        assert!(*used <= raw.len());
    }
});

fn decode(raw: &[u8], sizes: &[u8]) -> Found {
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    let (mut payload, mut used) = (Vec::new(), 0);
    let mut sizes = sizes.iter().map(|size| usize::from(*size));
    let mut rest = raw;
    loop {
        let (piece, tail) = rest.split_at(sizes.next().unwrap_or(usize::MAX).min(rest.len()));
        let mut piece = piece.to_vec();
        let decoded = decoder.decode(&mut piece).ok()?;
        payload.extend_from_slice(&piece[..decoded.payload_bytes]);
        used += decoded.consumed_bytes;
        assert_eq!(decoded.is_finished, decoder.is_finished());
        assert!(decoded.is_finished || decoded.consumed_bytes == piece.len());
        rest = tail;
        if decoded.is_finished || rest.is_empty() {
            return Some((payload, used, decoded.is_finished));
        }
    }
}

/// Reads a whole body the simple way: line, payload, line.
fn read_plainly(raw: &[u8]) -> Found {
    let (mut payload, mut at) = (Vec::new(), 0);
    loop {
        let Line::Whole(line) = line_at(raw, at, CHUNK_LINE_BYTES_MAX, Kind::Size)? else {
            return Some((payload, raw.len(), false));
        };
        at += line.len() + 2;
        let digits = line.iter().position(|byte| *byte == b';').unwrap_or(line.len());
        let size = u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let here = usize::try_from(size).unwrap_or(usize::MAX).min(raw.len() - at);
        payload.extend_from_slice(&raw[at..at + here]);
        at += here;
        for end in *b"\r\n" {
            match raw.get(at) {
                None => return Some((payload, raw.len(), false)),
                Some(byte) if *byte == end => at += 1,
                Some(_) => return None,
            }
        }
    }
    let mut trailer_bytes = 0;
    loop {
        let Line::Whole(line) = line_at(raw, at, TRAILER_BYTES_MAX - trailer_bytes, Kind::Trailer)? else {
            return Some((payload, raw.len(), false));
        };
        at += line.len() + 2;
        // The bound counts each line with its carriage return; the empty line that ends the body is free.
        if line.is_empty() {
            return Some((payload, at, true));
        }
        trailer_bytes += line.len() + 1;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Size,
    Trailer,
}

enum Line<'r> {
    Whole(&'r [u8]),
    Cut,
}

/// The line that begins at `at`, if what there is of it is in order and, with its carriage return, within `max`.
fn line_at(raw: &[u8], at: usize, max: usize, kind: Kind) -> Option<Line<'_>> {
    let rest = &raw[at..];
    let is_end = |byte: &u8| *byte < b' ' && *byte != b'\t' || *byte == 127;
    let text = &rest[..rest.iter().position(is_end).unwrap_or(rest.len())];
    let may_be_empty = kind == Kind::Trailer;
    if kind == Kind::Size && !text.is_empty() && !is_size_prefix(text) {
        return None;
    }
    let has_end = text.len() < rest.len();
    let counts_end = has_end && !(text.is_empty() && may_be_empty);
    if text.len() + usize::from(counts_end) > max || has_end && text.is_empty() && !may_be_empty {
        return None;
    }
    match (rest.get(text.len()), rest.get(text.len() + 1)) {
        (None, _) | (Some(b'\r'), None) => Some(Line::Cut),
        (Some(b'\r'), Some(b'\n')) => Some(Line::Whole(text)),
        _ => None,
    }
}

/// May begin a size line: digits that fit 64 bits, then perhaps an extension.
fn is_size_prefix(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let significant = text[..digits].iter().skip_while(|byte| **byte == b'0').count();
    digits > 0 && significant <= 16 && (digits == text.len() || text[digits] == b';')
}

fn write(payload: &[u8], sizes: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    let step = usize::from(sizes.first().copied().unwrap_or(7)).max(1);
    for chunk in payload.chunks(step) {
        written.extend_from_slice(format!("{:X};n=v\r\n", chunk.len()).as_bytes());
        written.extend_from_slice(chunk);
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(b"0\r\nA: b\r\n\r\n");
    written
}
