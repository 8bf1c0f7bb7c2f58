//! Reading requests: heads by httparse, bodies by length or in chunks, in any split of the bytes.
//!
//! Called by the connections. Lenient where engines are; whatever a peer sends, it errs and never panics. No I/O.

/// Head of a request, in bytes, and its headers, at most.
pub(crate) const HEAD_BYTES_MAX: usize = 1 << 20;
const HEADERS_MAX: usize = 512;

/// A request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) minor_version: u8,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a head from the start of `bytes`.
    ///
    /// Shape: the head and its length; `None` while it is incomplete. Errors: what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, String> {
        let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => {
                let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                let head = Head {
                    method: request.method.unwrap_or_default().to_owned(),
                    target: request.path.unwrap_or_default().to_owned(),
                    minor_version: request.version.unwrap_or(1),
                    headers: request.headers.iter().map(|h| (h.name.to_owned(), text(h.value))).collect(),
                };
                Ok(Some((head, len)))
            }
            Ok(httparse::Status::Partial) if bytes.len() > HEAD_BYTES_MAX => Err("the head is too long".to_owned()),
            Ok(httparse::Status::Partial) => Ok(None),
            Err(cause) => Err(cause.to_string()),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether a comma-separated header names `token`.
    pub(crate) fn lists(&self, name: &str, token: &str) -> bool {
        self.headers
            .iter()
            .filter(|(own, _)| own.eq_ignore_ascii_case(name))
            .flat_map(|(_, value)| value.split(','))
            .any(|item| item.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(token))
    }

    /// The path, without the query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The value of a query parameter, as it was sent.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').find_map(|pair| pair.split_once('=').filter(|(own, _)| *own == name)).map(|(_, value)| value)
    }

    /// Whether the client expects the connection to stay open.
    pub(crate) fn keeps_alive(&self) -> bool {
        if self.minor_version == 0 {
            self.lists("connection", "keep-alive")
        } else {
            !self.lists("connection", "close")
        }
    }

    /// How the body is laid out.
    pub(crate) fn body(&self) -> Result<BodyReader, String> {
        if self.header("transfer-encoding").is_some() {
            if self.lists("transfer-encoding", "chunked") {
                return Ok(BodyReader::Chunked(Chunk::Size(Vec::new())));
            }
            return Err("unknown transfer encoding".to_owned());
        }
        match self.header("content-length") {
            None => Ok(BodyReader::Length(0)),
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().map(BodyReader::Length).map_err(|_| "bad content length".to_owned())
            }
            Some(_) => Err("bad content length".to_owned()),
        }
    }
}

/// Where in a chunked body the reader is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In a size line; its bytes so far.
    Size(Vec<u8>),
    Data(u64),
    /// In the line end after the data; bytes of it seen.
    DataEnd(u8),
    /// In the trailers; bytes of the present line.
    Trailer(usize),
    Done,
}

/// Takes a body out of a byte stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BodyReader {
    Length(u64),
    Chunked(Chunk),
}

impl BodyReader {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, BodyReader::Length(0) | BodyReader::Chunked(Chunk::Done))
    }

    /// Reads on in `bytes`, hands each piece of the body to `sink`, and says how many bytes were used.
    ///
    /// Errors: what is wrong with the framing.
    pub(crate) fn read(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> Result<usize, String> {
        let mut used = 0;
        while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
            match self {
                BodyReader::Length(0) | BodyReader::Chunked(Chunk::Done) => break,
                BodyReader::Length(left) | BodyReader::Chunked(Chunk::Data(left)) if *left > 0 => {
                    let part = &rest[..rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
                    sink(part);
                    *left -= part.len() as u64;
                    used += part.len();
                }
                BodyReader::Length(_) => break,
                BodyReader::Chunked(state) => {
                    step(state, rest[0])?;
                    // The state after the last data byte takes no byte of its own.
                    used += 1;
                }
            }
            if let BodyReader::Chunked(state @ Chunk::Data(0)) = self {
                *state = Chunk::DataEnd(0);
            }
        }
        Ok(used)
    }
}

