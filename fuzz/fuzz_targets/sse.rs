//! Event framing and stream tap: events are those of a plain reading of the format, and any split of a stream gives the
//! same events, sends the same bytes, learns the same.
//!
//! The input's first byte says how many of the following bytes are chunk sizes; the rest is the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_openai::sse::{Class, Splitter};
use llmgw_openai::tap::{Learned, StreamTap, Withhold};

fuzz_target!(|input: &[u8]| {
    let Some((&size_count, rest)) = input.split_first() else { return };
    let (sizes, stream) = rest.split_at(usize::from(size_count % 32).min(rest.len()));
    let chunks = cut(stream, sizes);
    let whole = events(&[stream]);
    assert_eq!(events(&chunks), whole, "any split gives the same events");
    let mut from = 0;
    for event in &whole {
        assert_eq!(event.start, from, "events follow each other without a gap");
        from = event.end;
    }
    let data: Vec<&[u8]> =
        whole.iter().filter(|event| event.class != Class::Comment).map(|event| &event.data[..]).collect();
    assert_eq!(data, plain_reading(stream), "events are those of a plain reading");
    for withhold in [Withhold::Nothing, Withhold::UsageEvent] {
        let (sent, learned) = relay(withhold, &[stream]);
        assert_eq!(relay(withhold, &chunks), (sent.clone(), learned), "any split sends and learns the same");
        if withhold == Withhold::Nothing {
            assert_eq!(sent, stream, "bytes pass unchanged");
        }
        assert_eq!(sent.len() == stream.len(), learned.withheld_count == 0, "only withheld events are missing");
    }
});

fn cut<'s>(stream: &'s [u8], sizes: &[u8]) -> Vec<&'s [u8]> {
    let mut chunks = Vec::new();
    let mut rest = stream;
    for &size in sizes {
        let (chunk, tail) = rest.split_at(usize::from(size).min(rest.len()));
        chunks.push(chunk);
        rest = tail;
    }
    chunks.push(rest);
    chunks
}

#[derive(Debug, PartialEq)]
struct Seen {
    start: usize,
    end: usize,
    class: Class,
    name: Vec<u8>,
    data: Vec<u8>,
}

fn events(chunks: &[&[u8]]) -> Vec<Seen> {
    let mut splitter = Splitter::new();
    let mut seen: Vec<Seen> = Vec::new();
    let mut before = 0;
    for chunk in chunks {
        if splitter.begin(chunk) == 1 {
            seen.last_mut().expect("an LF is owed to an event").end += 1;
        }
        while let Some(event) = splitter.next_event(chunk) {
            let end = before + event.end;
            seen.push(Seen {
                start: end - event.bytes.len(),
                end,
                class: event.class,
                name: event.name.to_vec(),
                data: event.data.to_vec(),
            });
        }
        before += chunk.len();
    }
    seen
}

/// The data of each complete event, read as the format's text says it, line by line.
fn plain_reading(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let (mut seen, mut data) = (Vec::new(), None::<Vec<u8>>);
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        let line = &rest[..end];
        rest = &rest[end..];
        rest = rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]);
        if line.is_empty() {
            seen.extend(data.take());
        } else if line == b"data" || line.starts_with(b"data:") {
            let value = line.get(5..).unwrap_or_default();
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut data {
                Some(data) => data.extend([b"\n", value].concat()),
                None => data = Some(value.to_vec()),
            }
        }
    }
    seen
}

fn relay(withhold: Withhold, chunks: &[&[u8]]) -> (Vec<u8>, Learned) {
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
