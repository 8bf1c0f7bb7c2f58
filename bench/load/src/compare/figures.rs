//! What a comparison found, kept whole: every window of every round. Tables, pages and plots are made from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gateways::OPEN;
use super::machine::Machine;
use super::stats::Spread;
use crate::drive::Outcome;

/// The engine alone, which the latencies of gateways are compared with.
pub(crate) const DIRECT: &str = "direct";

/// All of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Comparison {
    pub(crate) date: String,
    pub(crate) machine: Machine,
    /// Which CPU the gateway had, and which the load and the engine.
    pub(crate) gateway_cpu: usize,
    pub(crate) load_cpu: usize,
    /// How the product was built.
    pub(crate) profile: String,
    pub(crate) binary_bytes: u64,
    pub(crate) round_count: usize,
    /// llmgw and stock asked for keys.
    #[serde(default)]
    pub(crate) is_keyed: bool,
    /// Windows a third as long as those of a full run.
    pub(crate) is_quick: bool,
    /// In the order in which they are shown.
    pub(crate) gateways: Vec<String>,
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) steps: Vec<String>,
    pub(crate) starts: Vec<Start>,
    pub(crate) records: Vec<Record>,
    /// What became of the records of use.
    #[serde(default)]
    pub(crate) kept: Vec<Kept>,
    /// Gateways that did not start or died, and what they said.
    pub(crate) faults: Vec<String>,
}

/// One start of a gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) round: usize,
    pub(crate) gateway: String,
    pub(crate) start_ms: f64,
    pub(crate) idle_rss_bytes: u64,
}

/// One window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) round: usize,
    pub(crate) gateway: String,
    pub(crate) step: String,
    pub(crate) outcome: Outcome,
}

/// Records of use, and who held requests to limits, in one run of a gateway that keeps records, when its last window
/// was over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) round: usize,
    pub(crate) gateway: String,
    /// Written to the journal.
    pub(crate) written: u64,
    /// In the store.
    pub(crate) stored: u64,
    /// Found no room in memory or on the disk.
    pub(crate) lost: u64,
    /// Requests that were held to their limits by a lease in hand.
    #[serde(default)]
    pub(crate) leased: u64,
    /// Requests that asked the owner of their organisation.
    #[serde(default)]
    pub(crate) asked: u64,
}

/// A number of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// CPU time of the gateway a call, or an event.
    Cpu,
    /// Good calls a second.
    Rate,
    Events,
    P50,
    P99,
    /// What the gateway adds to the latency of the engine alone, in the same round.
    AddedP50,
    AddedP99,
    OneWayP50,
    OneWayP99,
    FirstEventP99,
    Rss,
    GatewayUtil,
    GatewayWait,
    LoadUtil,
}

impl Figure {
    fn of(self, outcome: &Outcome) -> Option<f64> {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let some = |value: f64, is_there: bool| is_there.then_some(value);
        match self {
            Self::Cpu => outcome.cpu_us_per_unit(),
            Self::Rate => Some(outcome.calls_per_second()),
            Self::Events => some(outcome.event_count as f64 / outcome.seconds.max(1e-9), outcome.event_count > 0),
            Self::P50 => some(outcome.latency.p50_us, outcome.latency.count > 0),
            Self::P99 => some(outcome.latency.p99_us, outcome.latency.count > 0),
            Self::AddedP50 | Self::AddedP99 => None,
            Self::OneWayP50 => some(outcome.one_way.p50_us, outcome.one_way.count > 0),
            Self::OneWayP99 => some(outcome.one_way.p99_us, outcome.one_way.count > 0),
            Self::FirstEventP99 => some(outcome.first_event.p99_us, outcome.first_event.count > 0),
            Self::Rss => outcome.gateway.map(|cost| mib(cost.rss_max_bytes)),
            Self::GatewayUtil => outcome.gateway.map(|cost| cost.cpu_util),
            Self::GatewayWait => outcome.gateway.map(|cost| cost.cpu_wait_util),
            Self::LoadUtil => Some(outcome.load_util + outcome.mock_util),
        }
    }
}

