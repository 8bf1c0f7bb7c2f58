//! What a core counts: cells written by the core, read by the side runtime's page. Names are those of the reference.

mod described;

use llmgw_obs::metric::{Counter, Gauge, Histogram};
use llmgw_obs::registry;
use llmgw_obs::registry::{DURATION, FIRST_TOKEN, OVERHEAD};
use llmgw_obs::rows::Rows;

use crate::prefix::Decision;
use crate::scheduler::cached::Reuse;
use crate::scheduler::registry::FILTER_NAMES;
use crate::scheduler::run::Tally;

pub use described::*;

/// Pools (and so models) that are counted apart; more are counted as `other`.
pub const POOL_ROWS_MAX: usize = 4096;
/// Bands of models that are counted apart; more are counted as `other`.
pub const BAND_ROWS_MAX: usize = 4096;

/// The position of a status code in [`STATUSES`].
pub fn status_row(status: u16) -> usize {
    // Three digits compared as numbers: no text is made on the request path.
    const CODES: [u16; 19] =
        [200, 400, 401, 403, 404, 405, 408, 413, 414, 417, 422, 429, 431, 499, 500, 501, 502, 503, 504];
    CODES.iter().position(|&code| code == status).unwrap_or(CODES.len())
}

/// What one core counts for one model and pool.
pub struct PoolCells {
    /// Requests by [`status_row`].
    pub requests: [Counter; STATUSES.len()],
    /// Head to end of answer.
    pub duration: Histogram,
    /// Head to first token, streamed requests.
    pub first_token: Histogram,
    /// First token to last one, over the tokens after the first.
    pub per_token: Histogram,
    /// Prompt tokens, as recorded.
    pub prompt_tokens: Counter,
    /// Completion tokens, as recorded.
    pub completion_tokens: Counter,
    /// Sound in milliseconds, engines' words.
    pub audio_ms: Counter,
    /// Attempts by what became of the prompt, in the order of [`Decision::ALL`].
    pub cache_decisions: [Counter; Decision::ALL.len()],
    /// The part of the prompt taken to be cached, by attempt.
    pub prefix_match: Histogram,
}

impl PoolCells {
    fn new() -> Self {
        Self {
            requests: std::array::from_fn(|_| Counter::new()),
            duration: Histogram::new(DURATION),
            first_token: Histogram::new(FIRST_TOKEN),
            per_token: Histogram::new(registry::PER_TOKEN),
            prompt_tokens: Counter::new(),
            completion_tokens: Counter::new(),
            audio_ms: Counter::new(),
            cache_decisions: std::array::from_fn(|_| Counter::new()),
            prefix_match: Histogram::new(RATIO),
        }
    }

    /// Counts a decision.
    pub fn count_decision(&self, decision: Decision) {
        if let Some(count) = self.cache_decisions.get(decision as usize) {
            count.increment();
        }
    }

    /// Counts what became of a prompt; none: nobody looked for it.
    pub fn count_reuse(&self, reuse: Option<&Reuse>) {
        self.count_decision(reuse.map_or(Decision::NoTree, |reuse| reuse.decision));
        if let Some(reuse) = reuse.filter(|reuse| reuse.blocks > 0) {
            self.prefix_match.observe_micros((reuse.part() * 1e6) as u64);
        }
    }
}

/// What one core counts for one band of a model.
pub struct BandCells {
    /// Its requests that wait.
    pub waiting: Gauge,
    /// How long they did, whatever came of it.
    pub wait: Histogram,
    /// Those that got no place, by [`REJECTIONS`].
    pub rejected: [Counter; REJECTIONS.len()],
    /// Those that got one, by [`ADMISSIONS`].
    pub admitted: [Counter; ADMISSIONS.len()],
}

impl BandCells {
    fn new() -> Self {
        Self {
            waiting: Gauge::new(),
            wait: Histogram::new(FIRST_TOKEN),
            rejected: std::array::from_fn(|_| Counter::new()),
            admitted: std::array::from_fn(|_| Counter::new()),
        }
    }
}

/// What one core counts of its decisions.
pub struct DecisionCells {
    /// Endpoints looked at, by decision.
    pub considered: Histogram,
    /// Endpoints that a filter dropped, in the filters' order.
    pub filtered: [Counter; FILTER_NAMES.len()],
}

impl DecisionCells {
    fn new() -> Self {
        Self { considered: Histogram::new(CANDIDATES), filtered: std::array::from_fn(|_| Counter::new()) }
    }

    /// Counts one decision.
    pub fn count(&self, tally: &Tally) {
        self.considered.observe_micros(u64::from(tally.considered) * 1_000_000);
        for (cell, count) in self.filtered.iter().zip(tally.filtered) {
            if count > 0 {
                cell.add(count.into());
            }
        }
    }
}

