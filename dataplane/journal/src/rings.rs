//! The cores' rings, emptied into what waits for a segment, with names in place of rows and slots.
//!
//! Called by the journal's loop alone. Never takes names before the records that they are for: whatever a record names
//! has been published by then.

use std::rc::Rc;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use llmgw_kit::clock::Mono;
use llmgw_types::UsageRecord;

use crate::entry::{Entry, Named};
use crate::waiting::Waiting;

/// Records that are taken from a ring before their names are: names cost as much as a record.
const BATCH_RECORDS: usize = 64;

/// What the rows and slots in records mean.
pub trait Names {
    /// Model and pool of a metric row; nothing for a row of no pool.
    fn row(&self, row: u32) -> Option<[&str; 2]>;
    /// The endpoint of a board slot.
    fn replica(&self, slot: u32) -> Option<&str>;
}

/// The newest names there are.
pub type NewestNames = Box<dyn FnMut() -> Arc<dyn Names> + Send>;

/// The cores' rings, and where what lies in them goes.
pub(crate) struct Rings {
    rings: Vec<Arc<ArrayQueue<UsageRecord>>>,
    names: NewestNames,
    pub(crate) waiting: Rc<Waiting>,
    /// Records that were taken and have no names yet; empty between two calls.
    batch: Vec<UsageRecord>,
    /// When something was found in one.
    pub(crate) busy_at: Mono,
}

impl Rings {
    pub(crate) fn new(rings: Vec<Arc<ArrayQueue<UsageRecord>>>, names: NewestNames, waiting: Rc<Waiting>) -> Self {
        Self { rings, names, waiting, batch: Vec::with_capacity(BATCH_RECORDS), busy_at: Mono::now() }
    }

    pub(crate) fn count(&self) -> usize {
        self.rings.len()
    }

    /// Takes what lies in one of them; what comes meanwhile may wait for the next time.
    pub(crate) fn empty(&mut self, at: usize) {
        let Some(ring) = self.rings.get(at) else { return };
        let mut left = ring.len();
        if left > 0 {
            self.busy_at = Mono::now();
        }
        while left > 0 {
            self.batch.extend(std::iter::from_fn(|| ring.pop()).take(left.min(BATCH_RECORDS)));
            if self.batch.is_empty() {
                return;
            }
            left -= self.batch.len();
            // Taken after the records: whatever they name has been published.
            let names = (self.names)();
            for record in self.batch.drain(..) {
                self.waiting.take(&entry(&record, &*names));
            }
        }
    }
}

/// What stands for a model that has no row of its own, as in the metrics.
const OTHER: &str = "other";

fn entry<'a>(record: &'a UsageRecord, names: &'a dyn Names) -> Entry<'a> {
    let model = names.row(record.asked_row).map_or(OTHER, |[model, _]| model);
    let [served_model, pool] = match record.served_row {
        Some(row) => names.row(row).unwrap_or([OTHER, OTHER]),
        None => [model, ""],
    };
    let replica = record.slot.and_then(|slot| names.replica(slot)).unwrap_or_default();
    Entry::of(record, Named { model, served_model, pool, replica })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use llmgw_types::{CoreId, RequestId, Tokens};

    use super::*;
    use crate::segment::{self, Salt};

    struct Numbers;

    impl Names for Numbers {
        fn row(&self, row: u32) -> Option<[&str; 2]> {
            (row == 1).then_some(["model-1", "pool-1"])
        }

        fn replica(&self, _: u32) -> Option<&str> {
            None
        }
    }

    fn record(number: u64) -> UsageRecord {
        UsageRecord {
            id: RequestId::new(number, CoreId(0), 7),
            admitted_at: number,
            ended_at: number,
            key_id: None,
            project_id: None,
            asked_row: 1,
            served_row: None,
            slot: None,
            status: 200,
            reason: None,
            tokens: Tokens::default(),
            units_micros: 0,
            is_estimated: false,
            ttft_ms: None,
            duration_ms: 0,
            queue_ms: None,
        }
    }

    #[test]
    fn names_are_taken_once_for_many_records_and_after_all_of_these() {
        let count = BATCH_RECORDS + 10;
        let ring = Arc::new(ArrayQueue::new(2 * count));
        let left = Arc::new(Mutex::new(Vec::new()));
        let names: NewestNames = {
            let (ring, left) = (ring.clone(), left.clone());
            Box::new(move || {
                left.lock().expect("no panic").push(ring.len());
                Arc::new(Numbers)
            })
        };
        let waiting = Rc::new(Waiting::new(1 << 20, Arc::default()));
        let mut rings = Rings::new(vec![ring.clone()], names, waiting.clone());
        (0..count as u64).for_each(|number| ring.push(record(number)).expect("room"));
        rings.empty(0);
        rings.empty(0);
        assert_eq!(*left.lock().expect("no panic"), [10, 0]);
        let salt = Salt::of("a");
        let mut bytes = segment::head(salt).to_vec();
        waiting.go(u64::MAX, |frame| segment::add_frame(frame, salt, &mut bytes));
        let mut ended = Vec::new();
        segment::read(&bytes, |entry| ended.push((entry.ended_at, entry.model)));
        assert_eq!(ended, (0..count as u64).map(|number| (number, "model-1")).collect::<Vec<_>>());
    }
}
