//! From an engine's numbers to a sample: how fast it completes, how much it runs at once. No I/O and no clock.

use std::time::Duration;

use llmgw_engines::contract::EngineStats;
use llmgw_kit::clock::Mono;
use llmgw_router::endpoint::Sample;

/// Over about this long the rate of completions is averaged: a scrape interval sees few of them.
const RATE_TIME: Duration = Duration::from_secs(10);

/// Pages in a row, with requests waiting beside as full a batch as was ever seen, that show it to be a limit.
const FULL_PAGES: u32 = 2;
/// The same, whatever the batch: what runs varies where memory is what is short.
const QUEUED_PAGES: u32 = 5;

/// What is made of one page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lesson {
    pub sample: Sample,
    /// Requests the engine runs at once; 0 while that is not known.
    pub batch_capacity: u32,
    /// Whether that is a limit: configured, told, or requests were seen to wait.
    pub is_capacity_limit: bool,
    /// The engine was started again since the page before: its cache is empty.
    pub is_anew: bool,
    pub kv_capacity_tokens: Option<u64>,
}

/// What is known of one engine from page to page.
///
/// Its batch capacity is what the configuration says, else what the engine itself says of it, else the most requests it
/// was ever seen to run: a limit only once a queue lasted beside as many. As long as none did, what we hold on a page
/// on which nobody waits is what it runs. It also rises by one a page while nobody waits there and we hold as many as
/// it is known to take: else a gateway that never sends more than the capacity would never see more. An engine that was
/// started again is learned again.
#[derive(Debug, Default)]
pub(crate) struct Learner {
    configured_batch: Option<u32>,
    configured_tokens: Option<u64>,
    /// What the engine said.
    told_batch: Option<u32>,
    learned_batch: u32,
    /// The most it ran.
    most_running: u32,
    /// Pages in a row on which requests waited, and of those the ones with a full batch.
    queued_pages: u32,
    full_pages: u32,
    has_queued: bool,
    last: Option<Counters>,
    drain_rate: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Counters {
    at: Mono,
    completed: Option<u64>,
    generated: Option<u64>,
    prompted: Option<u64>,
}

impl Counters {
    /// Whether a counter fell.
    fn fell_since(&self, last: &Self) -> bool {
        let pairs =
            [(last.completed, self.completed), (last.generated, self.generated), (last.prompted, self.prompted)];
        pairs.into_iter().any(|(last, now)| last.zip(now).is_some_and(|(last, now)| now < last))
    }
}

impl Learner {
    /// What the configuration says goes before what is learned.
    pub(crate) fn new(batch_capacity: Option<u32>, kv_capacity_tokens: Option<u64>) -> Self {
        Self { configured_batch: batch_capacity, configured_tokens: kv_capacity_tokens, ..Self::default() }
    }

    /// What the engine says that it runs at once. Data-parallel engines may say it of one rank: what was seen to run
    /// counts for more.
    pub(crate) fn told(&mut self, batch: u32) -> u32 {
        self.told_batch = Some(batch);
        self.capacity()
    }

    fn capacity(&self) -> u32 {
        let told = self.told_batch.map(|told| told.max(self.most_running));
        self.configured_batch.or(told).unwrap_or(self.learned_batch)
    }

