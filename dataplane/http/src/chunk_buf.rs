//! A payload buffer with room in front for its chunk-size line.
//!
//! The client half reads and decodes into one, the gateway looks at it, the writer frames it in place: from an engine's
//! socket to a client's in one buffer and one write. Changes with the wire form of a chunk. Never does I/O.

use std::ops::Range;

use crate::limits::{CHUNK_BUF_BYTES_MAX, IDLE_BUF_BYTES};
use crate::spare;

/// Sixteen hexadecimal digits and a line end.
const HEADROOM: usize = 18;

/// Payload bytes, ready to be framed as one chunk.
///
/// Shape: grows when reads fill it, up to [`CHUNK_BUF_BYTES_MAX`], and shrinks when they stay small.
#[derive(Debug)]
pub struct ChunkBuf {
    /// Invariant: at least `HEADROOM` long, or without any memory while nothing is in it.
    bytes: Vec<u8>,
    room: usize,
}

impl Default for ChunkBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkBuf {
    /// An empty buffer of the smallest size. Takes its memory when something is put into it.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), room: IDLE_BUF_BYTES }
    }

    /// Has memory from here on.
    fn settle(&mut self) {
        if self.bytes.is_empty() {
            if self.bytes.capacity() == 0 {
                self.bytes = spare::take();
            }
            self.bytes.resize(HEADROOM, 0);
        }
    }

    /// Gives the memory of an empty buffer to the next one on this core: a stream that waits for its engine holds none.
    /// One whose last reads were large keeps it.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() && self.room == IDLE_BUF_BYTES {
            spare::give(std::mem::take(&mut self.bytes));
        }
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(HEADROOM..).unwrap_or_default()
    }

    /// The payload, to be changed in place.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(HEADROOM..).unwrap_or_default()
    }

    /// Payload length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len().saturating_sub(HEADROOM)
    }

    /// No payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds payload at the end.
    pub fn extend(&mut self, payload: &[u8]) {
        self.settle();
        self.bytes.extend_from_slice(payload);
    }

    /// Keeps the first `len` payload bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(HEADROOM.saturating_add(len));
    }

    /// Takes a range out of the payload; a range beyond it takes nothing.
    pub fn remove(&mut self, range: Range<usize>) {
        if range.start < range.end && range.end <= self.len() {
            self.bytes.drain(HEADROOM + range.start..HEADROOM + range.end);
        }
    }

    /// Forgets the payload, and room that was not of use.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADROOM);
        let wanted = HEADROOM + self.room + 2;
        if self.bytes.capacity() > wanted.max(spare::KEPT_BYTES_MAX) + 64 {
            self.bytes.shrink_to(wanted);
        }
    }

    /// Payload bytes one read may bring.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// What is read into: one read of up to [`Self::room`] bytes goes behind what is there.
    pub(crate) fn read_buf(&mut self) -> &mut Vec<u8> {
        self.settle();
        self.bytes.reserve_exact(self.room);
        &mut self.bytes
    }

    /// Sizes the next read by what the last one brought.
    pub(crate) fn adapt(&mut self, read_bytes: usize) {
        if read_bytes >= self.room {
            self.room = (self.room * 2).min(CHUNK_BUF_BYTES_MAX);
        } else if read_bytes < self.room / 8 {
            self.room = (self.room / 2).max(IDLE_BUF_BYTES);
        }
    }

    /// Writes the chunk-size line in front of the payload and `tail` behind it; gives where the frame begins.
    pub(crate) fn frame(&mut self, tail: &[u8]) -> usize {
        self.settle();
        let mut line = [0; HEADROOM];
        let (mut at, mut rest) = (HEADROOM - 2, self.len());
        line[at..].copy_from_slice(b"\r\n");
        loop {
            at -= 1;
            line[at] = b"0123456789abcdef"[rest & 15];
            rest >>= 4;
            if rest == 0 {
                break;
            }
        }
        if let Some(headroom) = self.bytes.get_mut(..HEADROOM) {
            headroom.copy_from_slice(&line);
        }
        self.bytes.reserve_exact(tail.len());
        self.bytes.extend_from_slice(tail);
        at
    }

    /// Headroom, payload and what was put behind it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) const HEADROOM: usize = HEADROOM;
}

impl Drop for ChunkBuf {
    fn drop(&mut self) {
        spare::give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut buf = ChunkBuf::new();
        buf.extend(payload);
        let start = buf.frame(b"\r\n");
        buf.bytes().get(start..).unwrap().to_vec()
    }

    #[test]
    fn a_frame_has_the_size_in_front_and_a_line_end_behind() {
        assert_eq!(framed(b"hello"), b"5\r\nhello\r\n");
        assert_eq!(framed(&[b'a'; 0x1f]), [&b"1f\r\n"[..], &[b'a'; 0x1f], b"\r\n"].concat());
        assert!(framed(&[0; 70_000]).starts_with(b"11170\r\n"));
    }

    #[test]
    fn parts_can_be_taken_out() {
        let mut buf = ChunkBuf::new();
        buf.extend(b"abcdef");
        buf.remove(1..3);
        assert_eq!(buf.payload(), b"adef");
        buf.remove(3..9);
        buf.truncate(3);
        assert_eq!((buf.payload(), buf.len()), (&b"ade"[..], 3));
        buf.clear();
        assert!(buf.is_empty());
    }

    #[test]
    fn a_buffer_that_rests_holds_no_memory_unless_it_is_wanted_large() {
        let mut buf = ChunkBuf::new();
        assert_eq!((buf.bytes.capacity(), buf.len(), buf.payload()), (0, 0, &b""[..]));
        buf.extend(b"abc");
        buf.rest();
        assert_eq!(buf.payload(), b"abc", "what it holds stays");
        buf.clear();
        buf.rest();
        assert_eq!(buf.bytes.capacity(), 0);
        buf.clear();
        buf.truncate(0);
        buf.remove(0..0);
        assert!(buf.is_empty() && buf.payload_mut().is_empty() && buf.bytes().is_empty());
        assert_eq!(buf.frame(b""), HEADROOM - 3, "a chunk of nothing");
        buf.clear();
        assert!(buf.read_buf().capacity() >= HEADROOM + IDLE_BUF_BYTES);
        buf.adapt(IDLE_BUF_BYTES);
        buf.clear();
        buf.rest();
        assert!(buf.bytes.capacity() > 0);
    }

    #[test]
    fn room_follows_what_reads_bring_and_is_bounded() {
        let mut buf = ChunkBuf::new();
        for _ in 0..10 {
            let room = buf.room();
            let bytes = buf.read_buf();
            assert!(bytes.capacity() <= HEADROOM + CHUNK_BUF_BYTES_MAX + 66);
            bytes.resize(HEADROOM + room, b'x');
            buf.adapt(room);
            buf.clear();
        }
        assert_eq!(buf.room(), CHUNK_BUF_BYTES_MAX);
        for _ in 0..10 {
            buf.adapt(0);
        }
        assert_eq!(buf.room(), IDLE_BUF_BYTES);
        buf.clear();
        assert!(buf.bytes.capacity() <= spare::KEPT_BYTES_MAX + 64);
    }
}
