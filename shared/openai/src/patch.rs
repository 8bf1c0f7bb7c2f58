//! Splices fields into a body: the served model's name, `include_usage`, a priority.
//!
//! Called by the gateway for each upstream attempt, since what is spliced depends on the endpoint. Changes when the
//! gateway writes another field. Never touches a byte outside the spliced places: key order, spacing and numbers stay
//! as sent, which is what an engine's prefix cache depends on.

use std::borrow::Cow;
use std::ops::Range;

use crate::json;
use crate::reader::Span;
use crate::scan::{Scan, StreamOptions, Switch};

/// The edits of one attempt: a few replaced ranges in the order of the body, none overlapping another.
///
/// Cost: no allocation unless a model's name needs escapes.
#[derive(Clone, Debug, Default)]
pub struct Edits<'t> {
    list: [Edit<'t>; MOST],
    len: usize,
}

/// One model, one or two for usage, one priority.
const MOST: usize = 4;

#[derive(Clone, Debug, Default)]
struct Edit<'t> {
    /// The bytes that go; empty for an insertion.
    start: usize,
    end: usize,
    text: Words<'t>,
}

/// The bytes that come.
#[derive(Clone, Debug)]
enum Words<'t> {
    Text(Cow<'t, str>),
    Short([u8; 34], u8),
}

impl Default for Words<'_> {
    fn default() -> Self {
        Words::Text(Cow::Borrowed(""))
    }
}

impl Words<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Words::Text(text) => text.as_bytes(),
            Words::Short(room, len) => room.get(..usize::from(*len)).unwrap_or_default(),
        }
    }
}

/// A piece of the edited body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment<'e> {
    /// These bytes of the original.
    Keep(Range<usize>),
    Insert(&'e [u8]),
}

