//! What a relay learns from a streamed answer, and the one event it withholds.
//!
//! Called by the gateway's relay with each chunk of payload, before it is sent on. Changes when the gateway wants to
//! know something else of a stream. Never parses an event without a cause, and never changes one: bytes pass or are
//! withheld whole.
//!
//! Withheld is the usage event that was asked for on the client's behalf: `choices` empty and a `usage` beside it. Only
//! while that is wanted are bytes held back, and then only of an event that is not complete yet, up to
//! [`KEPT_EVENT_BYTES`](crate::sse::KEPT_EVENT_BYTES); an event that grows beyond passes.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::sse::{Class, Event, Splitter};
use crate::usage::{self, Usage};

/// What the client must not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withhold {
    Nothing,
    /// The usage event, because the gateway asked for it and the client did not.
    UsageEvent,
}

/// What has been learned of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// What the engine reported, merged over all events.
    reported: Usage,
    /// The completion tokens of the events that hold nothing but usage, added up.
    completion_sum: u64,
    /// Usage values that made no sense and were left out.
    pub absurd_count: u32,
    /// Data events that carry some text or tool call: our own estimate of the completion's tokens, for when the engine
    /// reports none. Engines send about one token an event; an event with the text of several answers counts once.
    pub content_event_count: u64,
    /// Events of any kind but comments.
    pub event_count: u64,
    /// The stream ended as answers do: `[DONE]`, or the last event of the responses and messages APIs.
    pub is_done: bool,
    /// The engine said in the stream that it failed.
    pub has_error: bool,
    /// How many events were withheld.
    pub withheld_count: u32,
}

impl Learned {
    /// Whether the first token has passed: an event with some text or tool call. Comments, progress reports and the
    /// event that only sets the role are none.
    pub fn has_first_token(&self) -> bool {
        self.content_event_count > 0
    }

    /// What the engine reported, merged over all events.
    ///
    /// An engine asked for several answers may report each in a usage event of its own (llama.cpp does). Their sum
    /// counts as far as so many events with text were seen, so that totals given more than once are not added up.
    pub fn usage(&self) -> Usage {
        let mut usage = self.reported;
        let seen = self.completion_sum.min(self.content_event_count);
        if let Some(completion) = usage.completion
            && seen > completion
        {
            usage.completion = Some(seen);
            usage.total = usage.total.map(|total| total + (seen - completion));
        }
        usage
    }

    /// The completion's tokens: as reported, else as estimated.
    pub fn completion_tokens(&self) -> u64 {
        self.usage().completion.unwrap_or(self.content_event_count)
    }
}

/// Watches one streamed answer.
#[derive(Debug)]
pub struct StreamTap {
    splitter: Splitter,
    withhold: Withhold,
    learned: Learned,
    /// How many bytes of the incomplete event are held back: the splitter's tail, or nothing.
    held_bytes: usize,
    /// The incomplete event outgrew its bound and passes.
    is_passing: bool,
    /// The last complete event was withheld.
    has_withheld_last: bool,
}

impl StreamTap {
    pub fn new(withhold: Withhold) -> Self {
        StreamTap {
            splitter: Splitter::new(),
            withhold,
            learned: Learned::default(),
            held_bytes: 0,
            is_passing: false,
            has_withheld_last: false,
        }
    }

    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    /// See [`Splitter::lend`].
    pub fn lend(&mut self, memory: impl FnOnce() -> Vec<u8>) {
        self.splitter.lend(memory);
    }

    /// See [`Splitter::give_back`].
    pub fn give_back(&mut self) -> Option<Vec<u8>> {
        self.splitter.give_back()
    }

    /// Takes the next chunk of payload. What is to be sent on is what `out` then holds (it is emptied first) and after
    /// it the range of `chunk` that is returned.
    ///
    /// Cost: usually `out` stays empty and the range is the whole chunk; bytes are copied only around a withheld event
    /// and for one that came in several chunks while withholding.
    pub fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Range<usize> {
        out.clear();
        let is_withholding = self.withhold == Withhold::UsageEvent;
        let lead = self.splitter.begin(chunk);
        let mut pass_from = if self.has_withheld_last { lead } else { 0 };
        while let Some(event) = self.splitter.next_event(chunk) {
            let is_ours = self.learned.take(&event) && is_withholding && !self.is_passing;
            if is_ours {
                out.extend_from_slice(chunk.get(pass_from..event.start).unwrap_or_default());
                pass_from = event.end;
                self.learned.withheld_count += 1;
            } else {
                out.extend_from_slice(event.bytes.get(..self.held_bytes).unwrap_or_default());
            }
            self.held_bytes = 0;
            self.is_passing = false;
            self.has_withheld_last = is_ours;
        }
        let tail = self.splitter.tail();
        if !is_withholding || self.is_passing || tail.is_empty() {
            return pass_from..chunk.len();
        }
        if self.splitter.is_tail_cut() {
            // Too large for a usage event: let go what was held, and the rest as it comes.
            out.extend_from_slice(tail.get(..self.held_bytes).unwrap_or_default());
            self.held_bytes = 0;
            self.is_passing = true;
            return pass_from..chunk.len();
        }
        self.held_bytes = tail.len();
        pass_from..self.splitter.tail_start()
    }

