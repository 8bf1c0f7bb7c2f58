//! Server-sent events: where they begin and end in a stream that arrives cut anywhere, and the two we write ourselves.
//!
//! Called by the stream tap and the load generator. Changes only if the event-stream format does. Never changes, drops
//! or delays a byte: it tells its caller what the bytes are, and the caller sends on what came.
//!
//! Lines end in LF, CR LF or CR, also mixed; a blank line ends an event. An event that ends in CR is reported at once;
//! when an LF follows, as the first byte of the next chunk, it still belongs to that event (see [`Splitter::begin`]).

use std::borrow::Cow;

use memchr::memchr2;

use crate::error::ErrorBody;

/// How much of an event that is cut over several chunks is kept for looking at. Units: bytes.
pub const KEPT_EVENT_BYTES: usize = 64 * 1024;

/// Finds the events in a stream, chunk by chunk.
///
/// Use: [`begin`](Self::begin) with a chunk, [`next_event`](Self::next_event) with the same chunk until `None`, and so
/// on; [`end`](Self::end) when the stream is over.
///
/// Cost: an event that lies whole in a chunk is not copied; one that is cut is copied once, up to [`KEPT_EVENT_BYTES`].
#[derive(Debug, Default)]
pub struct Splitter {
    /// The incomplete event's bytes from earlier chunks.
    kept: Vec<u8>,
    /// The incomplete event has more bytes than are kept.
    is_cut: bool,
    /// `kept` was given out with the last event and is to be emptied.
    is_spent: bool,
    line: Line,
    /// The last event ended in CR, the last byte there was.
    owes_lf: bool,
    /// Where in the present chunk the present event, or its rest, starts.
    at: usize,
    /// Whether the stream's first event, where a byte order mark may stand, has been seen.
    is_under_way: bool,
}

/// Where in a line the stream stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Line {
    #[default]
    Start,
    Inside,
    /// A line that holds something ended in CR: an LF here is part of that line end.
    AfterCr,
}

/// One complete event.
#[derive(Debug)]
pub struct Event<'a> {
    /// All its bytes, the blank line included; the first [`KEPT_EVENT_BYTES`] when `is_cut`.
    pub bytes: &'a [u8],
    pub is_cut: bool,
    /// Where in the present chunk it, or its rest, starts, and where it ends.
    pub start: usize,
    pub end: usize,
    pub class: Class,
    /// Its data lines, joined with LF. Borrowed unless there are several.
    pub data: Cow<'a, [u8]>,
    /// Its `event:` field; empty when there is none.
    pub name: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing a client acts on: comments, blank lines, fields without data.
    Comment,
    Data,
    /// `data: [DONE]`, the end of an answer.
    Done,
}

