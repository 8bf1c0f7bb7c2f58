//! The events of a stream, counted, timed and reduced to one number that does not depend on ids and clocks.
//!
//! Called with every piece of a decoded body. Two streams with the same number had the same bytes, but for the values
//! of `"id"`, `"created"` and the send time an engine was asked to write into its events.

use memchr::memmem;

/// A longer event is a fault.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A stream being read.
#[derive(Debug, Default)]
pub struct Events {
    pending: Vec<u8>,
    hash: Hash,
    /// Data events but the closing `[DONE]`.
    pub count: u64,
    /// Comments.
    pub comment_count: u64,
    /// Decoded bytes, all of them.
    pub body_bytes: u64,
    pub is_done: bool,
    /// An event that carries an error, or bytes behind `[DONE]`.
    pub is_faulty: bool,
}

/// What is told about each data event as it becomes whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When the engine says it sent it, in nanoseconds since 1970.
    pub sent_unix_ns: Option<u64>,
    /// Prompt tokens that the engine says it had cached.
    pub cached_tokens: Option<u64>,
}

impl Events {
    /// Takes the next decoded bytes and tells of each data event that became whole.
    pub fn push(&mut self, bytes: &[u8], mut on: impl FnMut(Event)) {
        self.body_bytes += bytes.len() as u64;
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while let Some(at) = memmem::find(rest, b"\n\n") {
            let (event, after) = rest.split_at(at + 2);
            rest = after;
            self.take(event, &mut on);
        }
        let kept = pending.len() - rest.len();
        self.pending = pending;
        self.pending.drain(..kept);
        if self.pending.len() > EVENT_BYTES_MAX {
            self.is_faulty = true;
            self.pending.clear();
        }
    }

    /// The number of the whole stream; what was left unfinished counts too.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = self.hash;
        hash.masked(&self.pending);
        hash.0
    }

    fn take(&mut self, event: &[u8], on: &mut impl FnMut(Event)) {
        self.hash.masked(event);
        let data = event.strip_prefix(b"data:").map(<[u8]>::trim_ascii);
        match data {
            None => self.comment_count += 1,
            Some(b"[DONE]") if !self.is_done => self.is_done = true,
            Some(data) => {
                self.is_faulty |= self.is_done || data.starts_with(b"{\"error\"");
                self.count += 1;
                on(Event { sent_unix_ns: number(event, STAMP), cached_tokens: number(event, CACHED) });
            }
        }
    }
}

/// The number behind a key.
fn number(event: &[u8], key: &[u8]) -> Option<u64> {
    digits(event, memmem::find(event, key)? + key.len())
}

/// The send time a simulated engine writes into its events when asked to.
const STAMP: &[u8] = b"\"sent_unix_ns\":";
/// In the usage, where engines tell it.
const CACHED: &[u8] = b"\"cached_tokens\":";

fn digits(event: &[u8], from: usize) -> Option<u64> {
    let tail = event.get(from..)?;
    let length = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (length > 0).then(|| std::str::from_utf8(&tail[..length]).ok()?.parse().ok()).flatten()
}

/// A 64-bit FNV-1a over the bytes.
#[derive(Debug, Clone, Copy)]
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Adds an event but for the values that differ between equal streams.
    fn masked(&mut self, event: &[u8]) {
        let id = value_of(event, b"\"id\":\"", |byte| byte != b'"');
        let created = value_of(event, b"\"created\":", |byte| byte.is_ascii_digit());
        let sent = value_of(event, STAMP, |byte| byte.is_ascii_digit());
        let mut holes: Vec<(usize, usize)> = [id, created, sent].into_iter().flatten().collect();
        holes.sort_unstable();
        let mut from = 0;
        for (start, end) in holes {
            self.bytes(event.get(from..start).unwrap_or(&[]));
            from = from.max(end);
        }
        self.bytes(event.get(from..).unwrap_or(&[]));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// From where to where the value behind a key goes.
fn value_of(event: &[u8], key: &[u8], belongs: impl Fn(u8) -> bool) -> Option<(usize, usize)> {
    let start = memmem::find(event, key)? + key.len();
    let length = event.get(start..)?.iter().take_while(|byte| belongs(**byte)).count();
    Some((start, start + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, piece_bytes: usize) -> (Events, Vec<Option<u64>>) {
        let mut events = Events::default();
        let mut stamps = Vec::new();
        for piece in text.as_bytes().chunks(piece_bytes) {
            events.push(piece, |event| stamps.push(event.sent_unix_ns));
        }
        (events, stamps)
    }

    fn stream(id: &str, created: u64, sent: u64, word: &str) -> String {
        let event = format!(
            "data: {{\"id\":\"{id}\",\"created\":{created},\"content\":\"{word}\",\"sent_unix_ns\":{sent}}}\n\n"
        );
        format!(": hello\n\n{event}{event}data: [DONE]\n\n")
    }

    #[test]
    fn events_are_counted_and_their_times_read_however_the_bytes_are_cut() {
        let text = stream("a", 1, 1_234_567_890_123_456, "x");
        for piece_bytes in 1..=text.len() {
            let (events, stamps) = read(&text, piece_bytes);
            assert_eq!((events.count, events.comment_count, events.is_done, events.is_faulty), (2, 1, true, false));
            assert_eq!(stamps, [Some(1_234_567_890_123_456); 2]);
            assert_eq!(events.hash(), read(&text, 7).0.hash());
            assert_eq!(events.body_bytes, text.len() as u64);
        }
    }

    #[test]
    fn ids_and_clocks_do_not_change_the_number_and_any_other_byte_does() {
        let hash = |text: &str| read(text, 1000).0.hash();
        let one = hash(&stream("a", 1, 5, "x"));
        assert_eq!(one, hash(&stream("chatcmpl-b", 99, 123_456, "x")));
        assert_ne!(one, hash(&stream("a", 1, 5, "y")));
        let cut = stream("a", 1, 5, "x");
        assert_ne!(one, hash(&cut[..cut.len() - 3]));
    }

    #[test]
    fn what_the_usage_says_was_cached_is_read() {
        let text =
            "data: {\"choices\":[]}\n\ndata: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":512}}}\n\n";
        let mut seen = Vec::new();
        Events::default().push(text.as_bytes(), |event| seen.push(event.cached_tokens));
        assert_eq!(seen, [None, Some(512)]);
    }

    #[test]
    fn an_error_event_and_bytes_behind_the_end_are_faults() {
        assert!(read("data: {\"error\":{\"message\":\"gone\"}}\n\n", 9).0.is_faulty);
        assert!(read("data: [DONE]\n\ndata: 1\n\n", 9).0.is_faulty);
        assert!(read("data: [DONE]\n\ndata: [DONE]\n\n", 9).0.is_faulty);
        assert!(!read("data: 1\n\ndata: [DONE]\n\n", 9).0.is_faulty);
    }
}