impl Comparison {
    fn windows<'a>(&'a self, gateway: &'a str, step: &'a str) -> impl Iterator<Item = &'a Record> {
        self.records.iter().filter(move |record| record.gateway == gateway && record.step == step)
    }

    /// A figure in each round that has it.
    pub(crate) fn by_round(&self, gateway: &str, step: &str, figure: Figure) -> Vec<(usize, f64)> {
        let plain = match figure {
            Figure::AddedP50 => Figure::P50,
            Figure::AddedP99 => Figure::P99,
            other => other,
        };
        let found = self.windows(gateway, step).filter_map(|record| Some((record.round, plain.of(&record.outcome)?)));
        if plain == figure {
            return found.collect();
        }
        let direct = self.by_round(DIRECT, step, plain);
        let of_round = |round: usize| direct.iter().find(|(other, _)| *other == round).map(|(_, value)| *value);
        found.filter_map(|(round, value)| Some((round, value - of_round(round)?))).collect()
    }

    pub(crate) fn spread(&self, gateway: &str, step: &str, figure: Figure) -> Option<Spread> {
        Spread::of(self.by_round(gateway, step, figure).into_iter().map(|(_, value)| value))
    }

    /// Round by round.
    pub(crate) fn ratio(&self, gateway: &str, to: &str, step: &str, figure: Figure) -> Option<Spread> {
        Spread::ratio(&self.by_round(gateway, step, figure), &self.by_round(to, step, figure))
    }

    /// What the others are compared with: nginx where it ran, otherwise the first that is not ours.
    pub(crate) fn base(&self) -> Option<&str> {
        let is_ours = |name: &&String| matches!(name.as_str(), "llmgw" | OPEN | "stock" | "stock-bare" | DIRECT);
        let nginx = self.gateways.iter().find(|name| *name == "nginx");
        nginx.or_else(|| self.gateways.iter().find(|name| !is_ours(name))).map(String::as_str)
    }

    pub(crate) fn start_ms(&self, gateway: &str) -> Option<Spread> {
        Spread::of(self.starts.iter().filter(|start| start.gateway == gateway).map(|start| start.start_ms))
    }

    pub(crate) fn idle_rss_mib(&self, gateway: &str) -> Option<Spread> {
        let own = self.starts.iter().filter(|start| start.gateway == gateway);
        Spread::of(own.map(|start| start.idle_rss_bytes as f64 / f64::from(1 << 20)))
    }

    /// Rounds in which driver and engine were the bottleneck of a closed loop.
    pub(crate) fn load_bound_count(&self, gateway: &str, step: &str) -> usize {
        self.windows(gateway, step).filter(|record| record.outcome.load_is_bottleneck()).count()
    }

    /// Rounds in which something else ran on the gateway's CPU for more than a tenth of the time it wanted it.
    pub(crate) fn disturbed_count(&self, gateway: &str, step: &str) -> usize {
        let costs = self.windows(gateway, step).filter_map(|record| record.outcome.gateway);
        costs.filter(|cost| cost.cpu_wait_util > (cost.cpu_util + cost.cpu_wait_util) / 10.0).count()
    }

    /// Every failure of a gateway in a step, by name.
    pub(crate) fn failures(&self, gateway: &str, step: &str) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (name, count) in self.windows(gateway, step).flat_map(|record| &record.outcome.failures) {
            *all.entry(name.clone()).or_default() += count;
        }
        all
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::drive::GatewayCost;
    use crate::tally::Quantiles;

    /// Two rounds of three gateways; the CPU time of a call is 10 and 12 µs for llmgw, 10 and 10 for nginx.
    pub(crate) fn sample() -> Comparison {
        let mut found = Comparison {
            date: "2026-11-29".to_owned(),
            round_count: 2,
            profile: "ci".to_owned(),
            gateways: ["direct", "llmgw", "nginx"].map(str::to_owned).to_vec(),
            steps: ["ns", "s50"].map(str::to_owned).to_vec(),
            ..Comparison::default()
        };
        for (gateway, round, cpu_us, p50_us) in [
            ("direct", 0, 0.0, 50.0),
            ("llmgw", 0, 10.0, 150.0),
            ("nginx", 0, 10.0, 170.0),
            ("direct", 1, 0.0, 60.0),
            ("llmgw", 1, 12.0, 180.0),
            ("nginx", 1, 10.0, 180.0),
        ] {
            let cost = GatewayCost {
                cpu_seconds: cpu_us * 1e-6 * 1000.0,
                cpu_util: 0.99,
                rss_max_bytes: 20 << 20,
                ..GatewayCost::default()
            };
            let quantiles = Quantiles { count: 1000, p50_us, p99_us: p50_us * 3.0, ..Quantiles::default() };
            let outcome = Outcome {
                seconds: 1.0,
                call_count: 1000,
                latency: quantiles,
                gateway: (gateway != DIRECT).then_some(cost),
                ..Outcome::default()
            };
            let stream = Outcome { event_count: 1000, one_way: quantiles, ..outcome.clone() };
            for (step, outcome) in [("ns", outcome), ("s50", stream)] {
                let (gateway, step) = (gateway.to_owned(), step.to_owned());
                found.records.push(Record { round, gateway, step, outcome });
            }
            if gateway != DIRECT {
                let idle_rss_bytes = 10 << 20;
                found.starts.push(Start { round, gateway: gateway.to_owned(), start_ms: 12.0, idle_rss_bytes });
            }
        }
        found
    }

    #[test]
    fn figures_are_paired_by_round() {
        let found = sample();
        let cpu = found.spread("llmgw", "ns", Figure::Cpu).expect("two rounds");
        assert!((cpu.median - 11.0).abs() < 1e-9 && cpu.count == 2);
        let ratio = found.ratio("llmgw", "nginx", "ns", Figure::Cpu).expect("two rounds");
        assert!((ratio.min - 1.0).abs() < 1e-9 && (ratio.max - 1.2).abs() < 1e-9);
        assert_eq!(found.by_round("llmgw", "ns", Figure::AddedP50), [(0, 100.0), (1, 120.0)]);
        assert_eq!(found.spread("direct", "ns", Figure::Cpu), None);
        assert_eq!(found.base(), Some("nginx"));
        assert_eq!(found.idle_rss_mib("llmgw").map(|spread| spread.median), Some(10.0));
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        let text = serde_json::to_string(&sample()).expect("JSON");
        let again: Comparison = serde_json::from_str(&text).expect("a comparison");
        assert_eq!(
            again.ratio("llmgw", "nginx", "ns", Figure::Cpu),
            sample().ratio("llmgw", "nginx", "ns", Figure::Cpu)
        );
    }
}
