//! Where the bytes are that matter inside a JSON string: quotes, backslashes and control characters.
//!
//! Called by the reader, a window at a time; most of a long prompt is passed over here. Changes with what vectors
//! machines have. Never interprets what it finds.

use wide::u8x16;

/// Bytes of a narrow window: most strings of a request end within it.
pub(crate) const NARROW: usize = 16;
/// Bytes of a wide window: what goes on beyond a narrow one is a prompt.
pub(crate) const WIDE: usize = 64;

/// A bit for each byte from `at` on that is a quote, a backslash or a control character, the first byte's lowest; and
/// how many bytes were looked at: at most [`WIDE`] where `is_long`, else [`NARROW`]; none at the end of the text.
#[inline]
pub(crate) fn window(text: &[u8], at: usize, is_long: bool) -> (u64, usize) {
    let rest = text.get(at..).unwrap_or_default();
    if is_long && let Some(block) = rest.first_chunk::<WIDE>() {
        return (wide(block), WIDE);
    }
    if let Some(block) = rest.first_chunk::<NARROW>() {
        return (u64::from(narrow(block)), NARROW);
    }
    let mut block = [b' '; NARROW];
    block.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
    (u64::from(narrow(&block)), rest.len())
}

#[inline]
fn wide(block: &[u8; WIDE]) -> u64 {
    let ([a, b, c, d], _) = block.as_chunks::<NARROW>() else { return u64::MAX };
    let (a, b, c, d) = (special(a), special(b), special(c), special(d));
    // Most of a prompt is plain, and told so in one go.
    if (a | b | c | d).to_bitmask() == 0 {
        return 0;
    }
    let marks = |quarter: u8x16| u64::from(quarter.to_bitmask());
    marks(d) << 48 | marks(c) << 32 | marks(b) << 16 | marks(a)
}

#[inline]
fn narrow(block: &[u8; NARROW]) -> u16 {
    special(block).to_bitmask() as u16
}

/// All ones where a byte is special.
#[inline(always)]
fn special(block: &[u8; NARROW]) -> u8x16 {
    let bytes = u8x16::from(*block);
    let is_control = bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
    bytes.simd_eq(u8x16::splat(b'"')) | bytes.simd_eq(u8x16::splat(b'\\')) | is_control
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_special(byte: u8) -> bool {
        byte == b'"' || byte == b'\\' || byte < 0x20
    }

    fn check(text: &[u8], at: usize, is_long: bool) {
        let (marks, width) = window(text, at, is_long);
        let rest = text.get(at..).unwrap_or_default();
        assert!(width <= rest.len() && (width > 0 || rest.is_empty()), "{width} of {}", rest.len());
        for place in 0..64 {
            let wanted = place < width && is_special(rest[place]);
            assert_eq!(marks >> place & 1 == 1, wanted, "byte {place} of {rest:?}");
        }
    }

    #[test]
    fn each_byte_is_told_wherever_it_is() {
        for byte in 0..=255 {
            for place in 0..NARROW {
                let mut block = [b'x'; NARROW];
                block[place] = byte;
                let wanted = if is_special(byte) { 1 << place } else { 0 };
                assert_eq!(narrow(&block), wanted, "{byte} at {place}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_seen_as_byte_by_byte(
            text in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'\\'), Just(0x1f)], 0..200),
            at in 0_usize..210,
            is_long: bool,
        ) {
            check(&text, at, is_long);
        }
    }
}
