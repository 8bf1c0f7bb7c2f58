//! What a loop counts: answers by status, failures by name, times as histograms.
//!
//! Owned by one thread. Changes when a report needs another number.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::client::{Done, Failure};

/// Times in nanoseconds, three digits exact, up to an hour.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds"))
    }
}

impl Times {
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    #[must_use]
    pub fn quantiles(&self) -> Quantiles {
        let us = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        if self.0.is_empty() {
            return Quantiles::default();
        }
        Quantiles {
            count: self.0.len(),
            mean_us: self.0.mean() / 1000.0,
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: self.0.max() as f64 / 1000.0,
        }
    }
}

/// A histogram in seven numbers; all zero when nothing was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// Calls and how they ended.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub ok_count: u64,
    pub statuses: BTreeMap<u16, u64>,
    pub failures: BTreeMap<&'static str, u64>,
    pub latency: Times,
    /// What the gateway says it added, from its own header.
    pub reported_overhead: Times,
}

impl Tally {
    /// Counts one call that took `ns`.
    pub fn count(&mut self, ended: Result<Done, Failure>, ns: u64) {
        match ended {
            Ok(done) => {
                *self.statuses.entry(done.status).or_default() += 1;
                if let Some(us) = done.overhead_us {
                    self.reported_overhead.record(us * 1000);
                }
                if done.status == 200 {
                    self.ok_count += 1;
                    self.latency.record(ns);
                }
            }
            Err(failure) => *self.failures.entry(failure.name()).or_default() += 1,
        }
    }

    /// Calls without a complete 200.
    #[must_use]
    pub fn bad_count(&self) -> u64 {
        let other: u64 = self.statuses.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum();
        other + self.failures.values().sum::<u64>()
    }

    /// `200 × 12, 503 × 1, refused × 2`.
    #[must_use]
    pub fn endings(&self) -> String {
        let statuses = self.statuses.iter().map(|(status, count)| format!("{status} × {count}"));
        let failures = self.failures.iter().map(|(name, count)| format!("{name} × {count}"));
        let all: Vec<String> = statuses.chain(failures).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_200_counts_as_good_and_nothing_else_is_lost() {
        let mut tally = Tally::default();
        let done = |status| Ok(Done { status, overhead_us: Some(40), is_last: false });
        for (ended, ns) in
            [(done(200), 2_000_000), (done(503), 1), (Err(Failure::Refused), 1), (Err(Failure::Short), 1)]
        {
            tally.count(ended, ns);
        }
        assert_eq!((tally.ok_count, tally.bad_count()), (1, 3));
        assert_eq!(tally.endings(), "200 × 1, 503 × 1, refused × 1, short × 1");
        let latency = tally.latency.quantiles();
        assert_eq!(latency.count, 1);
        assert!((latency.p50_us - 2000.0).abs() < 4.0, "{latency:?}");
        assert_eq!(Times::default().quantiles(), Quantiles::default());
    }
}
