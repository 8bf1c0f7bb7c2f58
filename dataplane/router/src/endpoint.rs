//! What is known of one endpoint, in cells that have one writer each and that anyone may read: its checks, its engine's
//! newest sample, its breaker. Never knows what is made of it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use llmgw_kit::clock::Mono;

/// One reading of an engine's metrics, as decisions use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Requests the engine works on.
    pub running: u32,
    /// Requests in the engine's own queue.
    pub waiting: u32,
    /// Occupied part of its KV cache, 0..=1; absent where the engine does not publish it.
    pub kv_usage_ratio: Option<f32>,
    /// Requests it completes a second, as observed; absent until two readings are there.
    pub drain_rate: Option<f32>,
    /// When it was read.
    pub at: Mono,
}

/// How an endpoint's metrics stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MetricsState {
    /// Nobody reads them, or nobody has yet.
    #[default]
    Unread,
    /// The newest attempt to read them gave a sample.
    Fresh,
    /// The newest attempt did not: the sample that is there is an older one.
    Stale,
}

/// Whether an endpoint's breaker lets requests through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BreakerState {
    /// All of them.
    #[default]
    Closed,
    /// None, until its time is up.
    Open,
    /// One at a time, to see whether it has recovered.
    HalfOpen,
}

/// What opened an endpoint's breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OpenedBy {
    /// Requests that failed there.
    #[default]
    Requests,
    /// Its pool, whose other endpoints do far better.
    Pool,
    /// Its engine's metrics, which were not to be had.
    Metrics,
}

/// What a cell holds for "not known".
const UNKNOWN: u32 = u32::MAX;
const PARTS: f32 = 1_000_000.0;

/// Cells of one endpoint. Each has one writer, named beside it. All of them are one cache line, since a decision reads
/// those of every member of a pool.
#[repr(align(64))]
pub struct EndpointCells {
    /// Side runtime.
    ready: AtomicBool,
    /// Side runtime: takes no new work.
    draining: AtomicBool,
    /// Side runtime, nanoseconds: when it last became ready, for its slow start; 0 is never.
    ready_since: AtomicU64,
    /// Side runtime: the newest sample, number by number.
    running: AtomicU32,
    waiting: AtomicU32,
    /// Millionths.
    kv_usage: AtomicU32,
    /// Thousandths of a request a second.
    drain_rate: AtomicU32,
    /// Nanoseconds; 0 is never.
    sampled_at: AtomicU64,
    /// Side runtime: a [`MetricsState`].
    metrics: AtomicU8,
    /// Side runtime: requests it runs at once, configured or learned; 0 is not known.
    batch_capacity: AtomicU32,
    /// Side runtime: whether that number is a limit: configured, or learned while requests waited there.
    is_capacity_limit: AtomicBool,
    /// Side runtime: requests of the newest sample that were not ours.
    foreign: AtomicU16,
    /// Side runtime: tokens its KV cache holds, configured or published; 0 is not known.
    kv_capacity_tokens: AtomicU64,
    /// Side runtime: how many endpoints had the slot before.
    tenure: AtomicU32,
    /// The core that owns the endpoint: a [`BreakerState`].
    breaker: AtomicU8,
    /// The core that owns the endpoint: an [`OpenedBy`].
    opened_by: AtomicU8,
    /// The core that owns the endpoint, nanoseconds: no requests before.
    out_until: AtomicU64,
}

const _: () = assert!(size_of::<EndpointCells>() == 64);

impl Default for EndpointCells {
    fn default() -> Self {
        Self {
            ready: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            ready_since: AtomicU64::new(0),
            running: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            kv_usage: AtomicU32::new(UNKNOWN),
            drain_rate: AtomicU32::new(UNKNOWN),
            sampled_at: AtomicU64::new(0),
            metrics: AtomicU8::new(0),
            batch_capacity: AtomicU32::new(0),
            is_capacity_limit: AtomicBool::new(false),
            foreign: AtomicU16::new(0),
            kv_capacity_tokens: AtomicU64::new(0),
            tenure: AtomicU32::new(0),
            breaker: AtomicU8::new(0),
            opened_by: AtomicU8::new(0),
            out_until: AtomicU64::new(0),
        }
    }
}

