//! What the engine does wrong on purpose: the vocabulary of faults, and how a request asks for them.
//!
//! Called by the front. A fault set comes from the configuration (for every request), from the header `x-sim`, or from
//! a marker in the prompt, `@@sim {"close_after_bytes":100} @@`, which survives a gateway that drops headers. A later
//! source replaces single fields of an earlier one; `null` takes a field back. Pure: no I/O, no clock.
//!
//! The marker may stand in a JSON string (its quotes then are `\"`) or anywhere else in the body; the first one
//! counts, and its document may not contain ` @@`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::base64;
use llmgw_kit::chance::Chance;

/// Bytes and a wait before they are written.
///
/// Shape: in JSON `["text", delay_us]`, `"text"`, or `{"text" or "base64": "…", "delay_us": 0}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub bytes: Vec<u8>,
    /// Wait before the write, in microseconds.
    pub delay_us: u64,
}

/// How a body is laid out on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// One HTTP chunk for each piece.
    Chunked,
    /// One HTTP chunk, and one write, for each byte.
    ChunkedBytes,
    /// `Content-Length`.
    Length,
    /// Neither: the body ends when the connection does.
    Close,
    /// The script is the whole reply, head included; afterwards the connection is closed.
    Raw,
}

/// Which paths the configured faults touch. Faults that a request asks for itself always apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// `POST` under `/v1/`.
    Inference,
    /// Every path but those under `/sim/`.
    All,
}

/// When to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gzip {
    /// When `Accept-Encoding` names gzip.
    Accepted,
    /// Always.
    Forced,
}

/// Everything that can go wrong. An absent field means: as a healthy engine does.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Whom the configured faults touch; inference when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,

    // What is answered.
    /// The reply's body, written exactly so, piece by piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<Vec<Piece>>,
    /// Layout of the body. Without it a script is chunked, a stream chunked and anything else has a length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// Status of the reply, body or script given here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Headers to set, in order; the first of a name replaces the engine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<(String, String)>>,
    /// A body in place of the engine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// A body of so many MiB of letters, in place of the engine's; streamed as events when the request asks for a
    /// stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_mib: Option<u32>,
    /// Number of content events (or tokens) for each choice, whatever the request says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u32>,
    /// Size of each content event in bytes, `data: ` and blank line included; too small a number changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_bytes: Option<usize>,
    /// Wait between events in microseconds; takes the request out of the batch, so that its pace is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<u64>,
    /// Writes `"sent_unix_ns"`, when it is sent in nanoseconds since 1970, into each content event of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamp: Option<bool>,
    /// The `usage` value wherever the engine would write one: any JSON, kept to the letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<RawValue>>,
    /// `usage` values for single events of a stream: `[[1, {…}], [9, {…}]]`, content events counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_at: Option<Vec<(u32, Box<RawValue>)>>,
    /// Answers 400 to a request with `stream_options`, as engines do that do not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuse_stream_options: Option<bool>,
    /// Answers 400 to a request with another `priority` than 0, as engines do that order their queue by arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuse_priority: Option<bool>,
    /// Answers 302 with this `Location`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<String>,
    /// Shares of requests that get a status instead of an answer: `{"503": 0.1, "429": 0.05}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<BTreeMap<String, f64>>,
    /// `Retry-After` on the statuses of `rates` and on 429 and 503 of `status`, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u32>,

    // What the head says.
    /// `Content-Type`, right or wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// `Content-Length`, right or wrong; the connection is closed after the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_length: Option<u64>,
    /// Compresses JSON and streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gzip: Option<Gzip>,
    /// Trailers after a chunked body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trailers: Option<Vec<(String, String)>>,
    /// Put behind the size of every chunk, such as `;a=b`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_extension: Option<String>,
    /// Announces `Connection: close` and closes after the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_close: Option<bool>,

    // How time passes.
    /// Wait before the first byte of the reply, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_delay_us: Option<u64>,
    /// Stops after so many events (or script pieces) …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_after_events: Option<u32>,
    /// … for so many microseconds; without it until `POST /sim/release`, which also ends every other stall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_us: Option<u64>,
    /// Reads the request and never answers (until `POST /sim/release`, which closes the connection).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blackhole: Option<bool>,

    // How connections end.
    /// Ends the connection after so many bytes of the body (chunk framing not counted; of the whole reply when raw).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_after_bytes: Option<u64>,
    /// Ends the connection after so many events (or script pieces).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_after_events: Option<u32>,
    /// Where a fault ends the connection: reset it instead of closing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<bool>,
    /// Closes right after a complete reply without having announced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_after_reply: Option<bool>,
    /// Closes a connection that has been idle for so many microseconds; 0 never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_close_us: Option<u64>,

    // How the engine starts. Only as configuration.
    /// `/health` answers 503, and inference too, for so many microseconds after the start or after being configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unready_us: Option<u64>,
    /// `/v1/models` lists nothing for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models_empty_us: Option<u64>,
}

