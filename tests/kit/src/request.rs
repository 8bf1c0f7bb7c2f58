//! Request bytes, as exact as a trial needs them: the builder adds nothing but what it says.

use serde_json::Value;

/// A request being built. Starts with a request line and `Host: llmgw.test`; [`Request::bare`] starts with the line
/// alone.
#[derive(Debug, Clone)]
pub struct Request {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Request {
    #[must_use]
    pub fn new(method: &str, target: &str) -> Self {
        Self::bare(method, target, "HTTP/1.1").header("Host", "llmgw.test")
    }

    /// A request line and nothing else.
    #[must_use]
    pub fn bare(method: &str, target: &str, version: &str) -> Self {
        Self { head: format!("{method} {target} {version}\r\n").into_bytes(), body: Vec::new() }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.extend_from_slice(name.as_bytes());
        self.head.extend_from_slice(b": ");
        self.head.extend_from_slice(value.as_ref());
        self.head.extend_from_slice(b"\r\n");
        self
    }

    /// Adds a JSON body with its type and length.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Adds a body with its type and length.
    #[must_use]
    pub fn body(self, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut with = self.header("Content-Type", content_type).header("Content-Length", body.len().to_string());
        with.body = body.to_vec();
        with
    }

    /// Adds a chunked body, one chunk for each piece.
    #[must_use]
    pub fn chunked<P: AsRef<[u8]>>(self, content_type: &str, pieces: impl IntoIterator<Item = P>) -> Self {
        let mut with = self.header("Content-Type", content_type).header("Transfer-Encoding", "chunked");
        for piece in pieces {
            let piece = piece.as_ref();
            with.body.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            with.body.extend_from_slice(piece);
            with.body.extend_from_slice(b"\r\n");
        }
        with.body.extend_from_slice(b"0\r\n\r\n");
        with
    }

    /// Head and body, ready to send.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        [self.head_bytes().as_slice(), &self.body].concat()
    }

    /// The head with its empty line.
    #[must_use]
    pub fn head_bytes(&self) -> Vec<u8> {
        [self.head.as_slice(), b"\r\n"].concat()
    }

    #[must_use]
    pub fn body_bytes(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added_that_was_not_asked_for() {
        assert_eq!(Request::bare("GET", "/x", "HTTP/1.0").bytes(), b"GET /x HTTP/1.0\r\n\r\n");
        let chunked = Request::bare("POST", "/x", "HTTP/1.1").chunked("text/plain", ["ab", "c"]).bytes();
        let expect = "POST /x HTTP/1.1\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n\
                      2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&chunked), expect);
    }
}
