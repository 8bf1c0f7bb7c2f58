//! Request and response heads: what is taken has one reading, which a plain second reader shares, whatever the split.
//!
//! The input's first byte says how many of the following bytes are piece sizes; the rest is what the peer sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_http::body::Framing;
use llmgw_http::head::{AnswerTo, Headers, RequestHead, ResponseHead, Version};
use llmgw_http::limits::{HeadLimits, ServerLimits};
use llmgw_http::name::is_hop_by_hop;

/// Small, so that short inputs meet the bounds.
const LIMITS: HeadLimits = HeadLimits { first_line_bytes: 200, bytes: 1000, headers: 12 };

fuzz_target!(|input: &[u8]| {
    let Some((&size_count, rest)) = input.split_first() else { return };
    let (sizes, raw) = rest.split_at(usize::from(size_count % 16).min(rest.len()));
    for limits in [LIMITS, ServerLimits::default().head()] {
        request(raw, sizes, &limits);
    }
    response(raw, sizes);
});

/// Lengths of growing parts of the input.
fn parts(raw: &[u8], sizes: &[u8]) -> Vec<usize> {
    let steps = sizes.iter().scan(0, |at, size| {
        *at += usize::from(*size);
        Some(*at)
    });
    steps.take_while(|end| *end < raw.len()).collect()
}

fn request(raw: &[u8], sizes: &[u8], limits: &HeadLimits) {
    let mut head = RequestHead::default();
    let whole = head.parse(raw, limits);
    for end in parts(raw, sizes) {
        let part = RequestHead::default().parse(&raw[..end], limits);
        assert!(part == Ok(None) || part == whole, "a part says {part:?}, the whole {whole:?}");
        assert!(part != Ok(None) || !matches!(whole, Ok(Some(used)) if used <= end), "a whole head is seen at once");
    }
    let used = match whole {
        Ok(Some(used)) => used,
        Ok(None) => return assert!(raw.len() < limits.bytes && !raw.windows(4).any(|four| four == b"\r\n\r\n")),
        Err(reject) => return assert!((400..=505).contains(&reject.status)),
    };
    let lines = Lines::read(&raw[..used]);
    assert!(used <= limits.bytes && lines.first.len() <= limits.first_line_bytes);
    assert!(lines.fields.len() <= limits.headers);
    lines.agree(head.headers(), head.end_to_end());

    let words: Vec<&[u8]> = lines.first.split(|byte| *byte == b' ').collect();
    assert_eq!(words.len(), 3);
    assert_eq!(words[0], head.method());
    assert_eq!(words[2], if head.version() == Version::Http11 { b"HTTP/1.1" } else { b"HTTP/1.0" });
    assert!(head.target().starts_with(b"/") && !head.target().iter().any(|byte| *byte <= b' ' || *byte == 127));
    assert!(words[1].ends_with(head.target()) || head.target() == b"/");

    let (lengths, codings) = (lines.values("content-length"), lines.values("transfer-encoding"));
    assert!(lengths.len() + codings.len() <= 1, "two framings");
    match head.framing() {
        Framing::None => assert!(lengths.is_empty() && codings.is_empty()),
        Framing::Length(len) => assert_eq!(Some(len), number(lengths[0])),
        Framing::Chunked => assert!(codings[0].eq_ignore_ascii_case(b"chunked") && head.version() == Version::Http11),
        Framing::Close => panic!("a request cannot end with its connection"),
    }
    let hosts = lines.values("host").len();
    assert!(hosts == 1 || hosts == 0 && head.version() == Version::Http10);
    assert!(!head.keeps_alive() || head.version() == Version::Http11 && !lines.says_close());
}

