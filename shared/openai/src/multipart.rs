//! Checks a multipart form and finds the fields the gateway needs, without building or copying a part.
//!
//! Called once for each request of the audio routes, at intake. Changes when the gateway uses another field. Never
//! changes a byte: the one edit, another model's name, is told as pieces of the original. A form that two readers could
//! read differently (a field of ours given twice, a boundary with blanks behind it, an end that is missing) is refused.

use std::borrow::Cow;

use memchr::memmem::Finder;

use crate::patch::Segment;
use crate::reader::Span;
use crate::refusal::{ScanError, refusal};

/// Parts one form may have.
pub const PARTS_MAX: usize = 256;
/// The longest head of a part. Units: bytes.
pub const PART_HEAD_BYTES: usize = 8 * 1024;
/// The longest boundary, as the format has it. Units: bytes.
pub const BOUNDARY_BYTES: usize = 70;

/// What a form says, as positions in it. The body itself stays with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    model: Span,
    /// Whether `stream` says yes, in any of the words that engines take for it.
    pub is_streaming: bool,
}

impl Form {
    /// The model's name.
    pub fn model<'b>(&self, body: &'b [u8]) -> &'b str {
        std::str::from_utf8(self.model.of(body)).unwrap_or_default()
    }

    /// The body with another model's name: what stays is a range of the original, empty pieces are left out.
    pub fn with_model<'n>(&self, body_bytes: usize, name: &'n str) -> impl Iterator<Item = Segment<'n>> {
        let Span { start, end } = self.model;
        let keep = |from: usize, to: usize| (from < to).then_some(Segment::Keep(from..to));
        let insert = (!name.is_empty()).then_some(Segment::Insert(name.as_bytes()));
        [keep(0, start), insert, keep(end, body_bytes)].into_iter().flatten()
    }
}

/// Finds the boundary in the value of `Content-Type`.
///
/// Errors: another type than `multipart/form-data`, or a boundary that is missing, given twice or not of the format.
pub fn boundary(content_type: &[u8]) -> Result<Cow<'_, [u8]>, ScanError> {
    let (kind, rest) = split_once(content_type, b';').unwrap_or((content_type, b""));
    if !kind.trim_ascii().eq_ignore_ascii_case(b"multipart/form-data") {
        let message = "this path takes a form: set Content-Type to multipart/form-data with its boundary";
        return Err(refusal(None, message.into()));
    }
    let wrong = |what: &str| refusal(None, format!("the boundary in Content-Type {what}"));
    let mut found = None;
    let mut parameters = Parameters(rest);
    while let Some((name, value)) = parameters.next().map_err(|()| wrong("cannot be read"))? {
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return Err(wrong("is given twice"));
        }
    }
    let boundary = found.ok_or_else(|| wrong("is missing"))?;
    if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES {
        return Err(wrong(&format!("must have 1 to {BOUNDARY_BYTES} characters")));
    }
    let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    if !boundary.iter().all(is_plain) || boundary.ends_with(b" ") {
        return Err(wrong("holds a character that boundaries cannot have"));
    }
    Ok(boundary)
}

/// Checks a form and finds our fields, wherever they stand.
///
/// Errors: what is not a whole form within its bounds; `model` missing, empty, no text, a file, or given twice.
/// Cost: one search over the body, no allocation beyond the search's own tables.
pub fn form(body: &[u8], boundary: &[u8]) -> Result<Form, ScanError> {
    let mut parts = Parts::begin(body, boundary)?;
    let (mut model, mut stream) = (None, None);
    let mut count = 0;
    while let Some(part) = parts.next()? {
        count += 1;
        if count > PARTS_MAX {
            return Err(refusal(None, format!("the form has more than {PARTS_MAX} parts")));
        }
        match part.name.as_ref() {
            b"model" => {
                once(model.is_some(), "model", part.at)?;
                model = Some(model_of(&part, body)?);
            }
            b"stream" => {
                once(stream.is_some(), "stream", part.at)?;
                stream = Some(is_yes(part.content.of(body)));
            }
            _ => {}
        }
    }
    let Some(model) = model else {
        let message = "the part `model` is missing; name the model to use in a part of that name";
        return Err(refusal(Some("model"), message.into()));
    };
    Ok(Form { model, is_streaming: stream.unwrap_or(false) })
}

fn once(is_there: bool, name: &'static str, at: usize) -> Result<(), ScanError> {
    if !is_there {
        return Ok(());
    }
    let message =
        format!("the part `{name}` is given a second time at byte {at}; give it once, so that all read the same");
    Err(refusal(Some(name), message))
}

