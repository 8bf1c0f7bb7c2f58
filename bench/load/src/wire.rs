//! One HTTP/1.1 response, parsed as its bytes arrive.
//!
//! Called by `client` with every read. Strict where a fault of the server could hide: a short body, bytes behind the
//! end and a broken chunk are errors with a name. Holds no body: what is decoded is handed on at once.

use memchr::memchr;

const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;

/// What is wrong with a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The head is no HTTP, or contradicts itself.
    Head,
    /// A chunk's size or line end is wrong.
    Chunk,
    /// The connection ended inside the body.
    Short,
    /// The connection ended before the head was whole.
    NoHead,
    /// Bytes follow the end of the response.
    Surplus,
}

/// Whether the response is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    More,
    Done,
}

/// What a response gives while it arrives.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'b> {
    /// The final head, once.
    Head { status: u16 },
    /// Decoded body bytes.
    Body(&'b [u8]),
}

/// The parser of one response at a time.
#[derive(Debug, Default)]
pub struct Wire {
    state: State,
    /// Bytes of a head or a chunk line that is not whole yet.
    partial: Vec<u8>,
    status: u16,
    is_reusable: bool,
    overhead_us: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Counted(u64),
    UntilClose,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    Done,
}

impl Wire {
    /// Makes it ready for the next response on the connection.
    pub fn reset(&mut self) {
        self.state = State::Head;
        self.partial.clear();
        self.status = 0;
        self.is_reusable = false;
        self.overhead_us = None;
    }

    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection may carry another request.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        self.state == State::Done && self.is_reusable
    }

    /// What the gateway says it added, in microseconds, from its `x-llmgw-overhead-us` header.
    #[must_use]
    pub fn overhead_us(&self) -> Option<u64> {
        self.overhead_us
    }

    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8], on: &mut impl FnMut(Part<'_>)) -> Result<Step, Fault> {
        loop {
            if self.state == State::Done {
                return if bytes.is_empty() { Ok(Step::Done) } else { Err(Fault::Surplus) };
            }
            if bytes.is_empty() {
                return Ok(Step::More);
            }
            bytes = self.advance(bytes, on)?;
        }
    }

    /// Takes the end of the connection.
    pub fn end(&mut self) -> Result<(), Fault> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            State::Head => Err(Fault::NoHead),
            _ => Err(Fault::Short),
        }
    }

    fn advance<'b>(&mut self, bytes: &'b [u8], on: &mut impl FnMut(Part<'_>)) -> Result<&'b [u8], Fault> {
        match self.state {
            State::Head => self.head(bytes, on),
            State::Counted(left) => {
                let (body, rest) = split(bytes, left);
                on(Part::Body(body));
                let left = left - body.len() as u64;
                self.state = if left == 0 { State::Done } else { State::Counted(left) };
                Ok(rest)
            }
            State::UntilClose => {
                on(Part::Body(bytes));
                Ok(&[])
            }
            State::Chunk(left) => {
                let (body, rest) = split(bytes, left);
                on(Part::Body(body));
                let left = left - body.len() as u64;
                self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                Ok(rest)
            }
            State::ChunkSize | State::ChunkEnd | State::Trailers => self.line(bytes),
            State::Done => Ok(bytes),
        }
    }

    /// Collects a line of the chunked framing and acts on it.
    fn line<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Fault> {
        let end = memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
        let (part, rest) = bytes.split_at(end);
        if self.partial.len() + part.len() > CHUNK_LINE_BYTES_MAX {
            return Err(Fault::Chunk);
        }
        self.partial.extend_from_slice(part);
        let Some(line) = self.partial.strip_suffix(b"\n") else { return Ok(rest) };
        let line = line.strip_suffix(b"\r").ok_or(Fault::Chunk)?;
        self.state = match self.state {
            State::ChunkSize => match chunk_size(line).ok_or(Fault::Chunk)? {
                0 => State::Trailers,
                size => State::Chunk(size),
            },
            State::ChunkEnd if line.is_empty() => State::ChunkSize,
            State::Trailers if line.is_empty() => State::Done,
            State::Trailers => State::Trailers,
            _ => return Err(Fault::Chunk),
        };
        self.partial.clear();
        Ok(rest)
    }

    fn head<'b>(&mut self, bytes: &'b [u8], on: &mut impl FnMut(Part<'_>)) -> Result<&'b [u8], Fault> {
        let before = self.partial.len();
        self.partial.extend_from_slice(bytes);
        let search_from = before.saturating_sub(3);
        let window = self.partial.get(search_from..).unwrap_or(&[]);
        let Some(at) = memchr::memmem::find(window, b"\r\n\r\n") else {
            return if self.partial.len() > HEAD_BYTES_MAX { Err(Fault::Head) } else { Ok(&[]) };
        };
        let end = search_from + at + 4;
        self.partial.truncate(end);
        let rest = bytes.get(end - before..).unwrap_or(&[]);
        let partial = std::mem::take(&mut self.partial);
        let head = self.read_head(&partial);
        self.partial = partial;
        self.partial.clear();
        let state = head?;
        if let Some(state) = state {
            self.state = state;
            on(Part::Head { status: self.status });
        }
        Ok(rest)
    }

    /// The state behind the head; `None` for an interim one, which another head follows.
    fn read_head(&mut self, bytes: &[u8]) -> Result<Option<State>, Fault> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        response.parse(bytes).map_err(|_| Fault::Head)?;
        self.status = response.code.ok_or(Fault::Head)?;
        if (100..200).contains(&self.status) {
            return Ok(None);
        }
        self.is_reusable = response.version == Some(1);
        let (mut length, mut is_chunked) = (None, false);
        for header in response.headers.iter() {
            let name = header.name;
            if name.eq_ignore_ascii_case("content-length") {
                let value = decimal(header.value).ok_or(Fault::Head)?;
                if length.replace(value).is_some_and(|before| before != value) {
                    return Err(Fault::Head);
                }
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                is_chunked = header.value.trim_ascii().eq_ignore_ascii_case(b"chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                let closes = header.value.split(|byte| *byte == b',');
                if closes.map(<[u8]>::trim_ascii).any(|token| token.eq_ignore_ascii_case(b"close")) {
                    self.is_reusable = false;
                }
            } else if name.eq_ignore_ascii_case("x-llmgw-overhead-us") {
                self.overhead_us = decimal(header.value);
            }
        }
        Ok(Some(match (self.status, is_chunked, length) {
            (204 | 304, _, _) | (_, false, Some(0)) => State::Done,
            (_, true, Some(_)) => return Err(Fault::Head),
            (_, true, None) => State::ChunkSize,
            (_, false, Some(length)) => State::Counted(length),
            (_, false, None) => {
                self.is_reusable = false;
                State::UntilClose
            }
        }))
    }
}

fn split(bytes: &[u8], most: u64) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX)))
}