/// Takes one byte of the framing around the data.
fn step(state: &mut Chunk, byte: u8) -> Result<(), String> {
    const SIZE_LINE_BYTES_MAX: usize = 64 << 10;
    match state {
        Chunk::Size(line) if byte == b'\n' => {
            let text = String::from_utf8_lossy(line);
            let digits = text.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
            *state = match size {
                None => return Err("bad chunk size".to_owned()),
                Some(0) => Chunk::Trailer(0),
                Some(size) => Chunk::Data(size),
            };
        }
        Chunk::Size(line) => {
            if line.len() >= SIZE_LINE_BYTES_MAX {
                return Err("chunk size line is too long".to_owned());
            }
            line.push(byte);
        }
        Chunk::DataEnd(0) if byte == b'\r' => *state = Chunk::DataEnd(1),
        Chunk::DataEnd(_) if byte == b'\n' => *state = Chunk::Size(Vec::new()),
        Chunk::DataEnd(_) => return Err("no line end after a chunk".to_owned()),
        Chunk::Trailer(0) if byte == b'\n' => *state = Chunk::Done,
        Chunk::Trailer(_) if byte == b'\n' => *state = Chunk::Trailer(0),
        Chunk::Trailer(len) => {
            if *len > HEAD_BYTES_MAX {
                return Err("trailers are too long".to_owned());
            }
            *len += usize::from(byte != b'\r');
        }
        Chunk::Data(_) | Chunk::Done => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(reader: &mut BodyReader, parts: &[&[u8]]) -> Result<(Vec<u8>, usize), String> {
        let (mut body, mut used) = (Vec::new(), 0);
        for part in parts {
            used += reader.read(part, |bytes| body.extend_from_slice(bytes))?;
        }
        Ok((body, used))
    }

    #[test]
    fn a_head_is_read_with_its_headers_as_they_came() {
        let text = b"POST /v1/x?a=1&body=none HTTP/1.1\r\nHost: h\r\nX-ODD: \xff\r\nConnection: x, Close\r\n\r\nrest";
        for cut in 0..text.len() - 4 {
            assert_eq!(Head::parse(&text[..cut]), Ok(None), "{cut}");
        }
        let (head, len) = Head::parse(text).unwrap().unwrap();
        assert_eq!(len, text.len() - 4);
        assert_eq!((head.path(), head.query("body"), head.query("b")), ("/v1/x", Some("none"), None));
        assert_eq!(head.headers[1], ("X-ODD".to_owned(), "\u{fffd}".to_owned()));
        assert!(!head.keeps_alive());
        assert!(Head::parse(b"no http at all\r\n\r\n").is_err());
    }

    #[test]
    fn bodies_end_where_their_framing_says() {
        let chunked = || BodyReader::Chunked(Chunk::Size(Vec::new()));
        for (mut reader, bytes, body, used) in [
            (BodyReader::Length(3), &b"abcdef"[..], &b"abc"[..], 3),
            (BodyReader::Length(0), b"abc", b"", 0),
            (chunked(), b"3\r\nabc\r\n0\r\n\r\nGET", b"abc", 13),
            (chunked(), b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\nU: 2\r\n\r\nGET", b"abc0123456789", 44),
        ] {
            assert_eq!(read_all(&mut reader, &[bytes]), Ok((body.to_vec(), used)));
            assert!(reader.is_done());
        }
    }

    #[test]
    fn broken_framing_is_an_error() {
        for bytes in [&b"x\r\n"[..], b"\r\n", b"+3\r\n", b"-1\r\n", b"3\r\nabcX", b"fffffffffffffffff\r\n"] {
            let mut reader = BodyReader::Chunked(Chunk::Size(Vec::new()));
            assert!(read_all(&mut reader, &[bytes]).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    proptest! {
        #[test]
        fn any_split_of_a_chunked_body_gives_the_same(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in proptest::collection::vec(0usize..400, 0..12),
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend_from_slice(format!("{:x};e=1\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let mut reader = BodyReader::Chunked(Chunk::Size(Vec::new()));
            prop_assert_eq!(read_all(&mut reader, &parts), Ok((chunks.concat(), bytes.len())));
            prop_assert!(reader.is_done());
        }

        #[test]
        fn no_bytes_make_the_readers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Head::parse(&bytes);
            let _ = read_all(&mut BodyReader::Chunked(Chunk::Size(Vec::new())), &[&bytes]);
        }
    }
}
