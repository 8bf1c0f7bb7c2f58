//! What a process and its descendants cost over a window, read cheaply while the load runs on.

use std::time::Duration;

use super::outcome::GatewayCost;
use crate::usage::{cpu_time, cpu_wait, rss_bytes, tree};

/// Processes being watched. Those it has at the start are those it counts: gateways do not start workers under load.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    pids: Vec<u32>,
    cpu: Duration,
    wait: Duration,
    rss_before_bytes: u64,
    rss_max_bytes: u64,
}

impl Meter {
    pub(crate) fn start(pid: u32) -> Self {
        let pids = tree(pid);
        let rss = rss_of(&pids);
        let (cpu, wait) = times_of(&pids);
        Self { pids, cpu, wait, rss_before_bytes: rss, rss_max_bytes: rss }
    }

    /// Begins to count CPU time anew; memory goes on.
    pub(crate) fn restart(&mut self) {
        (self.cpu, self.wait) = times_of(&self.pids);
    }

    /// Looks at the memory.
    pub(crate) fn sample(&mut self) {
        self.rss_max_bytes = self.rss_max_bytes.max(rss_of(&self.pids));
    }

    pub(crate) fn cost(&self, seconds: f64) -> GatewayCost {
        let (cpu, wait) = times_of(&self.pids);
        let cpu_seconds = cpu.saturating_sub(self.cpu).as_secs_f64();
        GatewayCost {
            cpu_seconds,
            cpu_util: cpu_seconds / seconds,
            cpu_wait_util: wait.saturating_sub(self.wait).as_secs_f64() / seconds,
            rss_before_bytes: self.rss_before_bytes,
            rss_max_bytes: self.rss_max_bytes,
        }
    }
}

fn times_of(pids: &[u32]) -> (Duration, Duration) {
    let cpu = pids.iter().filter_map(|pid| cpu_time(*pid)).sum();
    (cpu, pids.iter().map(|pid| cpu_wait(*pid)).sum())
}

fn rss_of(pids: &[u32]) -> u64 {
    pids.iter().map(|pid| rss_bytes(*pid)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_between_start_and_end_is_counted() {
        let mut meter = Meter::start(std::process::id());
        meter.restart();
        let mut sum = 0u64;
        while meter.cost(1.0).cpu_seconds < 0.005 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        meter.sample();
        let cost = meter.cost(1.0);
        assert!(cost.rss_max_bytes >= cost.rss_before_bytes && cost.rss_before_bytes > 0);
    }
}
