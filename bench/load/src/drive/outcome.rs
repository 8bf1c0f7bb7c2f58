//! What one window of load found.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::tally::{Quantiles, Times};

/// Above this share of its core a thread is taken for the bottleneck.
pub(crate) const BUSY: f64 = 0.95;

/// One window.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub seconds: f64,
    /// Calls that ended well in the window.
    pub call_count: u64,
    /// Events of streams that arrived in the window.
    pub event_count: u64,
    /// Calls that did not end well, by name, over the whole run.
    pub failures: BTreeMap<String, u64>,
    /// From due (or sent, in a closed loop) to complete.
    pub latency: Quantiles,
    /// From due to the first event.
    pub first_event: Quantiles,
    pub gap: Quantiles,
    /// From written by the engine to read here.
    pub one_way: Quantiles,
    pub open_peak_count: u64,
    /// The driver's CPU time as a share of one core.
    pub load_util: f64,
    /// The mock's.
    pub mock_util: f64,
    /// The gateway with its descendants; none where there is no gateway.
    pub gateway: Option<GatewayCost>,
}

/// What the window cost the gateway.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct GatewayCost {
    pub cpu_seconds: f64,
    /// CPU time as a share of one core.
    pub cpu_util: f64,
    /// Time its threads were ready and had no CPU, as a share of the window: other work on its core.
    pub cpu_wait_util: f64,
    pub rss_before_bytes: u64,
    pub rss_max_bytes: u64,
}

impl Outcome {
    /// Good calls a second.
    #[must_use]
    pub fn calls_per_second(&self) -> f64 {
        self.call_count as f64 / self.seconds.max(1e-9)
    }

    /// The gateway's CPU time over calls, or over events where the calls are streams.
    #[must_use]
    pub fn cpu_us_per_unit(&self) -> Option<f64> {
        let units = if self.event_count > 0 { self.event_count } else { self.call_count };
        let cost = self.gateway.filter(|_| units > 0)?;
        Some(cost.cpu_seconds * 1e6 / units as f64)
    }

    #[must_use]
    pub fn failure_count(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Whether the driver and the mock, which share a core, had no more to give.
    #[must_use]
    pub fn load_is_bottleneck(&self) -> bool {
        let gateway_is_busy = self.gateway.is_some_and(|cost| cost.cpu_util >= BUSY);
        self.load_util + self.mock_util >= BUSY && !gateway_is_busy
    }
}

/// Counted while it runs.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) is_measuring: bool,
    pub(crate) call_count: u64,
    pub(crate) event_count: u64,
    pub(crate) failures: BTreeMap<String, u64>,
    pub(crate) latency: Times,
    pub(crate) first_event: Times,
    pub(crate) gap: Times,
    pub(crate) one_way: Times,
}

impl Tallies {
    pub(crate) fn failed(&mut self, what: &str) {
        match self.failures.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(self.failures.insert(what.to_owned(), 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_by_event_where_there_are_events_and_by_call_elsewhere() {
        let gateway = Some(GatewayCost { cpu_seconds: 1.0, ..GatewayCost::default() });
        let calls = Outcome { call_count: 1000, gateway, ..Outcome::default() };
        assert_eq!(calls.cpu_us_per_unit(), Some(1000.0));
        assert_eq!(Outcome { event_count: 100_000, ..calls.clone() }.cpu_us_per_unit(), Some(10.0));
        assert_eq!(Outcome { gateway: None, ..calls.clone() }.cpu_us_per_unit(), None);
        assert_eq!(Outcome { call_count: 0, ..calls }.cpu_us_per_unit(), None);
    }

    #[test]
    fn a_busy_generator_is_the_bottleneck_unless_the_gateway_is_busy_too() {
        let busy = |load_util, cpu_util| {
            let gateway = Some(GatewayCost { cpu_util, ..GatewayCost::default() });
            Outcome { load_util, mock_util: 0.4, gateway, ..Outcome::default() }.load_is_bottleneck()
        };
        assert!(busy(0.56, 0.8));
        assert!(!busy(0.56, 0.97));
        assert!(!busy(0.3, 0.8));
    }
}
