//! Multipart forms against a plain reading of them: the same model, the same parts around it, and a spliced form that
//! is read again; a form cut short is never taken.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_openai::multipart::{boundary, form};
use llmgw_openai::patch::Segment;

const BOUNDARY: &[u8] = b"bd";

fuzz_target!(|body: &[u8]| {
    if let Ok(found) = boundary(body) {
        assert!(!found.is_empty() && found.len() <= 70);
    }
    let Ok(found) = form(body, BOUNDARY) else { return };
    let (parts, end) = plain_parts(body).expect("taken, but not a whole form");
    let models: Vec<&[u8]> = parts.iter().filter(|part| part.is_named(b"model")).map(|part| part.content).collect();
    assert_eq!(models, [found.model(body).as_bytes()], "one model, and this one");
    assert!(form(&body[..end - 1], BOUNDARY).is_err(), "a form without its end");

    let mut spliced = Vec::new();
    for segment in found.with_model(body.len(), "another/model") {
        match segment {
            Segment::Keep(range) => spliced.extend_from_slice(&body[range]),
            Segment::Insert(bytes) => spliced.extend_from_slice(bytes),
        }
    }
    let again = form(&spliced, BOUNDARY).expect("a spliced form is taken again");
    assert_eq!((again.model(&spliced), again.is_streaming), ("another/model", found.is_streaming));
    let (after, _) = plain_parts(&spliced).expect("a spliced form is whole");
    assert_eq!(after.len(), parts.len());
    for (before, after) in parts.iter().zip(&after).filter(|(part, _)| !part.is_named(b"model")) {
        assert_eq!((before.head, before.content), (after.head, after.content), "another part changed");
    }
});

struct Part<'b> {
    head: &'b [u8],
    content: &'b [u8],
}

impl Part<'_> {
    /// Whether a line of the head says this name, in the spellings that the seeds and their mutations have.
    fn is_named(&self, name: &[u8]) -> bool {
        let lines = self.head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let header = b"content-disposition:";
        let mut values =
            lines.filter(|line| line.len() >= header.len() && line[..header.len()].eq_ignore_ascii_case(header));
        let line = values.next().map_or(&b""[..], |line| &line[header.len()..]);
        let mut fields = Vec::new();
        let (mut field, mut is_quoted, mut is_escaped) = (Vec::new(), false, false);
        for &byte in line {
            match byte {
                _ if is_escaped => {
                    // Only a quote and a backslash are escaped.
                    if byte != b'"' && byte != b'\\' {
                        field.push(b'\\');
                    }
                    field.push(byte);
                    is_escaped = false;
                }
                b'\\' if is_quoted => is_escaped = true,
                b'"' => is_quoted = !is_quoted,
                // White space inside quotes belongs to the value; a name with it is none of ours.
                byte if is_quoted && byte.is_ascii_whitespace() => field.push(0),
                b';' if !is_quoted => fields.push(std::mem::take(&mut field)),
                byte => field.push(byte),
            }
        }
        fields.push(field);
        fields.iter().any(|field| {
            let Some(at) = field.iter().position(|&byte| byte == b'=') else { return false };
            field[..at].trim_ascii().eq_ignore_ascii_case(b"name") && field[at + 1..].trim_ascii() == name
        })
    }
}

/// Cut at every boundary line, one byte at a time; and where the closing boundary ends.
fn plain_parts(body: &[u8]) -> Option<(Vec<Part<'_>>, usize)> {
    let start = if body.starts_with(b"\r\n") { 2 } else { 0 };
    let mut parts = Vec::new();
    let mut from = None;
    let mut at = start;
    while at < body.len() {
        let mark: &[u8] = if at == start && from.is_none() { b"--bd" } else { b"\r\n--bd" };
        let Some(rest) = body[at..].strip_prefix(mark) else {
            from?;
            at += 1;
            continue;
        };
        let is_end = rest.starts_with(b"--");
        if !is_end && !rest.starts_with(b"\r\n") {
            from?;
            at += 1;
            continue;
        }
        if let Some(from) = from {
            let part = &body[from..at.max(from)];
            // A part without content has its boundary in the empty line's place.
            let head_end = position(&body[from..], b"\r\n\r\n")?;
            parts.push(Part { head: &part[..head_end], content: part.get(head_end + 4..).unwrap_or_default() });
        }
        let behind = at + mark.len() + 2;
        if is_end {
            return Some((parts, behind));
        }
        from = Some(behind);
        // The line end of a boundary may begin the next one only behind a head, which is not there yet.
        at = behind;
    }
    None
}

fn position(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
