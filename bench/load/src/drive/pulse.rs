//! The events of a stream, counted, with the times they were written. Pure; nothing is compared or kept.

use memchr::memmem;

use crate::mock::{STAMP, STAMP_DIGITS};

/// A stream being read.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    pending: Vec<u8>,
    /// Data events but `[DONE]`.
    pub(crate) event_count: u64,
    pub(crate) is_done: bool,
    /// An event that carries an error.
    pub(crate) is_faulty: bool,
}

impl Pulse {
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        (self.event_count, self.is_done, self.is_faulty) = (0, false, false);
    }

    /// Takes decoded bytes; tells of each event that became whole, with its time where it has one.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut on: impl FnMut(Option<u64>)) {
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(bytes);
            let pending = std::mem::take(&mut self.pending);
            let mut rest = pending.as_slice();
            self.events(&mut rest, &mut on);
            self.pending = rest.to_vec();
            return;
        }
        self.events(&mut bytes, &mut on);
        self.pending.extend_from_slice(bytes);
    }

    fn events(&mut self, rest: &mut &[u8], on: &mut impl FnMut(Option<u64>)) {
        while let Some(at) = memmem::find(rest, b"\n\n") {
            let (event, after) = rest.split_at(at + 2);
            *rest = after;
            let Some(data) = event.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { continue };
            if data == b"[DONE]" {
                self.is_done = true;
                continue;
            }
            self.is_faulty |= data.starts_with(b"{\"error\"");
            self.event_count += 1;
            on(stamp(data));
        }
    }
}

fn stamp(data: &[u8]) -> Option<u64> {
    let at = memmem::find(data, STAMP)? + STAMP.len();
    let digits = data.get(at..at + STAMP_DIGITS)?;
    digits.iter().try_fold(0u64, |value, digit| {
        digit.is_ascii_digit().then(|| value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_their_times_are_read_however_the_bytes_are_cut() {
        let text = b": hello\n\ndata: {\"a\":\"sent_ns=0000000000000000017 \"}\n\ndata: {}\n\ndata: [DONE]\n\n";
        for piece_bytes in 1..=text.len() {
            let (mut pulse, mut seen) = (Pulse::default(), Vec::new());
            for piece in text.chunks(piece_bytes) {
                pulse.push(piece, |stamp| seen.push(stamp));
            }
            assert_eq!((pulse.event_count, pulse.is_done, pulse.is_faulty), (2, true, false));
            assert_eq!(seen, [Some(17), None], "in pieces of {piece_bytes}");
        }
        let mut pulse = Pulse::default();
        pulse.push(b"data: {\"error\":{}}\n\n", |_| ());
        assert!(pulse.is_faulty);
    }
}
