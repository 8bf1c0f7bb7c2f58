//! Requests' bodies and answers' streams.

use std::hint::black_box;

use llmgw_openai::scan::scan as read;
use llmgw_openai::tap::{StreamTap, Withhold};

use crate::samples;

/// Scans a chat body of about `bytes` bytes.
pub(super) fn scan(bytes: usize) -> impl FnMut() {
    let body = samples::chat_body(bytes);
    move || drop(black_box(read(black_box(&body))))
}

/// Scans a chat body of `bytes` bytes without escapes.
pub(super) fn scan_plain(bytes: usize) -> impl FnMut() {
    let body = samples::plain_body(bytes);
    move || drop(black_box(read(black_box(&body))))
}

/// Taps `events` events of a stream that arrive together, cut into `pieces`, usage withheld.
pub(super) fn tap(events: usize, pieces: usize) -> impl FnMut() {
    let bytes = samples::events(events);
    let piece_bytes = bytes.len().div_ceil(pieces);
    let mut tap = StreamTap::new(Withhold::UsageEvent);
    let mut out = Vec::new();
    move || {
        for piece in bytes.chunks(piece_bytes) {
            black_box(tap.feed(black_box(piece), &mut out));
        }
    }
}