/// What one core counts. Owner: that core; read by the metrics page.
pub struct CoreCells {
    /// By the pool's metric row.
    pub pools: Rows<PoolCells>,
    /// By the band's metric row.
    pub bands: Rows<BandCells>,
    /// Messages about places that this core sent, by [`GATE_MESSAGES`].
    pub gate_messages: [Counter; GATE_MESSAGES.len()],
    /// Comments sent to streams that wait.
    pub heartbeats: Counter,
    /// Grants of this core's that no message led to.
    pub found_by_net: Gauge,
    /// Requests that limits hold, by [`LIMIT_OUTCOMES`].
    pub limited: [Counter; LIMIT_OUTCOMES.len()],
    /// Those refused, by [`LIMIT_MEASURES`].
    pub limit_refusals: [Counter; LIMIT_MEASURES.len()],
    /// Slices, by [`LIMIT_SLICES`].
    pub limit_slices: [Gauge; LIMIT_SLICES.len()],
    /// Time added before the answer began.
    pub overhead: Histogram,
    /// Answers without usage, and with absurd usage.
    pub usage_absent: [Counter; 2],
    /// Streams an engine cut.
    pub broken_streams: Counter,
    /// Retries by [`RETRY_REASONS`].
    pub retries: [Counter; RETRY_REASONS.len()],
    /// Retries the budget refused.
    pub retries_refused: Counter,
    /// Cooldowns that began, of endpoints this core owns.
    pub cooldowns: Counter,
    /// Requests that went to an endpoint for want of another.
    pub last_resorts: Counter,
    /// Client connections open.
    pub connections_open: Gauge,
    /// Handshakes with clients, by [`TLS_OUTCOMES`].
    pub tls_handshakes: [Counter; TLS_OUTCOMES.len()],
    /// Requests between head and end.
    pub in_flight: Gauge,
    /// Connections opened to engines.
    pub upstream_opened: Gauge,
    /// Connections to engines used again.
    pub upstream_reused: Gauge,
    /// Idle connections found closed.
    pub upstream_stale: Gauge,
    /// Silent retries after a reused connection closed.
    pub upstream_retried: Gauge,
    /// Requests that met a fault of ours.
    pub panics: Counter,
    /// Request log lines lost.
    pub access_lines_lost: Counter,
    /// Records of what requests used that found the ring full.
    pub usage_lost: Counter,
    /// What was asked of other cores and told to them, by [`SESSION_SUBJECTS`] and [`SESSION_OUTCOMES`].
    pub session_messages: [[Counter; SESSION_OUTCOMES.len()]; SESSION_SUBJECTS.len()],
    /// What its decisions went through.
    pub decisions: DecisionCells,
}

impl CoreCells {
    /// All zero.
    pub fn new() -> Self {
        Self {
            pools: Rows::new(POOL_ROWS_MAX, PoolCells::new),
            bands: Rows::new(BAND_ROWS_MAX, BandCells::new),
            gate_messages: std::array::from_fn(|_| Counter::new()),
            heartbeats: Counter::new(),
            found_by_net: Gauge::new(),
            limited: std::array::from_fn(|_| Counter::new()),
            limit_refusals: std::array::from_fn(|_| Counter::new()),
            limit_slices: std::array::from_fn(|_| Gauge::new()),
            overhead: Histogram::new(OVERHEAD),
            usage_absent: [Counter::new(), Counter::new()],
            broken_streams: Counter::new(),
            retries: std::array::from_fn(|_| Counter::new()),
            retries_refused: Counter::new(),
            cooldowns: Counter::new(),
            last_resorts: Counter::new(),
            connections_open: Gauge::new(),
            tls_handshakes: std::array::from_fn(|_| Counter::new()),
            in_flight: Gauge::new(),
            upstream_opened: Gauge::new(),
            upstream_reused: Gauge::new(),
            upstream_stale: Gauge::new(),
            upstream_retried: Gauge::new(),
            panics: Counter::new(),
            access_lines_lost: Counter::new(),
            usage_lost: Counter::new(),
            session_messages: std::array::from_fn(|_| std::array::from_fn(|_| Counter::new())),
            decisions: DecisionCells::new(),
        }
    }
}

impl CoreCells {
    /// Counts a handshake with a client.
    pub fn count_handshake(&self, outcome: TlsOutcome) {
        if let Some(count) = self.tls_handshakes.get(outcome as usize) {
            count.increment();
        }
    }
}

impl Default for CoreCells {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counted_status_is_found_under_its_own_label() {
        for (row, word) in STATUSES.iter().enumerate().take(STATUSES.len() - 1) {
            assert_eq!(status_row(word.parse().unwrap()), row);
        }
        assert_eq!(STATUSES[status_row(418)], "other");
    }

    #[test]
    fn the_table_of_metrics_is_lawful() {
        assert_eq!(llmgw_obs::registry::check(&[METRICS]), Vec::<String>::new());
    }
}
