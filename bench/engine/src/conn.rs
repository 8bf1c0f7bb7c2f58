//! One connection: requests in, replies out, and an eye on the client all the while.
//!
//! Reads ahead while a reply is being written: that is how a client that left is noticed at once, and how pipelined
//! requests are taken.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;

use crate::answer::{self, Request};
use crate::record::{Outcome, Received};
use crate::reply::{Asked, Reply, Stop, Written};
use crate::shared::{Shared, UNRECORDED};
use crate::wire::{BodyReader, Head};

/// Bytes read ahead while a request is being answered; beyond, the client is no longer watched.
const READ_AHEAD_BYTES_MAX: usize = 256 << 10;
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Counts a connection for as long as it lives.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.lock().open_connections -= 1;
    }
}

/// What comes after a request.
enum Next {
    Another,
    Close,
    Reset,
}

pub(crate) async fn serve(shared: Arc<Shared>, mut stream: TcpStream) {
    let connection = {
        let mut state = shared.lock();
        state.open_connections += 1;
        state.accepted_connections += 1;
        state.accepted_connections
    };
    let _counted = Counted(shared.clone());
    // Without it small writes wait for each other; a stream of tokens would come in bursts.
    let _ = stream.set_nodelay(true);
    let mut inbuf = Vec::new();
    // As uvicorn: the idle limit counts from the first reply on.
    let mut idle_us = 0;
    loop {
        let Some(head) = next_head(&mut stream, &mut inbuf, idle_us).await else { return };
        let mut own_idle_us = None;
        match exchange(&shared, &mut stream, &mut inbuf, head, connection, &mut own_idle_us).await {
            Next::Another => idle_us = own_idle_us.unwrap_or_else(|| idle_limit_us(&shared)),
            Next::Close => {
                let _ = stream.shutdown().await;
                return;
            }
            Next::Reset => {
                let _ = stream.set_zero_linger();
                return;
            }
        }
    }
}

fn idle_limit_us(shared: &Shared) -> u64 {
    let state = shared.lock();
    state.cfg.faults.idle_close_us.unwrap_or(state.cfg.keep_alive_ms * 1_000)
}

/// Reads the next head; `None` when the client is done or idle for too long, or what it says is no HTTP.
async fn next_head(stream: &mut TcpStream, inbuf: &mut Vec<u8>, idle_us: u64) -> Option<Head> {
    loop {
        match Head::parse(inbuf) {
            Ok(Some((head, len))) => {
                inbuf.drain(..len);
                return Some(head);
            }
            Ok(None) => {}
            Err(_) => {
                let text = "Invalid HTTP request received.";
                let reply = format!(
                    "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
                     connection: close\r\n\r\n{text}",
                    text.len()
                );
                let _ = stream.write_all(reply.as_bytes()).await;
                let _ = stream.shutdown().await;
                return None;
            }
        }
        let read = read_more(stream, inbuf);
        let got = if idle_us == 0 {
            read.await
        } else {
            tokio::time::timeout(Duration::from_micros(idle_us), read).await.unwrap_or(0)
        };
        if got == 0 {
            return None;
        }
    }
}

/// Reads what is there; 0 when the client is gone.
async fn read_more(rd: &mut (impl AsyncReadExt + Unpin), inbuf: &mut Vec<u8>) -> usize {
    inbuf.reserve(READ_BYTES.min(inbuf.capacity().max(4 << 10)));
    rd.read_buf(inbuf).await.unwrap_or(0)
}

/// One request and its reply.
async fn exchange(
    shared: &Arc<Shared>,
    stream: &mut TcpStream,
    inbuf: &mut Vec<u8>,
    head: Head,
    connection: u64,
    idle_us: &mut Option<u64>,
) -> Next {
    let mut seq = UNRECORDED;
    if !head.path().starts_with("/sim/") {
        seq = record_head(shared, &head, connection);
    }
    let ended = |outcome| shared.record_end(seq, outcome, false);
    let (mut rd, mut wr) = stream.split();
    let request_id = head.header("x-request-id").map(str::to_owned);
    let request_id = if shared.lock().cfg.request_id_headers { request_id } else { None };
    let asked = Asked {
        seq,
        is_head: head.method == "HEAD",
        is_http_10: head.minor_version == 0,
        keeps_alive: head.keeps_alive(),
        accepts_gzip: head.lists("accept-encoding", "gzip"),
        request_id,
    };
    // A body that will be refused is not asked for.
    let too_long = matches!(head.body(), Ok(BodyReader::Length(length)) if length > body_bytes_max(shared));
    if !too_long
        && head.lists("expect", "100-continue")
        && wr.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err()
    {
        ended(Outcome::ClientClosed);
        return Next::Close;
    }
    let mut reply = Reply::new(&mut wr, shared.clone(), asked);
    let body = match read_body(shared, &mut rd, inbuf, &head, seq).await {
        Ok(body) => body,
        Err(BodyError::Gone) => {
            ended(Outcome::ClientClosed);
            return Next::Close;
        }
        Err(BodyError::Bad(status, cause)) => {
            reply.faults.connection_close = Some(true);
            let sent = reply.whole(status, "text/plain; charset=utf-8", &[], cause.as_bytes()).await;
            return finish(shared, &reply, sent);
        }
    };
    let request = Request { head, body: body.held, total: body.total };
    let result = tokio::select! {
        biased;
        () = client_gone(&mut rd, inbuf) => Err(Stop::ClientGone),
        result = answer::answer(&request, &mut reply) => result,
    };
    *idle_us = reply.faults.idle_close_us;
    finish(shared, &reply, result)
}

