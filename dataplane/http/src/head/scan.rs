//! Finds where a head ends, line by line, while its bytes arrive.
//!
//! Called by both halves before the parser, so that a parser only ever sees a complete head with strict line ends, and
//! that every bound is met at the byte that breaks it. Never looks into a line.

use crate::limits::HeadLimits;

/// Position of an incremental scan. Start a fresh one for each head.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct HeadScan {
    next: usize,
    line_start: usize,
    lines: usize,
}

/// A head that cannot become a good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanError {
    /// A line feed without a carriage return.
    BareLf,
    /// First line over its bound.
    FirstLineTooLong,
    /// Whole head over its bound.
    TooLong,
    /// More header lines than allowed.
    TooManyHeaders,
}

impl HeadScan {
    /// Some bytes of the head have been looked at.
    pub(crate) fn has_begun(&self) -> bool {
        self.next > 0
    }

    /// Looks at the bytes that came since the last call; `bytes` starts at the head's first byte each time.
    ///
    /// Gives the head's length, empty line included, or nothing while it is incomplete.
    pub(crate) fn advance(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<Option<usize>, ScanError> {
        while let Some(found) = memchr::memchr(b'\n', bytes.get(self.next..).unwrap_or_default()) {
            let line_feed = self.next + found;
            self.check_bounds(line_feed - self.line_start, line_feed < limits.bytes, limits)?;
            let line = bytes.get(self.line_start..line_feed).unwrap_or_default();
            let Some((b'\r', line)) = line.split_last() else { return Err(ScanError::BareLf) };
            (self.next, self.line_start) = (line_feed + 1, line_feed + 1);
            if line.is_empty() {
                return Ok(Some(self.next));
            }
            self.lines += 1;
            if self.lines > limits.headers + 1 {
                return Err(ScanError::TooManyHeaders);
            }
        }
        self.next = bytes.len();
        self.check_bounds(bytes.len() - self.line_start, bytes.len() < limits.bytes, limits)?;
        Ok(None)
    }

    /// Holds what there is of a line, its carriage return included, against the bounds. Comes before any look at the
    /// line, so that a head breaks the same rule however its bytes are split.
    fn check_bounds(&self, line_bytes: usize, has_room: bool, limits: &HeadLimits) -> Result<(), ScanError> {
        match self.lines {
            0 if !has_room || line_bytes > limits.first_line_bytes + 1 => Err(ScanError::FirstLineTooLong),
            1.. if !has_room => Err(ScanError::TooLong),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { first_line_bytes: 20, bytes: 60, headers: 3 };

    fn check(head: &str, want: Result<Option<usize>, ScanError>) {
        assert_eq!(HeadScan::default().advance(head.as_bytes(), &LIMITS), want, "{head:?}");
        let mut scan = HeadScan::default();
        let stepped = (1..=head.len()).find_map(|end| match scan.advance(&head.as_bytes()[..end], &LIMITS) {
            Ok(None) => None,
            other => Some(other),
        });
        assert_eq!(stepped.unwrap_or(Ok(None)), want, "byte by byte {head:?}");
    }

    #[test]
    fn a_head_ends_at_its_empty_line_within_its_bounds() {
        check("GET / HTTP/1.1\r\nA: b\r\n\r\nbody", Ok(Some(24)));
        check("GET / HTTP/1.1\r\nA: b\r\n\r", Ok(None));
        check("", Ok(None));
        check("GET / HTTP/1.1\nA: b\n\n", Err(ScanError::BareLf));
        check("GET / HTTP/1.1\r\nA: b\n\r\n", Err(ScanError::BareLf));
        check("\n", Err(ScanError::BareLf));
        check(&"a".repeat(20), Ok(None));
        check(&"a".repeat(22), Err(ScanError::FirstLineTooLong));
        check(&format!("{}\nb", "a".repeat(21)), Err(ScanError::BareLf));
        check(&format!("{}\nb", "a".repeat(22)), Err(ScanError::FirstLineTooLong));
        check(&format!("{}\r\n\r\n", "a".repeat(20)), Ok(Some(24)));
        check(&format!("a\r\n{}\n", "b".repeat(57)), Err(ScanError::TooLong));
        check(&format!("a\r\n{}\n", "b".repeat(56)), Err(ScanError::BareLf));
        check(&format!("a\r\n{}", "b".repeat(56)), Ok(None));
        check(&format!("a\r\n{}", "b".repeat(57)), Err(ScanError::TooLong));
        check(&format!("a\r\n{}\r\n\r\n", "b".repeat(53)), Ok(Some(60)));
        check("a\r\nb\r\nc\r\nd\r\n\r\n", Ok(Some(14)));
        check("a\r\nb\r\nc\r\nd\r\ne\r\n", Err(ScanError::TooManyHeaders));
    }
}