impl EndpointCells {
    /// As for an endpoint nobody has heard of: the next one that has the slot.
    pub(crate) fn clear(&self) {
        self.tenure.store(self.tenure().wrapping_add(1), Ordering::Release);
        self.ready.store(false, Ordering::Release);
        self.draining.store(false, Ordering::Release);
        self.is_capacity_limit.store(false, Ordering::Release);
        self.foreign.store(0, Ordering::Relaxed);
        for cell in [&self.running, &self.waiting, &self.batch_capacity] {
            cell.store(0, Ordering::Relaxed);
        }
        for cell in [&self.metrics, &self.breaker, &self.opened_by] {
            cell.store(0, Ordering::Relaxed);
        }
        for cell in [&self.kv_usage, &self.drain_rate] {
            cell.store(UNKNOWN, Ordering::Relaxed);
        }
        for cell in [&self.ready_since, &self.sampled_at, &self.kv_capacity_tokens, &self.out_until] {
            cell.store(0, Ordering::Release);
        }
    }

    /// How many endpoints had the slot before.
    pub fn tenure(&self) -> u32 {
        self.tenure.load(Ordering::Acquire)
    }

    /// Whether the endpoint answered its last check.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Says whether the endpoint is ready. Owner: the side runtime.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// When the endpoint last became ready; `None` if it never was. Cost: one load.
    #[inline]
    pub fn ready_since(&self) -> Option<Mono> {
        Some(self.ready_since.load(Ordering::Relaxed)).filter(|&at| at > 0).map(Mono)
    }