/// Records how a reply ended and says what becomes of the connection.
fn finish(shared: &Shared, reply: &Reply<'_, '_>, result: Written) -> Next {
    let (is_recorded, is_written) = reply.has_ended();
    let (outcome, next) = match result {
        // The client may leave as soon as it has everything.
        Ok(()) | Err(Stop::ClientGone) if is_written => {
            (Outcome::Complete, if reply.keeps_alive() { Next::Another } else { Next::Close })
        }
        Ok(()) => (Outcome::Complete, Next::Close),
        Err(Stop::ClientGone) => (Outcome::ClientClosed, Next::Close),
        Err(Stop::Cut) => (Outcome::Cut, if reply.faults.reset == Some(true) { Next::Reset } else { Next::Close }),
    };
    if !is_recorded || outcome != Outcome::Complete {
        shared.record_end(reply.asked.seq, outcome, is_recorded);
    }
    next
}

fn body_bytes_max(shared: &Shared) -> u64 {
    shared.lock().cfg.body_bytes_max as u64
}

/// Comes back when the client has closed or reset its side; until then keeps what it sends for later.
async fn client_gone(rd: &mut ReadHalf<'_>, inbuf: &mut Vec<u8>) {
    while inbuf.len() < READ_AHEAD_BYTES_MAX {
        if read_more(rd, inbuf).await == 0 {
            return;
        }
    }
    std::future::pending().await
}

fn record_head(shared: &Shared, head: &Head, connection: u64) -> u64 {
    let received = Received {
        seq: 0,
        connection,
        method: head.method.clone(),
        target: head.target.clone(),
        minor_version: head.minor_version,
        headers: head.headers.clone(),
        body_bytes: 0,
        body_crc32: 0,
        body: Vec::new(),
        received_at_ns: shared.now_ns(),
        first_byte_at_ns: None,
        ended_at_ns: None,
        client_closed_at_ns: None,
        status: None,
        bytes_written: 0,
        outcome: Outcome::Open,
    };
    let mut state = shared.lock();
    state.open_requests += 1;
    state.received_requests += 1;
    let requests_max = state.cfg.recorded_requests_max;
    state.recording.add(received, requests_max)
}

struct Body {
    /// The body, or its beginning if it is longer than what is held.
    held: Vec<u8>,
    total: u64,
}

enum BodyError {
    Gone,
    Bad(u16, String),
}

async fn read_body(
    shared: &Shared,
    rd: &mut ReadHalf<'_>,
    inbuf: &mut Vec<u8>,
    head: &Head,
    seq: u64,
) -> Result<Body, BodyError> {
    let (bytes_max, held_max, kept_max) = {
        let cfg = &shared.lock().cfg;
        (cfg.body_bytes_max, cfg.body_held_bytes_max, cfg.recorded_body_bytes_max)
    };
    let mut reader = head.body().map_err(|cause| BodyError::Bad(400, cause))?;
    let mut held = Vec::new();
    let mut crc = flate2::Crc::new();
    let mut total = 0u64;
    if let BodyReader::Length(length) = reader {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > bytes_max {
            return Err(BodyError::Bad(413, "the body is too long".to_owned()));
        }
        held.reserve(if length > held_max { kept_max.min(length) } else { length });
    }
    loop {
        let used = reader.read(inbuf, |bytes| {
            total += bytes.len() as u64;
            crc.update(bytes);
            let room = (if total > held_max as u64 { kept_max } else { bytes_max }).saturating_sub(held.len());
            held.extend_from_slice(&bytes[..bytes.len().min(room)]);
        });
        inbuf.drain(..used.map_err(|cause| BodyError::Bad(400, cause))?);
        if total > bytes_max as u64 {
            return Err(BodyError::Bad(413, "the body is too long".to_owned()));
        }
        if total > held_max as u64 && held.len() > kept_max {
            held.truncate(kept_max);
            held.shrink_to_fit();
        }
        if reader.is_done() {
            break;
        }
        if read_more(rd, inbuf).await == 0 {
            return Err(BodyError::Gone);
        }
    }
    if seq != UNRECORDED {
        let kept = held[..held.len().min(kept_max)].to_vec();
        shared.lock().recording.set_body(seq, total, crc.sum(), kept);
    }
    Ok(Body { held, total })
}