impl<'t> Edits<'t> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replaces the value of `model` by `name`.
    pub fn served_model(&mut self, scan: &Scan, name: &'t str) {
        let text = if json::is_plain(name) {
            Cow::Borrowed(name)
        } else {
            let mut escaped = Vec::with_capacity(name.len() + 8);
            json::write_escaped(&mut escaped, name);
            Cow::Owned(String::from_utf8(escaped).unwrap_or_default())
        };
        self.add(scan.model_inside(), Words::Text(text));
    }

    /// Makes `stream_options.include_usage` true, and `continuous_usage_stats` false where the client did not ask for
    /// usage and so must see none. Does nothing to a request that does not stream (some engines refuse the option
    /// there) and nothing to one that asks for usage itself.
    pub fn include_usage(&mut self, scan: &Scan) {
        if !scan.is_streaming() || scan.asks_for_usage() {
            return;
        }
        match scan.stream_options {
            StreamOptions::Absent if scan.is_empty => {
                self.insert(scan.insert_at, r#""stream_options":{"include_usage":true}"#);
            }
            StreamOptions::Absent => self.insert(scan.insert_at, r#""stream_options":{"include_usage":true},"#),
            StreamOptions::Null(span) => self.replace(span, r#"{"include_usage":true}"#),
            StreamOptions::Object { insert_at, is_empty, include_usage, continuous_usage_stats } => {
                match include_usage {
                    Some(switch) => self.replace(switch.span, "true"),
                    None if is_empty => self.insert(insert_at, r#""include_usage":true"#),
                    None => self.insert(insert_at, r#""include_usage":true,"#),
                }
                if let Some(Switch { is_on: true, span }) = continuous_usage_stats {
                    self.replace(span, "false");
                }
            }
        }
    }

    /// Sets `priority`, for engines that order their own queue by it.
    pub fn priority(&mut self, scan: &Scan, priority: i64) {
        use std::io::Write;
        let mut room = [0; 34];
        let size = room.len();
        let mut rest = &mut room[..];
        // The longest of these is 32 bytes.
        let written = match scan.priority {
            Some(_) => write!(rest, "{priority}"),
            None if scan.is_empty => write!(rest, "\"priority\":{priority}"),
            None => write!(rest, "\"priority\":{priority},"),
        };
        let len = size - rest.len();
        debug_assert!(written.is_ok(), "room for every priority");
        let place = scan.priority.unwrap_or(Span { start: scan.insert_at, end: scan.insert_at });
        self.add(place, Words::Short(room, len as u8));
    }

    /// The length of the edited body, for `Content-Length`.
    pub fn len_after(&self, body_bytes: usize) -> usize {
        self.edits().fold(body_bytes, |len, edit| len + edit.text.bytes().len() - (edit.end - edit.start))
    }

    /// The edited body, piece by piece, none of them empty: what stays is a range of the original, which can be sent
    /// from where it lies.
    pub fn segments(&self, body_bytes: usize) -> impl Iterator<Item = Segment<'_>> {
        let starts = self.edits().map(|edit| edit.start).chain([body_bytes]);
        let ends = [0].into_iter().chain(self.edits().map(|edit| edit.end));
        let texts = self.edits().map(Some).chain([None]);
        ends.zip(starts).zip(texts).flat_map(|((from, to), edit)| {
            let keep = (from < to).then_some(Segment::Keep(from..to));
            let insert = edit.map(|edit| edit.text.bytes()).filter(|bytes| !bytes.is_empty()).map(Segment::Insert);
            [keep, insert].into_iter().flatten()
        })
    }

    /// Writes the edited body after what `out` holds: for bodies so small that one copy is cheaper than several pieces.
    pub fn apply_to(&self, body: &[u8], out: &mut Vec<u8>) {
        out.reserve(self.len_after(body.len()));
        for segment in self.segments(body.len()) {
            match segment {
                Segment::Keep(range) => out.extend_from_slice(body.get(range).unwrap_or_default()),
                Segment::Insert(bytes) => out.extend_from_slice(bytes),
            }
        }
    }

    fn edits(&self) -> impl Iterator<Item = &Edit<'t>> {
        self.list.iter().take(self.len)
    }

    fn insert(&mut self, at: usize, text: &'static str) {
        self.replace(Span { start: at, end: at }, text);
    }

    fn replace(&mut self, span: Span, text: &'static str) {
        self.add(span, Words::Text(Cow::Borrowed(text)));
    }

    /// Adds an edit at its place in the order. Each builder is used once a body, so that there is always room.
    fn add(&mut self, span: Span, text: Words<'t>) {
        assert!(self.len < MOST, "each builder is used once for a body");
        let Span { start, end } = span;
        let at = self.edits().take_while(|edit| edit.start <= start).count();
        self.list[self.len] = Edit { start, end, text };
        self.list[at..=self.len].rotate_right(1);
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::scan;

    fn edited(body: &str, edit: impl FnOnce(&mut Edits<'static>, &Scan)) -> String {
        let scan = scan(body.as_bytes()).unwrap();
        let mut edits = Edits::new();
        edit(&mut edits, &scan);
        let mut out = Vec::new();
        edits.apply_to(body.as_bytes(), &mut out);
        assert_eq!(out.len(), edits.len_after(body.len()), "{body}");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn usage_is_asked_for_whatever_the_client_said_of_it() {
        for (before, after) in [
            ("", r#""stream_options":{"include_usage":true},"#),
            (r#""stream_options":null,"#, r#""stream_options":{"include_usage":true},"#),
            (r#""stream_options": { } ,"#, r#""stream_options": {"include_usage":true } ,"#),
            (r#""stream_options":{"x":1},"#, r#""stream_options":{"include_usage":true,"x":1},"#),
            (r#""stream_options":{"include_usage":false},"#, r#""stream_options":{"include_usage":true},"#),
            (r#""stream_options":{"include_usage" : null},"#, r#""stream_options":{"include_usage" : true},"#),
            (
                r#""stream_options":{"continuous_usage_stats":true},"#,
                r#""stream_options":{"include_usage":true,"continuous_usage_stats":false},"#,
            ),
            (
                r#""stream_options":{"continuous_usage_stats":true,"include_usage":false},"#,
                r#""stream_options":{"continuous_usage_stats":false,"include_usage":true},"#,
            ),
        ] {
            let body = |options: &str| format!(r#"{{{options}"model":"a","stream":true}}"#);
            assert_eq!(edited(&body(before), |edits, scan| edits.include_usage(scan)), body(after), "{before}");
        }
    }

    #[test]
    fn nothing_is_edited_when_the_client_asks_for_usage_or_does_not_stream() {
        for body in [
            r#"{"model":"a","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#,
            r#"{"model":"a","stream":false}"#,
            r#"{"model":"a","stream":null,"stream_options":{"include_usage":false}}"#,
            r#"{"model":"a"}"#,
        ] {
            let scan = scan(body.as_bytes()).unwrap();
            let mut edits = Edits::new();
            edits.include_usage(&scan);
            assert!(edits.is_empty(), "{body}");
            assert_eq!(edits.segments(body.len()).collect::<Vec<_>>(), [Segment::Keep(0..body.len())]);
        }
    }

    #[test]
    fn all_edits_together_keep_their_order() {
        let body = r#"{"stream":true,"model":"alias","seed":9007199254740993}"#;
        let all = |edits: &mut Edits<'static>, scan: &Scan| {
            edits.served_model(scan, "org/m:7b@q4");
            edits.include_usage(scan);
            edits.priority(scan, i64::MIN);
        };
        assert_eq!(
            edited(body, all),
            r#"{"stream_options":{"include_usage":true},"priority":-9223372036854775808,"stream":true,"model":"org/m:7b@q4","seed":9007199254740993}"#
        );
    }

    #[test]
    fn a_priority_that_is_there_is_replaced() {
        let body = r#"{"priority": 7 ,"model":"a"}"#;
        assert_eq!(edited(body, |edits, scan| edits.priority(scan, -2)), r#"{"priority": -2 ,"model":"a"}"#);
    }

    #[test]
    fn a_name_with_quotes_is_escaped() {
        let body = r#"{"model":"\u0061"}"#;
        assert_eq!(edited(body, |edits, scan| edits.served_model(scan, "模\"型\n")), r#"{"model":"模\"型\n"}"#);
    }

    #[test]
    fn what_stays_is_a_range_of_the_original() {
        let body = r#"{"model":"alias"}"#;
        let scan = scan(body.as_bytes()).unwrap();
        let mut edits = Edits::new();
        edits.served_model(&scan, "m");
        let segments: Vec<_> = edits.segments(body.len()).collect();
        assert_eq!(segments, [Segment::Keep(0..10), Segment::Insert(b"m"), Segment::Keep(15..17)]);
    }
}
