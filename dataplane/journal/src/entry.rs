//! One record as it is written down: with names in place of rows and slots, so that whoever reads it needs nothing
//! else.
//!
//! Shape: whole numbers in little-endian, then texts, each with its length. A newer program may append to it; what
//! stands behind the last known text is not looked at. Pure: bytes in, bytes out.

use llmgw_types::{ShortId, UsageRecord};

/// Bytes of one text at most; more of it is cut off. Names are far shorter.
const TEXT_BYTES_MAX: usize = 512;
/// Bytes of whole numbers at the front.
const NUMBERS_BYTES: usize = 16 + 9 * 8 + 2 + 1;
/// Texts of an entry.
const TEXTS: usize = 7;
/// Bytes of an entry at most, with room for what newer programs append.
pub(crate) const ENTRY_BYTES_MAX: usize = 8192;
const _: () = assert!(NUMBERS_BYTES + TEXTS * (2 + TEXT_BYTES_MAX) <= ENTRY_BYTES_MAX);

/// Stands for a number that is not known.
const NONE: u64 = u64::MAX;

/// A record, its texts borrowed. An empty text says that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The same in every copy of the record; sorts by time.
    pub record_id: u128,
    /// Unix milliseconds, as `ended_at`.
    pub admitted_at: u64,
    pub ended_at: u64,
    pub key_id: &'a str,
    pub project_id: &'a str,
    /// As it was asked for.
    pub model: &'a str,
    /// As it was served.
    pub served_model: &'a str,
    pub pool: &'a str,
    pub replica: &'a str,
    pub reason: &'a str,
    pub status: u16,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub completion_tokens: u64,
    pub units_micros: u64,
    pub is_estimated: bool,
    pub ttft_ms: Option<u64>,
    pub duration_ms: u64,
    pub queue_ms: Option<u64>,
}

/// What rows and slots of a record mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named<'a> {
    pub model: &'a str,
    pub served_model: &'a str,
    pub pool: &'a str,
    pub replica: &'a str,
}

