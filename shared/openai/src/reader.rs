//! A validating JSON reader: walks members, skips values, builds nothing.
//!
//! Called by the request scan, the usage reader and the error wrapper. Changes only if JSON does.
//! Never recurses, allocates or decodes; never checks UTF-8 (its callers check the whole text once, or need not).

use std::ops::Range;

use crate::special::window;

/// The deepest nesting read, the outermost object included.
pub const MAX_DEPTH: u32 = 128;

/// A range of bytes of the text that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub fn range(self) -> Range<usize> {
        self.start..self.end
    }

    pub fn len_bytes(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// The bytes of this span; empty when `text` is not the one that was read.
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.range()).unwrap_or_default()
    }
}

/// The inside of a JSON string, quotes not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    pub span: Span,
    /// Whether it holds a backslash and so differs from what it stands for.
    pub is_escaped: bool,
}

/// What is wrong, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Something else, or nothing, stands where this should.
    Expected(&'static str),
    Control,
    Escape,
    Depth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    String(Text),
    Number,
    Bool(bool),
    Null,
    Object,
    Array,
}

/// A value that was read over: what it is and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

impl Value {
    /// A plain non-negative integer that fits, else `None`: no sign, fraction or exponent.
    pub(crate) fn whole_number(&self, text: &[u8]) -> Option<u64> {
        let digits = self.span.of(text);
        if self.kind != Kind::Number || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

pub(crate) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    /// Objects entered by `enter_object` and not yet left.
    open: u32,
    /// A string that was read begins with `data`, as the data of pictures and sound does, or the key before it.
    has_data: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Reader { text, at: 0, open: 0, has_data: false }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether any string or key so far begins with `data`.
    pub(crate) fn has_data(&self) -> bool {
        self.has_data
    }

    /// The next byte that is not white space, not consumed.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Consumes `{`.
    pub(crate) fn enter_object(&mut self) -> Result<(), Fault> {
        self.expect(b'{', "an object (`{`)")?;
        self.open += 1;
        Ok(())
    }

    /// Consumes the next key of the object entered last, with its `:` and the `,` before it; or its `}`, which is
    /// `None`.
    pub(crate) fn next_key(&mut self, is_first: bool) -> Result<Option<Text>, Fault> {
        match self.peek() {
            Some(b'}') => {
                self.at += 1;
                self.open = self.open.saturating_sub(1);
                return Ok(None);
            }
            Some(b',') if !is_first => self.at += 1,
            _ if is_first => {}
            _ => return Err(self.expected("`,` or `}`")),
        }
        self.key().map(Some)
    }

    /// Consumes `[`.
    pub(crate) fn enter_array(&mut self) -> Result<(), Fault> {
        self.expect(b'[', "an array (`[`)")
    }

    /// Consumes the `,` before the next item of the array entered last, and says whether there is one; else its `]`.
    pub(crate) fn next_item(&mut self, is_first: bool) -> Result<bool, Fault> {
        match self.peek() {
            Some(b']') => {
                self.at += 1;
                return Ok(false);
            }
            Some(b',') if !is_first => self.at += 1,
            _ if is_first => {}
            _ => return Err(self.expected("`,` or `]`")),
        }
        Ok(true)
    }

    /// Whether only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end of the text")),
        }
    }

    /// The bytes of a key as they are meant, for comparing with names of ours; empty when it is longer than any of
    /// them.
    pub(crate) fn key_name<'r>(&self, key: Text, room: &'r mut [u8; 32]) -> &'r [u8]
    where
        'a: 'r,
    {
        let raw = key.span.of(self.text);
        if key.is_escaped { crate::json::unescape_short(raw, room).unwrap_or_default() } else { raw }
    }

    /// Reads over one value, whatever it holds.
    ///
    /// Cost: one pass, no recursion: which brackets are open is a bit each.
    pub(crate) fn value(&mut self) -> Result<Value, Fault> {
        let first = self.peek();
        let start = self.at;
        let kind = match first {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            _ => self.scalar()?,
        };
        if matches!(kind, Kind::Object | Kind::Array) {
            self.nested()?;
        }
        Ok(Value { kind, span: Span { start, end: self.at } })
    }

    /// Reads over an object or array, the reader standing at its bracket.
    fn nested(&mut self) -> Result<(), Fault> {
        let mut objects: u128 = 0; // bit 0: the innermost open bracket is `{`
        let mut depth = 0;
        loop {
            if objects & 1 == 0 && matches!(self.text.get(self.at), Some(b'0'..=b'9')) {
                self.plain_numbers();
            }
            let mut is_done = true; // a value was read to its end
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    if self.open + depth >= MAX_DEPTH {
                        return Err(Fault { at: self.at, why: Why::Depth });
                    }
                    self.at += 1;
                    depth += 1;
                    objects = objects << 1 | u128::from(open == b'{');
                    match self.peek() {
                        Some(close @ (b'}' | b']')) if close == open + 2 => {}
                        _ => {
                            is_done = false;
                            if open == b'{' {
                                self.key()?;
                            }
                        }
                    }
                }
                _ => {
                    self.scalar()?;
                }
            }
            while is_done {
                let is_object = objects & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if is_object {
                            self.key()?;
                        }
                        is_done = false;
                    }
                    Some(b'}') if is_object => (),
                    Some(b']') if !is_object => (),
                    _ => return Err(self.expected(if is_object { "`,` or `}`" } else { "`,` or `]`" })),
                }
                if is_done {
                    self.at += 1;
                    depth -= 1;
                    objects >>= 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads over plain numbers of an array, each with its comma: a prompt can be a million token ids. What follows,
    /// the last number included, is a value like any other.
    fn plain_numbers(&mut self) {
        let mut at = self.at;
        loop {
            let start = at;
            while let Some(b'0'..=b'9') = self.text.get(at) {
                at += 1;
            }
            let is_plain = at - start == 1 || (at > start && self.text.get(start) != Some(&b'0'));
            if !is_plain || self.text.get(at) != Some(&b',') {
                return;
            }
            at += 1;
            while self.text.get(at) == Some(&b' ') {
                at += 1;
            }
            self.at = at;
        }
    }

    fn key(&mut self) -> Result<Text, Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key in double quotes"));
        }
        let key = self.string()?;
        self.expect(b':', "`:`")?;
        Ok(key)
    }

    fn scalar(&mut self) -> Result<Kind, Fault> {
        match self.text.get(self.at) {
            Some(b'"') => Ok(Kind::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(b"true", Kind::Bool(true)),
            Some(b'f') => self.literal(b"false", Kind::Bool(false)),
            Some(b'n') => self.literal(b"null", Kind::Null),
            _ => Err(self.expected("a value")),
        }
    }

    fn literal(&mut self, word: &'static [u8], kind: Kind) -> Result<Kind, Fault> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(kind);
        }
        Err(self.expected("`true`, `false` or `null`"))
    }

    fn number(&mut self) -> Result<Kind, Fault> {
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.expected("a digit")),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(Kind::Number)
    }

    fn some_digits(&mut self) -> Result<(), Fault> {
        let from = self.at;
        self.digits();
        if self.at == from { Err(self.expected("a digit")) } else { Ok(()) }
    }

    #[inline]
    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    /// Reads a string, the reader standing at its opening quote.
    fn string(&mut self) -> Result<Text, Fault> {
        let start = self.at + 1;
        self.has_data |= self.text.get(start..start + 4) == Some(b"data");
        let (mut at, mut is_long, mut is_escaped) = (start, false, false);
        'windows: loop {
            let (mut marks, width) = window(self.text, at, is_long);
            if width == 0 {
                self.at = self.text.len();
                return Err(self.expected("the closing quote of a string"));
            }
            while marks != 0 {
                let place = marks.trailing_zeros() as usize;
                match self.text.get(at + place) {
                    Some(b'"') => {
                        let end = at + place;
                        self.at = end + 1;
                        return Ok(Text { span: Span { start, end }, is_escaped });
                    }
                    Some(b'\\') => {
                        is_escaped = true;
                        let fault = Fault { at: at + place, why: Why::Escape };
                        let after = place + escape_len(self.text, at + place).ok_or(fault)?;
                        if after >= width {
                            at += after;
                            continue 'windows;
                        }
                        marks &= u64::MAX << after;
                    }
                    _ => return Err(Fault { at: at + place, why: Why::Control }),
                }
            }
            at += width;
            is_long = true;
        }
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Fault> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.expected(what))
    }

    #[cold]
    fn expected(&self, what: &'static str) -> Fault {
        Fault { at: self.at, why: Why::Expected(what) }
    }
}

/// The length of the escape at `at`, or `None` when it is none.
fn escape_len(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => {
            let digits = text.get(at + 2..at + 6)?;
            if digits.iter().all(u8::is_ascii_hexdigit) { Some(6) } else { None }
        }
        _ => None,
    }
}
