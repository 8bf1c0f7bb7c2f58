//! What the journal counts: records on their way to the store, what waits, what was lost, how long commits take.

use llmgw_obs::metric::{Counter, Gauge, Histogram};
use llmgw_obs::registry::{Bounds, Kind, Label, MetricDesc};

/// Steps of a record, in the order of [`RECORDS`]' values.
pub const STEPS: &[&str] = &["journal", "store"];
/// See [`Cells::journaled`] and [`Cells::stored`].
pub static RECORDS: MetricDesc = MetricDesc {
    name: "llmgw_usage_records_total",
    help: "Records of requests that were written to the journal, and that arrived in the store; those of a run before \
           arrive without being written again",
    kind: Kind::Counter,
    labels: &[Label::closed("step", STEPS)],
};
/// See [`Cells::came`] and [`Cells::arrived`].
pub static RECORDS_WAITING: MetricDesc = MetricDesc {
    name: "llmgw_usage_records_waiting",
    help: "Records that were taken from the cores, or found in a journal, and are not in the store yet",
    kind: Kind::Gauge,
    labels: &[],
};
/// Why records are lost: a core's ring was full, or the journal could not be written for longer than memory holds.
pub const LOSSES: &[&str] = &["ring_full", "journal_full"];
/// See [`Cells::lost`]; the rings' part is counted by cores.
pub static RECORDS_LOST: MetricDesc = MetricDesc {
    name: "llmgw_usage_records_lost_total",
    help: "Records dropped: a core's ring was full, or the journal was full or could not be written for longer than \
           memory holds",
    kind: Kind::Counter,
    labels: &[Label::closed("why", LOSSES)],
};
/// See [`Cells::bytes_written`] and [`Cells::bytes_gone`].
pub static JOURNAL_BYTES: MetricDesc = MetricDesc {
    name: "llmgw_usage_journal_bytes",
    help: "Size of the journal's segments on the disk",
    kind: Kind::Gauge,
    labels: &[],
};
/// See [`Cells::bytes_cut`].
pub static JOURNAL_CUT_BYTES: MetricDesc = MetricDesc {
    name: "llmgw_usage_journal_cut_bytes_total",
    help: "Bytes behind the last whole record of a segment: what a crash left half written, or a disk damaged",
    kind: Kind::Counter,
    labels: &[],
};
/// From a fast disk's commit to one that stands still.
pub const COMMIT: Bounds = Bounds::micros(&[
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000,
]);
/// See [`Cells::commits`].
pub static COMMIT_SECONDS: MetricDesc = MetricDesc {
    name: "llmgw_usage_commit_seconds",
    help: "Time to bring written records onto the disk",
    kind: Kind::Histogram(COMMIT),
    labels: &[],
};
/// Whose failures are counted.
pub const PARTIES: &[&str] = &["journal", "store"];
/// See [`Cells::journal_failures`] and [`Cells::store_failures`].
pub static FAILURES: MetricDesc = MetricDesc {
    name: "llmgw_usage_failures_total",
    help: "Attempts to write records to the journal or the store that failed; each is made again",
    kind: Kind::Counter,
    labels: &[Label::closed("at", PARTIES)],
};

/// Every metric of this room.
pub static METRICS: &[&MetricDesc] =
    &[&RECORDS, &RECORDS_WAITING, &RECORDS_LOST, &JOURNAL_BYTES, &JOURNAL_CUT_BYTES, &COMMIT_SECONDS, &FAILURES];

/// What is counted. Owner: each cell's writer is the thread named; read by the metrics page.
#[derive(Debug)]
pub struct Cells {
    /// Writer: records that are on the disk.
    pub journaled: Counter,
    /// Writer: records taken from the cores and not lost.
    pub came: Gauge,
    /// Writer: records dropped.
    pub lost: Counter,
    /// Writer: bytes of own segments.
    pub bytes_written: Gauge,
    /// Writer: commits.
    pub commits: Histogram,
    /// Writer: attempts that failed.
    pub journal_failures: Counter,
    /// Reader: records that are in the store.
    pub stored: Counter,
    /// Reader: records found in other processes' segments, less all that are in the store; the waiting ones are its sum
    /// with `came`.
    pub arrived: Gauge,
    /// Reader: bytes of other processes' segments, less those of segments that were taken away.
    pub bytes_gone: Gauge,
    /// Reader: bytes that held no record.
    pub bytes_cut: Counter,
    /// Reader: attempts that failed.
    pub store_failures: Counter,
}

impl Default for Cells {
    fn default() -> Self {
        Self {
            journaled: Counter::new(),
            came: Gauge::new(),
            lost: Counter::new(),
            bytes_written: Gauge::new(),
            commits: Histogram::new(COMMIT),
            journal_failures: Counter::new(),
            stored: Counter::new(),
            arrived: Gauge::new(),
            bytes_gone: Gauge::new(),
            bytes_cut: Counter::new(),
            store_failures: Counter::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_of_metrics_is_lawful() {
        assert_eq!(llmgw_obs::registry::check(&[super::METRICS]), Vec::<String>::new());
    }
}
