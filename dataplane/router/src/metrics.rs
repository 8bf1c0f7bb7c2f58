//! What a core counts: cells written by the core, read by the side runtime's page. Names are those of the reference.

use crate::prefix::Decision;
use crate::scheduler::cached::Reuse;
use crate::scheduler::registry::FILTER_NAMES;
use crate::scheduler::run::Tally;
use llmgw_obs::metric::{Counter, Gauge, Histogram};
use llmgw_obs::registry;
use llmgw_obs::registry::{Bounds, DURATION, FIRST_TOKEN, Kind, Label, MetricDesc, OVERHEAD};
use llmgw_obs::rows::Rows;

/// Pools (and so models) that are counted apart; more are counted as `other`.
pub const POOL_ROWS_MAX: usize = 4096;

/// The status codes that are counted apart, as the label says them; everything else is `other`.
pub const STATUSES: &[&str] = &[
    "200", "400", "401", "403", "404", "405", "408", "413", "414", "417", "422", "429", "431", "499", "500", "501",
    "502", "503", "504", "other",
];

/// Bands of models that are counted apart; more are counted as `other`.
pub const BAND_ROWS_MAX: usize = 4096;

const MODEL: Label = Label::known("model", "models of the route table, `other` for a request that names none of them");
const BAND: Label = Label::known("band", "bands of the model");
const POOL: Label = Label::known("pool", "fabric/gpu_class of the route table, `other` before a pool was chosen");

/// Requests that ended, by outcome. 499 stands for a client that left before the answer began.
pub static REQUESTS: MetricDesc = MetricDesc {
    name: "llmgw_requests_total",
    help: "Requests that ended, by status sent (499: the client left first)",
    kind: Kind::Counter,
    labels: &[MODEL, POOL, Label::closed("status", STATUSES)],
};
/// See [`PoolCells::duration`].
pub static REQUEST_DURATION: MetricDesc = MetricDesc {
    name: "llmgw_request_duration_seconds",
    help: "Time from a request's head to the end of its answer",
    kind: Kind::Histogram(DURATION),
    labels: &[MODEL, POOL],
};
/// See [`PoolCells::first_token`].
pub static TTFT: MetricDesc = MetricDesc {
    name: "llmgw_ttft_seconds",
    help: "Time from a streamed request's head to its first token",
    kind: Kind::Histogram(FIRST_TOKEN),
    labels: &[MODEL, POOL],
};
/// See [`PoolCells::per_token`].
pub static TPOT: MetricDesc = MetricDesc {
    name: "llmgw_tpot_seconds",
    help: "Time per output token after the first, of streamed answers of two and more tokens whose engine counted them",
    kind: Kind::Histogram(registry::PER_TOKEN),
    labels: &[MODEL, POOL],
};
/// See [`PoolCells::prompt_tokens`].
pub static TOKENS: MetricDesc = MetricDesc {
    name: "llmgw_tokens_total",
    help: "Tokens as the engines reported them",
    kind: Kind::Counter,
    labels: &[MODEL, Label::closed("direction", &["prompt", "completion"])],
};
/// See [`PoolCells::audio_ms`].
pub static AUDIO_SECONDS: MetricDesc = MetricDesc {
    name: "llmgw_audio_seconds_total",
    help: "Sound in requests, in seconds as the engines reported them; only of models whose engines do",
    kind: Kind::Counter,
    labels: &[MODEL],
};
/// See [`CoreCells::overhead`].
pub static OVERHEAD_SECONDS: MetricDesc = MetricDesc {
    name: "llmgw_overhead_seconds",
    help: "Time this gateway added before the answer began",
    kind: Kind::Histogram(OVERHEAD),
    labels: &[],
};
/// See [`CoreCells::usage_absent`].
pub static USAGE_ABSENT: MetricDesc = MetricDesc {
    name: "llmgw_usage_absent_total",
    help: "Answers whose usage was missing or absurd, so that our own count stands in",
    kind: Kind::Counter,
    labels: &[Label::closed("kind", &["missing", "absurd"])],
};
/// See [`CoreCells::broken_streams`].
pub static BROKEN_STREAMS: MetricDesc = MetricDesc {
    name: "llmgw_broken_streams_total",
    help: "Streams that an engine cut before their end",
    kind: Kind::Counter,
    labels: &[],
};
/// Why requests are tried again at another endpoint, in the order of [`CoreCells::retries`].
pub const RETRY_REASONS: &[&str] = &["connect", "closed", "503", "429"];
/// See [`CoreCells::retries`].
pub static RETRIES: MetricDesc = MetricDesc {
    name: "llmgw_retries_total",
    help: "Requests tried again at another endpoint, by why the one before did not do",
    kind: Kind::Counter,
    labels: &[Label::closed("reason", RETRY_REASONS)],
};
/// See [`CoreCells::retries_refused`].
pub static RETRIES_REFUSED: MetricDesc = MetricDesc {
    name: "llmgw_retries_refused_total",
    help: "Retries that were due and not made because the retry budget was spent",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::cooldowns`].
pub static COOLDOWNS: MetricDesc = MetricDesc {
    name: "llmgw_cooldowns_total",
    help: "Times an endpoint was taken out of the candidates after a failure",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::last_resorts`].
