//! Overhead: the same small load directly at the engine and through the gateway, in turn.
//!
//! Rounds alternate and swap their order, so that a slow minute of the machine falls on both sides. Each round gives
//! one difference; the median over the rounds is the answer and their spread says what it is worth.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use crate::client::Pool;
use crate::open::{self, Open, OpenReport};
use crate::progress::Progress;
use crate::prompt::Chat;
use crate::report::{Report, row, spread, time};
use crate::tally::Quantiles;
use crate::target::Target;

/// What to run.
#[derive(Debug, Clone)]
pub struct Overhead {
    pub direct: Target,
    pub via: Target,
    pub chat: Chat,
    pub calls_per_second: f64,
    pub round_count: usize,
    /// Length of one side of one round.
    pub round_time: Duration,
    pub within: Duration,
    /// Added latency at the 99th percentile must stay below.
    pub added_p99_us_max: f64,
    pub pid: Option<u32>,
}

/// One round, both sides.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    pub direct: Quantiles,
    pub via: Quantiles,
    pub added_p50_us: f64,
    pub added_p99_us: f64,
}

/// The middle and the ends of one number over the rounds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    pub median_us: f64,
    pub min_us: f64,
    pub max_us: f64,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct OverheadReport {
    pub calls_per_second: f64,
    pub rounds: Vec<Round>,
    pub direct_p50: Spread,
    pub direct_p99: Spread,
    pub via_p50: Spread,
    pub via_p99: Spread,
    pub added_p50: Spread,
    pub added_p99: Spread,
    pub added_p99_us_max: f64,
    /// What the gateway itself reports, over the last round.
    pub reported_overhead: Quantiles,
    pub cpu_us_per_call: f64,
    pub load_is_bottleneck: bool,
    pub machine_is_overloaded: bool,
    pub failures: Vec<String>,
}

/// Runs it; must be called inside a local task set.
///
/// Errors: the kernel has no timer for us.
pub async fn run(plan: Overhead, progress: Progress) -> io::Result<OverheadReport> {
    let pools = [&plan.direct, &plan.via].map(|target| Pool::new(target.clone(), plan.within));
    let [direct, via] = &pools;
    let mut found = Collected::default();
    for number in 0..plan.round_count {
        let sides = if number % 2 == 0 { [Side::Direct, Side::Via] } else { [Side::Via, Side::Direct] };
        let mut round = [None, None];
        for side in sides {
            let (pool, target, pid) = match side {
                Side::Direct => (direct, &plan.direct, None),
                Side::Via => (via, &plan.via, plan.pid),
            };
            let report = one_side(&plan, pool, target, pid).await?;
            found.look_at(side, &report);
            if let Some(place) = round.get_mut(side as usize) {
                *place = Some(report.latency);
            }
        }
        if let [Some(direct), Some(via)] = round {
            let added = |of: fn(&Quantiles) -> f64| of(&via) - of(&direct);
            let (added_p50_us, added_p99_us) = (added(|q| q.p50_us), added(|q| q.p99_us));
            progress.say(&format!(
                "round {:2} of {}: direct p50 {} p99 {}, via p50 {} p99 {}, added p50 {} p99 {}",
                number + 1,
                plan.round_count,
                time(direct.p50_us),
                time(direct.p99_us),
                time(via.p50_us),
                time(via.p99_us),
                time(added_p50_us),
                time(added_p99_us),
            ));
            found.rounds.push(Round { direct, via, added_p50_us, added_p99_us });
        }
    }
    Ok(found.report(&plan))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Direct,
    Via,
}

async fn one_side(plan: &Overhead, pool: &Rc<Pool>, target: &Target, pid: Option<u32>) -> io::Result<OpenReport> {
    let requests = (0..16).map(|seed| Chat { seed, ..plan.chat.clone() }.bytes(target)).collect();
    let open = Open {
        requests,
        calls_per_second: plan.calls_per_second,
        time: plan.round_time,
        warm_up_count: (plan.calls_per_second / 5.0).ceil() as u64,
        open_max: 1000,
        pid,
        is_over: std::rc::Rc::default(),
    };
    open::run(open, pool, Progress::Silent).await
}

