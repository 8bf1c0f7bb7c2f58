//! What a core is given when it starts. Filled by the binary; nothing in it changes while the core runs.

use std::sync::Arc;
use std::time::Duration;

use llmgw_http::limits::ServerLimits;
use llmgw_router::Board;
use llmgw_router::access::{AccessLog, AccessRing};
use llmgw_router::feed::Feed;
use llmgw_router::message::CoreMessage;
use llmgw_router::metrics::CoreCells;
use llmgw_router::readiness::Readiness;
use llmgw_runtime::mailbox::{Inbox, Latest};
use llmgw_types::CoreId;

/// Time limits towards engines. Each ends the request with an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// From the request sent to the answer's head, and from there to the first event of a stream.
    pub first_token: Duration,
    /// Between two pieces of an answer.
    pub between_events: Duration,
    /// For the whole request.
    pub total: Duration,
    /// For requests still running when the core is told to end.
    pub drain: Duration,
}

/// How requests are treated.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Bounds on what clients send.
    pub limits: ServerLimits,
    /// Bounds on how long engines take.
    pub timeouts: Timeouts,
    /// Whether usage is asked for on behalf of clients that did not.
    pub inject_usage: bool,
    /// Which requests are written to the log.
    pub access_log: AccessLog,
}

/// Everything a core needs.
pub struct CoreSetup {
    /// Its number.
    pub id: CoreId,
    /// Its listening sockets, one per configured address.
    pub listeners: Vec<std::net::TcpListener>,
    /// Its lanes.
    pub inbox: Inbox<CoreMessage>,
    /// Where publications are put for it.
    pub feed: Arc<Latest<Feed>>,
    /// The load board.
    pub board: Arc<Board>,
    /// Its metric cells.
    pub cells: Arc<CoreCells>,
    /// Its ring of request records.
    pub access: Arc<AccessRing>,
    /// Whether the gateway wants traffic.
    pub readiness: Arc<Readiness>,
    /// How requests are treated.
    pub settings: Arc<GatewaySettings>,
}
