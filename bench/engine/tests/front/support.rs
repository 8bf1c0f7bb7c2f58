//! A plain client over blocking sockets that sees every byte, and conditions to wait for.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use llmgw_engine_sim::{Engine, EngineConfig, Faults, Handle};
use serde_json::Value;

/// Far beyond what anything here takes: reaching it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn start(cfg: EngineConfig) -> Handle {
    Engine::start(cfg, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
}

/// An engine without delays that serves `tiny`.
pub(crate) fn immediate() -> Handle {
    start(config())
}

pub(crate) fn config() -> EngineConfig {
    EngineConfig { models: vec!["tiny".to_owned(), "tiny-alias".to_owned()], ..EngineConfig::immediate() }
}

/// An engine with these faults.
pub(crate) fn faulty(faults: &str) -> Handle {
    start(EngineConfig { faults: parse(faults), ..config() })
}

pub(crate) fn parse(faults: &str) -> Faults {
    Faults::default().overlaid(faults).unwrap()
}

pub(crate) fn chat(stream: bool) -> String {
    format!(r#"{{"model":"tiny","stream":{stream},"max_tokens":5,"messages":[{{"role":"user","content":"hello"}}]}}"#)
}

/// Waits until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::yield_now();
    }
}

/// How the engine's side of a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Closed,
    Reset,
}

/// A reply as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The chunks of a chunked body; one element otherwise.
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) trailers: Vec<String>,
}

impl Reply {
    pub(crate) fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body()).unwrap_or_else(|cause| panic!("{cause}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The JSON events of a stream, without `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text();
        let events = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        events.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// The text of a chat stream's choice.
    pub(crate) fn said(&self, choice: u64) -> String {
        let events = self.events();
        let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
        choices.filter(|own| own["index"] == choice).filter_map(|own| own["delta"]["content"].as_str()).collect()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    fields.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(engine: &Handle) -> Client {
        let stream = TcpStream::connect(engine.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
        self.reply()
    }

    pub(crate) fn start_post(&mut self, path: &str, more: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: sim\r\nContent-Type: application/json\r\n{more}\
             Content-Length: {length}\r\n\r\n"
        );
        self.send(&[head.as_bytes(), body.as_bytes()].concat());
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Reply {
        self.start_post(path, "", body);
        self.reply()
    }

    pub(crate) fn chat(&mut self, body: &str) -> Reply {
        self.post("/v1/chat/completions", body)
    }

    /// A chat with faults in its header.
    pub(crate) fn chat_with(&mut self, faults: &str, stream: bool) -> Reply {
        self.start_chat_with(faults, stream);
        self.reply()
    }

    pub(crate) fn start_chat_with(&mut self, faults: &str, stream: bool) {
        self.start_post("/v1/chat/completions", &format!("X-Sim: {faults}\r\n"), &chat(stream));
    }

    /// Reads more; how it ended when there is no more.
    fn more(&mut self) -> Result<(), Ending> {
        let mut piece = [0; 65_536];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(Ending::Closed),
            Ok(len) => {
                self.buffer.extend_from_slice(&piece[..len]);
                Ok(())
            }
            Err(cause) if cause.kind() == ErrorKind::ConnectionReset => Err(Ending::Reset),
            Err(cause) => panic!("no answer: {cause}"),
        }
    }

    /// Everything until the engine ends the connection.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Ending) {
        loop {
            if let Err(ending) = self.more() {
                return (std::mem::take(&mut self.buffer), ending);
            }
        }
    }

    /// Reads until `bytes` have arrived and are in front; takes them and what is before them.
    pub(crate) fn take_through(&mut self, bytes: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.buffer.windows(bytes.len()).position(|window| window == bytes) {
                return self.buffer.drain(..at + bytes.len()).collect();
            }
            self.more().unwrap_or_else(|ending| panic!("{ending:?} before {bytes:?}: {:?}", self.buffer));
        }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len {
            self.more().unwrap_or_else(|ending| panic!("{ending:?} after {} of {len} bytes", self.buffer.len()));
        }
        self.buffer.drain(..len).collect()
    }

    pub(crate) fn head(&mut self) -> String {
        String::from_utf8(self.take_through(b"\r\n\r\n")).unwrap()
    }

    /// A whole reply.
    pub(crate) fn reply(&mut self) -> Reply {
        let head = self.head();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, chunks: Vec::new(), trailers: Vec::new() };
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                reply.chunks.push(chunk);
            }
            loop {
                let line = String::from_utf8(self.take_through(b"\r\n")).unwrap();
                if line == "\r\n" {
                    return reply;
                }
                reply.trailers.push(line.trim_end().to_owned());
            }
        }
        if let Some(length) = reply.header("content-length") {
            let length = length.parse().unwrap();
            reply.chunks.push(self.take(length));
        } else {
            reply.chunks.push(self.rest().0);
        }
        reply
    }

    /// One chunk; `None` for the last, empty one.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = String::from_utf8(self.take_through(b"\r\n")).unwrap();
        let size = usize::from_str_radix(line.trim_end().split(';').next().unwrap(), 16).unwrap();
        if size == 0 {
            return None;
        }
        let chunk = self.take(size);
        assert_eq!(self.take(2), b"\r\n");
        Some(chunk)
    }

    /// Whether the connection still serves.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.stream.write_all(b"GET /version HTTP/1.1\r\nHost: sim\r\n\r\n").is_ok() && self.more().is_ok() && {
            self.reply();
            true
        }
    }
}
