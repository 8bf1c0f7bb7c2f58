//! Writing a reply: framing, compression, and the faults that concern bytes and their order.
//!
//! Called by everything that answers. What to say is decided elsewhere; how it goes over the wire, and where it breaks
//! off, is decided here.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;

use crate::config::Vocabulary;
use crate::date;
use crate::faults::{Faults, Framing, Gzip};
use crate::head;
use crate::record::Outcome;
use crate::shared::Shared;

/// Why a reply ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The client is gone.
    ClientGone,
    /// A fault says so.
    Cut,
}

pub(crate) type Written = Result<(), Stop>;

/// Header fields of a reply.
pub(crate) type Fields<'a> = &'a [(&'a str, &'a str)];

/// What a reply has to know about its request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) seq: u64,
    pub(crate) is_head: bool,
    pub(crate) is_http_10: bool,
    pub(crate) keeps_alive: bool,
    pub(crate) accepts_gzip: bool,
    /// Echoed as `x-request-id`.
    pub(crate) request_id: Option<String>,
}

struct Held {
    status: u16,
    content_type: String,
    body: Vec<u8>,
}

/// One reply on a connection.
pub(crate) struct Reply<'a, 'b> {
    wr: &'a mut WriteHalf<'b>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) faults: Faults,
    pub(crate) asked: Asked,
    framing: Framing,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// A stream that is to have a length: held until its end.
    held: Option<Held>,
    /// Bytes not yet handed to the system.
    out: Vec<u8>,
    written: u64,
    body_left: Option<u64>,
    events: u32,
    keeps_alive: bool,
    has_begun: bool,
    /// Bytes of the body that are still to come, where its length is known.
    length_left: Option<u64>,
    end: EndState,
}

/// How far the end of a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndState {
    Coming,
    /// Recorded as complete; its last bytes are being written.
    Recorded,
    Written,
}

impl<'a, 'b> Reply<'a, 'b> {
    pub(crate) fn new(wr: &'a mut WriteHalf<'b>, shared: Arc<Shared>, asked: Asked) -> Reply<'a, 'b> {
        Reply {
            wr,
            shared,
            faults: Faults::default(),
            framing: Framing::Length,
            gzip: None,
            held: None,
            out: Vec::new(),
            written: 0,
            body_left: None,
            events: 0,
            keeps_alive: asked.keeps_alive,
            has_begun: false,
            length_left: None,
            end: EndState::Coming,
            asked,
        }
    }

    /// Whether the end of the reply has been recorded, and whether it has been written.
    pub(crate) fn has_ended(&self) -> (bool, bool) {
        (self.end != EndState::Coming, self.end == EndState::Written)
    }

