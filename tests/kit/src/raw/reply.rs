//! Heads and whole replies, parsed loosely: a trial looks at what came, it does not police it.

use std::io;

use serde_json::Value;

use super::body::End;

/// A status line and headers as they came.
#[derive(Debug, Clone)]
pub struct Head {
    pub version: String,
    pub status: u16,
    pub reason: String,
    /// Name as sent, value without the blanks around it, in order.
    pub headers: Vec<(String, String)>,
    /// The bytes of the head with its empty line.
    pub bytes: Vec<u8>,
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
    /// By the end of the connection.
    Close,
}

impl Head {
    pub(super) fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("not a head: {text:?}"));
        let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        let mut first = lines.next().unwrap_or("").splitn(3, ' ');
        let version = first.next().filter(|version| version.starts_with("HTTP/")).ok_or_else(bad)?.to_owned();
        let status = first.next().and_then(|status| status.parse().ok()).ok_or_else(bad)?;
        let reason = first.next().unwrap_or("").to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Ok(Self { version, status, reason, headers, bytes: bytes.to_vec() })
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Every header of this name, in order.
    pub fn all<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h str> {
        self.headers.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// How the body of this reply ends, when it is not the reply to a HEAD.
    #[must_use]
    pub fn framing(&self) -> Framing {
        if self.status < 200 || self.status == 204 || self.status == 304 {
            return Framing::None;
        }
        if self.all("transfer-encoding").any(|value| value.to_ascii_lowercase().contains("chunked")) {
            return Framing::Chunked;
        }
        self.header("content-length").and_then(|value| value.parse().ok()).map_or(Framing::Close, Framing::Length)
    }
}

/// One whole reply.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub head: Head,
    /// 1xx heads that came before.
    pub interim: Vec<Head>,
    /// The body without its framing; what came of it when it was cut.
    pub body: Vec<u8>,
    pub end: End,
    pub trailers: Vec<(String, String)>,
}

impl Reply {
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; panics with the body when it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("status {}, not JSON ({error}): {}", self.status, self.text()),
        }
    }

    /// The events of a stream, each with the empty line that ends it; what follows the last one is its own entry.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let mut rest = self.body.as_slice();
        let mut events = Vec::new();
        while let Some(end) = event_end(rest) {
            let (event, after) = rest.split_at(end);
            events.push(String::from_utf8_lossy(event).into_owned());
            rest = after;
        }
        if !rest.is_empty() {
            events.push(String::from_utf8_lossy(rest).into_owned());
        }
        events
    }
}

/// Where the head ends: behind its empty line.
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    let strict = find(bytes, b"\r\n\r\n").map(|at| at + 4);
    let loose = find(bytes, b"\n\n").map(|at| at + 2);
    strict.into_iter().chain(loose).min()
}

/// Where the first event ends: behind its empty line, whichever line ends it uses.
pub(super) fn event_end(bytes: &[u8]) -> Option<usize> {
    let ends = [(&b"\n\n"[..], 2), (b"\r\n\r\n", 4), (b"\r\r", 2)];
    ends.iter().filter_map(|(mark, length)| Some(find(bytes, mark)? + length)).min()
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}
