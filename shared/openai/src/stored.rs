//! The id of a stored response, read from an answer of `/v1/responses` while it passes.
//!
//! Called by the gateway with each piece of such an answer, so that a request that names the response later can go to
//! the engine that holds it. Changes when the responses API does. Never holds a byte back, and gives up within bounds:
//! an id that is not found makes a follow-up go anywhere, which is no error.

use crate::reader::{Kind, Reader};
use crate::sse::{Class, Splitter};

/// The longest id there is. Units: bytes.
pub const ID_BYTES: usize = 128;
/// How much of a whole answer's front the id is looked for in. Units: bytes.
const FRONT_BYTES: usize = 16 * 1024;
/// In how many events of a stream; the first one has it.
const EVENTS_MAX: u32 = 8;

/// Watches one answer for its id.
#[derive(Debug)]
pub struct IdTap(State);

#[derive(Debug)]
enum State {
    Whole { front: Vec<u8> },
    Streamed { splitter: Box<Splitter>, event_count: u32 },
    Over,
}

impl IdTap {
    /// Watches an answer that is one JSON object.
    pub fn whole() -> Self {
        Self(State::Whole { front: Vec::new() })
    }

    /// Watches a stream of events.
    pub fn streamed() -> Self {
        Self(State::Streamed { splitter: Box::default(), event_count: 0 })
    }

    /// Takes the next piece. The id comes back once, with the piece that completes it.
    ///
    /// Cost: after the id, nothing; before, one look at what came, usually the first piece.
    pub fn feed(&mut self, piece: &[u8]) -> Option<String> {
        let (found, is_over) = match &mut self.0 {
            State::Over => return None,
            State::Whole { front } => {
                let room = FRONT_BYTES - front.len();
                front.extend_from_slice(piece.get(..piece.len().min(room)).unwrap_or_default());
                (id_at_top(front), front.len() == FRONT_BYTES)
            }
            State::Streamed { splitter, event_count } => {
                splitter.begin(piece);
                let mut found = None;
                while let Some(event) = splitter.next_event(piece) {
                    if event.class == Class::Data {
                        *event_count += 1;
                        found = found.or_else(|| id_in_response(&event.data));
                    }
                }
                (found, *event_count >= EVENTS_MAX)
            }
        };
        if found.is_some() || is_over {
            self.0 = State::Over;
        }
        found
    }
}

/// Whether a text can be the id of a stored response: nothing in it means anything in a path.
pub fn is_id(text: &[u8]) -> bool {
    (1..=ID_BYTES).contains(&text.len()) && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte))
}

fn id_at_top(text: &[u8]) -> Option<String> {
    let mut reader = Reader::new(text);
    reader.enter_object().ok()?;
    id_of_members(&mut reader, text)
}

fn id_in_response(text: &[u8]) -> Option<String> {
    let mut reader = Reader::new(text);
    let mut room = [0; 32];
    reader.enter_object().ok()?;
    let mut is_first = true;
    while let Some(key) = reader.next_key(is_first).ok()? {
        is_first = false;
        if reader.key_name(key, &mut room) == b"response" {
            reader.enter_object().ok()?;
            return id_of_members(&mut reader, text);
        }
        reader.value().ok()?;
    }
    None
}

/// The id among an object's members. The rest of the object may be missing.
fn id_of_members(reader: &mut Reader<'_>, text: &[u8]) -> Option<String> {
    let mut room = [0; 32];
    let mut is_first = true;
    while let Some(key) = reader.next_key(is_first).ok()? {
        is_first = false;
        let is_it = reader.key_name(key, &mut room) == b"id";
        let value = reader.value().ok()?;
        if is_it {
            let Kind::String(id) = value.kind else { return None };
            let id = id.span.of(text);
            return is_id(id).then(|| String::from_utf8_lossy(id).into_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str =
        r#"{"created_at":1,"model":"m","id":"resp_a1-B","output":[{"id":"msg_1"}],"status":"completed"}"#;
    const STREAM: &str = concat!(
        ": ping\n\n",
        "event: response.created\n",
        r#"data: {"type":"response.created","sequence_number":0,"response":{"model":"m","id":"resp_a1-B","tools":[]}}"#,
        "\n\nevent: response.output_text.delta\n",
        r#"data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"x"}"#,
        "\n\n",
    );

    #[track_caller]
    fn found(mut tap: IdTap, pieces: &[&[u8]]) -> Vec<String> {
        pieces.iter().filter_map(|piece| tap.feed(piece)).collect()
    }

    #[test]
    fn an_id_is_the_responses_own_and_nobody_elses() {
        for (body, expected) in [
            (WHOLE, vec!["resp_a1-B"]),
            (r#"{"output":[{"id":"msg_1"}],"id":"resp_2"}"#, vec!["resp_2"]),
            (r#"{"object":"list","data":[{"id":"x"}]}"#, vec![]),
            (r#"{"id":7}"#, vec![]),
            (r#"{"id":"../x"}"#, vec![]),
            (r#"{"id":""}"#, vec![]),
            ("", vec![]),
            ("RIFF", vec![]),
        ] {
            assert_eq!(found(IdTap::whole(), &[body.as_bytes()]), expected, "{body}");
        }
        assert_eq!(found(IdTap::streamed(), &[STREAM.as_bytes()]), ["resp_a1-B"]);
        assert!(found(IdTap::streamed(), &["data: [DONE]\n\n".repeat(20).as_bytes(), STREAM.as_bytes()]).len() == 1);
    }

    #[test]
    fn a_watch_ends_within_its_bounds() {
        let late = format!(r#"{{"x":"{}","id":"resp_1"}}"#, "y".repeat(FRONT_BYTES));
        assert!(found(IdTap::whole(), &late.as_bytes().chunks(1000).collect::<Vec<_>>()).is_empty());
        let events = "data: {\"type\":\"x\"}\n\n".repeat(EVENTS_MAX as usize) + STREAM;
        let parts: Vec<&[u8]> = events.as_bytes().chunks(64).collect();
        assert!(found(IdTap::streamed(), &parts).is_empty());
    }

    #[test]
    fn ids_hold_nothing_that_a_path_reads() {
        assert!(is_id(b"resp_aec3f98bba1208eb") && is_id(&[b'a'; ID_BYTES]));
        for text in [&b""[..], b"a/b", b"..", b"a?b", b"a%2fb", b"a b", &[b'a'; ID_BYTES + 1], b"\xc3\xa9"] {
            assert!(!is_id(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_split_finds_the_same_id_once(cuts in prop::collection::vec(0..400usize, 0..12)) {
            for (tap, text) in [(IdTap::whole as fn() -> IdTap, WHOLE), (IdTap::streamed, STREAM)] {
                let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
                cuts.extend([0, text.len()]);
                cuts.sort_unstable();
                let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
                prop_assert_eq!(found(tap(), &parts), ["resp_a1-B"]);
            }
        }
    }
}