impl<'a> Entry<'a> {
    /// A record with its names.
    pub fn of(record: &'a UsageRecord, named: Named<'a>) -> Self {
        Self {
            record_id: record.id.0,
            admitted_at: record.admitted_at,
            ended_at: record.ended_at,
            key_id: record.key_id.as_ref().map_or("", ShortId::as_str),
            project_id: record.project_id.as_ref().map_or("", ShortId::as_str),
            model: named.model,
            served_model: named.served_model,
            pool: named.pool,
            replica: named.replica,
            reason: record.reason.unwrap_or_default(),
            status: record.status,
            prompt_tokens: record.tokens.prompt,
            cached_tokens: record.tokens.cached,
            completion_tokens: record.tokens.completion,
            units_micros: record.units_micros,
            is_estimated: record.is_estimated,
            ttft_ms: record.ttft_ms,
            duration_ms: record.duration_ms,
            queue_ms: record.queue_ms,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut numbers = [0; NUMBERS_BYTES];
        let mut rest = &mut numbers[..];
        put(&mut rest, self.record_id.to_le_bytes());
        for number in [
            self.admitted_at,
            self.ended_at,
            self.prompt_tokens,
            self.cached_tokens,
            self.completion_tokens,
            self.units_micros,
            self.ttft_ms.unwrap_or(NONE),
            self.duration_ms,
            self.queue_ms.unwrap_or(NONE),
        ] {
            put(&mut rest, number.to_le_bytes());
        }
        put(&mut rest, self.status.to_le_bytes());
        put(&mut rest, [u8::from(self.is_estimated)]);
        out.extend_from_slice(&numbers);
        for text in self.texts() {
            let text = shortened(text);
            // Cut to 512 bytes.
            out.extend_from_slice(&(text.len() as u16).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }

    fn texts(&self) -> [&'a str; TEXTS] {
        [self.key_id, self.project_id, self.model, self.served_model, self.pool, self.replica, self.reason]
    }

    /// Reads one; nothing where the bytes are none.
    #[inline]
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        let record_id = u128::from_le_bytes(taken(&mut rest)?);
        let mut number = || Some(u64::from_le_bytes(taken(&mut rest)?));
        let (admitted_at, ended_at) = (number()?, number()?);
        let (prompt_tokens, cached_tokens, completion_tokens) = (number()?, number()?, number()?);
        let units_micros = number()?;
        let ttft_ms = Some(number()?).filter(|ms| *ms != NONE);
        let duration_ms = number()?;
        let queue_ms = Some(number()?).filter(|ms| *ms != NONE);
        let status = u16::from_le_bytes(taken(&mut rest)?);
        let [flags] = taken(&mut rest)?;
        let mut text = || {
            let length = usize::from(u16::from_le_bytes(taken(&mut rest)?));
            let (text, more) = rest.split_at_checked(length)?;
            rest = more;
            std::str::from_utf8(text).ok()
        };
        Some(Self {
            record_id,
            admitted_at,
            ended_at,
            key_id: text()?,
            project_id: text()?,
            model: text()?,
            served_model: text()?,
            pool: text()?,
            replica: text()?,
            reason: text()?,
            status,
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            units_micros,
            is_estimated: flags & 1 == 1,
            ttft_ms,
            duration_ms,
            queue_ms,
        })
    }
}

/// Writes to the front of what is left.
///
/// # Panics
/// When less is left: a mistake of [`Entry::encode`].
fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) {
    let (front, more) = std::mem::take(rest).split_at_mut(N);
    front.copy_from_slice(&bytes);
    *rest = more;
}

fn taken<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (front, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(*front)
}

fn shortened(text: &str) -> &str {
    let mut length = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    text.get(..length).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn entry(number: u64) -> Entry<'static> {
        Entry {
            record_id: (u128::from(number) << 64) | 7,
            admitted_at: 1_000 + number,
            ended_at: 2_000 + number,
            key_id: "key-00000000000000000",
            project_id: "proj-00000000000000000",
            model: "org/m",
            served_model: "org/small",
            pool: "ib0/h100",
            replica: "gpu-1",
            reason: "",
            status: 200,
            prompt_tokens: 12 + number,
            cached_tokens: 4,
            completion_tokens: 7,
            units_micros: 19_000_000,
            is_estimated: !number.is_multiple_of(2),
            ttft_ms: (!number.is_multiple_of(3)).then_some(number),
            duration_ms: 900,
            queue_ms: None,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for number in 0..6 {
            let mut bytes = Vec::new();
            entry(number).encode(&mut bytes);
            assert_eq!(Entry::decode(&bytes), Some(entry(number)));
            bytes.extend_from_slice(b"what a newer program has to add");
            assert_eq!(Entry::decode(&bytes), Some(entry(number)));
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let long = "é".repeat(400);
        let mut bytes = Vec::new();
        Entry { model: &long, ..entry(0) }.encode(&mut bytes);
        assert!(bytes.len() <= ENTRY_BYTES_MAX);
        assert_eq!(Entry::decode(&bytes).map(|entry| entry.model.len()), Some(TEXT_BYTES_MAX));
        let long = format!("a{long}");
        bytes.clear();
        Entry { model: &long, ..entry(0) }.encode(&mut bytes);
        assert_eq!(Entry::decode(&bytes).map(|entry| entry.model.len()), Some(TEXT_BYTES_MAX - 1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Entry::decode(&bytes);
        }

        #[test]
        fn a_part_of_an_entry_is_none(number in 0u64..9, cut in 1usize..60) {
            let mut bytes = Vec::new();
            entry(number).encode(&mut bytes);
            bytes.truncate(bytes.len() - cut);
            prop_assert_eq!(Entry::decode(&bytes), None);
        }
    }
}