pub static LAST_RESORTS: MetricDesc = MetricDesc {
    name: "llmgw_last_resorts_total",
    help: "Requests sent to an endpoint that is kept from requests, because there was no other",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::connections_open`].
pub static CONNECTIONS_OPEN: MetricDesc = MetricDesc {
    name: "llmgw_client_connections",
    help: "Client connections open now",
    kind: Kind::Gauge,
    labels: &[],
};
/// See [`CoreCells::in_flight`].
pub static REQUESTS_IN_FLIGHT: MetricDesc = MetricDesc {
    name: "llmgw_requests_in_flight",
    help: "Requests whose head arrived and whose answer has not ended",
    kind: Kind::Gauge,
    labels: &[],
};
/// See [`CoreCells::upstream_opened`].
pub static UPSTREAM_CONNECTIONS: MetricDesc = MetricDesc {
    name: "llmgw_upstream_connections_total",
    help: "Connections to engines, by what was done with them",
    kind: Kind::Counter,
    labels: &[Label::closed("event", &["opened", "reused", "stale", "retried"])],
};
/// See [`CoreCells::panics`].
pub static PANICS: MetricDesc = MetricDesc {
    name: "llmgw_panics_total",
    help: "Requests that met a fault of this program and were answered 500",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::access_lines_lost`].
pub static ACCESS_LINES_LOST: MetricDesc = MetricDesc {
    name: "llmgw_access_lines_lost_total",
    help: "Request log lines dropped because the log could not keep up",
    kind: Kind::Counter,
    labels: &[],
};

/// What [`CoreCells::session_messages`] are about.
pub const SESSION_SUBJECTS: &[&str] = &["session", "response"];
/// What came of them, in the order of [`CoreCells::session_messages`].
pub const SESSION_OUTCOMES: &[&str] = &["found", "unknown", "unanswered", "not_asked", "told", "not_told"];
/// See [`CoreCells::session_messages`].
pub static SESSION_MESSAGES: MetricDesc = MetricDesc {
    name: "llmgw_session_messages_total",
    help: "Questions (found, unknown, unanswered, not_asked) and notices (told, not_told) to the core that owns a \
           session away from its engine or a stored response; none where that core serves the request itself",
    kind: Kind::Counter,
    labels: &[Label::closed("about", SESSION_SUBJECTS), Label::closed("outcome", SESSION_OUTCOMES)],
};

/// What became of prompts, in the order of [`PoolCells::cache_decisions`].
pub const CACHE_DECISIONS: &[&str] = &[
    Decision::ALL[0].word(),
    Decision::ALL[1].word(),
    Decision::ALL[2].word(),
    Decision::ALL[3].word(),
    Decision::ALL[4].word(),
    Decision::ALL[5].word(),
];
/// See [`PoolCells::cache_decisions`].
pub static CACHE_DECISION: MetricDesc = MetricDesc {
    name: "llmgw_cache_decision_total",
    help: "Endpoints chosen, by what became of the prompt: it went where enough of it is cached (cache_hit), too \
           little of it is cached anywhere (cache_miss_min_load), load or its session sent it elsewhere \
           (load_balance_override), it was cached and is not any more (stale), nobody looked (no_tree), nobody may get \
           it (no_healthy_worker)",
    kind: Kind::Counter,
    labels: &[MODEL, Label::closed("decision", CACHE_DECISIONS)],
};
/// See [`PoolCells::prefix_match`].
pub static PREFIX_MATCH_RATIO: MetricDesc = MetricDesc {
    name: "llmgw_prefix_match_ratio",
    help: "Part of a prompt that the endpoint it went to is taken to have cached",
    kind: Kind::Histogram(RATIO),
    labels: &[MODEL],
};

/// See [`DecisionCells::considered`].
pub static CANDIDATES_CONSIDERED: MetricDesc = MetricDesc {
    name: "llmgw_candidates_considered",
    help: "Endpoints looked at for one decision, before filters",
    kind: Kind::Histogram(CANDIDATES),
    labels: &[],
};
/// See [`DecisionCells::filtered`].
pub static CANDIDATES_FILTERED: MetricDesc = MetricDesc {
    name: "llmgw_candidates_filtered_total",
    help: "Endpoints that a filter kept from a decision",
    kind: Kind::Counter,
    labels: &[Label::closed("filter", &FILTER_NAMES)],
};

/// See [`BandCells::waiting`].
pub static ADMISSION_QUEUE_DEPTH: MetricDesc = MetricDesc {
    name: "llmgw_admission_queue_depth",
    help: "Requests that wait for a place in one of their model's pools",
    kind: Kind::Gauge,
    labels: &[BAND, MODEL],
};
/// See [`BandCells::wait`].
pub static ADMISSION_WAIT: MetricDesc = MetricDesc {
    name: "llmgw_admission_wait_seconds",
    help: "Time that requests waited for their place; those that passed at once are not in it",
    kind: Kind::Histogram(FIRST_TOKEN),
    labels: &[BAND, MODEL],
};
/// Why waiting requests got no place, in the order of [`BandCells::rejected`].
pub const REJECTIONS: &[&str] =
    &["full", "ttl", "client_gone", "no_endpoint", "displaced", "overloaded", "shutting_down"];
