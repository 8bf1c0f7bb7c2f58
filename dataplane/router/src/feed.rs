//! What is published to the cores: the route table and what belongs to it.

use std::any::Any;
use std::sync::Arc;

use llmgw_types::Snapshot;

use crate::settings::Settings;

/// One publication. The newest replaces the others whole; each core takes it between two turns.
///
/// From: the side runtime. To: every core. Bound: the newest one. Loss: none, a later publication carries everything.
pub struct Feed {
    /// The route table.
    pub snapshot: Snapshot,
    /// Whom to trust when connecting, by the table's endpoints; none where there is no TLS. Closed to this room, which
    /// does no I/O: the side runtime puts in what the core takes out.
    pub trust: Vec<Option<Arc<dyn Any + Send + Sync>>>,
    /// How clients are spoken to within TLS, closed to this room in the same way; none: in plain text.
    pub client_tls: Option<Arc<dyn Any + Send + Sync>>,
    /// What requests are held to; the same value as before where nothing of it changed.
    pub settings: Arc<Settings>,
}