fn response(raw: &[u8], sizes: &[u8]) {
    let mut head = ResponseHead::default();
    let whole = head.parse(raw, AnswerTo::Other);
    for end in parts(raw, sizes) {
        let part = ResponseHead::default().parse(&raw[..end], AnswerTo::Other);
        assert!(part == Ok(None) || part == whole, "a part says {part:?}, the whole {whole:?}");
    }
    let Ok(Some(used)) = whole else { return };
    let lines = Lines::read(&raw[..used]);
    lines.agree(head.headers(), head.end_to_end());
    let (lengths, codings) = (lines.values("content-length"), lines.values("transfer-encoding"));
    assert!(codings.len() <= 1 && (lengths.is_empty() || codings.is_empty()), "two framings");
    assert!(lengths.windows(2).all(|two| number(two[0]) == number(two[1])), "two lengths");
    match head.framing() {
        Framing::None => assert!(matches!(head.status(), 100..=199 | 204 | 304)),
        Framing::Length(len) => assert_eq!(Some(len), number(lengths[0])),
        Framing::Chunked => assert!(codings[0].eq_ignore_ascii_case(b"chunked")),
        Framing::Close => assert!(lengths.is_empty() && codings.is_empty() && !head.keeps_alive()),
    }
    assert!(!head.keeps_alive() || !lines.says_close());
    let mut to_head = ResponseHead::default();
    assert_eq!(to_head.parse(raw, AnswerTo::Head), Ok(Some(used)));
    assert_eq!(to_head.framing(), Framing::None);
}

/// A head read the simple way.
struct Lines<'r> {
    first: &'r [u8],
    fields: Vec<(&'r [u8], &'r [u8])>,
}

impl<'r> Lines<'r> {
    fn read(head: &'r [u8]) -> Self {
        let text = head.strip_suffix(b"\r\n\r\n").expect("a head ends with an empty line");
        assert!(!text.windows(4).any(|four| four == b"\r\n\r\n"), "a head ends at its first empty line");
        let mut lines = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            lines.push(line.strip_suffix(b"\r").unwrap_or(line));
        }
        let line_ends = text.windows(2).filter(|two| *two == b"\r\n").count();
        assert_eq!(line_ends + 1, lines.len(), "every line ends with both bytes");
        let first = lines.remove(0);
        let fields = lines.into_iter().map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').expect("a header has a colon");
            assert!(!line.iter().any(|byte| matches!(byte, 0..=8 | 10..=31 | 127)), "a header has no control byte");
            (&line[..colon], line[colon + 1..].trim_ascii())
        });
        Self { first, fields: fields.collect() }
    }

    fn agree(&self, all: Headers<'_>, end_to_end: Headers<'_>) {
        let all: Vec<(&[u8], &[u8])> = all.collect();
        // An engine may put a space before the colon; a client may not, and its parser has refused it.
        let fields: Vec<(&[u8], &[u8])> =
            self.fields.iter().map(|(name, value)| (name.trim_ascii_end(), *value)).collect();
        assert_eq!(all, fields);
        let nominated: Vec<&[u8]> =
            self.values("connection").iter().flat_map(|value| value.split(|b| *b == b',')).collect();
        for (name, _) in end_to_end {
            assert!(!is_hop_by_hop(name) && !name.eq_ignore_ascii_case(b"content-length"));
            let is_option = name.eq_ignore_ascii_case(b"close") || name.eq_ignore_ascii_case(b"keep-alive");
            assert!(is_option || !nominated.iter().any(|option| option.trim_ascii().eq_ignore_ascii_case(name)));
        }
    }

    fn values(&self, name: &str) -> Vec<&'r [u8]> {
        let fields = self.fields.iter();
        fields
            .filter(|(known, _)| known.trim_ascii_end().eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, v)| *v)
            .collect()
    }

    fn says_close(&self) -> bool {
        let options = self.values("connection").into_iter().flat_map(|value| value.split(|b| *b == b','));
        options.into_iter().any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    }
}

fn number(text: &[u8]) -> Option<u64> {
    assert!(text.iter().all(u8::is_ascii_digit));
    std::str::from_utf8(text).ok()?.parse().ok()
}