/// See [`BandCells::rejected`].
pub static ADMISSION_REJECTED: MetricDesc = MetricDesc {
    name: "llmgw_admission_rejected_total",
    help: "Requests that found no place and did not get one by waiting, by why",
    kind: Kind::Counter,
    labels: &[BAND, MODEL, Label::closed("reason", REJECTIONS)],
};
/// How requests came by their place, in the order of [`BandCells::admitted`].
pub const ADMISSIONS: &[&str] = &["passed", "waited"];
/// See [`BandCells::admitted`].
pub static ADMISSION_ADMITTED: MetricDesc = MetricDesc {
    name: "llmgw_admission_admitted_total",
    help: "Places that requests got: at once, with no message to another core (passed), or by waiting (waited)",
    kind: Kind::Counter,
    labels: &[BAND, MODEL, Label::closed("how", ADMISSIONS)],
};
/// What is sent about places, in the order of [`CoreCells::gate_messages`].
pub const GATE_MESSAGES: &[&str] = &["enqueue", "withdraw", "nudge", "granted", "refused"];
/// See [`CoreCells::gate_messages`].
pub static ADMISSION_MESSAGES: MetricDesc = MetricDesc {
    name: "llmgw_admission_messages_total",
    help: "Messages about places in pools, those a core sends to itself included; none while there is room",
    kind: Kind::Counter,
    labels: &[Label::closed("message", GATE_MESSAGES)],
};
/// See [`CoreCells::heartbeats`].
pub static ADMISSION_HEARTBEATS: MetricDesc = MetricDesc {
    name: "llmgw_admission_heartbeats_total",
    help: "Comments sent to streams that wait for a place",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::found_by_net`].
pub static ADMISSION_FOUND_BY_NET: MetricDesc = MetricDesc {
    name: "llmgw_admission_found_by_net_total",
    help: "Places that the timer below the messages found free before the message about them came: a handful by \
           chance, more are a fault of this program",
    kind: Kind::Counter,
    labels: &[],
};

/// Every metric that cores count.
pub static METRICS: &[&MetricDesc] = &[
    &REQUESTS,
    &REQUEST_DURATION,
    &TTFT,
    &TPOT,
    &TOKENS,
    &AUDIO_SECONDS,
    &OVERHEAD_SECONDS,
    &USAGE_ABSENT,
    &BROKEN_STREAMS,
    &RETRIES,
    &RETRIES_REFUSED,
    &COOLDOWNS,
    &LAST_RESORTS,
    &CONNECTIONS_OPEN,
    &REQUESTS_IN_FLIGHT,
    &UPSTREAM_CONNECTIONS,
    &PANICS,
    &ACCESS_LINES_LOST,
    &SESSION_MESSAGES,
    &CACHE_DECISION,
    &PREFIX_MATCH_RATIO,
    &CANDIDATES_CONSIDERED,
    &CANDIDATES_FILTERED,
    &ADMISSION_QUEUE_DEPTH,
    &ADMISSION_WAIT,
    &ADMISSION_REJECTED,
    &ADMISSION_ADMITTED,
    &ADMISSION_MESSAGES,
    &ADMISSION_HEARTBEATS,
    &ADMISSION_FOUND_BY_NET,
];

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
    /// Prompt tokens, engines' words.
    pub prompt_tokens: Counter,
    /// Completion tokens, engines' words.
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

/// Parts of a whole, in millionths as all bounds are.
pub const RATIO: Bounds = Bounds::micros(&[
    0, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000, 900_000, 950_000, 990_000, 1_000_000,
]);
/// Numbers of endpoints, in millions as all bounds are.
pub const CANDIDATES: Bounds = Bounds::micros(&[
    1_000_000,
    2_000_000,
    4_000_000,
    8_000_000,
    16_000_000,
    32_000_000,
    64_000_000,
    256_000_000,
    1_024_000_000,
    4_096_000_000,
]);

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
            overhead: Histogram::new(OVERHEAD),
            usage_absent: [Counter::new(), Counter::new()],
            broken_streams: Counter::new(),
            retries: std::array::from_fn(|_| Counter::new()),
            retries_refused: Counter::new(),
            cooldowns: Counter::new(),
            last_resorts: Counter::new(),
            connections_open: Gauge::new(),
            in_flight: Gauge::new(),
            upstream_opened: Gauge::new(),
            upstream_reused: Gauge::new(),
            upstream_stale: Gauge::new(),
            upstream_retried: Gauge::new(),
            panics: Counter::new(),
            access_lines_lost: Counter::new(),
            session_messages: std::array::from_fn(|_| std::array::from_fn(|_| Counter::new())),
            decisions: DecisionCells::new(),
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