    /// Whether the connection may carry another request after this reply.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.keeps_alive && self.faults.close_after_reply != Some(true)
    }

    /// A whole reply with a body of known length.
    pub(crate) async fn whole(&mut self, status: u16, content_type: &str, fields: Fields<'_>, body: &[u8]) -> Written {
        let framing = self.faults.framing.unwrap_or(Framing::Length);
        let packed;
        let mut body = body;
        let gzip = self.wants_gzip() && !body.is_empty();
        if gzip {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            // Writing to a vector does not fail.
            let _ = encoder.write_all(body);
            packed = encoder.finish().unwrap_or_default();
            body = &packed;
        }
        let no_body = self.asked.is_head || status == 204 || status == 304;
        self.head(status, content_type, fields, framing, Some(body.len() as u64), gzip).await?;
        if no_body {
            return self.last_flush().await;
        }
        if !body.is_empty() {
            self.piece(body).await?;
        }
        self.end().await
    }

    /// Begins a reply of unknown length.
    pub(crate) async fn begin(&mut self, status: u16, content_type: &str, fields: Fields<'_>) -> Written {
        let usual = if self.faults.content_length.is_some() { Framing::Length } else { Framing::Chunked };
        let framing = self.faults.framing.unwrap_or(usual);
        if framing == Framing::Length && self.faults.content_length.is_none() {
            self.held = Some(Held { status, content_type: content_type.to_owned(), body: Vec::new() });
            return Ok(());
        }
        let gzip = self.wants_gzip();
        self.head(status, content_type, fields, framing, None, gzip).await?;
        if gzip {
            self.gzip = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        }
        self.flush().await
    }

    /// Begins a reply whose body will have `length` bytes.
    pub(crate) async fn sized(&mut self, status: u16, content_type: &str, fields: Fields<'_>, length: u64) -> Written {
        let framing = self.faults.framing.unwrap_or(Framing::Length);
        self.head(status, content_type, fields, framing, Some(length), false).await?;
        self.flush().await
    }

    /// One piece of the body: an event, a piece of a script.
    pub(crate) async fn piece(&mut self, bytes: &[u8]) -> Written {
        if self.asked.is_head {
            return Ok(());
        }
        if let Some(held) = &mut self.held {
            held.body.extend_from_slice(bytes);
            return Ok(());
        }
        match &mut self.gzip {
            Some(encoder) => {
                let _ = encoder.write_all(bytes).and_then(|()| encoder.flush());
                let packed = std::mem::take(encoder.get_mut());
                self.frame(&packed).await?;
            }
            None => self.frame(bytes).await?,
        }
        self.flush().await?;
        self.events += 1;
        if self.faults.close_after_events == Some(self.events) {
            return Err(Stop::Cut);
        }
        if self.faults.stall_after_events == Some(self.events) {
            self.stall(self.faults.stall_us).await;
        }
        Ok(())
    }

    /// Ends a reply.
    pub(crate) async fn end(&mut self) -> Written {
        if let Some(Held { status, content_type, body }) = self.held.take() {
            return Box::pin(self.whole(status, &content_type, &[], &body)).await;
        }
        if let Some(encoder) = self.gzip.take() {
            let rest = encoder.finish().unwrap_or_default();
            self.frame(&rest).await?;
        }
        if matches!(self.framing, Framing::Chunked | Framing::ChunkedBytes) && !self.asked.is_head {
            self.out.extend_from_slice(b"0\r\n");
            for (name, value) in self.faults.trailers.iter().flatten() {
                self.out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            self.out.extend_from_slice(b"\r\n");
        }
        self.last_flush().await
    }

    /// Waits for `us` microseconds, if there are any.
    pub(crate) async fn wait(&self, us: u64) {
        if us > 0 {
            tokio::time::sleep(Duration::from_micros(us)).await;
        }
    }

    /// Waits for `us` microseconds or the next release; for the release alone without a time.
    pub(crate) async fn stall(&self, us: Option<u64>) {
        match us {
            Some(us) => tokio::select! {
                () = tokio::time::sleep(Duration::from_micros(us)) => {}
                () = self.shared.released() => {}
            },
            None => self.shared.released().await,
        }
    }

    /// Writes `bytes` as they are, without head or framing; counts them as body.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> Written {
        if !self.has_begun {
            self.framing = Framing::Raw;
            self.keeps_alive = false;
            self.mark_begun(None);
        }
        self.piece(bytes).await
    }

    fn wants_gzip(&self) -> bool {
        match self.faults.gzip {
            Some(Gzip::Forced) => true,
            Some(Gzip::Accepted) => self.asked.accepts_gzip,
            None => false,
        }
    }

    fn mark_begun(&mut self, status: Option<u16>) {
        self.has_begun = true;
        self.body_left = self.faults.close_after_bytes;
        let now = self.shared.now_ns();
        self.shared.with_record(self.asked.seq, |received| {
            received.first_byte_at_ns = Some(now);
            received.status = status;
        });
    }

    async fn head(
        &mut self,
        status: u16,
        content_type: &str,
        fields: Fields<'_>,
        framing: Framing,
        length: Option<u64>,
        gzip: bool,
    ) -> Written {
        let length = self.faults.content_length.or(length);
        self.framing = match (framing, length) {
            // A client of HTTP/1.0 knows no chunks.
            (Framing::Chunked | Framing::ChunkedBytes, _) if self.asked.is_http_10 => Framing::Close,
            (Framing::Length, None) | (Framing::Raw, _) => Framing::Close,
            (framing, _) => framing,
        };
        let lied = self.faults.content_length.is_some();
        let must_close = self.framing == Framing::Close || self.faults.connection_close == Some(true) || lied;
        self.keeps_alive &= !must_close;

        let date = date::http(self.shared.unix_s());
        if self.framing == Framing::Length && !lied {
            self.length_left = length;
        }
        let length = length.unwrap_or_default().to_string();
        let content_type = self.faults.content_type.as_deref().unwrap_or(content_type);
        let mut own: Vec<(&str, &str)> = vec![("date", &date), ("server", self.server_name())];
        own.extend_from_slice(fields);
        match self.framing {
            Framing::Length => own.push(("content-length", &length)),
            Framing::Close if lied => own.push(("content-length", &length)),
            _ => {}
        }
        if !content_type.is_empty() {
            own.push(("content-type", content_type));
        }
        if gzip {
            own.push(("content-encoding", "gzip"));
        }
        let request_id = self.asked.request_id.clone();
        if let Some(id) = &request_id {
            own.push(("x-request-id", id));
        }
        if matches!(self.framing, Framing::Chunked | Framing::ChunkedBytes) {
            own.push(("transfer-encoding", "chunked"));
        }
        // A length that lies says nothing about the connection, unless it was asked for.
        if self.faults.connection_close == Some(true) || !self.keeps_alive && !lied {
            own.push(("connection", "close"));
        }
        head::write(&mut self.out, status, &own, self.faults.headers.as_deref().unwrap_or_default());
        self.mark_begun(Some(status));
        if self.faults.stall_after_events == Some(0) {
            self.flush().await?;
            self.stall(self.faults.stall_us).await;
        }
        if self.faults.close_after_bytes == Some(0) || self.faults.close_after_events == Some(0) {
            self.flush().await?;
            return Err(Stop::Cut);
        }
        Ok(())
    }

    /// Puts bytes of the body in their frame, up to the point where a fault ends it.
    async fn frame(&mut self, bytes: &[u8]) -> Written {
        let mut bytes = bytes;
        let mut is_cut = false;
        if let Some(left) = &mut self.body_left {
            let take = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= take as u64;
            is_cut = *left == 0;
            // A chunk says its whole length even where the bytes end early, as a dying engine's does.
            if is_cut && take < bytes.len() && self.framing == Framing::Chunked {
                let size = format!("{:x}{}\r\n", bytes.len(), self.extension());
                self.out.extend_from_slice(size.as_bytes());
                self.out.extend_from_slice(&bytes[..take]);
                self.flush().await?;
                return Err(Stop::Cut);
            }
            bytes = &bytes[..take];
        }
        match self.framing {
            Framing::Chunked if !bytes.is_empty() => {
                let size = format!("{:x}{}\r\n", bytes.len(), self.extension());
                self.out.extend_from_slice(size.as_bytes());
                self.out.extend_from_slice(bytes);
                self.out.extend_from_slice(b"\r\n");
            }
            Framing::ChunkedBytes => {
                for byte in bytes {
                    let size = format!("1{}\r\n", self.extension());
                    self.out.extend_from_slice(size.as_bytes());
                    self.out.push(*byte);
                    self.out.extend_from_slice(b"\r\n");
                    self.flush().await?;
                }
            }
            _ => self.out.extend_from_slice(bytes),
        }
        if is_cut {
            self.flush().await?;
            return Err(Stop::Cut);
        }
        if let Some(left) = &mut self.length_left {
            *left = left.saturating_sub(bytes.len() as u64);
            if *left == 0 {
                self.record_complete();
            }
        }
        Ok(())
    }

    /// Records the end before its last bytes go out: who has read the reply then finds it in the recording.
    fn record_complete(&mut self) {
        if self.end == EndState::Coming {
            self.end = EndState::Recorded;
            self.shared.record_end(self.asked.seq, Outcome::Complete, false);
        }
    }

    async fn last_flush(&mut self) -> Written {
        self.record_complete();
        self.flush().await?;
        self.end = EndState::Written;
        Ok(())
    }

    fn server_name(&self) -> &'static str {
        match self.shared.lock().cfg.vocabulary {
            Vocabulary::Vllm | Vocabulary::Sglang => "uvicorn",
            Vocabulary::Llamacpp => "llama.cpp",
        }
    }

    fn extension(&self) -> &str {
        self.faults.chunk_extension.as_deref().unwrap_or_default()
    }

    async fn flush(&mut self) -> Written {
        if self.out.is_empty() {
            return Ok(());
        }
        self.written += self.out.len() as u64;
        let written = self.written;
        self.shared.with_record(self.asked.seq, |received| received.bytes_written = written);
        let result = self.wr.write_all(&self.out).await;
        self.out.clear();
        result.map_err(|_| Stop::ClientGone)
    }
}
