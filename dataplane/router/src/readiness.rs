//! Whether this gateway wants traffic: at least one endpoint is ready and nobody asked it to stop.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Written by the side runtime, read by health pages and by cores.
#[derive(Debug, Default)]
pub struct Readiness {
    ready: AtomicU32,
    known: AtomicU32,
    is_settling: AtomicBool,
}

impl Readiness {
    /// How many of the `known` endpoints are ready. Owner: side runtime.
    pub fn set_endpoints(&self, ready: u32, known: u32) {
        self.known.store(known, Ordering::Relaxed);
        self.ready.store(ready, Ordering::Release);
    }

    /// From here on the gateway is on its way out. Owner: side runtime.
    pub fn settle(&self) {
        self.is_settling.store(true, Ordering::Release);
    }

    /// Whether the gateway is on its way out.
    pub fn is_settling(&self) -> bool {
        self.is_settling.load(Ordering::Acquire)
    }

    /// Ready endpoints and known ones.
    pub fn endpoints(&self) -> (u32, u32) {
        (self.ready.load(Ordering::Acquire), self.known.load(Ordering::Relaxed))
    }

    /// Whether a load balancer should send requests here.
    pub fn is_ready(&self) -> bool {
        !self.is_settling() && self.endpoints().0 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    #[test]
    fn traffic_is_wanted_only_with_an_engine_and_until_told_to_settle() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready());
        readiness.set_endpoints(1, 3);
        assert!(readiness.is_ready());
        readiness.settle();
        assert!(!readiness.is_ready());
    }
}
