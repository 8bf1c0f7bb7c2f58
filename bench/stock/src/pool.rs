//! Idle connections to engines, shared by all threads behind one lock.
//!
//! Asked before a connection is opened, filled when an answer has ended. An engine may close one meanwhile: that shows
//! before anything is sent on it, and the next one is taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ahash::AHashMap;
use llmgw_kit::clock::Mono;
use llmgw_router::metrics::CoreCells;

use crate::engine_io::Place;
use crate::upstream::Wire;

/// Idle connections kept to one endpoint.
const IDLE_PER_ENDPOINT: usize = 512;

struct Idle {
    wire: Box<Wire>,
    since: Mono,
    limit: Duration,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<AHashMap<Place, VecDeque<Idle>>>,
    counts: Counts,
}

/// What the pool did.
#[derive(Default)]
pub(crate) struct Counts {
    opened: AtomicU64,
    reused: AtomicU64,
    stale: AtomicU64,
    retried: AtomicU64,
}

impl Counts {
    pub(crate) fn opened(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    pub(crate) fn reused(&self) {
        self.reused.fetch_add(1, Relaxed);
    }

    pub(crate) fn stale(&self) {
        self.stale.fetch_add(1, Relaxed);
    }

    pub(crate) fn retried(&self) {
        self.retried.fetch_add(1, Relaxed);
    }
}

impl Pool {
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The youngest idle connection. Whether it is still of use shows when it is used.
    pub(crate) fn checkout(&self, place: &Place, now: Mono) -> Option<Box<Wire>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = idle.get_mut(place)?;
        let entry = queue.pop_back()?;
        if now.since(entry.since) >= entry.limit {
            // The others are older.
            queue.clear();
            return None;
        }
        Some(entry.wire)
    }

    /// Keeps a connection; the oldest gives way when there are too many.
    pub(crate) fn put(&self, place: &Place, wire: Box<Wire>, limit: Duration, now: Mono) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = match idle.get_mut(place) {
            Some(queue) => queue,
            None => idle.entry(place.clone()).or_default(),
        };
        if queue.len() >= IDLE_PER_ENDPOINT {
            queue.pop_front();
        }
        queue.push_back(Idle { wire, since: now, limit });
    }

    /// Closes what is over its age or was closed by its engine.
    pub(crate) fn sweep(&self, now: Mono) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|_, queue| {
            queue.retain_mut(|entry| {
                if now.since(entry.since) >= entry.limit {
                    return false;
                }
                let is_healthy = entry.wire.is_healthy();
                if !is_healthy {
                    self.counts.stale.fetch_add(1, Relaxed);
                }
                is_healthy
            });
            !queue.is_empty()
        });
    }

    /// Copies the counts to where the metrics page reads them. Called by whoever may write the cells.
    pub(crate) fn publish_counts(&self, cells: &CoreCells) {
        let Counts { opened, reused, stale, retried } = &self.counts;
        for (gauge, count) in [
            (&cells.upstream_opened, opened),
            (&cells.upstream_reused, reused),
            (&cells.upstream_stale, stale),
            (&cells.upstream_retried, retried),
        ] {
            gauge.set(i64::try_from(count.load(Relaxed)).unwrap_or(i64::MAX));
        }
    }
}
