//! What a client is told when a request fails: one table of reasons, each with its status, its OpenAI type and its
//! code.

use std::borrow::Cow;

use llmgw_http::error::{ExchangeError, Reject};
use llmgw_openai::scan::ScanError;

/// Why a request failed. The word is the same in the body's `code`, in logs and in docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The head or framing of the request is not HTTP as we accept it; the status says which.
    BadHttp(u16),
    /// The body is not what the route takes.
    BadRequest,
    /// No key was sent, and one is needed.
    MissingKey,
    /// What was sent is no key of this gateway.
    UnknownKey,
    ExpiredKey,
    RevokedKey,
    /// The key may not name the replica that is to answer.
    ReplicaNotAllowed,
    UnknownRoute,
    MethodNotAllowed,
    ModelNotFound,
    /// No engine is known to hold the response.
    ResponseNotFound,
    /// The engine that holds the response takes no requests at this time.
    ResponseUnavailable,
    NoEndpoint,
    /// As many as may wait for a place do already.
    Full,
    /// It waited for a place as long as it may.
    Ttl,
    /// It made room for a request of a higher band.
    Displaced,
    /// Nobody has time to take it into the queue.
    Overloaded,
    /// Its key, or what is above that, has used its requests of a minute.
    LimitRequests,
    /// The same of its tokens.
    LimitTokens,
    /// As many of its requests run as may at once.
    LimitParallel,
    /// What may be spent in the period is spent.
    BudgetSpent,
    /// Whoever counts did not say in time whether there is room.
    LimitsBusy,
    /// This gateway ends before the answer could.
    ShuttingDown,
    EngineUnreachable,
    EngineTls,
    EngineClosed,
    EngineMalformed,
    EngineAuth,
    EngineRedirect,
    ConnectTimeout,
    FirstTokenTimeout,
    BetweenEventsTimeout,
    TotalTimeout,
    Internal,
}

impl Reason {
    /// Status, OpenAI type, code: the whole table.
    const fn row(self) -> (u16, &'static str, &'static str) {
        const INVALID: &str = "invalid_request_error";
        const SERVER: &str = "server_error";
        const RATE: &str = "rate_limit_error";
        match self {
            Self::BadHttp(status @ (408 | 413 | 414 | 431)) => (status, INVALID, "limit_exceeded"),
            Self::BadHttp(status) => (status, INVALID, "bad_http"),
            Self::BadRequest => (400, INVALID, "bad_request"),
            Self::MissingKey => (401, INVALID, "missing_api_key"),
            Self::UnknownKey => (401, INVALID, "invalid_api_key"),
            Self::ExpiredKey => (401, INVALID, "expired_api_key"),
            Self::RevokedKey => (401, INVALID, "revoked_api_key"),
            Self::ReplicaNotAllowed => (403, INVALID, "replica_not_allowed"),
            Self::UnknownRoute => (404, INVALID, "unknown_url"),
            Self::MethodNotAllowed => (405, INVALID, "method_not_allowed"),
            Self::ModelNotFound => (404, INVALID, "model_not_found"),
            Self::ResponseNotFound => (404, INVALID, "response_not_found"),
            Self::ResponseUnavailable => (503, SERVER, "response_unavailable"),
            Self::NoEndpoint => (503, SERVER, "no_endpoint"),
            Self::Full => (503, SERVER, "full"),
            Self::Ttl => (504, SERVER, "ttl"),
            Self::Displaced => (503, SERVER, "displaced"),
            Self::Overloaded => (503, SERVER, "overloaded"),
            Self::LimitRequests => (429, RATE, "limit_requests"),
            Self::LimitTokens => (429, RATE, "limit_tokens"),
            Self::LimitParallel => (429, RATE, "limit_parallel"),
            Self::BudgetSpent => (429, "insufficient_quota", "budget_spent"),
            Self::LimitsBusy => (503, SERVER, "limits_busy"),
            Self::ShuttingDown => (503, SERVER, "shutting_down"),
            Self::EngineUnreachable => (502, SERVER, "engine_unreachable"),
            Self::EngineTls => (502, SERVER, "engine_tls"),
            Self::EngineClosed => (502, SERVER, "engine_closed"),
            Self::EngineMalformed => (502, SERVER, "engine_malformed"),
            Self::EngineAuth => (502, SERVER, "engine_auth"),
            Self::EngineRedirect => (502, SERVER, "engine_redirect"),
            Self::ConnectTimeout => (504, SERVER, "connect_timeout"),
            Self::FirstTokenTimeout => (504, SERVER, "first_token_timeout"),
            Self::BetweenEventsTimeout => (504, SERVER, "between_events_timeout"),
            Self::TotalTimeout => (504, SERVER, "total_timeout"),
            Self::Internal => (500, SERVER, "internal"),
        }
    }

