//! Requests as an engine reads them: heads as text, bodies without their framing. Reads loosely, since what a proxy
//! sent is to be looked at, not refused.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One request with its body.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Request line and headers, with their line ends and without the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or("")
    }

    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(move |(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub(crate) fn header<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }
}

/// Reads one request after another from a connection.
pub(super) struct Reader<'s> {
    stream: &'s TcpStream,
    received: Vec<u8>,
    /// How long to wait for the next request.
    pub(super) idle: Option<Duration>,
}

impl<'s> Reader<'s> {
    pub(super) fn new(stream: &'s TcpStream) -> Self {
        Self { stream, received: Vec::new(), idle: None }
    }

    /// The next request, or nothing when the connection ends between two.
    pub(super) fn next(&mut self) -> io::Result<Option<Asked>> {
        self.stream.set_read_timeout(self.idle)?;
        let end = loop {
            if let Some(at) = find(&self.received, b"\r\n\r\n") {
                break at;
            }
            if !self.fill()? {
                return Ok(None);
            }
            self.stream.set_read_timeout(None)?;
        };
        let head: Vec<u8> = self.received.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(head.get(..end).unwrap_or_default()).into_owned();
        let mut asked = Asked { head, body: Vec::new() };
        if asked.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let is_chunked = asked.all("transfer-encoding").any(|value| value.eq_ignore_ascii_case("chunked"));
        asked.body = match is_chunked {
            true => self.chunks()?,
            false => {
                let length = asked.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
                self.take(length)?
            }
        };
        Ok(Some(asked))
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or("").trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| io::Error::other(format!("chunk size {line:?}")))?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size)?);
            self.line()?;
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let end = loop {
            if let Some(at) = find(&self.received, b"\r\n") {
                break at;
            }
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let line: Vec<u8> = self.received.drain(..end + 2).collect();
        Ok(String::from_utf8_lossy(line.get(..end).unwrap_or_default()).into_owned())
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < count {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.received.drain(..count).collect())
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 64 * 1024];
        let read = self.stream.read(&mut buffer)?;
        self.received.extend_from_slice(buffer.get(..read).unwrap_or_default());
        Ok(read > 0)
    }
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}
