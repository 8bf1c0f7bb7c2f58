//! Storage of one parsed head: its bytes, and where its header names and values lie in them.
//!
//! Filled by the two parsers, read through them. Its memory comes from what heads before have left. Never judges a
//! value but for what framing and connection headers mean.

use std::cell::RefCell;
use std::ops::Range;

use crate::body::Framing;
use crate::head::Version;
use crate::limits::{CONNECTION_OPTIONS_MAX, SPARE_BUFS_MAX};
use crate::name::{is_ours, words};
use crate::spare;

/// Longer lists of headers are not kept for the next head.
const LIST_MAX: usize = 64;

thread_local! {
    /// Lists that are free.
    static LISTS: RefCell<Vec<Vec<Field>>> = const { RefCell::new(Vec::new()) };
}

/// A range of the head's bytes. Invariant: made by [`Fields::span`], so it lies within them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    name: Span,
    value: Span,
    /// May be copied to another connection.
    is_end_to_end: bool,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Fields {
    bytes: Vec<u8>,
    list: Vec<Field>,
}

/// What the framing and connection headers of a head say, before anybody decides what it means.
#[derive(Debug, Default)]
pub(super) struct Said<'a> {
    pub(super) lengths: usize,
    pub(super) length: Option<u64>,
    pub(super) codings: usize,
    pub(super) coding: &'a [u8],
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) hosts: usize,
    pub(super) expect: Option<&'a [u8]>,
    pub(super) fault: Option<&'static str>,
}

impl Fields {
    /// Takes a copy of a head's bytes and forgets the head before.
    pub(super) fn load(&mut self, head: &[u8]) {
        if self.bytes.capacity() == 0 {
            (self.bytes, self.list) = (spare::take(), LISTS.with(|lists| lists.borrow_mut().pop()).unwrap_or_default());
        }
        self.list.clear();
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
    }

    /// Gives up what it holds, memory too, for the next head on this core.
    pub(super) fn release(&mut self) {
        spare::give(std::mem::take(&mut self.bytes));
        let mut list = std::mem::take(&mut self.list);
        if list.capacity() == 0 || list.capacity() > LIST_MAX {
            return;
        }
        list.clear();
        LISTS.with(|lists| {
            let mut lists = lists.borrow_mut();
            if lists.len() < SPARE_BUFS_MAX {
                lists.push(list);
            }
        });
    }

    /// The bytes and an empty list to be filled from them.
    pub(super) fn parts(&mut self) -> (&[u8], Recorder<'_>) {
        (&self.bytes, Recorder { base: self.bytes.as_ptr() as usize, list: &mut self.list })
    }

    pub(super) fn slice(&self, span: Span) -> &[u8] {
        self.bytes.get(span.range()).unwrap_or_default()
    }

    /// Adds bytes behind the head, for a value the head does not hold in one piece.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        Span { start, end: self.bytes.len() as u32 }
    }

    pub(super) fn said(&self) -> Said<'_> {
        let mut said = Said::default();
        for field in &self.list {
            said.note(self.slice(field.name), self.slice(field.value));
        }
        said
    }

    /// Marks the headers that `Connection` nominates, so that they stay on this connection.
    pub(super) fn withhold_nominated(&mut self) -> Result<(), &'static str> {
        let Self { bytes, list } = self;
        let at = |span: Span| bytes.get(span.range()).unwrap_or_default();
        let mut options = 0;
        for nominating in 0..list.len() {
            let Some(field) = list.get(nominating).copied() else { break };
            if !at(field.name).eq_ignore_ascii_case(b"connection") {
                continue;
            }
            for option in words(at(field.value)) {
                options += 1;
                if options > CONNECTION_OPTIONS_MAX {
                    return Err("too many connection options");
                }
                if option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive") {
                    continue;
                }
                for named in list.iter_mut().filter(|named| at(named.name).eq_ignore_ascii_case(option)) {
                    named.is_end_to_end = false;
                }
            }
        }
        Ok(())
    }

    pub(super) fn headers(&self) -> Headers<'_> {
        Headers { fields: self, next: 0, only_end_to_end: false }
    }

    pub(super) fn end_to_end(&self) -> Headers<'_> {
        Headers { fields: self, next: 0, only_end_to_end: true }
    }

    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        self.release();
    }
}

impl Span {
    /// The last `len` bytes of the range.
    pub(super) fn last(self, len: usize) -> Self {
        Self { start: self.end.saturating_sub(len as u32).max(self.start), end: self.end }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Fills a header list from slices that httparse cut out of the head's bytes.
pub(super) struct Recorder<'a> {
    base: usize,
    list: &'a mut Vec<Field>,
}

impl Recorder<'_> {
    /// Where a slice of the head's bytes lies in them. A slice of anything else gives an unusable, harmless range.
    pub(super) fn span(&self, part: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(self.base);
        let start = u32::try_from(start).unwrap_or(u32::MAX);
        Span { start, end: start.saturating_add(part.len() as u32) }
    }

    pub(super) fn push(&mut self, name: &[u8], value: &[u8]) {
        let field = Field { name: self.span(name), value: self.span(value), is_end_to_end: !is_ours(name) };
        self.list.push(field);
    }
}

impl<'a> Said<'a> {
    fn note(&mut self, name: &[u8], value: &'a [u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 if is("host") => self.hosts += 1,
            6 if is("expect") => self.expect = Some(value),
            10 if is("connection") => {
                for option in words(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if is("content-length") => self.note_length(value),
            17 if is("transfer-encoding") => {
                self.codings += 1;
                self.coding = value;
            }
            _ => {}
        }
    }

    fn note_length(&mut self, value: &[u8]) {
        self.lengths += 1;
        match (parse_length(value), self.length) {
            (None, _) => self.fault = Some("content-length is not a number"),
            (Some(bytes), Some(before)) if bytes != before => self.fault = Some("content-lengths differ"),
            (Some(bytes), _) => self.length = Some(bytes),
        }
    }

    /// The framing, for a message that may have a body. `Close` where nothing is said.
    ///
    /// Errors: the broken rule; `unknown coding` as the one that is not the peer's mistake.
    pub(super) fn framing(&self, version: Version) -> Result<Framing, &'static str> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        match (self.codings, self.length) {
            (0, Some(bytes)) => Ok(Framing::Length(bytes)),
            (0, None) => Ok(Framing::Close),
            (_, Some(_)) => Err("both content-length and transfer-encoding"),
            (1, None) if version == Version::Http10 => Err("transfer-encoding in http/1.0"),
            (1, None) if self.coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            (1, None) if words(self.coding).count() == 1 && !self.coding.contains(&b',') => Err(UNKNOWN_CODING),
            _ => Err("stacked transfer-encodings"),
        }
    }
}

/// The one framing fault that has a status of its own.
pub(super) const UNKNOWN_CODING: &str = "transfer-encoding not supported; only chunked is";

/// Digits only: no sign, no space within, no list, no overflow.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    value.iter().try_fold(0u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

/// Headers of a head in the order they came: name as sent, value without surrounding space.
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    fields: &'a Fields,
    next: usize,
    only_end_to_end: bool,
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let field = self.fields.list.get(self.next)?;
            self.next += 1;
            if field.is_end_to_end || !self.only_end_to_end {
                return Some((self.fields.slice(field.name), self.fields.slice(field.value)));
            }
        }
    }
}
