//! Numbers of headers, written on the stack.
//!
//! Used by `respond` and `quota`. Never allocates.

use std::fmt::Write as _;

/// A number in text, on the stack.
#[derive(Default)]
pub(crate) struct Digits {
    bytes: [u8; 24],
    len: usize,
}

impl Digits {
    /// A number and its unit.
    pub(crate) fn of(number: i64, unit: &str) -> Self {
        let mut digits = Self::default();
        // Room for every i64 and a unit.
        let _ = write!(digits, "{number}{unit}");
        digits
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl std::fmt::Write for Digits {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}
