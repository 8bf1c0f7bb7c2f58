//! The recording of what the engine received and how it ended: what tests look at.
//!
//! Written by the connections, read by `/sim/requests` and by tests in the same process. Bounded: the oldest requests
//! go when a new one comes, and bodies are kept up to a length.

use std::collections::VecDeque;

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::base64;

/// All kept bodies together, in bytes.
const KEPT_BYTES_MAX: usize = 1 << 30;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Being read or answered.
    Open,
    /// Answered to the end.
    Complete,
    /// The client was gone before the end of the answer.
    ClientClosed,
    /// A fault ended the connection.
    Cut,
}

/// One request as it arrived. Times are in nanoseconds since the engine's start.
#[derive(Debug, Clone)]
pub struct Received {
    pub seq: u64,
    pub connection: u64,
    pub method: String,
    pub target: String,
    /// 0 or 1, of HTTP/1.x.
    pub minor_version: u8,
    /// In order and in the spelling they arrived in; bytes that are no UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// Length of the whole body.
    pub body_bytes: u64,
    /// CRC-32 (as zlib's) of the whole body.
    pub body_crc32: u32,
    /// The body's beginning, as much as is kept.
    pub body: Vec<u8>,
    pub received_at_ns: u64,
    pub first_byte_at_ns: Option<u64>,
    pub ended_at_ns: Option<u64>,
    /// When the engine saw that the client was gone before the end.
    pub client_closed_at_ns: Option<u64>,
    pub status: Option<u16>,
    /// Bytes of the reply handed to the system, head and framing included.
    pub bytes_written: u64,
    pub outcome: Outcome,
}

impl Received {
    /// A copy that leaves the body's bytes out.
    pub(crate) fn without_body(&self) -> Received {
        // Cloning the body only to drop it would cost as much as the body is long.
        Received {
            body: Vec::new(),
            method: self.method.clone(),
            target: self.target.clone(),
            headers: self.headers.clone(),
            ..*self
        }
    }

    /// The first value of a header, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl Serialize for Received {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut out = to.serialize_struct("Received", 18)?;
        out.serialize_field("seq", &self.seq)?;
        out.serialize_field("connection", &self.connection)?;
        out.serialize_field("method", &self.method)?;
        out.serialize_field("target", &self.target)?;
        out.serialize_field("version", &format!("HTTP/1.{}", self.minor_version))?;
        out.serialize_field("headers", &self.headers)?;
        out.serialize_field("body_bytes", &self.body_bytes)?;
        out.serialize_field("body_crc32", &format!("{:08x}", self.body_crc32))?;
        out.serialize_field("body_kept_bytes", &self.body.len())?;
        match std::str::from_utf8(&self.body) {
            Ok(text) => out.serialize_field("body_text", text)?,
            Err(_) => out.serialize_field("body_base64", &base64::encode(&self.body))?,
        }
        out.serialize_field("received_at_ns", &self.received_at_ns)?;
        out.serialize_field("first_byte_at_ns", &self.first_byte_at_ns)?;
        out.serialize_field("ended_at_ns", &self.ended_at_ns)?;
        out.serialize_field("client_closed_at_ns", &self.client_closed_at_ns)?;
        out.serialize_field("status", &self.status)?;
        out.serialize_field("bytes_written", &self.bytes_written)?;
        out.serialize_field("outcome", &self.outcome)?;
        out.end()
    }
}

/// The newest requests.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    requests: VecDeque<Received>,
    next_seq: u64,
    kept_bytes: usize,
}

impl Recording {
    /// Adds a request, giving it its number; drops the oldest beyond `requests_max`.
    pub(crate) fn add(&mut self, mut received: Received, requests_max: usize) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        received.seq = seq;
        self.kept_bytes += received.body.len();
        self.requests.push_back(received);
        self.shrink(requests_max);
        seq
    }

    /// Sets the body of a request that is still kept.
    pub(crate) fn set_body(&mut self, seq: u64, total: u64, crc32: u32, kept: Vec<u8>) {
        let added = kept.len();
        let Some(received) = self.find(seq) else { return };
        received.body_bytes = total;
        received.body_crc32 = crc32;
        let before = std::mem::replace(&mut received.body, kept).len();
        self.kept_bytes = self.kept_bytes - before + added;
        self.shrink(usize::MAX);
    }

    /// The request numbered `seq`, if it is still kept.
    pub(crate) fn find(&mut self, seq: u64) -> Option<&mut Received> {
        let first = self.requests.front()?.seq;
        self.requests.get_mut(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Received> {
        self.requests.iter()
    }

    /// Forgets everything; numbers go on.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.kept_bytes = 0;
    }

    fn shrink(&mut self, requests_max: usize) {
        while self.requests.len() > requests_max.max(1) || self.kept_bytes > KEPT_BYTES_MAX && self.requests.len() > 1 {
            if let Some(oldest) = self.requests.pop_front() {
                self.kept_bytes -= oldest.body.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(body: &[u8]) -> Received {
        Received {
            seq: 0,
            connection: 1,
            method: "POST".to_owned(),
            target: "/x".to_owned(),
            minor_version: 1,
            headers: vec![("X-One".to_owned(), "1".to_owned())],
            body_bytes: body.len() as u64,
            body_crc32: 7,
            body: body.to_vec(),
            received_at_ns: 5,
            first_byte_at_ns: None,
            ended_at_ns: None,
            client_closed_at_ns: None,
            status: None,
            bytes_written: 0,
            outcome: Outcome::Open,
        }
    }

    #[test]
    fn the_newest_are_kept_and_found_by_number() {
        let mut recording = Recording::default();
        for _ in 0..10 {
            recording.add(received(b"abc"), 3);
        }
        assert_eq!(recording.iter().map(|r| r.seq).collect::<Vec<_>>(), [7, 8, 9]);
        assert!(recording.find(6).is_none() && recording.find(10).is_none());
        assert_eq!(recording.find(8).map(|r| r.seq), Some(8));
        recording.set_body(8, 5, 1, b"hello".to_vec());
        assert_eq!(recording.kept_bytes, 11);
        recording.clear();
        assert!(recording.find(9).is_none());
        assert_eq!(recording.add(received(b""), 3), 10);
    }

    #[test]
    fn a_body_is_shown_as_text_or_as_base64() {
        let text = serde_json::to_value(received("é".as_bytes())).unwrap();
        assert_eq!((text["body_text"].as_str(), text["body_base64"].as_str()), (Some("é"), None));
        let bytes = serde_json::to_value(received(b"\xff\x00")).unwrap();
        assert_eq!((bytes["body_text"].as_str(), bytes["body_base64"].as_str()), (None, Some("/wA=")));
        assert_eq!(bytes["headers"][0][0], "X-One");
        assert_eq!(bytes["body_crc32"], "00000007");
    }
}
