//! Reads Prometheus text, as tolerantly as a scraper that cannot choose its engines must.
//!
//! Takes the text format in its versions and what of OpenMetrics goes beyond it: labels in any order, escapes, quoted
//! metric names, `NaN`, infinities, exponents, timestamps, exemplars, `# EOF`, CRLF, no last newline. A line that is
//! none of that is skipped and counted; the lines after it are read. Nothing is allocated, nothing panics, and the
//! work is linear in the text, whose size the caller bounds.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

/// Lines beyond this are skipped unread.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// One number of a page.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    pub name: &'a str,
    pub labels: Labels<'a>,
    pub value: f64,
}

/// Walks a page's samples in their order.
#[derive(Clone, Debug)]
pub struct Samples<'a> {
    lines: Lines<'a>,
    skipped_lines: usize,
}

impl<'a> Samples<'a> {
    pub fn new(page: &'a [u8]) -> Self {
        Self { lines: Lines { rest: page }, skipped_lines: 0 }
    }

    /// Lines passed so far that could not be read.
    pub fn skipped_lines(&self) -> usize {
        self.skipped_lines
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Sample<'a>;

    fn next(&mut self) -> Option<Sample<'a>> {
        loop {
            match read_line(self.lines.next()?) {
                Some(sample) => return Some(sample),
                None => self.skipped_lines += 1,
            }
        }
    }
}

/// The samples whose name is wanted, in their order: what `Samples` gives of them, without reading the other lines
/// beyond their name. A page is mostly histograms that nobody here asks for.
pub(crate) fn wanted<'a>(page: &'a [u8], is_wanted: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = Sample<'a>> {
    Lines { rest: page }.filter_map(move |line| {
        let name = line.get(..name_len(line)?)?;
        if name.is_empty() {
            // The name, if there is one, stands inside the braces.
            read_line(line).filter(|sample| is_wanted(sample.name.as_bytes()))
        } else if is_wanted(name) {
            read_line(line)
        } else {
            None
        }
    })
}

/// Lines that may be samples: neither blank nor a comment.
#[derive(Clone, Debug)]
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let (line, rest) = match memchr(b'\n', self.rest).and_then(|at| self.rest.split_at_checked(at)) {
                Some((line, rest)) => (line, rest.get(1..).unwrap_or_default()),
                None => (self.rest, &[][..]),
            };
            self.rest = rest;
            let line = line.trim_ascii();
            if !line.is_empty() && !line.starts_with(b"#") {
                return Some(line);
            }
        }
        None
    }
}

/// A sample's labels in the order of the text.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// What stood between the braces, found well-formed.
    text: &'a str,
}

impl<'a> Labels<'a> {
    pub fn iter(self) -> impl Iterator<Item = Label<'a>> {
        let mut rest = self.text;
        std::iter::from_fn(move || {
            loop {
                let (item, after) = next_item(rest).ok()??;
                rest = after;
                if let Item::Label(label) = item {
                    return Some(label);
                }
            }
        })
    }

    pub fn find(self, name: &str) -> Option<Label<'a>> {
        self.iter().find(|label| label.name == name)
    }
}

/// A label and its value as written, escapes and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    pub name: &'a str,
    pub raw: &'a str,
}

impl<'a> Label<'a> {
    /// The value itself. An escape that the format does not know stands for itself.
    pub fn value(self) -> Cow<'a, str> {
        if memchr(b'\\', self.raw.as_bytes()).is_none() {
            return Cow::Borrowed(self.raw);
        }
        let mut value = String::with_capacity(self.raw.len());
        let mut chars = self.raw.chars();
        while let Some(c) = chars.next() {
            match if c == '\\' { chars.next() } else { Some(c) } {
                Some('n') if c == '\\' => value.push('\n'),
                Some(escaped @ ('\\' | '"')) if c == '\\' => value.push(escaped),
                Some(other) if c == '\\' => value.extend(['\\', other]),
                Some(plain) => value.push(plain),
                None => value.push('\\'),
            }
        }
        Cow::Owned(value)
    }
}

/// Where the name before a line's braces or blanks ends.
fn name_len(line: &[u8]) -> Option<usize> {
    memchr3(b'{', b' ', b'\t', line)
}

