//! Heads by httparse, bodies by length or chunks. As little as a proxy can do.

use std::io;

/// Header lines of a head.
const HEADERS_MAX: usize = 64;

/// A request's head and body, in bytes.
pub(crate) struct Request {
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: usize,
}

/// An answer's head.
pub(crate) struct Answer {
    pub(crate) head_bytes: usize,
    pub(crate) length: Length,
}

pub(crate) enum Length {
    Known(usize),
    Chunked,
}

pub(crate) fn wrong() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The request at the front of `bytes`; nothing while its head is incomplete.
pub(crate) fn request(bytes: &[u8]) -> io::Result<Option<Request>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(|_| wrong())? else { return Ok(None) };
    let length = head.headers.iter().find(|header| is(header, "content-length"));
    let body_bytes = length.map_or(Ok(0), |header| number(header.value))?;
    Ok(Some(Request { head_bytes, body_bytes }))
}

/// Writes the head of the request in `bytes` for the engine.
pub(crate) fn write_request_head(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    head.parse(bytes).map_err(|_| wrong())?;
    out.extend_from_slice(head.method.unwrap_or_default().as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.path.unwrap_or_default().as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    copy(head.headers, out);
    out.extend_from_slice(b"x-request-id: 0123456789abcdef0123456789abcdef\r\n\r\n");
    Ok(())
}

/// The head of the answer at the front of `bytes`, written to `out` for the client; nothing while it is incomplete.
pub(crate) fn answer(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<Option<Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(|_| wrong())? else { return Ok(None) };
    let is_chunked = head.headers.iter().any(|header| is(header, "transfer-encoding"));
    let length = head.headers.iter().find(|header| is(header, "content-length"));
    let length = match (is_chunked, length) {
        (true, _) => Length::Chunked,
        (false, Some(header)) => Length::Known(number(header.value)?),
        (false, None) => return Err(wrong()),
    };
    out.extend_from_slice(b"HTTP/1.1 ");
    let code = head.code.unwrap_or(502);
    out.extend([code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + (digit % 10) as u8));
    out.extend_from_slice(b" OK\r\n");
    copy(head.headers, out);
    out.extend_from_slice(b"x-llmgw-replica: engine-0\r\n\r\n");
    Ok(Some(Answer { head_bytes, length }))
}

fn copy(headers: &[httparse::Header<'_>], out: &mut Vec<u8>) {
    for header in headers.iter().filter(|header| !is(header, "connection")) {
        out.extend_from_slice(header.name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(header.value);
        out.extend_from_slice(b"\r\n");
    }
}

fn is(header: &httparse::Header<'_>, name: &str) -> bool {
    header.name.eq_ignore_ascii_case(name)
}

fn number(digits: &[u8]) -> io::Result<usize> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.trim().parse().ok()).ok_or_else(wrong)
}

/// Follows a chunked body that passes as it is.
#[derive(Default)]
pub(crate) struct Chunks {
    at: At,
    left: usize,
    digits: u32,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum At {
    #[default]
    Size,
    /// Behind the size, up to the line's end.
    SizeEnd,
    Data,
    /// The line end behind the data.
    DataEnd,
    /// At the beginning of a trailer line, or of the last line.
    Line,
    Trailer,
    LastEnd,
    Over,
}

impl Chunks {
    pub(crate) fn is_over(&self) -> bool {
        self.at == At::Over
    }

    /// Errors: no chunks, or bytes behind the last one.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let [first, rest @ ..] = bytes {
            if self.at == At::Data {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                bytes = &bytes[taken..];
                if self.left == 0 {
                    self.at = At::DataEnd;
                }
                continue;
            }
            self.at = self.next(*first)?;
            bytes = rest;
        }
        Ok(())
    }

    fn next(&mut self, byte: u8) -> io::Result<At> {
        Ok(match (self.at, byte) {
            (At::Size, b'\r' | b';') if self.digits > 0 => At::SizeEnd,
            (At::Size, digit) if self.digits < 8 => {
                let value = char::from(digit).to_digit(16).ok_or_else(wrong)?;
                (self.left, self.digits) = (self.left << 4 | value as usize, self.digits + 1);
                At::Size
            }
            (At::SizeEnd, b'\n') => {
                self.digits = 0;
                if self.left == 0 { At::Line } else { At::Data }
            }
            (At::SizeEnd, _) => At::SizeEnd,
            (At::DataEnd, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => At::Size,
            (At::Line, b'\r') => At::LastEnd,
            (At::Line | At::Trailer, b'\n') => At::Line,
            (At::Line | At::Trailer, _) => At::Trailer,
            (At::LastEnd, b'\n') => At::Over,
            _ => return Err(wrong()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_is_followed_however_it_is_cut() {
        let body = b"5;x=1\r\nhello\r\nA\r\n0123456789\r\n0\r\nt: v\r\n\r\n";
        for cut in 0..body.len() {
            let mut chunks = Chunks::default();
            chunks.pass(&body[..cut]).unwrap();
            assert!(!chunks.is_over(), "{cut}");
            chunks.pass(&body[cut..]).unwrap();
            assert!(chunks.is_over(), "{cut}");
        }
        assert!(Chunks::default().pass(b"zz\r\n").is_err());
    }

    #[test]
    fn heads_are_copied_with_one_header_more() {
        let bytes = b"POST /a HTTP/1.1\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi";
        let found = request(bytes).unwrap().unwrap();
        assert_eq!((found.head_bytes, found.body_bytes), (bytes.len() - 2, 2));
        let mut out = Vec::new();
        write_request_head(bytes, &mut out).unwrap();
        assert!(out.starts_with(b"POST /a HTTP/1.1\r\nContent-Length: 2\r\nx-request-id: "));
    }
}