#[derive(Default)]
struct Collected {
    rounds: Vec<Round>,
    failures: Vec<String>,
    reported_overhead: Quantiles,
    cpu_us: f64,
    via_count: u64,
    load_is_bottleneck: bool,
    machine_is_overloaded: bool,
}

impl Collected {
    fn look_at(&mut self, side: Side, report: &OpenReport) {
        self.load_is_bottleneck |= report.watched.load_is_bottleneck;
        self.machine_is_overloaded |= report.watched.machine_is_overloaded;
        self.failures.extend(report.faults().into_iter().map(|fault| format!("{side:?}: {fault}")));
        if side == Side::Via {
            self.reported_overhead = report.reported_overhead;
            self.cpu_us += report.watched.process.map_or(0.0, |process| process.cpu_seconds * 1e6);
            self.via_count += report.call_count;
        }
    }

    fn report(self, plan: &Overhead) -> OverheadReport {
        let over = |of: fn(&Round) -> f64| Spread::of(self.rounds.iter().map(of).collect());
        OverheadReport {
            calls_per_second: plan.calls_per_second,
            direct_p50: over(|round| round.direct.p50_us),
            direct_p99: over(|round| round.direct.p99_us),
            via_p50: over(|round| round.via.p50_us),
            via_p99: over(|round| round.via.p99_us),
            added_p50: over(|round| round.added_p50_us),
            added_p99: over(|round| round.added_p99_us),
            added_p99_us_max: plan.added_p99_us_max,
            reported_overhead: self.reported_overhead,
            cpu_us_per_call: if self.via_count > 0 { self.cpu_us / self.via_count as f64 } else { 0.0 },
            load_is_bottleneck: self.load_is_bottleneck,
            machine_is_overloaded: self.machine_is_overloaded,
            failures: self.failures,
            rounds: self.rounds,
        }
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |idx: usize| values.get(idx).copied().unwrap_or(0.0);
        let last = values.len().saturating_sub(1);
        Self { median_us: (at(last / 2) + at(values.len() / 2)) / 2.0, min_us: at(0), max_us: at(last) }
    }

    fn shown(&self) -> String {
        format!("{}   ({} … {})", time(self.median_us), time(self.min_us), time(self.max_us))
    }
}

impl Report for OverheadReport {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            row("rounds", format!("{}, {:.0} calls/s", self.rounds.len(), self.calls_per_second)),
            row("", "median over the rounds   (least … most)"),
            row("direct p50", self.direct_p50.shown()),
            row("direct p99", self.direct_p99.shown()),
            row("via p50", self.via_p50.shown()),
            row("via p99", self.via_p99.shown()),
            row("added p50", self.added_p50.shown()),
            row("added p99", self.added_p99.shown()),
        ];
        if self.reported_overhead.count > 0 {
            rows.push(row("overhead as reported", spread(&self.reported_overhead)));
        }
        if self.cpu_us_per_call > 0.0 {
            rows.push(row("process CPU", format!("{:.1} µs per call", self.cpu_us_per_call)));
        }
        let verdict = match (self.machine_is_overloaded, self.load_is_bottleneck) {
            (true, _) => "THE MACHINE WAS OVERLOADED, the times are longer than they would be",
            (false, true) => "TOO LATE OR TOO BUSY, the times are its own",
            (false, false) => "in time",
        };
        rows.push(row("generator", verdict));
        rows
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.failures.clone();
        if self.rounds.is_empty() {
            faults.push("no round was measured".to_owned());
        }
        if self.added_p99.median_us >= self.added_p99_us_max {
            let (added, most) = (time(self.added_p99.median_us), time(self.added_p99_us_max));
            faults.push(format!("added latency p99 {added} is not below {most}"));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_middle_of_the_two() {
        let spread = |values: &[f64]| {
            let Spread { median_us, min_us, max_us } = Spread::of(values.to_vec());
            [median_us, min_us, max_us]
        };
        assert_eq!(spread(&[]), [0.0; 3]);
        assert_eq!(spread(&[3.0]), [3.0; 3]);
        assert_eq!(spread(&[9.0, 1.0, 3.0]), [3.0, 1.0, 9.0]);
        assert_eq!(spread(&[9.0, 1.0, 3.0, 5.0]), [4.0, 1.0, 9.0]);
    }
}