impl Faults {
    /// This set, with the fields that `text` (a JSON object) names replaced.
    ///
    /// Errors: what is wrong with `text`, for a person.
    pub fn overlaid(&self, text: &str) -> Result<Faults, String> {
        type Fields = BTreeMap<String, Box<RawValue>>;
        let over: Fields = serde_json::from_str(text).map_err(|cause| cause.to_string())?;
        // Text, not values, so that chosen usage keeps its digits.
        let own = serde_json::to_string(self).map_err(|cause| cause.to_string())?;
        let mut fields: Fields = serde_json::from_str(&own).map_err(|cause| cause.to_string())?;
        for (name, value) in over {
            // `usage: null` is a value somebody may want to see on the wire.
            if value.get() == "null" && name != "usage" && Faults::knows(&name) {
                fields.remove(&name);
            } else {
                fields.insert(name, value);
            }
        }
        let joined = serde_json::to_string(&fields).map_err(|cause| cause.to_string())?;
        let mut faults: Faults = serde_json::from_str(&joined).map_err(|cause| cause.to_string())?;
        if faults.usage.is_none() && fields.contains_key("usage") {
            faults.usage = RawValue::from_string("null".to_owned()).ok();
        }
        Ok(faults)
    }

    fn knows(name: &str) -> bool {
        serde_json::from_str::<Faults>(&format!("{{{}:null}}", serde_json::Value::from(name))).is_ok()
    }

    /// The status that the dice give this request instead of an answer.
    pub fn drawn_status(&self, dice: &mut Chance) -> Option<u16> {
        let rates = self.rates.as_ref()?;
        let mut draw = dice.unit();
        for (status, rate) in rates {
            if draw < *rate {
                return status.parse().ok();
            }
            draw -= rate;
        }
        None
    }

    /// The `usage` that event `number` (from 1) is to carry.
    pub fn usage_of_event(&self, number: u32) -> Option<&RawValue> {
        let chosen = self.usage_at.as_ref()?.iter().find(|(at, _)| *at == number)?;
        Some(&chosen.1)
    }
}

/// The document of the first marker in a body, as JSON text.
pub fn marker(body: &[u8]) -> Option<String> {
    const OPEN: &[u8] = b"@@sim ";
    const CLOSE: &[u8] = b" @@";
    let start = memchr::memmem::find(body, OPEN)? + OPEN.len();
    let rest = body.get(start..)?;
    let inner = std::str::from_utf8(rest.get(..memchr::memmem::find(rest, CLOSE)?)?).ok()?;
    if serde_json::from_str::<&RawValue>(inner).is_ok() {
        return Some(inner.to_owned());
    }
    // Inside a JSON string: one level of escapes to undo.
    Some(serde_json::from_str::<String>(&format!("\"{inner}\"")).unwrap_or_else(|_| inner.to_owned()))
}

