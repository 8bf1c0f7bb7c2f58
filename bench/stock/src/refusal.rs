//! Refusals outside hyper: a head that it refused, or that never came to its end.

use std::sync::Arc;

use llmgw_gateway::error::{ApiError, Reason};
use llmgw_http::draft::reason as phrase;
use llmgw_http::error::Reject;

use crate::finish::Finish;
use crate::respond;
use crate::state::Gateway;
use crate::turn::Turn;

/// The whole answer to a head that was refused with `status`, counted and recorded.
pub(crate) fn of_head(gateway: &Arc<Gateway>, turn: &Arc<Turn>, status: u16) -> Vec<u8> {
    let message = match status {
        408 => "the request's head took too long",
        414 => "the request line is longer than this gateway accepts",
        431 => "the request's headers are larger than this gateway accepts",
        _ => "malformed head",
    };
    let mut finish = Finish::begin(gateway, turn, None);
    let error = ApiError::from(Reject { status, message });
    finish.fail(Reason::BadHttp(status).code());
    finish.answer(status);
    let body = respond::error_body(&error, &finish);
    finish.sent_bytes = body.len() as u64;
    let id = finish.id();
    let mut bytes = format!(
        "HTTP/1.1 {status} {}\r\nServer: llmgw\r\nContent-Type: application/json\r\nx-request-id: {}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        phrase(status),
        id.to_str().unwrap_or_default(),
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}
