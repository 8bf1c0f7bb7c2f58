//! What a core is given when it starts. Filled by the binary; nothing in it changes while the core runs.

use std::sync::Arc;

use llmgw_router::Board;
use llmgw_router::access::{AccessLog, AccessRing};
use llmgw_router::feed::Feed;
use llmgw_router::message::CoreMessage;
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::{Seed, StampTable};
use llmgw_router::readiness::Readiness;
use llmgw_router::settings::Settings;
use llmgw_router::tenants::Tenants;
use llmgw_router::usage::UsageRing;
use llmgw_runtime::mailbox::{Inbox, Latest, Post};
use llmgw_types::CoreId;

/// Everything a core needs.
pub struct CoreSetup {
    /// Its number.
    pub id: CoreId,
    /// Its listening sockets, one per configured address.
    pub listeners: Vec<std::net::TcpListener>,
    /// Its lanes.
    pub inbox: Inbox<CoreMessage>,
    /// Its ends of the lanes to the other cores.
    pub post: Post<CoreMessage>,
    /// How many cores there are.
    pub core_count: u32,
    /// Where publications are put for it.
    pub feed: Arc<Latest<Feed>>,
    /// Where tables of who may ask are put for it; none where nobody is asked for a key.
    pub tenants: Option<Arc<Latest<Tenants>>>,
    /// The load board.
    pub board: Arc<Board>,
    /// Where prompts are cached.
    pub prefixes: Arc<StampTable>,
    /// Where prompts' hashes begin, on every core.
    pub seed: Seed,
    /// Its metric cells.
    pub cells: Arc<CoreCells>,
    /// Its ring of request records.
    pub access: Arc<AccessRing>,
    /// Its ring of records of what requests used; none where nobody keeps them.
    pub usage: Option<Arc<UsageRing>>,
    /// Whether the gateway wants traffic.
    pub readiness: Arc<Readiness>,
    /// How requests are treated until the first publication says it.
    pub settings: Arc<Settings>,
    /// Which requests are written to the log.
    pub access_log: AccessLog,
}
