//! The journal of usage without its disk: a record on its way into a segment, and out of one.

use std::future::{Future, ready};
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use llmgw_journal::files::{Bring, Files, Syncing};
use llmgw_journal::segment::{self, HEAD_BYTES, Next, Salt};
use llmgw_journal::{Cells, Entry, Options, Tail, Writer, block_on};
use llmgw_kit::clock::Mono;

/// Records of a turn: what 40,000 a second are in 5 ms.
const A_TURN: u64 = 200;
const TURN: Duration = Duration::from_millis(5);

/// A record as they are: ids of 20 letters, names of a fleet.
fn entry(number: u64) -> Entry<'static> {
    Entry {
        record_id: u128::from(number) << 64,
        admitted_at: 1_764_500_000_000 + number,
        ended_at: 1_764_500_000_100 + number,
        key_id: "key-01ARZ3NDEKTSV4RRF",
        project_id: "proj-01ARZ3NDEKTSV4RRF",
        model: "llama-3.3-70b",
        served_model: "llama-3.3-70b",
        pool: "ib0/h100",
        replica: "gpu-17",
        reason: "",
        status: 200,
        prompt_tokens: 1_200,
        cached_tokens: 800,
        completion_tokens: 240,
        units_micros: 1_440_000_000,
        is_estimated: false,
        ttft_ms: Some(80),
        duration_ms: 100,
        queue_ms: None,
    }
}

/// Takes whatever is written and does nothing with it.
struct Nowhere;

impl Files for Nowhere {
    type File = ();

    fn create(&mut self, _: &str) -> impl Future<Output = io::Result<()>> {
        ready(Ok(()))
    }

    fn write(&mut self, _: &mut (), _: u64, bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
        black_box(bytes);
        ready(Ok(()))
    }

    fn sync(&mut self, _: &mut (), _: Bring) -> Syncing {
        Box::pin(ready(Ok(())))
    }

    fn discard(&mut self, _: &str) -> impl Future<Output = ()> {
        ready(())
    }

    fn close(&mut self, _: ()) -> impl Future<Output = ()> {
        ready(())
    }
}

/// One record encoded, with its checksum.
pub(super) fn frame() -> impl FnMut() {
    let salt = Salt::of("1.segment");
    let (mut bytes, mut number) = (Vec::new(), 0);
    move || {
        if number % A_TURN == 0 {
            bytes.clear();
        }
        segment::frame(black_box(&entry(number)), salt, &mut bytes);
        number += 1;
    }
}

/// One record taken, encoded and framed; every so many are written and committed, in one segment without an end.
pub(super) fn write() -> impl FnMut() {
    let options = Options {
        segment_bytes: u64::MAX,
        segment_age: Duration::from_secs(1 << 30),
        bytes_max: u64::MAX,
        ..Options::default()
    };
    let name = |number| format!("{number}.segment");
    let mut writer = Writer::new(Nowhere, options, Arc::<Tail>::default(), Arc::<Cells>::default(), name);
    let (mut now, mut number) = (Mono(1), 0);
    move || {
        number += 1;
        black_box(writer.take(black_box(&entry(number))));
        if number % A_TURN == 0 {
            now = now + TURN;
            block_on(writer.turn(now));
        }
    }
}

/// One frame of a segment checked and decoded.
pub(super) fn read() -> impl FnMut() {
    let salt = Salt::of("1.segment");
    let mut bytes = segment::head(salt).to_vec();
    (0..A_TURN).for_each(|number| segment::frame(&entry(number), salt, &mut bytes));
    let mut at = HEAD_BYTES;
    move || {
        if at == bytes.len() {
            at = HEAD_BYTES;
        }
        if let Next::Entry(entry, length) = segment::next(black_box(&bytes[at..]), salt) {
            black_box(&entry);
            at += length;
        }
    }
}
