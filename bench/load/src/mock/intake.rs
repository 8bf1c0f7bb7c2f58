//! One request as its bytes arrive: the head is read, the body's beginning kept, the rest only counted.
//!
//! Called by `connection` with every read; pure. A body of megabytes costs no memory here.

use memchr::{memchr, memmem};

/// The beginning of a body that is kept: the prompt's mark stands there.
const KEPT_BYTES: usize = 8 * 1024;
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A whole request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) page: Page,
    pub(crate) closes: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    Completion,
    Models,
    Metrics,
    /// What routers ask an engine about itself.
    About,
    Fine,
    Unknown,
}

/// No HTTP that we read: the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Garbled;

/// The reader of one request at a time.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    state: State,
    /// A head or a line that is not whole yet.
    partial: Vec<u8>,
    /// The beginning of the body.
    pub(crate) kept: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Head,
    Counted(Asked, usize),
    Size(Asked),
    Chunk(Asked, usize),
    /// The line end behind a chunk.
    After(Asked),
    Trailers(Asked),
}

impl Intake {
    /// Takes bytes and moves `bytes` behind what it has used; answers when a request is whole.
    pub(crate) fn push(&mut self, bytes: &mut &[u8]) -> Result<Option<Asked>, Garbled> {
        loop {
            match self.state {
                State::Head => {
                    let Some(asked) = self.head(bytes)? else { return Ok(None) };
                    if let Some(asked) = asked {
                        return Ok(Some(asked));
                    }
                }
                State::Counted(asked, left) => {
                    let left = self.body(bytes, left);
                    if left == 0 {
                        self.state = State::Head;
                        return Ok(Some(asked));
                    }
                    self.state = State::Counted(asked, left);
                    return Ok(None);
                }
                State::Chunk(asked, left) => {
                    let left = self.body(bytes, left);
                    self.state = if left == 0 { State::After(asked) } else { State::Chunk(asked, left) };
                    if left > 0 {
                        return Ok(None);
                    }
                }
                State::Size(asked) | State::After(asked) | State::Trailers(asked) => {
                    let Some(is_over) = self.line(bytes, asked)? else { return Ok(None) };
                    if is_over {
                        self.state = State::Head;
                        return Ok(Some(asked));
                    }
                }
            }
        }
    }

    fn body(&mut self, bytes: &mut &[u8], left: usize) -> usize {
        let (body, rest) = bytes.split_at(bytes.len().min(left));
        let room = KEPT_BYTES.saturating_sub(self.kept.len()).min(body.len());
        self.kept.extend_from_slice(body.get(..room).unwrap_or(&[]));
        *bytes = rest;
        left - body.len()
    }

    /// `None` while the line is not whole; otherwise whether the request ends with it.
    fn line(&mut self, bytes: &mut &[u8], asked: Asked) -> Result<Option<bool>, Garbled> {
        let Some(at) = memchr(b'\n', bytes) else {
            self.partial.extend_from_slice(bytes);
            *bytes = &[];
            return if self.partial.len() > HEAD_BYTES_MAX { Err(Garbled) } else { Ok(None) };
        };
        let (line, rest) = bytes.split_at(at + 1);
        self.partial.extend_from_slice(line);
        *bytes = rest;
        let text = self.partial.trim_ascii();
        let is_empty = text.is_empty();
        match self.state {
            State::Size(_) => {
                let digits = text.split(|byte| *byte == b';').next().unwrap_or(&[]).trim_ascii();
                let size = std::str::from_utf8(digits).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
                self.state = match size.ok_or(Garbled)? {
                    0 => State::Trailers(asked),
                    size => State::Chunk(asked, size),
                };
            }
            State::Trailers(_) if !is_empty => {}
            State::Trailers(_) => {
                self.partial.clear();
                return Ok(Some(true));
            }
            _ if is_empty => self.state = State::Size(asked),
            _ => return Err(Garbled),
        }
        self.partial.clear();
        Ok(Some(false))
    }

