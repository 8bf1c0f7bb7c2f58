//! One kept connection to one engine, for small GETs and for its metrics page. Everything is bounded: time, header,
//! body, connections (one).
//!
//! An answer is read into a buffer that the next one uses again, by the same strict rules of framing as on the cores.

use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llmgw_config::EndpointConfig;
use llmgw_engines::kind::engine;
use llmgw_http::body::{BodyDecoder, Framing};
use llmgw_http::error::Malformed;
use llmgw_http::head::{AnswerTo, ResponseHead};
use llmgw_kit::clock::Mono;
use llmgw_kit::secret::Secret;
use llmgw_types::snapshot::EngineAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls::ClientConfig;

use super::door::{Door, open};
use super::judge::{Cause, Verdict};
use crate::table::authorization;
use crate::trust;

/// What one exchange may take once connected.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// Room for one read. A page of usual size is there after two.
const READ_BYTES: usize = 64 << 10;
/// Heads before the one that counts (100 and the like).
const INTERIM_HEADS_MAX: u32 = 4;
/// Buffers kept for use again, and how large one may be for that.
const BUFFERS_MAX: usize = 8;
const BUFFER_BYTES_MAX: usize = 512 << 10;
const AGENT: &str = concat!("llmgw/", env!("CARGO_PKG_VERSION"));

/// An answer that was read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Body,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No connection, or it broke.
    Broken(String),
    /// The engine shows no certificate that we trust, or speaks no TLS.
    Untrusted(String),
    /// Nothing came in time.
    Silent(String),
    /// The body is longer than the caller wants to read; the status is there.
    TooLarge(u16),
}

impl From<Fault> for Verdict {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Broken(reason) => Self::no(Cause::Unreachable, reason),
            Fault::Untrusted(reason) => Self::no(Cause::Untrusted, reason),
            Fault::Silent(reason) => Self::no(Cause::Silent, reason),
            Fault::TooLarge(status) => Self::no(Cause::Unhealthy, format!("answered {status}, and too long")),
        }
    }
}

/// Buffers that answers are read into, shared by all clients: few are in use at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    fn take(&self) -> Buffer {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Buffer { bytes: kept.unwrap_or_default(), home: self.clone() }
    }
}

#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    home: Buffers,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut kept = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < BUFFERS_MAX && self.bytes.capacity() <= BUFFER_BYTES_MAX {
            self.bytes.clear();
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// The body of an answer, where it was read.
#[derive(Debug)]
pub(crate) struct Body {
    buffer: Buffer,
    from: usize,
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.bytes.get(self.from..).unwrap_or_default()
    }
}

struct Kept {
    stream: Box<dyn Door>,
    addr: EngineAddr,
    used_at: Mono,
}

pub(crate) struct Client {
    /// What follows the path in every request, the engine's key included.
    rest: Secret,
    connect_time: Duration,
    idle_limit: Duration,
    /// Of engines that are reached within TLS.
    tls: Option<Arc<ClientConfig>>,
    kept: Option<Kept>,
    buffers: Buffers,
    head: ResponseHead,
}

impl Client {
    pub(crate) fn new(endpoint: &EndpointConfig, connect_time: Duration, buffers: Buffers) -> Self {
        let key = authorization(endpoint).map(|value| format!("authorization: {value}\r\n")).unwrap_or_default();
        let host = &endpoint.host_header;
        let rest = format!(" HTTP/1.1\r\nhost: {host}\r\nuser-agent: {AGENT}\r\naccept: */*\r\n{key}\r\n");
        let idle_limit = engine(endpoint.engine).pool_idle_limit();
        // Authorities of no use are refused before anything is published; without them nobody is trusted.
        let tls = trust::of(endpoint).ok().flatten();
        let (kept, head) = (None, ResponseHead::default());
        Self { rest: Secret::new(rest), connect_time, idle_limit, tls, kept, buffers, head }
    }

    /// Asks. A connection that was kept and turns out to be closed is replaced once, silently.
    pub(crate) async fn get(&mut self, addr: EngineAddr, path: &str, bytes_max: usize) -> Result<Answer, Fault> {
        // Engines close what was idle for long; one that is about to be closed is not used.
        let is_fit = |kept: &Kept| kept.addr == addr && Mono::now().since(kept.used_at) < self.idle_limit;
        if let Some(kept) = self.kept.take().filter(is_fit) {
            match self.exchange(kept, path, bytes_max).await {
                Err(Fault::Broken(_)) => {}
                other => return other,
            }
        }
        let kept = self.connect(addr).await?;
        self.exchange(kept, path, bytes_max).await
    }

