//! The error body, and engine errors brought into its shape.
//!
//! Called for every answer that is an error: the gateway's own and an engine's. Changes when a kind of error is added.
//! Never changes an engine error that already has the shape, and never writes invalid JSON, whatever the message holds.

use crate::json;
use crate::reader::{Kind, Reader, Text, Value};

/// How much of a foreign error's text is kept. Units: bytes.
pub const KEPT_TEXT_BYTES: usize = 4096;

/// One error as clients see it: `{"error":{"message":…,"type":…,"param":…,"code":…}}`.
#[derive(Clone, Copy, Debug)]
pub struct ErrorBody<'a> {
    pub message: &'a str,
    /// On the wire `type`.
    pub kind: &'a str,
    /// The request's field that is at fault.
    pub param: Option<&'a str>,
    pub code: Option<&'a str>,
}

/// What became of an engine's error body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapping {
    /// It has an `error` object already: pass it on as it is.
    Unneeded,
    /// The body to send instead was written.
    Written,
}

impl ErrorBody<'_> {
    /// Writes the body after what `out` holds.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"error":{"message":"#);
        json::write_string(out, self.message);
        out.extend_from_slice(br#","type":"#);
        json::write_string(out, self.kind);
        out.extend_from_slice(br#","param":"#);
        write_or_null(out, self.param);
        out.extend_from_slice(br#","code":"#);
        write_or_null(out, self.code);
        out.extend_from_slice(b"}}");
    }
}

/// Brings an engine's error body into the shape clients read, keeping its message.
///
/// A body with a top-level `error` object passes as it is. Of anything else the message is found (`detail`, `message`,
/// an `error` that is a string, or else the text itself), cut at [`KEPT_TEXT_BYTES`], and written into `out`.
pub fn wrap(body: &[u8], status: u16, out: &mut Vec<u8>) -> Wrapping {
    if top_value(body, b"error").is_some_and(|error| error.kind == Kind::Object) {
        return Wrapping::Unneeded;
    }
    let message = message_of(body, status);
    ErrorBody { message: &message, kind: kind_of(status), param: None, code: None }.write(out);
    Wrapping::Written
}

/// The `type` that goes with a status when nobody named one.
pub fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}

/// Whether a body is an error as the messages API has it: `type` says so, and `error` is an object.
pub(crate) fn is_typed_error(body: &[u8]) -> bool {
    let is_typed = top_value(body, b"type").is_some_and(|kind| kind.span.of(body) == b"\"error\"");
    is_typed && top_value(body, b"error").is_some_and(|error| error.kind == Kind::Object)
}

/// What an engine's error body says, whatever its shape.
pub(crate) fn message_of(body: &[u8], status: u16) -> String {
    let text = foreign_message(body);
    if text.is_empty() { format!("the engine answered {status} without a message") } else { text }
}

fn foreign_message(body: &[u8]) -> String {
    let inside = top_value(body, b"error").filter(|error| error.kind == Kind::Object).map(|error| error.span.of(body));
    if let Some((error, text)) = inside.and_then(|error| Some((error, top_string(error, b"message")?))) {
        return bounded(text.read(error).as_bytes());
    }
    for name in [&b"error"[..], b"message", b"detail"] {
        if let Some(text) = top_string(body, name) {
            return bounded(text.read(body).as_bytes());
        }
    }
    // A list of what did not validate: its JSON says it best.
    let detail = top_value(body, b"detail").filter(|value| value.kind != Kind::Null);
    bounded(detail.map_or(body, |Value { span, .. }| span.of(body)))
}

/// The text without surrounding white space, cut before the character that would pass the bound.
fn bounded(text: &[u8]) -> String {
    let text = text.trim_ascii();
    let (cut, is_cut) = match text.get(..KEPT_TEXT_BYTES) {
        Some(cut) if cut.len() < text.len() => (cut, true),
        _ => (text, false),
    };
    // A character that the cut halves is left out; bytes that are no text become U+FFFD.
    let whole = match std::str::from_utf8(cut) {
        Err(error) if is_cut && error.error_len().is_none() => cut.get(..error.valid_up_to()).unwrap_or_default(),
        _ => cut,
    };
    String::from_utf8_lossy(whole).into_owned()
}

/// The string under `name` at the top level of an object, if that is what is there.
fn top_string(text: &[u8], name: &[u8]) -> Option<Text> {
    match top_value(text, name)?.kind {
        Kind::String(found) => Some(found),
        _ => None,
    }
}

/// The value under `name` at the top level of an object that is valid JSON to its end.
fn top_value(text: &[u8], name: &[u8]) -> Option<Value> {
    let mut reader = Reader::new(text);
    let mut room = [0; 32];
    let mut found = None;
    reader.enter_object().ok()?;
    let mut is_first = true;
    while let Some(key) = reader.next_key(is_first).ok()? {
        is_first = false;
        let is_it = reader.key_name(key, &mut room) == name;
        let value = reader.value().ok()?;
        if is_it {
            found = Some(value);
        }
    }
    reader.end().ok()?;
    found
}

fn write_or_null(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => json::write_string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(body: &[u8], status: u16) -> serde_json::Value {
        let mut out = Vec::new();
        assert_eq!(wrap(body, status, &mut out), Wrapping::Written);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn an_error_object_passes_unchanged() {
        for body in
            [r#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#, r#" {"x":1,"error": {}} "#]
        {
            let mut out = Vec::new();
            assert_eq!(wrap(body.as_bytes(), 400, &mut out), Wrapping::Unneeded, "{body}");
            assert!(out.is_empty());
        }
    }

    #[test]
    fn anything_else_is_wrapped_with_its_message() {
        for (body, status, message, kind) in [
            (&br#"{"detail":"Not Found"}"#[..], 404, "Not Found", "not_found_error"),
            (br#"{"message":"slow \"down\""}"#, 429, "slow \"down\"", "rate_limit_error"),
            (br#"{"object":"error","message":"no","code":400}"#, 400, "no", "invalid_request_error"),
            (br#"{"error":"unauthorised"}"#, 401, "unauthorised", "authentication_error"),
            (br#"{"detail":[{"msg":"x"}]}"#, 422, r#"[{"msg":"x"}]"#, "invalid_request_error"),
            (br#"{"error":{"message":"cut of"#, 500, r#"{"error":{"message":"cut of"#, "server_error"),
            (b"<html>bad gateway</html>\n", 502, "<html>bad gateway</html>", "server_error"),
            (b"bad \xff byte", 500, "bad \u{fffd} byte", "server_error"),
            (b"", 503, "the engine answered 503 without a message", "server_error"),
            (b" \n", 504, "the engine answered 504 without a message", "timeout_error"),
        ] {
            let expected = serde_json::json!({"error":{"message":message,"type":kind,"param":null,"code":null}});
            assert_eq!(wrapped(body, status), expected, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let body = "x".to_owned() + &"型".repeat(KEPT_TEXT_BYTES);
        let value = wrapped(body.as_bytes(), 500);
        let message = value["error"]["message"].as_str().unwrap();
        assert_eq!(message.len(), 1 + (KEPT_TEXT_BYTES - 1) / 3 * 3);
        assert!(body.starts_with(message));
    }
}