fn decimal(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok()?.trim();
    if digits.starts_with('+') { None } else { digits.parse().ok() }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    if digits.is_empty() || digits.len() > 15 {
        return None;
    }
    digits.iter().try_fold(0u64, |size, digit| Some(size * 16 + u64::from(char::from(*digit).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]], closed: bool) -> (Result<Step, Fault>, u16, String, bool) {
        let mut wire = Wire::default();
        let mut body = Vec::new();
        let mut step = Ok(Step::More);
        for piece in pieces {
            step = wire.push(piece, &mut |part| {
                if let Part::Body(bytes) = part {
                    body.extend_from_slice(bytes);
                }
            });
            if step.is_err() {
                break;
            }
        }
        if closed && step == Ok(Step::More) {
            step = wire.end().map(|()| Step::Done);
        }
        (step, wire.status(), String::from_utf8_lossy(&body).into_owned(), wire.is_reusable())
    }

    /// Bytes, how they end, status, body, whether the connection may go on.
    type Case = (&'static str, Result<Step, Fault>, u16, &'static str, bool);

    const CASES: &[Case] = &[
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Ok(Step::Done), 200, "hi", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, Close\r\n\r\nhi", Ok(Step::Done), 200, "hi", false),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Ok(Step::Done), 204, "", true),
        (
            "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nT: v\r\n\r\n",
            Ok(Step::Done),
            500,
            "x",
            true,
        ),
        ("HTTP/1.0 200 OK\r\n\r\nrest", Ok(Step::Done), 200, "rest", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", Err(Fault::Short), 200, "hi", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhi", Err(Fault::Surplus), 200, "h", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", Err(Fault::Short), 200, "x", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", Err(Fault::Chunk), 200, "x", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ng\r\n", Err(Fault::Chunk), 200, "", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", Err(Fault::Head), 200, "", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", Err(Fault::Head), 200, "", true),
        ("HTTP/1.1 20", Err(Fault::NoHead), 0, "", false),
        ("hello\r\n\r\n", Err(Fault::Head), 0, "", false),
        ("", Err(Fault::NoHead), 0, "", false),
    ];

    #[test]
    fn a_response_is_read_by_its_framing_and_its_faults_have_names() {
        for (bytes, step, status, body, reusable) in CASES {
            let found = read(&[bytes.as_bytes()], true);
            assert_eq!((found.0, found.1, found.2.as_str()), (*step, *status, *body), "{bytes:?}");
            if step.is_ok() {
                assert_eq!(found.3, *reusable, "{bytes:?}");
            }
        }
    }

    #[test]
    fn the_overhead_the_gateway_reports_is_read() {
        let mut wire = Wire::default();
        let head = b"HTTP/1.1 200 OK\r\nX-Llmgw-Overhead-Us: 41\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(wire.push(head, &mut |_| ()), Ok(Step::Done));
        assert_eq!(wire.overhead_us(), Some(41));
        wire.reset();
        assert_eq!((wire.overhead_us(), wire.status(), wire.is_reusable()), (None, 0, false));
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let long = vec![b'a'; HEAD_BYTES_MAX + 1];
        assert_eq!(Wire::default().push(&long, &mut |_| ()), Err(Fault::Head));
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_result(
            case in 0..CASES.len(),
            cuts in prop::collection::vec(0..200usize, 0..12),
        ) {
            let bytes = CASES[case].0.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            let (whole, split) = (read(&[bytes], true), read(&pieces, true));
            // Bytes behind the end may come in a read of their own: the response is complete by then, the fault the
            // same.
            prop_assert_eq!(whole, split);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes], true);
            let _ = read(&[&bytes], true);
        }
    }
}