impl Serialize for Piece {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => (text, self.delay_us).serialize(to),
            Err(_) => {
                #[derive(Serialize)]
                struct Encoded {
                    base64: String,
                    delay_us: u64,
                }
                Encoded { base64: base64::encode(&self.bytes), delay_us: self.delay_us }.serialize(to)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Piece, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a piece is \"text\", [\"text\", delay_us] or {\"text\" or \"base64\", \"delay_us\"}"
        )]
        enum Written {
            Text(String),
            Pair(String, u64),
            Named { text: String, delay_us: Option<u64> },
            Encoded { base64: String, delay_us: Option<u64> },
        }
        Ok(match Written::deserialize(from)? {
            Written::Text(text) => Piece { bytes: text.into_bytes(), delay_us: 0 },
            Written::Pair(text, delay_us) => Piece { bytes: text.into_bytes(), delay_us },
            Written::Named { text, delay_us } => {
                Piece { bytes: text.into_bytes(), delay_us: delay_us.unwrap_or_default() }
            }
            Written::Encoded { base64: text, delay_us } => Piece {
                bytes: base64::decode(&text).ok_or_else(|| serde::de::Error::custom("no valid base64 in a piece"))?,
                delay_us: delay_us.unwrap_or_default(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(base: &Faults, text: &str) -> Faults {
        base.overlaid(text).unwrap_or_else(|cause| panic!("{text}: {cause}"))
    }

    #[test]
    fn a_request_replaces_single_fields_and_null_takes_one_back() {
        let base = over(&Faults::default(), r#"{"close_after_bytes":10,"reset":true}"#);
        let own = over(&base, r#"{"close_after_bytes":99,"reset":null}"#);
        assert_eq!((own.close_after_bytes, own.reset), (Some(99), None));
        let same = over(&base, "{}");
        assert_eq!((same.close_after_bytes, same.reset), (Some(10), Some(true)));
    }

    #[test]
    fn an_unknown_fault_is_named_not_ignored() {
        for text in [r#"{"close_after_byte":1}"#, r#"{"no_such":null}"#, "[]", "{", r#"{"framing":"odd"}"#] {
            assert!(Faults::default().overlaid(text).is_err(), "{text}");
        }
        let cause = Faults::default().overlaid(r#"{"close_after_byte":1}"#).unwrap_err();
        assert!(cause.contains("close_after_byte"), "{cause}");
    }

    #[test]
    fn chosen_usage_keeps_every_digit() {
        for usage in ["1e400", "\"n/a\"", "null", "{\"prompt_tokens\":9223372036854775808,\"x\":1.0}", "-1"] {
            let faults = over(&Faults::default(), &format!("{{\"usage\":{usage}}}"));
            assert_eq!(faults.usage.as_deref().map(RawValue::get), Some(usage));
            let faults = over(&faults, r#"{"events":3}"#);
            assert_eq!(faults.usage.as_deref().map(RawValue::get), Some(usage), "kept under an overlay");
        }
        let faults = over(&Faults::default(), r#"{"usage_at":[[1,{"prompt_tokens":100}],[9,1e3]]}"#);
        assert_eq!(faults.usage_of_event(9).map(RawValue::get), Some("1e3"));
        assert!(faults.usage_of_event(2).is_none());
    }

    #[test]
    fn a_script_is_text_or_base64_with_delays() {
        let text = r#"{"script":["a",["b",5],{"text":"c","delay_us":6},{"base64":"/wA="}]}"#;
        let faults = over(&Faults::default(), text);
        let expected = [(&b"a"[..], 0), (b"b", 5), (b"c", 6), (b"\xff\0", 0)]
            .map(|(bytes, delay_us)| Piece { bytes: bytes.to_vec(), delay_us });
        assert_eq!(faults.script.as_deref(), Some(&expected[..]));
        let again = over(&faults, "{}");
        assert_eq!(again.script, faults.script);
    }

    #[test]
    fn a_marker_is_found_plain_and_inside_a_json_string() {
        for (body, expected) in [
            (r#"{"messages":[{"content":"hi @@sim {\"events\":5} @@ there"}]}"#, Some(r#"{"events":5}"#)),
            (r#"raw @@sim {"events":5} @@"#, Some(r#"{"events":5}"#)),
            (r#"{"p":"@@sim {\"script\":[\"a\\nb\"]} @@"}"#, Some(r#"{"script":["a\nb"]}"#)),
            ("@@sim {} @@ @@sim {\"events\":1} @@", Some("{}")),
            ("@@sim {}", None),
            ("@@sim", None),
            ("", None),
        ] {
            assert_eq!(marker(body.as_bytes()).as_deref(), expected, "{body}");
        }
        assert_eq!(marker(b"@@sim \xff @@"), None);
    }

    #[test]
    fn rates_are_met_and_the_same_for_the_same_seed() {
        let faults = over(&Faults::default(), r#"{"rates":{"503":0.2,"429":0.1}}"#);
        let draw = |seed| {
            let mut dice = Chance::seeded(seed);
            (0..10_000).map(|_| faults.drawn_status(&mut dice)).collect::<Vec<_>>()
        };
        let drawn = draw(3);
        let share = |status| drawn.iter().filter(|&&got| got == status).count();
        assert!((1_800..2_200).contains(&share(Some(503))), "{}", share(Some(503)));
        assert!((850..1_150).contains(&share(Some(429))), "{}", share(Some(429)));
        assert_eq!(drawn, draw(3));
        assert_eq!(Faults::default().drawn_status(&mut Chance::seeded(1)), None);
    }
}
