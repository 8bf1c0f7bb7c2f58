//! How records of what requests used get off a core: one bounded ring a core, filled when a request ends, emptied by
//! the journal. What is in a record is `llmgw_types::usage`'s word.

use crossbeam::queue::ArrayQueue;
use llmgw_types::UsageRecord;

/// Records a core may have waiting, a megabyte of them: the sixth of a second at the highest rate a core has, seconds
/// at the rates of real engines. Nobody waits for a disk to empty it.
pub const RING_CAPACITY: usize = 4096;

/// One core's ring. From: the core. To: the journal. Loss: the newest record is dropped and counted.
pub type UsageRing = ArrayQueue<UsageRecord>;
