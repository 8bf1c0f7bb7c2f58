//! The parts that are arithmetic on their arguments: the same work every time, on one thread.
//!
//! Each is prepared and then done over and over, either for the clock or (`repeat`) for a tool that counts
//! instructions.

mod admission;
mod decide;
mod head;
mod journal;
mod keys;
mod limits;
mod prefix;
mod table;
mod text;

use crate::measure::{self, Plan, Timing};

/// A part: a name, how to measure it, how to repeat it.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(Plan) -> Timing,
    pub(crate) repeat: fn(u64),
    /// The bar, nanoseconds an operation.
    pub(crate) bar_ns: Option<f64>,
    /// It must not allocate once it is warm.
    pub(crate) must_not: bool,
}

/// Makes a part of an expression that prepares it and gives the work as a closure. Each is compiled on its own, so that
/// an operation of a nanosecond has no call through a table in it.
macro_rules! part {
    ($name:literal, $prepare:expr) => {
        part!($name, $prepare; None, false)
    };
    ($name:literal, $prepare:expr; clean) => {
        part!($name, $prepare; None, true)
    };
    ($name:literal, $prepare:expr; clean, bar $bar:literal) => {
        part!($name, $prepare; Some($bar), true)
    };
    ($name:literal, $prepare:expr; $bar_ns:expr, $must_not:literal) => {
        $crate::pure::Part {
            name: $name,
            measure: |plan| $crate::pure::timed(plan, $prepare),
            repeat: |count| $crate::pure::repeated(count, $prepare),
            bar_ns: $bar_ns,
            must_not: $must_not,
        }
    };
}

pub(crate) static PARTS: [Part; 59] = [
    part!("decide/max-score/5", decide::alone(5, "max-score", 1); clean, bar 500.0),
    part!("decide/max-score/100", decide::alone(100, "max-score", 1); clean, bar 4_000.0),
    part!("decide/max-score/1000", decide::alone(1_000, "max-score", 1); clean, bar 30_000.0),
    part!("decide/p2c/5", decide::alone(5, "p2c", 1); clean, bar 500.0),
    part!("decide/p2c/100", decide::alone(100, "p2c", 1); clean, bar 4_000.0),
    part!("decide/p2c/1000", decide::alone(1_000, "p2c", 1); clean, bar 30_000.0),
    part!("decide/max-score/100/2-cores", decide::alone(100, "max-score", 2); clean, bar 4_000.0),
    part!("decide/max-score/100/8-cores", decide::alone(100, "max-score", 8); clean, bar 4_000.0),
    part!("decide/max-score/100/16-cores", decide::alone(100, "max-score", 16); clean, bar 4_000.0),
    part!("decide/max-score/1000/16-cores", decide::alone(1_000, "max-score", 16); clean, bar 30_000.0),
    part!("admission/pass/1-core", admission::pass(1); clean, bar 1_000.0),
    part!("admission/pass/2-cores", admission::pass(2); clean, bar 1_000.0),
    part!("admission/pass/16-cores", admission::pass(16); clean, bar 1_000.0),
    part!("admission/queued/50-of-50-tenants", admission::queued(50, 50); Some(1_000.0), false),
    part!("admission/queued/50-of-5000-tenants", admission::queued(50, 5_000); Some(1_000.0), false),
    part!("admission/queued/50-of-50000-tenants", admission::queued(50, 50_000); Some(1_000.0), false),
    part!("admission/queued/5000-of-5000-tenants", admission::queued(5_000, 5_000); Some(1_000.0), false),
    part!("admission/queued/5000-of-50000-tenants", admission::queued(5_000, 50_000); Some(1_000.0), false),
    part!("board/sum/1-core", decide::sum(1); clean),
    part!("board/sum/2-cores", decide::sum(2); clean),
    part!("board/sum/8-cores", decide::sum(8); clean),
    part!("board/sum/16-cores", decide::sum(16); clean),
    part!("scan/1KB", text::scan(1 << 10)),
    part!("scan/4KB", text::scan(4 << 10)),
    part!("scan/16KB", text::scan(16 << 10)),
    part!("scan/100KB", text::scan(100 << 10)),
    part!("scan/1MB", text::scan(1 << 20)),
    part!("scan/100KB-plain", text::scan_plain(100 << 10)),
    part!("prefix/fingerprint/16KB", prefix::fingerprint(16 << 10); clean),
    part!("prefix/fingerprint/1MB", prefix::fingerprint(1 << 20); clean),
    part!("prefix/fingerprint-and-match/16KB", prefix::match_known(16 << 10); clean, bar 10_000.0),
    part!("prefix/fingerprint-and-match/1MB", prefix::match_known(1 << 20); clean, bar 1_000_000.0),
    part!("prefix/and-remember/16KB", prefix::repeat_known(16 << 10); clean),
    part!("prefix/and-insert-new/16KB", prefix::insert_new(16 << 10); clean),
    part!("prefix/and-insert-new/1MB", prefix::insert_new(1 << 20); clean),
    part!("tap/event", text::tap(1, 1)),
    part!("tap/16-events-at-once", text::tap(16, 1)),
    part!("tap/event-in-two-pieces", text::tap(1, 2)),
    part!("head/parse-request", head::parse_request()),
    part!("head/parse-response", head::parse_response()),
    part!("head/write-request", head::write_request()),
    part!("keys/digest", keys::hash(); clean),
    part!("keys/look-up/1000", keys::known(1_000); clean),
    part!("keys/look-up/100000", keys::known(100_000); clean, bar 100.0),
    part!("keys/look-up-in-vain/100000", keys::unknown(100_000); clean, bar 100.0),
    part!("keys/swap/100000", keys::swap(100_000); clean, bar 200_000.0),
    part!("limits/from-lease", limits::from_lease(); clean),
    part!("limits/by-owner", limits::by_owner()),
    part!("limits/refused-in-a-crowd", limits::refused_in_a_crowd()),
    part!("limits/crowd-called-back", limits::crowd_called_back()),
    part!("journal/frame", journal::frame(); clean),
    part!("journal/write", journal::write()),
    part!("journal/read", journal::read(); clean),
    part!("snapshot/write/100", table::write(100)),
    part!("snapshot/write/1000", table::write(1_000)),
    part!("snapshot/check/100", table::check(100)),
    part!("snapshot/check/1000", table::check(1_000)),
    part!("snapshot/swap/100", table::swap(100)),
    part!("snapshot/swap/1000", table::swap(1_000)),
];

fn timed(plan: Plan, work: impl FnMut()) -> Timing {
    measure::measure(plan, work)
}

fn repeated(count: u64, mut work: impl FnMut()) {
    (0..count).for_each(|_| work());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_can_be_repeated_and_has_a_name_of_its_own() {
        for part in &PARTS {
            (part.repeat)(3);
            assert_eq!(PARTS.iter().filter(|other| other.name == part.name).count(), 1, "{}", part.name);
        }
    }
}
