//! Numbers of headers, written on the stack.
//!
//! Used by `respond` and `quota`. Never allocates.

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;
/// Bytes of the longest unit.
const UNIT_MAX: usize = 1;

/// A number in text, on the stack.
pub(crate) struct Digits {
    bytes: [u8; DIGITS_MAX + UNIT_MAX],
    begin: usize,
    end: usize,
}

impl Digits {
    /// A number without a unit.
    pub(crate) fn of(number: u64) -> Self {
        let mut bytes = [0; DIGITS_MAX + UNIT_MAX];
        let (mut begin, mut left) = (DIGITS_MAX, number);
        for (at, byte) in bytes.iter_mut().enumerate().take(DIGITS_MAX).rev() {
            (*byte, left, begin) = (b'0' + (left % 10) as u8, left / 10, at);
            if left == 0 {
                break;
            }
        }
        Self { bytes, begin, end: DIGITS_MAX }
    }

    /// A number of seconds, with their unit.
    pub(crate) fn seconds(number: u64) -> Self {
        let mut digits = Self::of(number);
        digits.bytes[DIGITS_MAX] = b's';
        Self { end: DIGITS_MAX + UNIT_MAX, ..digits }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.begin..self.end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Digits;

    #[test]
    fn they_are_what_the_number_is_written_as() {
        for number in [0, 7, 10, 99, 100, 1_234_567_890, u64::MAX - 1, u64::MAX] {
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
            assert_eq!(Digits::seconds(number).as_bytes(), format!("{number}s").as_bytes());
        }
    }
}
