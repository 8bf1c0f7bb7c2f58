//! What a run costs: CPU and memory of the process under test, and how busy the generator itself was.
//!
//! Called around every measured window. Memory is sampled on a thread of its own, so that a busy loop cannot miss a
//! peak.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::usage::{Usage, cpu_wait, own_cpu, rss_bytes, usage_of_tree};

/// Share of one thread above which the generator is taken for the bottleneck.
const LOAD_UTIL_MAX: f64 = 0.85;
/// Share of the time the generator may wait for a CPU before the machine counts as overloaded.
const LOAD_WAIT_MAX: f64 = 0.05;
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// A window being watched.
#[derive(Debug)]
pub struct Watch {
    pid: Option<u32>,
    started: Instant,
    own_cpu: Duration,
    own_wait: Duration,
    before: Option<Usage>,
    sampler: Option<Sampler>,
}

/// The window's costs.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Watched {
    pub seconds: f64,
    /// The generator's CPU time as a share of one thread, 0..=1 for a generator of one thread.
    pub load_util: f64,
    /// Time the generator was ready to run and had no CPU, as a share of the window.
    pub load_wait_ratio: f64,
    /// The machine had too little CPU for everything that ran: times are longer than they would be.
    pub machine_is_overloaded: bool,
    /// The figures say more about the generator than about what it measured.
    pub load_is_bottleneck: bool,
    /// The process under test with its children, when its id is known and it is still there.
    pub process: Option<ProcessCost>,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ProcessCost {
    pub cpu_seconds: f64,
    /// In threads: 2.0 is two threads all the time.
    pub cpu_util: f64,
    /// Ready to run without a CPU, in threads.
    pub cpu_wait_util: f64,
    pub rss_before_bytes: u64,
    pub rss_max_bytes: u64,
    pub rss_after_bytes: u64,
    pub fd_before_count: u64,
    pub fd_after_count: u64,
}

impl Watch {
    #[must_use]
    pub fn start(pid: Option<u32>) -> Self {
        let before = pid.and_then(usage_of_tree);
        let sampler = pid.map(Sampler::start);
        Self { pid, started: Instant::now(), own_cpu: own_cpu(), own_wait: own_wait(), before, sampler }
    }

    #[must_use]
    pub fn finish(self) -> Watched {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let load_util = (own_cpu() - self.own_cpu).as_secs_f64() / seconds;
        let load_wait_ratio = own_wait().saturating_sub(self.own_wait).as_secs_f64() / seconds;
        let rss_max_bytes = self.sampler.map_or(0, Sampler::finish);
        let after = self.pid.and_then(usage_of_tree);
        let process = self.before.zip(after).map(|(before, after)| {
            let cpu_seconds = after.cpu.saturating_sub(before.cpu).as_secs_f64();
            ProcessCost {
                cpu_seconds,
                cpu_util: cpu_seconds / seconds,
                cpu_wait_util: after.cpu_wait.saturating_sub(before.cpu_wait).as_secs_f64() / seconds,
                rss_before_bytes: before.rss_bytes,
                rss_max_bytes: rss_max_bytes.max(before.rss_bytes).max(after.rss_bytes),
                rss_after_bytes: after.rss_bytes,
                fd_before_count: before.fd_count,
                fd_after_count: after.fd_count,
            }
        });
        Watched {
            seconds,
            load_util,
            load_wait_ratio,
            machine_is_overloaded: load_wait_ratio > LOAD_WAIT_MAX,
            load_is_bottleneck: load_util > LOAD_UTIL_MAX,
            process,
        }
    }
}

fn own_wait() -> Duration {
    cpu_wait(std::process::id())
}

#[derive(Debug)]
struct Sampler {
    is_over: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Sampler {
    fn start(pid: u32) -> Self {
        let (is_over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, peak) = (Arc::clone(&is_over), Arc::clone(&most));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(rss_bytes(pid), Ordering::Relaxed);
                std::thread::sleep(SAMPLE_EVERY);
            }
        });
        Self { is_over, most, thread }
    }

    fn finish(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        // A sampler that panicked has said so; its last peak still counts.
        let _ = self.thread.join();
        self.most.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_that_does_nothing_is_not_the_bottleneck() {
        let watch = Watch::start(Some(std::process::id()));
        std::thread::sleep(Duration::from_millis(30));
        let watched = watch.finish();
        let process = watched.process.expect("own process");
        assert!(watched.seconds >= 0.03);
        assert!(process.rss_max_bytes >= process.rss_before_bytes.min(process.rss_after_bytes));
    }

    #[test]
    fn a_process_that_is_gone_has_no_cost() {
        assert!(Watch::start(Some(u32::MAX)).finish().process.is_none());
        assert!(Watch::start(None).finish().process.is_none());
    }
}