fn model_of(part: &Part<'_>, body: &[u8]) -> Result<Span, ScanError> {
    let wrong = |what: &str| refusal(Some("model"), format!("the part `model` at byte {} {what}", part.at));
    if part.is_file {
        return Err(wrong("is a file; send the model's name as a plain field"));
    }
    if part.is_encoded {
        return Err(wrong("has a transfer encoding; send the model's name as it is"));
    }
    match std::str::from_utf8(part.content.of(body)) {
        Ok("") => Err(wrong("is empty; name the model to use")),
        Ok(_) => Ok(part.content),
        Err(_) => Err(wrong("is no UTF-8 text")),
    }
}

fn is_yes(value: &[u8]) -> bool {
    [&b"true"[..], b"1", b"yes", b"on", b"t", b"y"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// One part of a form.
struct Part<'b> {
    name: Cow<'b, [u8]>,
    is_file: bool,
    /// Its content is not what it stands for.
    is_encoded: bool,
    /// Where its head starts.
    at: usize,
    content: Span,
}

/// A walk over the parts.
struct Parts<'b> {
    body: &'b [u8],
    /// Of the line end, the dashes and the boundary.
    delimiter: Finder<'static>,
    /// Where the next part's head starts.
    at: usize,
    has_ended: bool,
}

/// What follows a boundary.
enum After {
    Part,
    End,
    /// It is no boundary, but content that begins like one.
    Content,
}

impl<'b> Parts<'b> {
    fn begin(body: &'b [u8], boundary: &[u8]) -> Result<Self, ScanError> {
        let delimiter = [b"\r\n--", boundary].concat();
        let start = if body.starts_with(b"\r\n") { 2 } else { 0 };
        let opening = delimiter.get(2..).unwrap_or_default();
        if !body.get(start..).is_some_and(|rest| rest.starts_with(opening)) {
            let message = format!("the form does not begin with its boundary at byte {start}");
            return Err(refusal(None, message));
        }
        let at = start + opening.len();
        let delimiter = Finder::new(&delimiter).into_owned();
        let mut parts = Self { body, delimiter, at, has_ended: false };
        match parts.after(at)? {
            After::Part => parts.at = at + 2,
            After::End => parts.has_ended = true,
            After::Content => {
                return Err(refusal(None, format!("the form does not begin with its boundary at byte {start}")));
            }
        }
        Ok(parts)
    }

    fn next(&mut self) -> Result<Option<Part<'b>>, ScanError> {
        if self.has_ended {
            return Ok(None);
        }
        let at = self.at;
        let mut part = self.head(at)?;
        // A part without content has its boundary right behind the head's empty line.
        let mut from = part.content.start.saturating_sub(2);
        loop {
            let rest = self.body.get(from..).unwrap_or_default();
            let Some(found) = self.delimiter.find(rest).map(|found| from + found) else {
                let message = format!("the form ends at byte {} without its closing boundary", self.body.len());
                return Err(refusal(None, message));
            };
            let behind = found + self.delimiter.needle().len();
            match self.after(behind)? {
                After::Part => self.at = behind + 2,
                After::End => self.has_ended = true,
                After::Content => {
                    from = found + 1;
                    continue;
                }
            }
            part.content.end = found.max(part.content.start);
            return Ok(Some(part));
        }
    }

    fn after(&self, at: usize) -> Result<After, ScanError> {
        match self.body.get(at..).unwrap_or_default() {
            [b'\r', b'\n', ..] => Ok(After::Part),
            [b'-', b'-', ..] => Ok(After::End),
            [b' ' | b'\t', ..] => {
                Err(refusal(None, format!("blanks follow a boundary at byte {at}; end its line right behind it")))
            }
            _ => Ok(After::Content),
        }
    }

    /// Reads a part's head; its content's end is not known yet.
    fn head(&self, at: usize) -> Result<Part<'b>, ScanError> {
        let wrong = |what: &str| refusal(None, format!("the head of the part at byte {at} {what}"));
        let mut part = Part {
            name: Cow::Borrowed(b""),
            is_file: false,
            is_encoded: false,
            at,
            content: Span { start: at, end: at },
        };
        let mut has_disposition = false;
        let mut line_at = at;
        loop {
            let rest = self.body.get(line_at..(at + PART_HEAD_BYTES).min(self.body.len())).unwrap_or_default();
            let Some(len) = memchr::memmem::find(rest, b"\r\n") else {
                let is_long = self.body.len() > at + PART_HEAD_BYTES;
                let long = format!("is longer than {PART_HEAD_BYTES} bytes");
                return Err(wrong(if is_long { &long } else { "does not end" }));
            };
            let line = rest.get(..len).unwrap_or_default();
            line_at += len + 2;
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = split_once(line, b':').filter(|(name, _)| is_token(name)) else {
                return Err(wrong("holds a line that is no header"));
            };
            if line.contains(&b'\n') || line.contains(&b'\r') {
                return Err(wrong("holds a bare line end"));
            }
            if name.eq_ignore_ascii_case(b"content-disposition") {
                if std::mem::replace(&mut has_disposition, true) {
                    return Err(wrong("gives Content-Disposition twice"));
                }
                part.disposition(value).map_err(wrong)?;
            } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
                let value = value.trim_ascii();
                let is_plain = [&b"binary"[..], b"8bit", b"7bit"].iter().any(|word| value.eq_ignore_ascii_case(word));
                part.is_encoded |= !is_plain;
            }
        }
        if !has_disposition {
            return Err(wrong("has no Content-Disposition"));
        }
        part.content = Span { start: line_at, end: line_at };
        Ok(part)
    }
}

