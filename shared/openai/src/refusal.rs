//! Why a request body is refused, in words a client can act on.
//!
//! Called by the request scan. Changes when a reason or its wording does. Never decides whether to refuse.

use crate::reader::{Fault, MAX_DEPTH, Text, Why};

/// Why a body is refused: the message and field of an OpenAI `invalid_request_error`, status 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanError {
    /// What is wrong, where (byte offset from 0), and what would be right.
    pub message: String,
    pub param: Option<&'static str>,
}

impl std::fmt::Display for ScanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ScanError {}

#[cold]
pub(crate) fn twice(param: &'static str, name: &str, key: Text) -> ScanError {
    let at = key.span.start;
    refusal(
        Some(param),
        format!("`{name}` is given a second time at byte {at}; give it once, so that all read the same"),
    )
}

#[cold]
pub(crate) fn refusal(param: Option<&'static str>, message: String) -> ScanError {
    ScanError { message, param }
}

/// Puts a fault of the JSON into words.
#[cold]
pub(crate) fn describe(body: &[u8], fault: Fault) -> ScanError {
    let at = fault.at;
    let found = match body.get(at) {
        None => "the end of the body".to_owned(),
        Some(byte) if byte.is_ascii_graphic() => format!("`{}`", char::from(*byte)),
        Some(byte) => format!("byte 0x{byte:02x}"),
    };
    let problem = match fault.why {
        Why::Expected(what) => format!("found {found}, expected {what}"),
        Why::Control => format!("found the control character {found} in a string, expected an escape such as `\\n`"),
        Why::Escape => {
            r#"found an unknown escape, expected one of `\" \\ \/ \b \f \n \r \t` or `\u` and four hex digits"#.into()
        }
        Why::Depth => format!("nested too deeply, expected at most {MAX_DEPTH} levels"),
    };
    refusal(None, format!("the body is not valid JSON at byte {at}: {problem}"))
}
