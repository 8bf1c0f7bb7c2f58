//! Why something was not done, as an operator is told.

use llmgw_store::StoreError;
use llmgw_tenancy::limits::LimitsFault;
use serde_json::{Value, json};

/// A status, a word for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self { status: 400, code: "bad_request", message: message.into() }
    }

    pub(crate) fn missing(what: &str, wanted: &str) -> Self {
        Self { status: 404, code: "not_found", message: format!("there is no {what} {wanted:?}") }
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self { status: 409, code: "conflict", message: message.into() }
    }

    /// The shape of errors on the client side of the gateway.
    pub(crate) fn body(&self) -> Value {
        let kind = if self.status < 500 { "invalid_request_error" } else { "server_error" };
        json!({ "error": { "message": self.message, "type": kind, "param": null, "code": self.code } })
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let (status, code) = match &error {
            StoreError::Exists => (409, "exists"),
            StoreError::Dangling => (409, "conflict"),
            StoreError::Locked | StoreError::Busy => (503, "store_busy"),
            StoreError::Full => (507, "store_full"),
            StoreError::ReadOnly => (503, "store_read_only"),
            _ => (500, "store_failed"),
        };
        Self { status, code, message: error.to_string() }
    }
}

impl From<LimitsFault> for Refusal {
    fn from(fault: LimitsFault) -> Self {
        Self::wrong(fault.to_string())
    }
}