fn read_line(line: &[u8]) -> Option<Sample<'_>> {
    let line = Some(line).filter(|line| line.len() <= LINE_BYTES_MAX).and_then(|line| str::from_utf8(line).ok())?;
    let (name, rest) = line.split_at_checked(name_len(line.as_bytes())?)?;
    let rest = rest.trim_ascii_start();
    let (inside, quoted_name, rest) = match rest.strip_prefix('{') {
        Some(inside) => read_braces(inside)?,
        None => ("", None, rest),
    };
    let name = match quoted_name {
        Some(quoted) if name.is_empty() && !quoted.is_empty() => quoted,
        None if is_plain(name) => name,
        _ => return None,
    };
    Some(Sample { name, labels: Labels { text: inside }, value: read_value(rest)? })
}

/// What stands up to the closing brace, a quoted metric name in it, and what follows the brace.
fn read_braces(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let mut quoted_name = None;
    let mut rest = text;
    while let Some((item, after)) = next_item(rest).ok()? {
        if let Item::Name(name) = item
            && quoted_name.replace(name).is_some()
        {
            return None;
        }
        rest = after;
    }
    let rest = list_start(rest);
    let after = rest.strip_prefix('}')?;
    let inside = text.get(..text.len() - rest.len())?;
    Some((inside, quoted_name, after))
}

enum Item<'a> {
    Label(Label<'a>),
    /// A bare string: the metric's name, moved inside since it needs quotes.
    Name(&'a str),
}

/// What stands between braces is not a list of labels.
struct Malformed;

/// The next item of a label list and what follows it; `None` at the closing brace or the end.
fn next_item(text: &str) -> Result<Option<(Item<'_>, &str)>, Malformed> {
    let text = list_start(text);
    if text.is_empty() || text.starts_with('}') {
        return Ok(None);
    }
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => {
            let (name, rest) = read_string(quoted).ok_or(Malformed)?;
            let rest = rest.trim_ascii_start();
            if !rest.starts_with('=') {
                return Ok(Some((Item::Name(name), separated(rest)?)));
            }
            (name, rest)
        }
        None => {
            let end = text.find(['=', '"', '}', ',', '{']).ok_or(Malformed)?;
            let (name, rest) = text.split_at(end);
            let name = name.trim_ascii_end();
            if !is_plain(name) {
                return Err(Malformed);
            }
            (name, rest)
        }
    };
    let value = rest.strip_prefix('=').map(str::trim_ascii_start).and_then(|rest| rest.strip_prefix('"'));
    let (raw, rest) = value.and_then(read_string).ok_or(Malformed)?;
    Ok(Some((Item::Label(Label { name, raw }), separated(rest)?)))
}

/// Whether a name may stand without quotes. Other letters than the format's are let through.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| "\"\\=,{}".contains(c) || c.is_ascii_whitespace())
}

/// After an item comes a comma, the brace, or (where the brace has been cut off) nothing.
fn separated(rest: &str) -> Result<&str, Malformed> {
    let rest = rest.trim_ascii_start();
    if rest.is_empty() || rest.starts_with([',', '}']) { Ok(rest) } else { Err(Malformed) }
}

/// A string up to its closing quote, which is left out, and what follows.
fn read_string(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return Some((text.get(..at)?, text.get(at + 1..)?));
        }
        // The escaped byte may be the first of several; the others are no quotes.
        at += 2;
    }
}

/// The number, and after it only what may follow one: a timestamp, an exemplar.
fn read_value(text: &str) -> Option<f64> {
    let (number, exemplar) = match text.split_once('#') {
        Some((number, exemplar)) => (number, Some(exemplar)),
        None => (text, None),
    };
    if exemplar.is_some_and(|exemplar| !exemplar.trim_ascii_start().starts_with('{')) {
        return None;
    }
    let mut words = number.split_ascii_whitespace();
    let value = read_number(words.next()?)?;
    if let Some(timestamp) = words.next() {
        read_number(timestamp)?;
    }
    words.next().is_none().then_some(value)
}

fn read_number(word: &str) -> Option<f64> {
    // `infinity` is Rust's; the format's own words are `Inf` and `NaN` in any case.
    word.parse().ok()
}

/// A label list from its next item on.
fn list_start(text: &str) -> &str {
    text.trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace())
}

#[cfg(test)]
mod tests;
