//! What was found, kept whole, and held against the bars. Tables, pages and plots are made from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::measure::Engines;
use super::policies::{BLOCK_COST, Policy, ROUND_ROBIN};
use super::workload::{BLOCK_TOKENS, Workload};
use crate::compare::Machine;
use crate::tally::Quantiles;

/// What must be hit of the whole traces, in percent of their blocks.
const HITS_MIN: &[(&str, f64)] = &[("conversation", 24.5), ("synthetic", 51.0)];
/// Of the busiest engine's prefill over the mean.
const IMBALANCE_MAX: f64 = 1.15;
/// Between two speeds, in points.
const SPEEDS_APART_MAX: f64 = 1.0;
/// Whoever waited for a CPU for more of the time was measured with its machine.
pub(crate) const WAITED_MAX: f64 = 0.05;

/// All of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Quality {
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) profile: String,
    pub(crate) engines: Option<Engines>,
    pub(crate) bytes_per_token: usize,
    /// In the order in which they are shown.
    pub(crate) workloads: Vec<Facts>,
    pub(crate) versions: Vec<String>,
    pub(crate) runs: Vec<Run>,
    pub(crate) faults: Vec<String>,
}

/// What a reader has to know of a workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    pub(crate) name: String,
    pub(crate) is_whole: bool,
    pub(crate) call_count: usize,
    pub(crate) block_count: u64,
    pub(crate) seconds: f64,
    /// What one cache as large as all engines' would hit, and one without an end.
    pub(crate) pooled_percent: f64,
    pub(crate) endless_percent: f64,
}

impl Facts {
    #[must_use]
    pub fn of(workload: &Workload, engines: &Engines) -> Self {
        Self {
            name: workload.name.clone(),
            is_whole: workload.is_whole,
            call_count: workload.calls.len(),
            block_count: workload.block_count(),
            seconds: workload.calls.last().map_or(0.0, |call| call.at.as_secs_f64()),
            pooled_percent: workload.pooled_hit_percent(engines.count * engines.blocks),
            endless_percent: workload.pooled_hit_percent(usize::MAX),
        }
    }
}

/// One policy with one workload at one speed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub policy: String,
    pub workload: String,
    pub speed: f64,
    pub call_count: u64,
    pub bad: BTreeMap<String, u64>,
    pub blocks_asked: u64,
    /// As the engines counted, and as the usages told the client.
    pub blocks_hit: u64,
    pub blocks_hit_by_usage: u64,
    /// Tokens prefilled by the busiest engine over the mean, and tokens asked of it.
    pub work_imbalance: f64,
    pub prompt_imbalance: f64,
    /// From due to the first event, in the machine's time.
    pub first_event: Quantiles,
    /// From due to sent: the generator's own delay.
    pub late: Quantiles,
    pub seconds: f64,
    pub gateway_cpu_util: f64,
    /// The share of the time for which the generator, the gateway or an engine, whichever the most, waited for a CPU.
    pub waited_ratio: f64,
}

impl Run {
    #[must_use]
    pub fn hit_percent(&self) -> f64 {
        100.0 * self.blocks_hit as f64 / self.blocks_asked.max(1) as f64
    }

    /// A time of the machine's as seconds of the workload's own.
    pub(crate) fn own_seconds(&self, us: f64) -> f64 {
        us * self.speed / 1e6
    }

    /// What went wrong in it.
    fn faults(&self) -> Vec<String> {
        let of = format!("{} with {} at {} ×", self.policy, self.workload, self.speed);
        let mut faults: Vec<String> =
            self.bad.iter().map(|(name, count)| format!("{of}: {count} calls ended with {name}")).collect();
        if self.bad.is_empty() && self.blocks_hit != self.blocks_hit_by_usage {
            faults.push(format!(
                "{of}: usages told of {} hits, engines of {}",
                self.blocks_hit_by_usage, self.blocks_hit
            ));
        }
        faults
    }
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) what: String,
    pub(crate) needed: String,
    pub(crate) seen: String,
    pub(crate) is_held: bool,
}

