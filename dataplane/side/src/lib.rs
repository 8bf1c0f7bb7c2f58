//! The half of the data plane that is not on a core: readiness, names, snapshots, the metrics page, the request log.
//!
//! Reading order: [`run`] (what is started and how it ends), [`table`] (configuration to route table), `publish`
//! (route table to cores), `caches` (what engines' caches hold), `resolve` (names to addresses), `probe` (may an
//! engine get requests), `scrape` (what an engine says of itself), `pace` (when), `roster` (who is asked), `reload`
//! and `watch_file` (another configuration while it runs), `page` (what operators ask), `access` (what requests did),
//! `breakers` (what is said when they fail). The binary fills a [`SideSetup`] and keeps the [`Side`] to its end.
//!
//! One thread with an ordinary runtime. It never routes a request and never waits for a core: it writes cells, puts
//! tables and messages, and reads cells and rings.

pub mod run;

mod caches;
mod lanes;
mod publish;
mod rooms;
pub mod settings;
pub mod table;
pub mod trust;

pub mod certificate;
mod plain_text;

mod pace;
mod probe;
mod resolve;
mod roster;
mod scrape;

mod reload;
mod watch_file;

pub mod metrics;
mod page;
mod process;

mod access;
mod breakers;

#[cfg(test)]
mod tiny_engine;

use std::net::TcpListener;
use std::sync::Arc;

use llmgw_config::ServerConfig;
use llmgw_obs::log::{Format, Sink};
use llmgw_router::access::AccessRing;
use llmgw_router::board::Board;
use llmgw_router::feed::Feed;
use llmgw_router::message::CoreMessage;
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::StampTable;
use llmgw_router::readiness::Readiness;
use llmgw_runtime::mailbox::{Latest, Post};

pub use page::desk::{Act, Asked, Desk, Told};
pub use reload::{Cause, ReloadError, Reloaded};
pub use run::{Handle, Side, StartError};
pub use watch_file::ConfigFile;

/// What the side runtime is given. The lists have one entry a core, in the order of the cores.
pub struct SideSetup {
    /// What was configured.
    pub config: Arc<ServerConfig>,
    /// The file it came from, to be watched and loaded again; none where there is none.
    pub file: Option<ConfigFile>,
    /// The load board, with room for the endpoints of the configuration.
    pub board: Arc<Board>,
    /// Where prompts are cached, with as many slots as the board.
    pub prefixes: Arc<StampTable>,
    /// What each core counts.
    pub cells: Vec<Arc<CoreCells>>,
    /// Where each core finds the newest route table.
    pub feeds: Vec<Arc<Latest<Feed>>>,
    /// How cores are told.
    pub post: Post<CoreMessage>,
    /// What each core records of requests.
    pub access: Vec<Arc<AccessRing>>,
    /// Whether this gateway wants traffic.
    pub readiness: Arc<Readiness>,
    /// Where request lines go.
    pub sink: Sink,
    /// How request lines look.
    pub format: Format,
    /// Where operators connect, bound already.
    pub admin: TcpListener,
    /// Who answers what the side runtime itself does not know of the admin API; none: nobody.
    pub desk: Option<Arc<dyn Desk>>,
    /// What the journal of usage counts; none where nothing is kept.
    pub usage: Option<Arc<llmgw_journal::Cells>>,
}
