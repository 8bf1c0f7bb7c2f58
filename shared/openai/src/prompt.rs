//! A request's prompt as pieces of the body, in the order in which an engine puts it together: what of two requests an
//! engine's prefix cache could share.
//!
//! Called once a request, for whoever hashes the prompt. Changes with the forms a prompt can have. Never copies or
//! decodes: the pieces are bytes as the client wrote them. A difference in spelling is a difference, which costs a
//! match and nothing else.

use std::sync::LazyLock;

use memchr::{memchr, memmem};

use crate::reader::{Kind, Reader, Span};
use crate::scan::Scan;

/// Media below this stays part of the text.
const MEDIA_BYTES_MIN: usize = 256;
/// Bytes that are in no UTF-8 text, one before each field, so that one field's text is never taken for another's.
const MARKS: [&[u8]; 6] = [b"\xf8", b"\xf9", b"\xfa", b"\xfb", b"\xfc", b"\xfd"];
/// How the data of pictures and sound begins: a `data:` URL, or the value of a field `data`.
static DATA: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\"data"));

/// A piece of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    /// Text, as it is written in the body.
    Text(&'b [u8]),
    /// A picture or sound within the body: to be known by its content, whatever its size.
    Media(&'b [u8]),
    /// Another prompt of the same request begins; engines share nothing between it and what came before.
    NextPrompt,
}

impl Scan {
    /// Tells the pieces of the prompt: system, tools and the whole history, the end included. `body` is what was
    /// scanned.
    ///
    /// A prompt given as a string, a list of one, or a list of others is cut into prompts alike; token ids are text.
    /// Cost: one search for media where there may be any; no allocation.
    pub fn prompt_pieces<'b>(&self, body: &'b [u8], mut tell: impl FnMut(Piece<'b>)) {
        let prompts = &self.prompts;
        let fields =
            [prompts.system, prompts.instructions, prompts.tools, prompts.messages, prompts.prompt, prompts.input];
        for (field, mark) in fields.into_iter().zip(MARKS) {
            let Some(text) = field.map(|span| span.of(body)) else { continue };
            let is_listed = field == prompts.prompt || field == prompts.input;
            if is_listed && one_by_one(text, mark, &mut tell).is_some() {
                continue;
            }
            tell(Piece::Text(mark));
            if self.may_hold_media {
                with_media(text, &mut tell);
            } else {
                tell(Piece::Text(text));
            }
        }
    }
}

/// Tells the prompts of `prompt` or `input`. `None`, with nothing told, where the value is one conversation.
fn one_by_one<'b>(text: &'b [u8], mark: &'static [u8], tell: &mut impl FnMut(Piece<'b>)) -> Option<()> {
    let mut reader = Reader::new(text);
    if reader.peek() != Some(b'[') {
        let Kind::String(inside) = reader.value().ok()?.kind else { return None };
        tell(Piece::Text(mark));
        tell(Piece::Text(inside.span.of(text)));
        return Some(());
    }
    reader.enter_array().ok()?;
    match reader.peek() {
        Some(b'"' | b'[') => {}
        // One prompt of token ids: as an item of a list of them.
        Some(b'-' | b'0'..=b'9') => {
            tell(Piece::Text(mark));
            tell(Piece::Text(inside_brackets(text)));
            return Some(());
        }
        _ => return None,
    }
    let mut is_first = true;
    // The whole text was checked: a fault cannot come, and would only end the prompts early.
    while reader.next_item(is_first).unwrap_or(false) {
        let Ok(item) = reader.value() else { break };
        if !is_first {
            tell(Piece::NextPrompt);
        }
        is_first = false;
        tell(Piece::Text(mark));
        match item.kind {
            Kind::String(inside) => tell(Piece::Text(inside.span.of(text))),
            Kind::Array => tell(Piece::Text(inside_brackets(item.span.of(text)))),
            _ => with_media(item.span.of(text), tell),
        }
    }
    Some(())
}

fn inside_brackets(array: &[u8]) -> &[u8] {
    array.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or(array)
}

/// Tells text with its media apart.
fn with_media<'b>(text: &'b [u8], tell: &mut impl FnMut(Piece<'b>)) {
    let mut done = 0;
    for at in DATA.find_iter(text) {
        if at < done || is_escaped(text, at) {
            continue;
        }
        let Some(data) = media_at(text, at).filter(|data| data.len_bytes() >= MEDIA_BYTES_MIN) else { continue };
        tell(Piece::Text(Span { start: done, end: data.start }.of(text)));
        tell(Piece::Media(data.of(text)));
        done = data.end;
    }
    tell(Piece::Text(text.get(done..).unwrap_or_default()));
}