impl Quality {
    /// Begins with what machine and programs these are.
    #[must_use]
    pub fn new(profile: &str, engines: Engines, bytes_per_token: usize, versions: Vec<String>) -> Self {
        let (date, machine) = (crate::compare::today(), Machine::read());
        let engines = Some(engines);
        Self { date, machine, profile: profile.to_owned(), engines, bytes_per_token, versions, ..Self::default() }
    }

    /// Takes over what was measured before, to be added to.
    pub fn take_runs(&mut self, before: Self) {
        (self.workloads, self.runs) = (before.workloads, before.runs);
    }

    /// Takes a run in the place of an earlier one of the same kind.
    pub fn add(&mut self, facts: &Facts, run: Run) {
        self.workloads.retain(|known| known.name != facts.name || known.call_count == facts.call_count);
        if !self.workloads.iter().any(|known| known.name == facts.name) {
            self.runs.retain(|known| known.workload != facts.name);
            self.workloads.push(facts.clone());
        }
        let key = |run: &Run| (run.policy.clone(), run.workload.clone(), run.speed.to_bits());
        self.runs.retain(|known| key(known) != key(&run));
        self.runs.push(run);
    }

    /// What could not be measured.
    pub fn fault(&mut self, what: String) {
        self.faults.push(what);
    }