    pub const fn status(self) -> u16 {
        self.row().0
    }

    pub const fn kind(self) -> &'static str {
        self.row().1
    }

    pub const fn code(self) -> &'static str {
        self.row().2
    }

    /// Seconds after which trying again makes sense, for refusals that pass.
    pub const fn retry_after(self) -> Option<u32> {
        match self {
            Self::NoEndpoint
            | Self::ResponseUnavailable
            | Self::Full
            | Self::Ttl
            | Self::Displaced
            | Self::Overloaded
            | Self::LimitsBusy
            | Self::ShuttingDown => Some(1),
            _ => None,
        }
    }

    /// Whether it says something against the engine that was asked.
    pub const fn is_engines_fault(self) -> bool {
        matches!(
            self,
            Self::EngineUnreachable
                | Self::EngineTls
                | Self::EngineClosed
                | Self::EngineMalformed
                | Self::ConnectTimeout
                | Self::FirstTokenTimeout
                | Self::BetweenEventsTimeout
        )
    }
}

/// An error as a client gets it.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub reason: Reason,
    pub message: Cow<'static, str>,
    /// The field of the request that is at fault.
    pub param: Option<&'static str>,
    /// When to try again, where that is known. Units: seconds.
    pub retry_after: Option<u32>,
}

impl ApiError {
    pub fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, message: message.into(), param: None, retry_after: reason.retry_after() }
    }

    /// The same, with the field of the request that is at fault.
    pub(crate) fn about(self, param: &'static str) -> Self {
        Self { param: Some(param), ..self }
    }

    /// What a client is told whose answer had not begun when the time to drain was over.
    pub fn shutting_down() -> Self {
        Self::new(Reason::ShuttingDown, "this gateway is shutting down and did not begin an answer; send it again")
    }

    pub fn internal() -> Self {
        Self::new(Reason::Internal, "the gateway met a fault of its own with this request")
    }

    /// What an exchange with an engine came to. Names the replica, never its address.
    pub fn of_exchange(error: ExchangeError, replica: &str) -> Self {
        let reason = match error {
            ExchangeError::Connect(_) => Reason::EngineUnreachable,
            ExchangeError::Tls(_) => Reason::EngineTls,
            ExchangeError::ConnectTimeout => Reason::ConnectTimeout,
            ExchangeError::ClosedBeforeHead | ExchangeError::ClosedInHead => Reason::EngineClosed,
            ExchangeError::Malformed(_) => Reason::EngineMalformed,
            ExchangeError::FirstByteTimeout => Reason::FirstTokenTimeout,
        };
        Self::new(reason, format!("replica {replica}: {error}"))
    }
}

impl From<ScanError> for ApiError {
    fn from(error: ScanError) -> Self {
        Self { param: error.param, ..Self::new(Reason::BadRequest, error.message) }
    }
}

impl From<Reject> for ApiError {
    fn from(reject: Reject) -> Self {
        Self::new(Reason::BadHttp(reject.status), reject.message)
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn a_clients_fault_is_a_4xx_and_ours_or_an_engines_a_5xx() {
        for reason in [
            Reason::BadHttp(400),
            Reason::BadHttp(413),
            Reason::BadRequest,
            Reason::MissingKey,
            Reason::UnknownKey,
            Reason::ExpiredKey,
            Reason::RevokedKey,
            Reason::ReplicaNotAllowed,
            Reason::UnknownRoute,
            Reason::MethodNotAllowed,
            Reason::ModelNotFound,
            Reason::ResponseNotFound,
            Reason::ResponseUnavailable,
            Reason::NoEndpoint,
            Reason::Full,
            Reason::Ttl,
            Reason::Displaced,
            Reason::Overloaded,
            Reason::LimitRequests,
            Reason::LimitTokens,
            Reason::LimitParallel,
            Reason::BudgetSpent,
            Reason::LimitsBusy,
            Reason::ShuttingDown,
            Reason::EngineUnreachable,
            Reason::EngineTls,
            Reason::EngineClosed,
            Reason::EngineMalformed,
            Reason::EngineAuth,
            Reason::EngineRedirect,
            Reason::ConnectTimeout,
            Reason::FirstTokenTimeout,
            Reason::BetweenEventsTimeout,
            Reason::TotalTimeout,
            Reason::Internal,
        ] {
            let is_client = (400..500).contains(&reason.status());
            assert_eq!(is_client, reason.kind() != "server_error", "{reason:?}");
        }
    }
}