    /// Says when the endpoint became ready. Owner: the side runtime.
    pub fn set_ready_since(&self, now: Mono) {
        self.ready_since.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Whether the endpoint takes no new work.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Says whether the endpoint takes no new work. Owner: the side runtime.
    pub fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Release);
    }

    /// The newest sample, however old; `None` before the first. Its numbers are read one by one.
    #[inline]
    pub fn sample(&self) -> Option<Sample> {
        let at = self.sampled_at.load(Ordering::Acquire);
        let known = |cell: &AtomicU32| Some(cell.load(Ordering::Relaxed)).filter(|&value| value != UNKNOWN);
        (at > 0).then(|| Sample {
            running: self.running.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            kv_usage_ratio: known(&self.kv_usage).map(|parts| parts as f32 / PARTS),
            drain_rate: known(&self.drain_rate).map(|thousandths| thousandths as f32 / 1000.0),
            at: Mono(at),
        })
    }

    /// The newest sample if it is not from before `from`.
    #[inline]
    pub fn fresh_sample(&self, from: Mono) -> Option<Sample> {
        self.sample().filter(|sample| sample.at >= from)
    }

    /// Takes in a sample. Owner: the side runtime.
    pub fn set_sample(&self, sample: &Sample) {
        let scaled = |value: Option<f32>, scale: f32| {
            // A float beyond the range becomes its nearest end; the very last value stands for "not known".
            value.map_or(UNKNOWN, |value| ((value * scale) as u32).min(UNKNOWN - 1))
        };
        self.running.store(sample.running, Ordering::Relaxed);
        self.waiting.store(sample.waiting, Ordering::Relaxed);
        self.kv_usage.store(scaled(sample.kv_usage_ratio, PARTS), Ordering::Relaxed);
        self.drain_rate.store(scaled(sample.drain_rate, 1000.0), Ordering::Relaxed);
        self.sampled_at.store(sample.at.0.max(1), Ordering::Release);
    }

    /// How the endpoint's metrics stand. A sample that is stale may still be young enough to be of use:
    /// [`EndpointCells::fresh_sample`] tells.
    pub fn metrics(&self) -> MetricsState {
        match self.metrics.load(Ordering::Acquire) {
            1 => MetricsState::Fresh,
            2 => MetricsState::Stale,
            _ => MetricsState::Unread,
        }
    }

    /// Says how the endpoint's metrics stand. Owner: the side runtime.
    pub fn set_metrics(&self, state: MetricsState) {
        let word = match state {
            MetricsState::Unread => 0,
            MetricsState::Fresh => 1,
            MetricsState::Stale => 2,
        };
        self.metrics.store(word, Ordering::Release);
    }

    /// Whether [`EndpointCells::batch_capacity`] is known to be a limit: it is configured, or requests were seen to
    /// wait there. An engine in which nobody ever waited may run any number.
    pub fn is_capacity_limit(&self) -> bool {
        self.is_capacity_limit.load(Ordering::Acquire)
    }

    /// Says whether the batch capacity is a limit. Owner: the side runtime.
    pub fn set_capacity_limit(&self, is_limit: bool) {
        self.is_capacity_limit.store(is_limit, Ordering::Release);
    }

    /// Requests that the newest sample counted and that were not ours; 65,535 stands for that many and more.
    pub fn foreign(&self) -> u32 {
        self.foreign.load(Ordering::Relaxed).into()
    }

    /// Says how many requests were not ours. Owner: the side runtime, before the sample itself.
    pub fn set_foreign(&self, count: u32) {
        self.foreign.store(u16::try_from(count).unwrap_or(u16::MAX), Ordering::Relaxed);
    }

    /// Tokens the engine's KV cache holds, where that is configured or published.
    pub fn kv_capacity_tokens(&self) -> Option<u64> {
        Some(self.kv_capacity_tokens.load(Ordering::Relaxed)).filter(|&tokens| tokens > 0)
    }

    /// Says how many tokens the engine's KV cache holds. Owner: the side runtime.
    pub fn set_kv_capacity_tokens(&self, tokens: u64) {
        self.kv_capacity_tokens.store(tokens, Ordering::Relaxed);
    }

    /// Requests the engine runs at once, where that is configured or was learned.
    pub fn batch_capacity(&self) -> Option<u32> {
        Some(self.batch_capacity.load(Ordering::Relaxed)).filter(|&capacity| capacity > 0)
    }

    /// Says how many requests the engine runs at once. Owner: the side runtime.
    pub fn set_batch_capacity(&self, capacity: u32) {
        self.batch_capacity.store(capacity, Ordering::Relaxed);
    }

    /// The endpoint's breaker.
    #[inline]
    pub fn breaker(&self) -> BreakerState {
        match self.breaker.load(Ordering::Acquire) {
            1 => BreakerState::Open,
            2 => BreakerState::HalfOpen,
            _ => BreakerState::Closed,
        }
    }

    /// What opened the endpoint's breaker, when it last was opened.
    pub fn opened_by(&self) -> OpenedBy {
        match self.opened_by.load(Ordering::Relaxed) {
            1 => OpenedBy::Pool,
            2 => OpenedBy::Metrics,
            _ => OpenedBy::Requests,
        }
    }

    /// Says what opens the endpoint's breaker; before [`EndpointCells::set_breaker`], so that whoever sees it open
    /// sees this. Owner: the core that owns the endpoint.
    pub fn set_opened_by(&self, what: OpenedBy) {
        let word = match what {
            OpenedBy::Requests => 0,
            OpenedBy::Pool => 1,
            OpenedBy::Metrics => 2,
        };
        self.opened_by.store(word, Ordering::Relaxed);
    }

    /// Until when the endpoint gets no requests: its cooldown, or its open breaker's time.
    #[inline]
    pub fn out_until(&self) -> Mono {
        Mono(self.out_until.load(Ordering::Acquire))
    }

    /// Sets the breaker and until when the endpoint is out. Owner: the core that owns the endpoint.
    pub fn set_breaker(&self, state: BreakerState, out_until: Mono) {
        let word = match state {
            BreakerState::Closed => 0,
            BreakerState::Open => 1,
            BreakerState::HalfOpen => 2,
        };
        self.out_until.store(out_until.0, Ordering::Release);
        self.breaker.store(word, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Sample =
        Sample { running: 3, waiting: 5, kv_usage_ratio: Some(0.25), drain_rate: None, at: Mono(2_000_000_000) };

    #[test]
    fn a_sample_is_read_as_it_was_written_and_grows_old() {
        let cells = EndpointCells::default();
        assert_eq!(cells.sample(), None);
        cells.set_sample(&SAMPLE);
        assert_eq!(cells.sample(), Some(SAMPLE));
        assert_eq!(cells.fresh_sample(Mono(2_000_000_000)), Some(SAMPLE));
        assert_eq!(cells.fresh_sample(Mono(2_000_000_001)), None);
    }

    #[test]
    fn cells_that_were_cleared_tell_nothing() {
        let cells = EndpointCells::default();
        cells.set_ready(true);
        cells.set_draining(true);
        cells.set_ready_since(Mono(3));
        cells.set_sample(&SAMPLE);
        cells.set_batch_capacity(8);
        cells.set_kv_capacity_tokens(9);
        cells.set_metrics(MetricsState::Fresh);
        assert_eq!((cells.kv_capacity_tokens(), cells.metrics()), (Some(9), MetricsState::Fresh));
        cells.set_opened_by(OpenedBy::Metrics);
        cells.set_breaker(BreakerState::HalfOpen, Mono(9));
        assert_eq!(cells.opened_by(), OpenedBy::Metrics);
        cells.clear();
        assert!(!cells.is_ready() && !cells.is_draining());
        assert_eq!((cells.ready_since(), cells.sample(), cells.batch_capacity()), (None, None, None));
        assert_eq!((cells.kv_capacity_tokens(), cells.metrics()), (None, MetricsState::Unread));
        assert_eq!((cells.breaker(), cells.out_until()), (BreakerState::Closed, Mono(0)));
        assert_eq!(cells.opened_by(), OpenedBy::Requests);
        assert_eq!(cells.tenure(), 1, "whoever remembers the slot can tell");
    }
}