impl Splitter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives it memory for an event that comes in several chunks, unless it has some.
    pub fn lend(&mut self, memory: impl FnOnce() -> Vec<u8>) {
        if self.kept.capacity() == 0 {
            self.kept = memory();
        }
    }

    /// Its memory, when it holds nothing in it.
    pub fn give_back(&mut self) -> Option<Vec<u8>> {
        self.forget_spent();
        (self.kept.is_empty() && self.kept.capacity() > 0).then(|| std::mem::take(&mut self.kept))
    }

    /// Begins the next chunk of the stream. The result, 0 or 1, is how many of its first bytes belong to the event
    /// reported last.
    pub fn begin(&mut self, chunk: &[u8]) -> usize {
        self.at = usize::from(self.owes_lf && chunk.first() == Some(&b'\n'));
        self.owes_lf &= chunk.is_empty();
        self.at
    }

    /// The next event that ends in `chunk`, the one given to `begin`. `None` takes the rest in as an incomplete event.
    pub fn next_event<'s>(&'s mut self, chunk: &'s [u8]) -> Option<Event<'s>> {
        self.forget_spent();
        let start = self.at;
        let Some(end) = self.find_end(chunk, start) else {
            self.keep(chunk.get(start..).unwrap_or_default());
            return None;
        };
        self.at = end;
        let part = chunk.get(start..end).unwrap_or_default();
        let is_first = !std::mem::replace(&mut self.is_under_way, true);
        if self.kept.is_empty() {
            return Some(Event::of(part, false, start..end, is_first));
        }
        self.keep(part);
        self.is_spent = true;
        Some(Event::of(&self.kept, self.is_cut, start..end, is_first))
    }

    /// What has come of an event that is not complete, up to [`KEPT_EVENT_BYTES`].
    pub fn tail(&self) -> &[u8] {
        if self.is_spent { &[] } else { &self.kept }
    }

    /// Whether the incomplete event has more bytes than [`tail`](Self::tail) holds.
    pub fn is_tail_cut(&self) -> bool {
        self.is_cut && !self.is_spent
    }

    /// Where in the present chunk the incomplete event, or its rest, starts. Meant for after the last `next_event`.
    pub fn tail_start(&self) -> usize {
        self.at
    }

    /// The stream is over: what was left incomplete, as an event. Engines that end without a blank line mean it as one.
    pub fn end(&mut self) -> Option<Event<'_>> {
        self.forget_spent();
        if self.kept.is_empty() {
            return None;
        }
        let is_first = !std::mem::replace(&mut self.is_under_way, true);
        self.line = Line::Start;
        self.is_spent = true;
        Some(Event::of(&self.kept, self.is_cut, 0..0, is_first))
    }

    fn forget_spent(&mut self) {
        if self.is_spent {
            self.kept.clear();
            self.is_cut = false;
            self.is_spent = false;
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT_EVENT_BYTES - self.kept.len();
        self.is_cut |= bytes.len() > room;
        self.kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// Where the present event ends in `chunk`, looking from `at` on; remembers where in a line the chunk broke off.
    fn find_end(&mut self, chunk: &[u8], mut at: usize) -> Option<usize> {
        loop {
            match self.line {
                Line::Inside => {
                    let rest = chunk.get(at..)?;
                    at += memchr2(b'\n', b'\r', rest)?;
                    self.line = if chunk.get(at) == Some(&b'\n') { Line::Start } else { Line::AfterCr };
                    at += 1;
                }
                Line::AfterCr => {
                    at += usize::from(*chunk.get(at)? == b'\n');
                    self.line = Line::Start;
                }
                Line::Start => match *chunk.get(at)? {
                    b'\n' => return Some(at + 1),
                    b'\r' => {
                        let next = chunk.get(at + 1);
                        self.owes_lf = next.is_none();
                        return Some(at + 1 + usize::from(next == Some(&b'\n')));
                    }
                    _ => self.line = Line::Inside,
                },
            }
        }
    }
}

impl<'a> Event<'a> {
    fn of(bytes: &'a [u8], is_cut: bool, range: std::ops::Range<usize>, is_first: bool) -> Self {
        let text = if is_first { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        let mut event = Event {
            bytes,
            is_cut,
            start: range.start,
            end: range.end,
            class: Class::Comment,
            data: Cow::Borrowed(&[]),
            name: &[],
        };
        event.read(text);
        if event.class == Class::Data && event.data.trim_ascii() == b"[DONE]" {
            event.class = Class::Done;
        }
        event
    }

    fn read(&mut self, text: &'a [u8]) {
        let mut rest = text;
        while !rest.is_empty() {
            let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let (line, tail) = rest.split_at(end);
            rest = tail.get(1..).unwrap_or_default();
            if let Some(value) = field(line, b"data") {
                if self.class == Class::Comment {
                    self.class = Class::Data;
                    self.data = Cow::Borrowed(value);
                } else {
                    let joined = self.data.to_mut();
                    joined.push(b'\n');
                    joined.extend_from_slice(value);
                }
            } else if let Some(value) = field(line, b"event") {
                self.name = value;
            } else if field(line, b"error").is_some() {
                // No field of the format, but what llama.cpp has called the one with its error in it.
                self.name = b"error";
            }
        }
    }
}

/// The value of a line, if it is of the field `name`: after the colon and one space, which is optional.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// Writes an event that says a stream broke: valid JSON in one line, whatever the message holds.
pub fn error_event(out: &mut Vec<u8>, error: &ErrorBody<'_>) {
    out.extend_from_slice(b"data: ");
    error.write(out);
    out.extend_from_slice(b"\n\n");
}

/// Writes a comment, which keeps a connection alive and tells a client nothing. A line end in `text` becomes a space.
pub fn comment(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b": ");
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
