//! Base64 with the standard alphabet and padding: bodies and script pieces in JSON, embeddings on the wire.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |idx: usize| u32::from(group.get(idx).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for idx in 0..4 {
            if idx <= group.len() {
                out.push(ALPHABET[(word >> (18 - 6 * idx)) as usize & 63] as char);
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// Errors: `None` for letters outside the alphabet or a length that is none of base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(letters.len() * 3 / 4);
    for group in letters.chunks(4) {
        if group.len() == 1 {
            return None;
        }
        let mut word = 0u32;
        for idx in 0..4 {
            let value = match group.get(idx) {
                Some(letter) => ALPHABET.iter().position(|other| other == letter)? as u32,
                None => 0,
            };
            word = word << 6 | value;
        }
        out.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\x00\xfe\x01", "/wD+AQ==")]
        {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["A", "AAAAA", "A*==", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
