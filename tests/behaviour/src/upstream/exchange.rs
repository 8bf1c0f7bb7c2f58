//! What a script can do with a request: send bytes, wait for the proxy to leave, end the connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Asked, CaseState, MODEL};

/// What becomes of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Keep,
    /// Until no request has come for so long.
    KeepFor(Duration),
    /// With a FIN.
    Close,
    /// With a RST.
    Reset,
}

/// One request at an engine.
pub(crate) struct Exchange<'a> {
    pub(crate) engine: usize,
    /// How many requests of the check came before, at any engine.
    pub(crate) attempt: usize,
    /// How many came before on this connection.
    pub(crate) turn: usize,
    pub(super) stream: &'a TcpStream,
    pub(super) case: &'a CaseState,
}

/// The head of a chunked event stream.
pub(crate) const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
/// A small good answer.
pub(crate) const GOOD: &str = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;

impl Exchange<'_> {
    /// Sends these bytes, in one write where the kernel takes them.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let bytes = bytes.as_ref();
        self.stream.write_all(bytes)?;
        self.case.sent_bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// Answers with a status, more header lines (each with its line end) and a JSON body.
    pub(crate) fn answer(&mut self, status: u16, lines: &str, body: impl AsRef<[u8]>) -> io::Result<Then> {
        self.send(answer(status, lines, body.as_ref()))?;
        Ok(Then::Keep)
    }

    /// Answers well.
    pub(crate) fn good(&mut self) -> io::Result<Then> {
        self.answer(200, "", GOOD)
    }

    /// Sends one chunk.
    pub(crate) fn chunk(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let bytes = bytes.as_ref();
        self.send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
    }

    /// Sends the last chunk.
    pub(crate) fn end(&mut self) -> io::Result<Then> {
        self.send("0\r\n\r\n")?;
        Ok(Then::Keep)
    }

    /// Waits for the proxy to end the connection, and remembers that it did.
    pub(crate) fn wait_for_close(&mut self, within: Duration) -> io::Result<Then> {
        let deadline = Instant::now() + within;
        let mut buffer = [0; 4096];
        while Instant::now() < deadline {
            self.stream.set_read_timeout(Some(Duration::from_millis(100)))?;
            match self.stream.read(&mut buffer) {
                Ok(0) => self.case.closed.store(true, Ordering::SeqCst),
                Ok(_) => continue,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
                Err(_) => self.case.closed.store(true, Ordering::SeqCst),
            }
            break;
        }
        Ok(Then::Close)
    }

    /// Makes the kernel hold little for a proxy that does not read.
    pub(crate) fn narrow(&self) -> io::Result<()> {
        socket2::SockRef::from(self.stream).set_send_buffer_size(64 * 1024)
    }
}

/// A whole answer with its length.
pub(crate) fn answer(status: u16, lines: &str, body: &[u8]) -> Vec<u8> {
    let reason = if status < 300 { "OK" } else { "Not OK" };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n{lines}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Answers what belongs to no check: readiness, models, metrics, and anything else well.
pub(super) fn send_default(mut stream: &TcpStream, asked: &Asked) -> io::Result<()> {
    let path = asked.target().split('?').next().unwrap_or("");
    let models = format!(r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model","owned_by":"suite"}}]}}"#);
    let metrics = "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0\n";
    let body = match path {
        "/health" => "{}",
        "/v1/models" => models.as_str(),
        "/metrics" => metrics,
        _ => GOOD,
    };
    let whole = answer(200, "", body.as_bytes());
    let shown = match asked.method() {
        "HEAD" => whole.len() - body.len(),
        _ => whole.len(),
    };
    stream.write_all(whole.get(..shown).unwrap_or_default())
}
