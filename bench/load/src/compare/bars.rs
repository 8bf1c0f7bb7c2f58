//! What the product has set itself: one row a bar, met or missed in this run. Pure.

use super::figures::{Comparison, Figure};
use super::stats::{NO_DIFFERENCE, Spread};
use super::table::{Table, shown};

/// One bar.
struct Bar {
    what: &'static str,
    measure: Measure,
    most: f64,
}

/// What is held against it.
enum Measure {
    /// A figure over that of another gateway in the same step and round.
    Ratio {
        step: &'static str,
        figure: Figure,
        to: &'static str,
    },
    /// A figure as it is.
    Plain {
        step: &'static str,
        figure: Figure,
    },
    /// As `Plain`, but it must be at least so much.
    AtLeast {
        step: &'static str,
        figure: Figure,
    },
    StartMs,
    IdleMib,
    BinaryMb,
}

use Measure::{AtLeast, BinaryMb, IdleMib, Plain, Ratio, StartMs};

const BARS: &[Bar] = &[
    Bar {
        what: "CPU a call (ns), × nginx",
        measure: Ratio { step: "ns", figure: Figure::Cpu, to: "nginx" },
        most: 1.0,
    },
    Bar {
        what: "CPU a call (ns), × vllm-router",
        measure: Ratio { step: "ns", figure: Figure::Cpu, to: "vllm-router" },
        most: 0.2,
    },
    Bar {
        what: "CPU a call (ns), × stock",
        measure: Ratio { step: "ns", figure: Figure::Cpu, to: "stock" },
        most: 0.5,
    },
    Bar {
        what: "CPU an event, no delay (s0), × envoy",
        measure: Ratio { step: "s0", figure: Figure::Cpu, to: "envoy" },
        most: 1.0,
    },
    Bar {
        what: "CPU an event, 20 ms (s20), × haproxy",
        measure: Ratio { step: "s20", figure: Figure::Cpu, to: "haproxy" },
        most: 1.0,
    },
    Bar {
        what: "CPU an event, 50 ms (s50), × haproxy",
        measure: Ratio { step: "s50", figure: Figure::Cpu, to: "haproxy" },
        most: 1.0,
    },
    Bar {
        what: "engine to client p99 (s50), × nginx",
        measure: Ratio { step: "s50", figure: Figure::OneWayP99, to: "nginx" },
        most: 1.0,
    },
    Bar {
        what: "added at 500/s p50, × haproxy",
        measure: Ratio { step: "open500", figure: Figure::AddedP50, to: "haproxy" },
        most: 1.0,
    },
    Bar {
        what: "added at 500/s p99, × nginx",
        measure: Ratio { step: "open500", figure: Figure::AddedP99, to: "nginx" },
        most: 1.0,
    },
    Bar {
        what: "CPU a call, 100 KB (b100k), × nginx",
        measure: Ratio { step: "b100k", figure: Figure::Cpu, to: "nginx" },
        most: 1.5,
    },
    Bar {
        what: "CPU a call, 1 MB (b1m), × nginx",
        measure: Ratio { step: "b1m", figure: Figure::Cpu, to: "nginx" },
        most: 1.5,
    },
    Bar {
        what: "CPU a call within TLS (tls), × nginx",
        measure: Ratio { step: "tls", figure: Figure::Cpu, to: "nginx" },
        most: 1.1,
    },
    Bar {
        what: "220 KB prompts, 150 at once (p150), calls/s",
        measure: AtLeast { step: "p150", figure: Figure::Rate },
        most: 2580.0,
    },
    Bar { what: "memory idle, MiB", measure: IdleMib, most: 25.0 },
    Bar {
        what: "memory under 1000 streams (s50), MiB",
        measure: Plain { step: "s50", figure: Figure::Rss },
        most: 40.0,
    },
    Bar { what: "start to first answer, ms", measure: StartMs, most: 50.0 },
    Bar { what: "program, MB", measure: BinaryMb, most: 20.0 },
];

const OURS: &str = "llmgw";

/// Every bar that this run can say something of.
pub(crate) fn table(found: &Comparison) -> Table {
    let head = ["what", "bar", "llmgw", ""].map(str::to_owned).to_vec();
    let rows = BARS.iter().filter_map(|bar| {
        let seen = bar.measure.of(found)?;
        let is_least = matches!(bar.measure, AtLeast { .. });
        let sign = if is_least { "≥" } else { "≤" };
        let digits = if bar.most >= 15.0 { 1 } else { 2 };
        let most = format!("{sign} {}", bar.most);
        Some(vec![bar.what.to_owned(), most, shown(Some(seen), digits), verdict(seen, bar.most, is_least).to_owned()])
    });
    Table { head, rows: rows.collect() }
}

impl Measure {
    fn of(&self, found: &Comparison) -> Option<Spread> {
        match *self {
            Ratio { step, figure, to } => found.ratio(OURS, to, step, figure),
            Plain { step, figure } | AtLeast { step, figure } => found.spread(OURS, step, figure),
            StartMs => found.start_ms(OURS),
            IdleMib => found.idle_rss_mib(OURS),
            // Only what is released is stripped.
            BinaryMb => Spread::of((found.profile == "dist").then_some(found.binary_bytes as f64 / 1e6)),
        }
    }
}

fn verdict(seen: Spread, bar: f64, is_least: bool) -> &'static str {
    let over = if is_least { bar / seen.median } else { seen.median / bar };
    if over <= 1.0 {
        "met"
    } else if over <= 1.0 + NO_DIFFERENCE {
        "missed by less than 15 %"
    } else {
        "missed"
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn only_bars_of_this_run_are_shown_and_each_has_a_verdict() {
        let table = table(&sample());
        let row = |what: &str| table.rows.iter().find(|row| row[0].contains(what));
        assert_eq!(row("(ns), × nginx").expect("a row")[1..], ["≤ 1", "1.10 (1.00–1.20)", "missed by less than 15 %"]);
        assert_eq!(row("1000 streams").expect("a row")[3], "met");
        assert!(row("vllm-router").is_none() && row("p150").is_none() && row("program").is_none());
    }

    #[test]
    fn a_verdict_is_by_the_median() {
        let spread = |median| Spread { median, min: 0.0, max: 9.0, count: 2 };
        assert_eq!(verdict(spread(1.0), 1.0, false), "met");
        assert_eq!(verdict(spread(1.2), 1.0, false), "missed");
        assert_eq!(verdict(spread(3000.0), 2580.0, true), "met");
        assert_eq!(verdict(spread(100.0), 2580.0, true), "missed");
    }
}