    /// `None` while the head is not whole; a request without a body is whole with it.
    fn head(&mut self, bytes: &mut &[u8]) -> Result<Option<Option<Asked>>, Garbled> {
        self.kept.clear();
        let whole = memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4);
        let (asked, body) = match whole {
            Some(end) if self.partial.is_empty() => {
                let (head, rest) = bytes.split_at(end);
                *bytes = rest;
                read_head(head)?
            }
            _ => {
                let before = self.partial.len();
                self.partial.extend_from_slice(bytes);
                let from = before.saturating_sub(3);
                let Some(at) = memmem::find(self.partial.get(from..).unwrap_or(&[]), b"\r\n\r\n") else {
                    *bytes = &[];
                    return if self.partial.len() > HEAD_BYTES_MAX { Err(Garbled) } else { Ok(None) };
                };
                let end = from + at + 4;
                *bytes = bytes.get(end - before..).unwrap_or(&[]);
                let read = read_head(self.partial.get(..end).unwrap_or(&[]));
                self.partial.clear();
                read?
            }
        };
        self.state = match body {
            Body::Counted(0) => return Ok(Some(Some(asked))),
            Body::Counted(length) => State::Counted(asked, length),
            Body::Chunked => State::Size(asked),
        };
        Ok(Some(None))
    }
}

enum Body {
    Counted(usize),
    Chunked,
}

fn read_head(head: &[u8]) -> Result<(Asked, Body), Garbled> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(head).map_err(|_| Garbled)?;
    let path = request.path.unwrap_or("/").split('?').next().unwrap_or("/");
    let mut asked = Asked { page: page(path), closes: request.version == Some(0) };
    let mut body = Body::Counted(0);
    for header in request.headers.iter() {
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                let length = std::str::from_utf8(header.value).ok().and_then(|text| text.trim().parse().ok());
                body = Body::Counted(length.ok_or(Garbled)?);
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => body = Body::Chunked,
            10 if header.name.eq_ignore_ascii_case("connection") => {
                asked.closes |= header.value.trim_ascii().eq_ignore_ascii_case(b"close");
            }
            _ => {}
        }
    }
    Ok((asked, body))
}

fn page(path: &str) -> Page {
    match path {
        "/v1/chat/completions" | "/v1/completions" => Page::Completion,
        "/v1/models" => Page::Models,
        "/metrics" => Page::Metrics,
        "/server_info" | "/get_server_info" | "/model_info" | "/get_model_info" | "/version" => Page::About,
        "/" | "/health" | "/health_generate" | "/ping" => Page::Fine,
        _ => Page::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8], piece_bytes: usize) -> (Vec<(Page, bool, String)>, bool) {
        let mut intake = Intake::default();
        let mut found = Vec::new();
        for mut piece in text.chunks(piece_bytes.max(1)) {
            loop {
                match intake.push(&mut piece) {
                    Err(Garbled) => return (found, true),
                    Ok(None) => break,
                    Ok(Some(asked)) => {
                        let kept = String::from_utf8_lossy(&intake.kept).into_owned();
                        found.push((asked.page, asked.closes, kept));
                    }
                }
            }
        }
        (found, false)
    }

    #[test]
    fn requests_are_read_by_their_framing_however_they_are_cut() {
        let text = b"GET /health HTTP/1.1\r\n\r\n\
            POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello\
            POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n\
            GET /metrics?x HTTP/1.1\r\nConnection: close\r\n\r\n";
        let expected = vec![
            (Page::Fine, false, String::new()),
            (Page::Completion, false, "hello".to_owned()),
            (Page::Completion, false, "abcde".to_owned()),
            (Page::Metrics, true, String::new()),
        ];
        for piece_bytes in 1..=text.len() {
            assert_eq!(read(text, piece_bytes), (expected.clone(), false), "in pieces of {piece_bytes}");
        }
    }

    #[test]
    fn only_the_beginning_of_a_body_is_kept() {
        let mut text = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", KEPT_BYTES * 3).into_bytes();
        text.extend(std::iter::repeat_n(b'x', KEPT_BYTES * 3));
        let (found, is_garbled) = read(&text, 1000);
        assert!(!is_garbled && found.len() == 1 && found[0].2.len() == KEPT_BYTES);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), piece_bytes in 1..50usize) {
            read(&bytes, piece_bytes);
            let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
            read(&[head.as_slice(), &bytes].concat(), piece_bytes);
        }
    }
}
