//! What the tests of this crate share: recordings without their framing, and one way to run a stream through a tap.

#![allow(dead_code, reason = "each test file uses its part")]

use llmgw_openai::patch::Edits;
use llmgw_openai::scan::{Scan, scan};
use llmgw_openai::tap::{Learned, StreamTap, Withhold};

pub(crate) fn recording(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/engines/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The payload of a recorded response, chunk framing taken off.
pub(crate) fn payload(name: &str) -> Vec<u8> {
    let response = recording(name);
    let head_end = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&response[..head_end]).to_lowercase();
    let mut rest = &response[head_end + 4..];
    if !head.contains("transfer-encoding: chunked") {
        return rest.to_vec();
    }
    let mut payload = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return payload;
        }
        payload.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 2 + size + 2..];
    }
}

/// What a client gets of a stream that comes in these chunks, and what is learned of it.
pub(crate) fn relay<'c>(withhold: Withhold, chunks: impl IntoIterator<Item = &'c [u8]>) -> (Vec<u8>, Learned) {
    let mut tap = StreamTap::new(withhold);
    let (mut sent, mut out) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let range = tap.feed(chunk, &mut out);
        sent.extend_from_slice(&out);
        sent.extend_from_slice(&chunk[range]);
    }
    tap.end(&mut out);
    sent.extend_from_slice(&out);
    (sent, *tap.learned())
}

/// Splits `bytes` at `cuts`, in any order and also beyond the end.
pub(crate) fn split<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let mut parts = Vec::new();
    let mut from = 0;
    for cut in cuts.into_iter().chain([bytes.len()]) {
        parts.push(&bytes[from..cut]);
        from = cut;
    }
    parts
}

pub(crate) fn edited(body: &[u8], edit: impl FnOnce(&mut Edits<'_>, &Scan)) -> Vec<u8> {
    let scan = scan(body).unwrap();
    let mut edits = Edits::new();
    edit(&mut edits, &scan);
    let mut out = Vec::new();
    edits.apply_to(body, &mut out);
    assert_eq!(out.len(), edits.len_after(body.len()));
    out
}
