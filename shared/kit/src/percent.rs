//! What stands in the paths and queries of addresses.
//!
//! Called by whoever serves an admin API. Changes only if the encoding does.

/// Undoes percent-encoding; `None` for what is no text. Cost: one allocation.
pub fn decoded(written: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push(high << 4 | low);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_and_what_is_cut_short_or_no_text_is_not() {
        for (written, meant) in [
            ("plain", Some("plain")),
            ("a%2Fb%3f", Some("a/b?")),
            ("%E6%A8%A1", Some("模")),
            ("h:1", Some("h:1")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%ff", None),
        ] {
            assert_eq!(decoded(written).as_deref(), meant, "{written}");
        }
    }
}