impl<'b> Part<'b> {
    fn disposition(&mut self, value: &'b [u8]) -> Result<(), &'static str> {
        let (kind, rest) = split_once(value, b';').unwrap_or((value, b""));
        if !kind.trim_ascii().eq_ignore_ascii_case(b"form-data") {
            return Err("is not form-data");
        }
        let mut found = None;
        let mut parameters = Parameters(rest);
        while let Some((name, value)) =
            parameters.next().map_err(|()| "has a Content-Disposition that cannot be read")?
        {
            if name.eq_ignore_ascii_case(b"name") {
                if found.replace(value).is_some() {
                    return Err("gives its name twice");
                }
            } else if name.eq_ignore_ascii_case(b"name*") {
                return Err("gives its name in the extended form; use name=\"…\"");
            } else if name.eq_ignore_ascii_case(b"filename") || name.eq_ignore_ascii_case(b"filename*") {
                self.is_file = true;
            }
        }
        self.name = found.ok_or("has no name")?;
        Ok(())
    }
}

/// `; name=value; name="value"`, from behind the first semicolon on.
struct Parameters<'b>(&'b [u8]);

type Parameter<'b> = (&'b [u8], Cow<'b, [u8]>);

impl<'b> Parameters<'b> {
    fn next(&mut self) -> Result<Option<Parameter<'b>>, ()> {
        loop {
            self.0 = self.0.trim_ascii_start();
            match self.0.split_first() {
                None => return Ok(None),
                Some((b';', rest)) => self.0 = rest,
                Some(_) => break,
            }
        }
        let (name, rest) = split_once(self.0, b'=').ok_or(())?;
        let name = name.trim_ascii_end();
        if !is_token(name) {
            return Err(());
        }
        let rest = rest.trim_ascii_start();
        let (value, rest) = match rest.split_first() {
            Some((b'"', inside)) => quoted(inside)?,
            _ => {
                let end = rest.iter().position(|&byte| byte == b';').unwrap_or(rest.len());
                let (value, rest) = rest.split_at(end);
                let value = value.trim_ascii_end();
                if value.iter().any(|&byte| byte == b'"' || byte.is_ascii_whitespace()) {
                    return Err(());
                }
                (Cow::Borrowed(value), rest)
            }
        };
        self.0 = rest.trim_ascii_start();
        if !matches!(self.0.first(), None | Some(b';')) {
            return Err(());
        }
        Ok(Some((name, value)))
    }
}

/// A quoted value from behind its opening quote, and what follows its closing one.
fn quoted(inside: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), ()> {
    let mut value = Cow::Borrowed(&b""[..]);
    let mut from = 0;
    let mut at = 0;
    loop {
        match inside.get(at).ok_or(())? {
            b'"' => {
                let part = inside.get(from..at).unwrap_or_default();
                if value.is_empty() {
                    value = Cow::Borrowed(part)
                } else {
                    value.to_mut().extend_from_slice(part)
                }
                return Ok((value, inside.get(at + 1..).unwrap_or_default()));
            }
            // Only these two are escaped; clients that put a path in a file's name leave its backslashes alone.
            b'\\' if matches!(inside.get(at + 1), Some(b'"' | b'\\')) => {
                value.to_mut().extend_from_slice(inside.get(from..at).unwrap_or_default());
                from = at + 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
}

fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

fn split_once(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(byte, text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

#[cfg(test)]
#[path = "multipart_tests.rs"]
mod tests;
