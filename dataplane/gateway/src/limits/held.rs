//! What a request holds of its limits, as a guard.
//!
//! Made by `limits`, kept by `finish`.

use std::rc::Rc;

use llmgw_router::limiter::{Now, Remaining, Reservation, Truth};

use super::Limits;

/// What a request holds of its limits. Settled once: by [`Held::settle`], or as one that used nothing when it is
/// dropped.
pub(crate) struct Held {
    pub(super) limits: Rc<Limits>,
    pub(super) it: Option<Reservation>,
    /// What is left besides.
    pub(crate) remaining: Remaining,
}

impl Held {
    /// When it was admitted: in whose period it counts. Units: unix seconds.
    pub(crate) fn second(&self) -> u32 {
        self.it.as_ref().map_or(0, |it| it.second)
    }

    /// The request is over `now`: what it did not use goes back, what it used beyond counts.
    pub(crate) fn settle(mut self, truth: Truth, now: Now) {
        if let Some(it) = self.it.take() {
            self.limits.end(it, truth, now);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(it) = self.it.take() {
            self.limits.end(it, Truth::default(), super::now());
        }
    }
}
