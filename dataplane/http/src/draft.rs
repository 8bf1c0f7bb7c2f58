//! Heads we send: the one place that writes framing and connection headers.
//!
//! Response drafts are filled by the gateway and finished by the writer, request drafts filled by the gateway and
//! finished by the client half. A header that is ours to decide (`Content-Length`, all hop-by-hop ones) is left out
//! when somebody tries to copy it. Changes with what we say about framing. Never does I/O.

use crate::name::is_ours;

/// A response head without its framing.
#[derive(Debug)]
pub struct ResponseDraft {
    pub(crate) bytes: Vec<u8>,
    pub(crate) status: u16,
}

/// How a response says where its body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaidFraming {
    /// Nothing is said: no body, or one that ends with the connection.
    Nothing,
    Length(u64),
    Chunked,
}

impl ResponseDraft {
    /// Begins a head in a buffer that may have been used before.
    pub(crate) fn new(mut bytes: Vec<u8>, status: u16) -> Self {
        bytes.clear();
        let status = status.clamp(200, 999);
        bytes.extend_from_slice(b"HTTP/1.1 ");
        push_decimal(&mut bytes, u64::from(status));
        bytes.push(b' ');
        bytes.extend_from_slice(reason(status).as_bytes());
        bytes.extend_from_slice(b"\r\n");
        Self { bytes, status }
    }

    /// Adds a header. Control bytes in the value become spaces; a name that is ours to decide, or none at all, is
    /// left out.
    pub fn header(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        push_header(&mut self.bytes, name.as_ref(), value.as_ref());
        self
    }

    /// As [`Self::header`], for a name written in the program, which is none of those that are ours to decide.
    pub fn known(&mut self, name: &'static str, value: impl AsRef<[u8]>) -> &mut Self {
        push_known(&mut self.bytes, name, value.as_ref());
        self
    }

