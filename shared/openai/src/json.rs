//! The one JSON string escaper and unescaper.
//!
//! Called wherever this crate writes a string into JSON or reads one out of it. Changes only if JSON does.
//! Never looks at anything but the inside of one string; whole texts are the reader's matter.

use std::borrow::Cow;

/// Writes `text` as a JSON string, quotes included.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_escaped(out, text);
    out.push(b'"');
}

/// Writes `text` as the inside of a JSON string, without the quotes.
pub fn write_escaped(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    let mut kept = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            0..0x20 | 0x7f => b'u',
            _ => continue,
        };
        out.extend_from_slice(&bytes[kept..at]);
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            out.extend_from_slice(&[b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        kept = at + 1;
    }
    out.extend_from_slice(&bytes[kept..]);
}

/// Whether `text` can stand between quotes as it is.
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\' && byte != 0x7f)
}

/// The text that the inside of a JSON string stands for, or `None` when it stands for none: a lone surrogate (`\ud800`)
/// is legal JSON text without being a character. Malformed escapes give `None` too.
///
/// Cost: allocates only when there is an escape.
pub fn unescape(inside: &str) -> Option<Cow<'_, str>> {
    if !inside.contains('\\') {
        return Some(Cow::Borrowed(inside));
    }
    let mut text = String::with_capacity(inside.len());
    decode(inside.as_bytes(), false, |piece| text.push_str(piece))?;
    Some(Cow::Owned(text))
}

/// Like [`unescape`], for messages: what is not a character becomes U+FFFD.
pub fn unescape_lossy(inside: &[u8]) -> Cow<'_, str> {
    if !inside.contains(&b'\\') {
        return String::from_utf8_lossy(inside);
    }
    let mut text = String::with_capacity(inside.len());
    let _ = decode(inside, true, |piece| text.push_str(piece));
    Cow::Owned(text)
}

/// Decodes an escaped key into `room`; `None` when it is longer than `room`, which no key we look for is.
pub(crate) fn unescape_short<'r>(inside: &[u8], room: &'r mut [u8]) -> Option<&'r [u8]> {
    let mut len = 0;
    let mut fits = true;
    decode(inside, false, |piece| match room.get_mut(len..len + piece.len()) {
        Some(place) => {
            place.copy_from_slice(piece.as_bytes());
            len += piece.len();
        }
        None => fits = false,
    })?;
    if fits { room.get(..len) } else { None }
}

/// Hands out the decoded text piece by piece. `None`, at the first piece that is not text, unless `lossy`.
fn decode(inside: &[u8], lossy: bool, mut emit: impl FnMut(&str)) -> Option<()> {
    let mut rest = inside;
    while !rest.is_empty() {
        let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        let (head, tail) = rest.split_at(plain);
        match std::str::from_utf8(head) {
            Ok(text) => emit(text),
            Err(_) if lossy => emit(&String::from_utf8_lossy(head)),
            Err(_) => return None,
        }
        rest = tail;
        if rest.is_empty() {
            break;
        }
        let (decoded, len) = escape(rest);
        match decoded {
            Some(character) => emit(character.encode_utf8(&mut [0; 4])),
            None if lossy => emit("\u{fffd}"),
            None => return None,
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    Some(())
}

/// The character an escape at the start of `text` stands for, and how many bytes it takes (two \u escapes for a pair).
fn escape(text: &[u8]) -> (Option<char>, usize) {
    let simple = match text.get(1) {
        Some(&byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => return unicode_escape(text),
        _ => return (None, 2),
    };
    (Some(simple), 2)
}

fn unicode_escape(text: &[u8]) -> (Option<char>, usize) {
    let Some(high) = text.get(2..6).and_then(hex4) else { return (None, 2) };
    if (0xd800..0xdc00).contains(&high)
        && text.get(6..8) == Some(b"\\u")
        && let Some(low @ 0xdc00..0xe000) = text.get(8..12).and_then(hex4)
    {
        return (char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 12);
    }
    (char::from_u32(high), 6)
}

fn hex4(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_unescapes_to_itself_and_is_what_serde_reads() {
        for text in ["", "plain", "org/m:7b@q4", "模型", "a\"b\\c/d\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}é🦀"] {
            let mut out = Vec::new();
            write_string(&mut out, text);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
            let inside = std::str::from_utf8(&out[1..out.len() - 1]).unwrap();
            assert_eq!(unescape(inside).unwrap(), text);
            assert_eq!(is_plain(text), inside == text);
        }
    }

    #[test]
    fn surrogates_count_only_in_pairs() {
        for (inside, strict, lossy) in [
            (r"\ud83e\udd80", Some("🦀"), "🦀"),
            (r"\uD83E\uDD80!", Some("🦀!"), "🦀!"),
            (r"\ud800", None, "\u{fffd}"),
            (r"\udc00x", None, "\u{fffd}x"),
            (r"\ud800\u0041", None, "\u{fffd}A"),
            (r"\ud800\ud83e\udd80", None, "\u{fffd}🦀"),
            (r"\u00e9\/", Some("é/"), "é/"),
            (r"\x", None, "\u{fffd}"),
            (r"\u12", None, "\u{fffd}12"),
            ("\\", None, "\u{fffd}"),
        ] {
            assert_eq!(unescape(inside).as_deref(), strict, "{inside}");
            assert_eq!(unescape_lossy(inside.as_bytes()), lossy, "{inside}");
        }
    }

    #[test]
    fn a_key_longer_than_the_room_is_no_key_of_ours() {
        let mut room = [0; 5];
        assert_eq!(unescape_short(br"mod\u0065l", &mut room), Some(&b"model"[..]));
        assert_eq!(unescape_short(br"mod\u0065ls", &mut room), None);
    }
}