    /// Whether everything went well and every bar is held.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.all_faults().is_empty() && self.bars().iter().all(|bar| bar.is_held)
    }

    pub(crate) fn all_faults(&self) -> Vec<String> {
        self.faults.iter().cloned().chain(self.runs.iter().flat_map(Run::faults)).collect()
    }

    /// Fastest last.
    pub(crate) fn speeds(&self) -> Vec<f64> {
        let mut speeds: Vec<f64> = self.runs.iter().map(|run| run.speed).collect();
        speeds.sort_by(f64::total_cmp);
        speeds.dedup();
        speeds
    }

    pub(crate) fn run(&self, policy: &str, workload: &str, speed: f64) -> Option<&Run> {
        self.runs.iter().find(|run| run.policy == policy && run.workload == workload && run.speed == speed)
    }

    pub(crate) fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        for Facts { name, is_whole, .. } in &self.workloads {
            let needed = HITS_MIN.iter().find(|(known, _)| known == name).map(|(_, needed)| *needed);
            let seen: Vec<&Run> = self.speeds().iter().filter_map(|speed| self.run(BLOCK_COST, name, *speed)).collect();
            if seen.is_empty() {
                continue;
            }
            let worst = |of: &dyn Fn(&Run) -> f64| seen.iter().map(|run| of(run)).fold(f64::INFINITY, f64::min);
            let mut bar = |what: String, needed: String, value: String, is_held| {
                bars.push(Bar { what: format!("{name}: {what}"), needed, seen: value, is_held });
            };
            if let Some(needed) = needed.filter(|_| *is_whole && BLOCK_TOKENS == 512) {
                let hits = worst(&Run::hit_percent);
                bar("blocks hit".to_owned(), format!("≥ {needed:.1} %"), format!("{hits:.1} %"), hits >= needed);
            }
            let imbalance = -worst(&|run: &Run| -run.work_imbalance);
            let shown = format!("{imbalance:.2}");
            bar(
                "busiest engine".to_owned(),
                format!("≤ {IMBALANCE_MAX} × the mean"),
                shown,
                imbalance <= IMBALANCE_MAX,
            );
            let ahead = |run: &&Run| Some(run.hit_percent() - self.run(ROUND_ROBIN, name, run.speed)?.hit_percent());
            if let Some(ahead) = seen.iter().filter_map(ahead).reduce(f64::min) {
                let shown = format!("{ahead:+.1} points");
                bar(format!("beside {ROUND_ROBIN}"), "never below".to_owned(), shown, ahead >= 0.0);
            }
            if let Some((policy, apart)) = self.speeds_apart(name) {
                let (needed, shown) = (format!("≤ {SPEEDS_APART_MAX} point"), format!("{apart:.1} ({policy})"));
                bar("speeds apart, at most".to_owned(), needed, shown, apart <= SPEEDS_APART_MAX);
            }
        }
        bars
    }

    /// By whom of ours the hits at different speeds differ the most.
    fn speeds_apart(&self, workload: &str) -> Option<(String, f64)> {
        let mut hits: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let is_ours = |run: &&Run| Policy::find(&run.policy).is_some_and(Policy::is_ours);
        for run in self.runs.iter().filter(|run| run.workload == workload).filter(is_ours) {
            hits.entry(&run.policy).or_default().push(run.hit_percent());
        }
        let apart = |(policy, hits): (&str, Vec<f64>)| {
            let (least, most) =
                hits.iter().fold((f64::MAX, f64::MIN), |(least, most), hit| (least.min(*hit), most.max(*hit)));
            (hits.len() > 1).then(|| (policy.to_owned(), most - least))
        };
        hits.into_iter().filter_map(apart).max_by(|one, other| one.1.total_cmp(&other.1))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn run(policy: &str, workload: &str, speed: f64, blocks_hit: u64) -> Run {
        Run {
            policy: policy.to_owned(),
            workload: workload.to_owned(),
            speed,
            call_count: 10,
            bad: BTreeMap::new(),
            blocks_asked: 1000,
            blocks_hit,
            blocks_hit_by_usage: blocks_hit,
            work_imbalance: 1.1,
            prompt_imbalance: 1.2,
            first_event: Quantiles { count: 10, p50_us: 20_000.0, p99_us: 100_000.0, ..Quantiles::default() },
            late: Quantiles::default(),
            seconds: 1.0,
            gateway_cpu_util: 0.1,
            waited_ratio: 0.01,
        }
    }

    pub(crate) fn sample() -> Quality {
        let mut found = Quality::new("ci", Engines::default(), 4, vec!["llmgw 0".to_owned()]);
        for (name, pooled_percent) in [("conversation", 26.3), ("chats-1", 60.0)] {
            let facts = Facts {
                name: name.to_owned(),
                is_whole: true,
                call_count: 10,
                block_count: 1000,
                seconds: 60.0,
                pooled_percent,
                endless_percent: 70.0,
            };
            for speed in [50.0, 100.0] {
                found.add(&facts, run(BLOCK_COST, name, speed, 250));
                found.add(&facts, run(ROUND_ROBIN, name, speed, 80));
            }
        }
        found
    }

    #[test]
    fn bars_are_held_until_a_run_misses_one() {
        let found = sample();
        assert!(found.is_good() && found.bars().len() == 7, "{:?}", found.bars());
        let missed = |change: fn(&mut Run)| {
            let mut found = sample();
            let run = found.runs.iter_mut().find(|run| run.policy == BLOCK_COST && run.speed == 100.0);
            change(run.expect("a run"));
            let missed = found.bars().into_iter().filter(|bar| !bar.is_held).map(|bar| bar.what);
            missed.chain(found.all_faults()).collect::<Vec<_>>()
        };
        let apart = "conversation: speeds apart, at most";
        assert_eq!(missed(|run| (run.blocks_hit, run.blocks_hit_by_usage) = (244, 244)), ["conversation: blocks hit"]);
        assert_eq!(missed(|run| (run.blocks_hit, run.blocks_hit_by_usage) = (270, 270)), [apart]);
        assert_eq!(missed(|run| run.work_imbalance = 1.2), ["conversation: busiest engine"]);
        let fell = ["conversation: blocks hit", "conversation: beside round robin", apart];
        assert_eq!(missed(|run| (run.blocks_hit, run.blocks_hit_by_usage) = (79, 79)), fell);
        assert_eq!(missed(|run| run.blocks_hit_by_usage = 1).len(), 1);
        assert_eq!(missed(|run| run.bad = BTreeMap::from([("status 503".to_owned(), 1)])).len(), 1);
    }

    #[test]
    fn a_run_takes_the_place_of_an_earlier_one() {
        let mut found = sample();
        let (count, facts) = (found.runs.len(), found.workloads[0].clone());
        found.add(&facts, run(BLOCK_COST, "conversation", 50.0, 300));
        assert_eq!(found.runs.len(), count);
        assert_eq!(found.run(BLOCK_COST, "conversation", 50.0).map(|run| run.blocks_hit), Some(300));
        // Another length is another workload.
        found.add(&Facts { call_count: 5, ..facts }, run(BLOCK_COST, "conversation", 50.0, 100));
        assert_eq!((found.runs.len(), found.workloads.len()), (5, 2));
    }
}