    /// The stream is over: leaves in `out` what is still to be sent on (it is emptied first). An event without its
    /// blank line counts as one: some engines end that way.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        out.clear();
        let Some(event) = self.splitter.end() else { return };
        let is_ours = self.learned.take(&event) && self.held_bytes > 0;
        if is_ours {
            self.learned.withheld_count += 1;
        } else {
            out.extend_from_slice(event.bytes.get(..self.held_bytes).unwrap_or_default());
        }
        self.held_bytes = 0;
    }
}

impl Learned {
    /// Learns from one event. True for an event that exists only because usage was asked for.
    fn take(&mut self, event: &Event<'_>) -> bool {
        self.event_count += u64::from(event.class != Class::Comment);
        match event.name {
            b"" => {}
            b"error" | b"response.failed" => self.has_error = true,
            b"message_stop" | b"response.completed" | b"response.incomplete" => self.is_done = true,
            _ => {}
        }
        match event.class {
            Class::Comment => false,
            Class::Done => {
                self.is_done = true;
                false
            }
            Class::Data => self.take_data(&event.data),
        }
    }

    fn take_data(&mut self, data: &[u8]) -> bool {
        let words = &*WORDS;
        let mentions_usage = words.usage.find(data).is_some();
        let mut is_only_usage = false;
        if mentions_usage || words.error.find(data).is_some() {
            let reading = usage::read(data);
            self.has_error |= reading.is_error;
            if mentions_usage {
                self.reported.merge(&reading.usage);
                self.absurd_count = self.absurd_count.saturating_add(reading.absurd_count);
                is_only_usage = reading.has_usage && reading.has_no_choices && !reading.is_error;
                if is_only_usage {
                    let completion = reading.usage.completion.unwrap_or(0);
                    self.completion_sum = self.completion_sum.saturating_add(completion);
                }
            }
        }
        if !is_only_usage && words.is_content(data) {
            self.content_event_count += 1;
        }
        is_only_usage
    }
}

/// The words looked for in every event, searchers built once.
struct Words {
    usage: Finder<'static>,
    error: Finder<'static>,
    /// Keys whose value, when it is a string that is not empty, is text of an answer.
    texts: [Finder<'static>; 8],
    tool_calls: Finder<'static>,
}

static WORDS: LazyLock<Words> = LazyLock::new(|| Words {
    usage: Finder::new(b"\"usage\""),
    error: Finder::new(b"\"error\""),
    texts: [
        Finder::new(b"\"content\":"),
        Finder::new(b"\"text\":"),
        Finder::new(b"\"reasoning_content\":"),
        Finder::new(b"\"reasoning\":"),
        Finder::new(b"\"arguments\":"),
        Finder::new(b"\"delta\":"),
        Finder::new(b"\"thinking\":"),
        Finder::new(b"\"partial_json\":"),
    ],
    tool_calls: Finder::new(b"\"tool_calls\":"),
});

impl Words {
    /// Whether an event carries some text or tool call. A search, not a parse: a key inside a JSON string has its
    /// quotes escaped, so that text cannot be taken for a key.
    fn is_content(&self, data: &[u8]) -> bool {
        let filled = |finder: &Finder<'_>, open: u8, close: u8| {
            finder.find_iter(data).any(|at| {
                let value = data.get(at + finder.needle().len()..).unwrap_or_default().trim_ascii_start();
                value.first() == Some(&open) && value.get(1).is_some_and(|&next| next != close)
            })
        };
        self.texts.iter().any(|finder| filled(finder, b'"', b'"')) || filled(&self.tool_calls, b'[', b']')
    }
}

#[cfg(test)]
#[path = "tap_tests.rs"]
mod tests;