/// The inside of the string that begins at the quote at `at`, or is the value of the key there. The text after the
/// quote is `data`.
fn media_at(text: &[u8], at: usize) -> Option<Span> {
    let past = at + b"\"data".len();
    let start = match text.get(past)? {
        b':' => at + 1,
        b'"' => {
            let mut reader = Reader::new(text.get(past + 1..)?);
            (reader.peek() == Some(b':')).then_some(())?;
            let colon = past + 1 + reader.at();
            let mut reader = Reader::new(text.get(colon + 1..)?);
            (reader.peek() == Some(b'"')).then_some(())?;
            colon + 1 + reader.at() + 1
        }
        _ => return None,
    };
    let mut end = start;
    loop {
        end += memchr(b'"', text.get(end..)?)?;
        if !is_escaped(text, end) {
            return Some(Span { start, end });
        }
        end += 1;
    }
}

/// Whether the quote at `at` is part of a string, and not the end of one.
fn is_escaped(text: &[u8], at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::scan;

    /// The prompts of a body: text as written with media as `<length>`, field marks left out.
    fn prompts(body: &str) -> Vec<String> {
        let mut prompts = vec![String::new()];
        scan(body.as_bytes()).unwrap().prompt_pieces(body.as_bytes(), |piece| match piece {
            Piece::Text(mark) if MARKS.contains(&mark) => {}
            Piece::Text(text) => prompts.last_mut().unwrap().push_str(std::str::from_utf8(text).unwrap()),
            Piece::Media(data) => prompts.last_mut().unwrap().push_str(&format!("<{}>", data.len())),
            Piece::NextPrompt => prompts.push(String::new()),
        });
        prompts
    }

    fn check(fields: &str, expected: &[&str]) {
        assert_eq!(prompts(&format!(r#"{{"model":"m",{fields}}}"#)), expected, "{fields}");
    }

    #[test]
    fn a_prompt_is_a_string_strings_ids_or_lists_of_ids() {
        for field in ["prompt", "input"] {
            let check = |value: &str, expected: &[&str]| check(&format!(r#""{field}":{value}"#), expected);
            check(r#""say \"hi\"""#, &[r#"say \"hi\""#]);
            check(r#"["one"]"#, &["one"]);
            check(r#"[ "one" , "two" ]"#, &["one", "two"]);
            check("[1, 2,3]", &["1, 2,3"]);
            check("[[1,2],[3]]", &["1,2", "3"]);
            check(r#"["one",[4,5]]"#, &["one", "4,5"]);
            check("[]", &["[]"]);
            check(r#"[{"role":"user","content":"x"}]"#, &[r#"[{"role":"user","content":"x"}]"#]);
            check("{}", &["{}"]);
        }
    }

    #[test]
    fn tools_and_the_whole_history_are_told_in_the_engines_order() {
        let fields = r#""messages":[{"a":1},{"b":2}],"max_tokens":5,"tools":[{"t":1}],"system":"s""#;
        check(fields, &[r#""s"[{"t":1}][{"a":1},{"b":2}]"#]);
    }

    #[test]
    fn media_are_told_apart_wherever_they_stand_and_nothing_else_is() {
        let long = "QUJD".repeat(100);
        let url = |data: &str| format!(r#""messages":[{{"image_url":{{"url":"data:image/png;base64,{data}"}}}}]"#);
        check(&url(&long), &[r#"[{"image_url":{"url":"<422>"}}]"#]);
        check(&url("QUJD"), &[r#"[{"image_url":{"url":"data:image/png;base64,QUJD"}}]"#]);
        let field = format!(r#""messages":[{{"source":{{"data" : "{long}\/{long}","x":"data"}}}}]"#);
        check(&field, &[r#"[{"source":{"data" : "<802>","x":"data"}}]"#]);
        // Within a text it is text.
        let quoted = format!(r#""messages":[{{"content":"see \"data:{long}\" and \\\"data\":\"{long}\""}}]"#);
        let text = quoted.strip_prefix(r#""messages":"#).unwrap();
        check(&quoted, &[text]);
        let after_backslash = format!(r#""messages":[{{"a":"\\","b":"data:{long}"}}]"#);
        check(&after_backslash, &[r#"[{"a":"\\","b":"<405>"}]"#]);
    }
}