    /// Takes a page's numbers, read at `at` while `own` of the engine's requests were ours.
    pub(crate) fn take(&mut self, stats: &EngineStats, own: u32, at: Mono) -> Lesson {
        let (completed, generated) = (stats.requests_completed, stats.generation_tokens);
        let now = Counters { at, completed, generated, prompted: stats.prompt_tokens };
        let last = self.last.replace(now);
        let is_anew = last.is_some_and(|last| now.fell_since(&last));
        if is_anew {
            (self.learned_batch, self.most_running, self.told_batch) = (0, 0, None);
            (self.queued_pages, self.full_pages, self.has_queued) = (0, 0, false);
            self.drain_rate = None;
        } else if let Some(last) = last {
            self.drain_rate = averaged(self.drain_rate, &last, &now);
        }
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (running, waiting) = (count(stats.running), count(stats.waiting));
        // A request that has just come waits for the next step of any engine; only a queue that lasts is one.
        // A batch that grows is not full, however many wait to be taken into it.
        let is_as_full_as_ever = u64::from(running) * 8 >= u64::from(self.most_running) * 7;
        let is_full = is_as_full_as_ever && running > 0 && running <= self.most_running;
        self.queued_pages = if waiting > 0 { self.queued_pages.saturating_add(1) } else { 0 };
        self.full_pages = if waiting > 0 && is_full { self.full_pages.saturating_add(1) } else { 0 };
        self.has_queued |= self.full_pages >= FULL_PAGES || self.queued_pages >= QUEUED_PAGES;
        self.most_running = self.most_running.max(running);
        self.learned_batch = self.learned_batch.max(running);
        if waiting == 0 && !self.has_queued {
            self.learned_batch = self.learned_batch.max(own);
        }
        if waiting == 0 && own > 0 && own >= self.learned_batch {
            self.learned_batch = self.learned_batch.saturating_add(1);
        }
        Lesson {
            sample: Sample {
                running,
                waiting,
                kv_usage_ratio: stats.kv_usage.map(|share| share as f32),
                drain_rate: self.drain_rate.map(|rate| rate as f32),
                at,
            },
            batch_capacity: self.capacity(),
            is_capacity_limit: self.configured_batch.or(self.told_batch).is_some() || self.has_queued,
            is_anew,
            kv_capacity_tokens: self.configured_tokens.or(stats.kv_capacity_tokens),
        }
    }
}

/// Completions a second, the newest interval weighing by its length; none of an engine that counts no completions.
fn averaged(rate: Option<f64>, last: &Counters, now: &Counters) -> Option<f64> {
    let completed = now.completed?.checked_sub(last.completed?)? as f64;
    let seconds = now.at.since(last.at).as_secs_f64();
    if seconds <= 0.0 {
        return rate;
    }
    let newest = completed / seconds;
    let weight = 1.0 - (-seconds / RATE_TIME.as_secs_f64()).exp();
    Some(rate.map_or(newest, |rate| rate + weight * (newest - rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(seconds * 1_000_000_000)
    }

    fn busy(running: u64, waiting: u64) -> EngineStats {
        EngineStats { running, waiting, ..EngineStats::default() }
    }

    fn completed(count: u64) -> EngineStats {
        EngineStats { requests_completed: Some(count), ..EngineStats::default() }
    }

    #[test]
    fn the_most_that_was_ever_running_is_the_capacity() {
        let mut learner = Learner::default();
        let capacities: Vec<u32> = [(3, 0), (8, 5), (8, 9), (2, 0), (0, 0)]
            .into_iter()
            .map(|(running, waiting)| learner.take(&busy(running, waiting), 0, at(1)).batch_capacity)
            .collect();
        assert_eq!(capacities, [3, 8, 8, 8, 8]);
    }

    #[test]
    fn it_rises_by_one_a_page_while_nobody_waits_and_we_hold_as_many() {
        let mut learner = Learner::default();
        let mut capacity = |running, waiting, own| learner.take(&busy(running, waiting), own, at(1)).batch_capacity;
        assert_eq!(capacity(0, 0, 0), 0, "at rest there is nothing to learn");
        assert_eq!(capacity(4, 0, 3), 4, "others fill it too");
        assert_eq!(capacity(4, 1, 9), 4, "somebody waits: it is full");
        assert_eq!((capacity(4, 0, 4), capacity(4, 0, 4)), (5, 5), "we hold less than it takes");
        assert_eq!(capacity(5, 0, 9), 10, "nobody waits: it runs what we hold");
        assert_eq!((capacity(9, 5, 14), capacity(9, 5, 14), capacity(9, 5, 14)), (10, 10, 10), "a queue lasts");
        assert_eq!((capacity(5, 0, 14), capacity(5, 0, 14)), (11, 12), "from here on one by one");
    }

    #[test]
    fn a_capacity_is_a_limit_once_a_queue_lasts() {
        let limits = |pages: &[(u64, u64)]| {
            let mut learner = Learner::default();
            let take = |(running, waiting): &(u64, u64)| learner.take(&busy(*running, *waiting), 0, at(1));
            pages.iter().map(take).map(|lesson| lesson.is_capacity_limit).collect::<Vec<_>>()
        };
        assert_eq!(limits(&[(4, 0), (9, 0), (9, 0)]), [false; 3], "nobody waits");
        assert_eq!(limits(&[(2, 3), (9, 0), (2, 3), (9, 0)]), [false; 4], "they have just come");
        assert_eq!(limits(&[(32, 0), (32, 9), (31, 9), (2, 0)]), [false, false, true, true]);
        assert_eq!(
            limits(&[(32, 0), (9, 9), (5, 9), (7, 9), (3, 9), (6, 9)]),
            [false, false, false, false, false, true]
        );
        assert_eq!(limits(&[(8, 90), (16, 80), (24, 70), (32, 60)]), [false; 4], "the batch grows");
        let mut configured = Learner::new(Some(16), None);
        assert!(configured.take(&busy(0, 0), 0, at(1)).is_capacity_limit);
    }

    #[test]
    fn what_is_configured_goes_before_what_is_learned() {
        let mut learner = Learner::new(Some(16), Some(1000));
        let stats = EngineStats { kv_capacity_tokens: Some(5), ..busy(40, 0) };
        let lesson = learner.take(&stats, 50, at(1));
        assert_eq!((lesson.batch_capacity, lesson.kv_capacity_tokens), (16, Some(1000)));
        assert_eq!(Learner::default().take(&stats, 0, at(1)).kv_capacity_tokens, Some(5));
    }

    #[test]
    fn what_the_engine_says_is_a_limit_at_once_and_until_it_starts_again() {
        let mut learner = Learner::default();
        assert_eq!(learner.told(4), 4);
        let lesson = learner.take(&EngineStats { requests_completed: Some(9), ..busy(0, 0) }, 0, at(1));
        assert_eq!((lesson.batch_capacity, lesson.is_capacity_limit, lesson.is_anew), (4, true, false));
        let mut capacity = |running, waiting, own| {
            let stats = EngineStats { requests_completed: Some(9), ..busy(running, waiting) };
            learner.take(&stats, own, at(2)).batch_capacity
        };
        assert_eq!((capacity(4, 0, 4), capacity(4, 0, 9)), (4, 4), "what we hold is no word of the engine's");
        assert_eq!(capacity(6, 0, 6), 6, "it was seen to run more");
        let lesson = learner.take(&EngineStats { requests_completed: Some(0), ..busy(0, 0) }, 0, at(3));
        assert_eq!((lesson.batch_capacity, lesson.is_capacity_limit, lesson.is_anew), (0, false, true));
        assert_eq!(Learner::new(Some(16), None).told(4), 16, "what is configured goes before it");
    }

    #[test]
    fn completions_a_second_follow_the_engine_within_some_seconds() {
        let mut learner = Learner::default();
        assert_eq!(learner.take(&completed(100), 0, at(10)).sample.drain_rate, None, "one reading is no rate");
        assert_eq!(learner.take(&completed(120), 0, at(20)).sample.drain_rate, Some(2.0));
        let mut count = 120;
        let mut rate = 0.0;
        for second in 21..61 {
            count += 6;
            let next = learner.take(&completed(count), 0, at(second)).sample.drain_rate.expect("known by now");
            assert!(next > rate && next < 6.0, "{rate} then {next}");
            rate = next;
        }
        assert!(rate > 5.9, "{rate}");
        assert!(learner.take(&completed(count), 0, at(60)).sample.drain_rate.is_some(), "no time passed: no division");
    }

    #[test]
    fn an_engine_that_was_started_again_is_learned_again() {
        for earlier in [completed(50), EngineStats { generation_tokens: Some(9), ..EngineStats::default() }] {
            let mut learner = Learner::default();
            learner.take(&EngineStats { running: 30, ..earlier }, 0, at(1));
            learner.take(&EngineStats { running: 30, ..earlier }, 0, at(2));
            let anew = EngineStats {
                running: 1,
                requests_completed: earlier.requests_completed.map(|_| 1),
                generation_tokens: earlier.generation_tokens.map(|_| 1),
                ..EngineStats::default()
            };
            let lesson = learner.take(&anew, 0, at(3));
            assert_eq!((lesson.batch_capacity, lesson.sample.drain_rate, lesson.is_anew), (1, None, true));
            assert!(!learner.take(&anew, 0, at(4)).is_anew);
        }
    }

    #[test]
    fn an_engine_that_counts_no_completions_has_no_rate() {
        let mut learner = Learner::default();
        (1..5).for_each(|second| assert_eq!(learner.take(&busy(1, 0), 0, at(second)).sample.drain_rate, None));
    }
}