    async fn connect(&mut self, addr: EngineAddr) -> Result<Kept, Fault> {
        let opening = open(&addr, self.tls.as_ref());
        let stream: Box<dyn Door> = match tokio::time::timeout(self.connect_time, opening).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Err(match trust::reason(&error) {
                    Some(reason) => Fault::Untrusted(reason),
                    None => Fault::Broken(format!("no connection to {addr}: {error}")),
                });
            }
            Err(_) => return Err(Fault::Silent(format!("no connection to {addr} within {:?}", self.connect_time))),
        };
        Ok(Kept { stream, addr, used_at: Mono::now() })
    }

    async fn exchange(&mut self, mut kept: Kept, path: &str, bytes_max: usize) -> Result<Answer, Fault> {
        // What could end the line would be a request of its own.
        if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(Fault::Broken(format!("{path:?} is no path")));
        }
        let mut buffer = self.buffers.take();
        let request = [b"GET ", path.as_bytes(), self.rest.expose().as_bytes()].concat();
        let whole = async {
            kept.stream.write_all(&request).await.map_err(broken)?;
            kept.stream.flush().await.map_err(broken)?;
            read(&mut *kept.stream, &mut self.head, &mut buffer.bytes, bytes_max).await
        };
        let (from, is_reusable) = match tokio::time::timeout(ANSWER_TIME, whole).await {
            Ok(read) => read?,
            Err(_) => return Err(Fault::Silent(format!("{path} did not answer within {ANSWER_TIME:?}"))),
        };
        if is_reusable {
            kept.used_at = Mono::now();
            self.kept = Some(kept);
        }
        Ok(Answer { status: self.head.status(), body: Body { buffer, from } })
    }
}

/// Reads an answer to the end of its body. Answer: where in the buffer the body begins, which ends where the buffer
/// does, and whether the connection is good for another one.
async fn read(
    stream: &mut dyn Door,
    head: &mut ResponseHead,
    bytes: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(usize, bool), Fault> {
    let mut interim = 0;
    let from = loop {
        // Also where nothing came yet: what does not begin as an answer is refused at its first byte.
        match head.parse(bytes, AnswerTo::Other).map_err(malformed)? {
            Some(end) if head.status() >= 200 => break end,
            Some(end) if interim < INTERIM_HEADS_MAX => {
                bytes.drain(..end);
                interim += 1;
            }
            Some(_) => return Err(Fault::Broken("the connection broke: too many interim answers".to_owned())),
            None => {
                if more(stream, bytes, READ_BYTES).await? == 0 {
                    return Err(Fault::Broken("the connection broke: closed before an answer".to_owned()));
                }
            }
        }
    };
    let too_large = || Fault::TooLarge(head.status());
    let framing = head.framing();
    let wanted = match framing {
        Framing::Length(length) => usize::try_from(length).map_err(|_| too_large())?,
        Framing::None => 0,
        Framing::Chunked | Framing::Close => READ_BYTES,
    };
    if matches!(framing, Framing::Length(_)) && wanted > bytes_max {
        return Err(too_large());
    }
    let mut decoder = BodyDecoder::new(framing);
    let mut decoded = from;
    loop {
        let raw = bytes.get_mut(decoded..).unwrap_or_default();
        let raw_bytes = raw.len();
        let piece = decoder.decode(raw).map_err(malformed)?;
        let is_all = piece.consumed_bytes == raw_bytes;
        decoded += piece.payload_bytes;
        bytes.truncate(decoded);
        if decoded - from > bytes_max {
            return Err(too_large());
        }
        if piece.is_finished || decoder.is_finished() {
            return Ok((from, is_all && head.keeps_alive()));
        }
        let room = match framing {
            Framing::Length(_) => (from + wanted).saturating_sub(decoded),
            _ => READ_BYTES,
        };
        if more(stream, bytes, room).await? == 0 {
            if decoder.may_end() {
                return Ok((from, false));
            }
            return Err(Fault::Broken("the connection broke: closed within an answer".to_owned()));
        }
    }
}

/// One read into room of at least that size. Answer: the bytes that came; none at the connection's end.
async fn more(stream: &mut dyn Door, bytes: &mut Vec<u8>, room: usize) -> Result<usize, Fault> {
    bytes.reserve(room.max(1));
    stream.read_buf(bytes).await.map_err(broken)
}

fn broken(error: io::Error) -> Fault {
    Fault::Broken(format!("the connection broke: {error}"))
}

fn malformed(error: Malformed) -> Fault {
    Fault::Broken(format!("the answer is not HTTP: {}", error.0))
}