    /// As [`Self::known`], for a number and its unit, which is written in the program, too.
    pub fn number(&mut self, name: &'static str, number: u64, unit: &'static str) -> &mut Self {
        debug_assert!(is_name(name.as_bytes()) && !is_ours(name.as_bytes()), "{name}");
        push_line(&mut self.bytes, name.as_bytes(), b"");
        push_decimal(&mut self.bytes, number);
        self.bytes.extend_from_slice(unit.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Adds a header that came in a parsed head and may travel ([`crate::head::ResponseHead::end_to_end`]): nothing of
    /// it is looked at again.
    pub fn copy(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        push_line(&mut self.bytes, name, value);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Adds the framing and connection headers and the empty line.
    pub(crate) fn end(mut self, framing: SaidFraming, closes: bool) -> Vec<u8> {
        match framing {
            SaidFraming::Nothing => {}
            SaidFraming::Length(len) => push_length(&mut self.bytes, len),
            SaidFraming::Chunked => self.bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        if closes {
            self.bytes.extend_from_slice(b"Connection: close\r\n");
        }
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }

    /// A status that never has a body.
    pub(crate) fn is_bodiless(&self) -> bool {
        matches!(self.status, 204 | 304)
    }
}

/// A request head without its framing.
#[derive(Debug)]
pub struct RequestDraft {
    pub(crate) bytes: Vec<u8>,
    has_body_by_method: bool,
}

impl RequestDraft {
    /// Begins a head in a buffer that may have been used before. `method`, `path` and `host` are ours or were parsed,
    /// so they hold no space and no control byte.
    pub fn new(mut bytes: Vec<u8>, method: &[u8], path: &[u8], host: &[u8]) -> Self {
        bytes.clear();
        bytes.extend_from_slice(method);
        bytes.push(b' ');
        bytes.extend_from_slice(path);
        bytes.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        bytes.extend_from_slice(host);
        bytes.extend_from_slice(b"\r\n");
        Self { bytes, has_body_by_method: matches!(method, b"POST" | b"PUT" | b"PATCH") }
    }

    /// As [`ResponseDraft::header`]; `Host` and `Expect` are ours here too.
    pub fn header(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let name = name.as_ref();
        if !name.eq_ignore_ascii_case(b"host") && !name.eq_ignore_ascii_case(b"expect") {
            push_header(&mut self.bytes, name, value.as_ref());
        }
        self
    }

    /// As [`Self::header`], for a name written in the program, which is none of those that are ours to decide.
    pub fn known(&mut self, name: &'static str, value: impl AsRef<[u8]>) -> &mut Self {
        push_known(&mut self.bytes, name, value.as_ref());
        self
    }

    /// Adds a header that came in a parsed head and may travel ([`crate::head::RequestHead::end_to_end`]), but for
    /// `Host` and `Expect`: nothing of it is looked at again.
    pub fn copy(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        push_line(&mut self.bytes, name, value);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Adds the length and the empty line.
    pub(crate) fn end(mut self, body_bytes: u64) -> Vec<u8> {
        if body_bytes > 0 || self.has_body_by_method {
            push_length(&mut self.bytes, body_bytes);
        }
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }
}

fn push_header(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if is_name(name) && !is_ours(name) {
        push_checked(bytes, name, value);
    }
}

fn push_known(bytes: &mut Vec<u8>, name: &'static str, value: &[u8]) {
    debug_assert!(is_name(name.as_bytes()) && !is_ours(name.as_bytes()), "{name}");
    push_checked(bytes, name.as_bytes(), value);
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| byte.is_ascii_graphic() && byte != b':')
}

/// Adds a header of that name; control bytes in its value become spaces.
fn push_checked(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let start = push_line(bytes, name, value);
    if bytes.get(start..).is_some_and(|value| value.iter().any(|&byte| is_control(byte))) {
        bytes.iter_mut().skip(start).filter(|byte| is_control(**byte)).for_each(|byte| *byte = b' ');
    }
    bytes.extend_from_slice(b"\r\n");
}

fn is_control(byte: u8) -> bool {
    matches!(byte, 0..=8 | 10..=31 | 127)
}

/// Room for what stands in a line beside its name and value, and for a number behind it.
const LINE_SPARE: usize = 32;

/// Adds a header without its line end. Answer: where its value begins.
fn push_line(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize {
    bytes.reserve(name.len() + value.len() + LINE_SPARE);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(b": ");
    bytes.extend_from_slice(value);
    bytes.len() - value.len()
}

fn push_length(bytes: &mut Vec<u8>, len: u64) {
    bytes.extend_from_slice(b"Content-Length: ");
    push_decimal(bytes, len);
    bytes.extend_from_slice(b"\r\n");
}

fn push_decimal(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Standard reason phrase; empty for a status without one.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        424 => "Failed Dependency",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_number_is_written_with_its_unit_behind_it() {
        let mut draft = ResponseDraft::new(Vec::new(), 200);
        draft.number("x-left", u64::MAX, "").number("x-reset", 0, "s").number("x-more", 1_234_567, "");
        let want = "HTTP/1.1 200 OK\r\nx-left: 18446744073709551615\r\nx-reset: 0s\r\nx-more: 1234567\r\n\r\n";
        assert_eq!(text(draft.end(SaidFraming::Nothing, false)), want);
    }

    #[test]
    fn framing_is_said_once_whatever_is_copied() {
        let mut draft = ResponseDraft::new(b"old".to_vec(), 200);
        draft.header("Content-Type", "text/plain").header("Content-Length", "9").header("Transfer-Encoding", "chunked");
        draft.header("Connection", "keep-alive").header("Keep-Alive", "5");
        let head = text(draft.end(SaidFraming::Length(3), true));
        let want = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";
        assert_eq!(head, want);
        let head = text(ResponseDraft::new(Vec::new(), 599).end(SaidFraming::Chunked, false));
        assert_eq!(head, "HTTP/1.1 599 \r\nTransfer-Encoding: chunked\r\n\r\n");
    }

    #[test]
    fn a_value_cannot_begin_another_header() {
        let mut draft = ResponseDraft::new(Vec::new(), 204);
        draft.header("x", b"a\r\nSet-Cookie: b\0\tc").header("y: z\r\nw", "v").header("", "v");
        let head = text(draft.end(SaidFraming::Nothing, false));
        assert_eq!(head, "HTTP/1.1 204 No Content\r\nx: a  Set-Cookie: b \tc\r\n\r\n");
    }

    #[test]
    fn a_request_has_one_host_and_one_length() {
        let mut draft = RequestDraft::new(Vec::new(), b"POST", b"/v1?x", b"engine:1");
        draft.header("host", "evil").header("Expect", "100-continue").header("te", "x").header("a", "b");
        let head = text(draft.end(0));
        assert_eq!(head, "POST /v1?x HTTP/1.1\r\nHost: engine:1\r\na: b\r\nContent-Length: 0\r\n\r\n");
        let head = text(RequestDraft::new(Vec::new(), b"GET", b"/", b"e").end(0));
        assert_eq!(head, "GET / HTTP/1.1\r\nHost: e\r\n\r\n");
    }
}
