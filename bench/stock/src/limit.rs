//! The time one more piece of an answer may take, and which limit that is.

use llmgw_gateway::error::Reason;
use llmgw_kit::clock::Mono;
use llmgw_router::settings::Settings;

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) until: Mono,
    pub(crate) reason: Reason,
}

impl Limit {
    /// For an answer that has `begun` from its last event on, else from the request on; never beyond the deadline.
    pub(crate) fn of_piece(settings: &Settings, deadline: Mono, from: Mono, has_begun: bool) -> Self {
        let timeouts = &settings.timeouts;
        let (step, reason) = if has_begun {
            (timeouts.between_events, Reason::BetweenEventsTimeout)
        } else {
            (timeouts.first_token, Reason::FirstTokenTimeout)
        };
        let until = from + step;
        if deadline < until { Self { until: deadline, reason: Reason::TotalTimeout } } else { Self { until, reason } }
    }

    /// What is said when it was reached.
    pub(crate) fn sentence(self, settings: &Settings) -> String {
        let timeouts = &settings.timeouts;
        let whole = match self.reason {
            Reason::TotalTimeout => timeouts.total,
            Reason::BetweenEventsTimeout => timeouts.between_events,
            _ => timeouts.first_token,
        };
        format!("{} after {whole:?}", self.reason.code())
    }
}
