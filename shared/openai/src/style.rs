//! The shapes in which clients read errors: OpenAI's, and on the messages API Anthropic's.
//!
//! Called by the gateway wherever it writes an error, in a body or in a stream. Changes when an API with another shape
//! is served. Never changes an engine's error that already has its route's shape.

use crate::error::{self, ErrorBody, Wrapping};
use crate::{json, sse};

/// In which shape a route's errors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorStyle {
    /// `{"error":{"message","type","param","code"}}`.
    #[default]
    OpenAi,
    /// `{"type":"error","error":{"type","message"}}`, with a type that follows from the status.
    Anthropic,
}

impl ErrorStyle {
    /// Writes an error's body after what `out` holds.
    pub fn write(self, out: &mut Vec<u8>, status: u16, error: &ErrorBody<'_>) {
        match self {
            Self::OpenAi => error.write(out),
            Self::Anthropic => write_anthropic(out, anthropic_kind(status), error.message),
        }
    }

    /// Writes the event that ends a broken stream after what `out` holds.
    pub fn write_event(self, out: &mut Vec<u8>, status: u16, error: &ErrorBody<'_>) {
        match self {
            Self::OpenAi => sse::error_event(out, error),
            Self::Anthropic => {
                out.extend_from_slice(b"event: error\ndata: ");
                self.write(out, status, error);
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    /// Writes an error's body, which has this shape, as the event that ends a broken stream. In a body that is one line
    /// nothing changes; line ends, which stand between JSON's tokens only, become spaces.
    pub fn write_as_event(self, out: &mut Vec<u8>, body: &[u8]) {
        if self == Self::Anthropic {
            out.extend_from_slice(b"event: error\n");
        }
        out.extend_from_slice(b"data: ");
        out.extend(body.trim_ascii().iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
        out.extend_from_slice(b"\n\n");
    }

    /// Brings an engine's error body into this shape, keeping its message: see [`error::wrap`].
    pub fn wrap(self, body: &[u8], status: u16, out: &mut Vec<u8>) -> Wrapping {
        match self {
            Self::OpenAi => error::wrap(body, status, out),
            Self::Anthropic if error::is_typed_error(body) => Wrapping::Unneeded,
            Self::Anthropic => {
                let message = error::message_of(body, status);
                write_anthropic(out, anthropic_kind(status), &message);
                Wrapping::Written
            }
        }
    }
}

fn write_anthropic(out: &mut Vec<u8>, kind: &str, message: &str) {
    out.extend_from_slice(br#"{"type":"error","error":{"type":"#);
    json::write_string(out, kind);
    out.extend_from_slice(br#","message":"#);
    json::write_string(out, message);
    out.extend_from_slice(b"}}");
}

/// The type that the messages API has for a status.
fn anthropic_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"m","extra":1}}"#;

    #[test]
    fn an_error_of_the_gateways_has_the_shape_of_its_route() {
        let error = ErrorBody { message: "no \"room\"", kind: "server_error", param: None, code: Some("no_endpoint") };
        let written = |style: ErrorStyle| {
            let (mut body, mut event) = (Vec::new(), Vec::new());
            style.write(&mut body, 503, &error);
            style.write_event(&mut event, 503, &error);
            (String::from_utf8(body).unwrap(), String::from_utf8(event).unwrap())
        };
        let openai = r#"{"error":{"message":"no \"room\"","type":"server_error","param":null,"code":"no_endpoint"}}"#;
        assert_eq!(written(ErrorStyle::OpenAi), (openai.into(), format!("data: {openai}\n\n")));
        let anthropic = r#"{"type":"error","error":{"type":"overloaded_error","message":"no \"room\""}}"#;
        let event = format!("event: error\ndata: {anthropic}\n\n");
        assert_eq!(written(ErrorStyle::Anthropic), (anthropic.into(), event));
    }

    #[test]
    fn an_error_body_becomes_one_event_whatever_lines_it_has() {
        let written = |style: ErrorStyle, body: &str| {
            let mut event = Vec::new();
            style.write_as_event(&mut event, body.as_bytes());
            String::from_utf8(event).unwrap()
        };
        let body = "{\"error\":\r\n {\"message\": \"a\\nb\"}\n}\n";
        let line = "data: {\"error\":   {\"message\": \"a\\nb\"} }\n\n";
        assert_eq!(written(ErrorStyle::OpenAi, body), line);
        assert_eq!(written(ErrorStyle::Anthropic, OWN), format!("event: error\ndata: {OWN}\n\n"));
    }

    #[test]
    fn an_engines_error_is_brought_into_the_shape_of_the_route_unless_it_has_it() {
        let mut out = Vec::new();
        assert_eq!(ErrorStyle::Anthropic.wrap(OWN.as_bytes(), 400, &mut out), Wrapping::Unneeded);
        for (body, status, kind, message) in [
            (
                r#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#,
                400,
                "invalid_request_error",
                "too long",
            ),
            (r#"{"type":"error","error":"odd"}"#, 500, "api_error", "odd"),
            (r#"{"detail":"Not Found"}"#, 404, "not_found_error", "Not Found"),
            (r#"{"error":{"code":7}}"#, 429, "rate_limit_error", r#"{"error":{"code":7}}"#),
            ("busy", 503, "overloaded_error", "busy"),
            ("", 413, "request_too_large", "the engine answered 413 without a message"),
        ] {
            let mut out = Vec::new();
            assert_eq!(ErrorStyle::Anthropic.wrap(body.as_bytes(), status, &mut out), Wrapping::Written, "{body}");
            let expected = serde_json::json!({"type":"error","error":{"type":kind,"message":message}});
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&out).unwrap(), expected, "{body}");
        }
    }
}
