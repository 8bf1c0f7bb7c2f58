//! Who may ask: the store that says it, and the control plane's desk, as the side runtime asks it.

use std::io;
use std::sync::Arc;

use llmgw_config::ServerConfig;
use llmgw_config::server::Auth;
use llmgw_control::tenants::Watch;
use llmgw_control::{Answer, Ask, Deed, Desk};
use llmgw_side::{Act, Asked, Told};
use llmgw_store::{OpenOptions, Store};

/// The store of a server, if it has one: where keys are on, a path is named, or a file is at the default one.
///
/// Errors: it is there and cannot be used.
pub fn store(config: &ServerConfig) -> io::Result<Option<Store>> {
    let path = &config.store.path;
    if config.auth == Auth::None && !config.store.is_named && !path.exists() {
        return Ok(None);
    }
    Store::open(OpenOptions::new(path)).map(Some).map_err(io::Error::other)
}

/// Answers what the side runtime passes on of the admin API, and has recorded what it does itself. What changes who
/// may ask wakes the watch.
pub fn desk(store: Option<Store>, watch: Option<&Watch>) -> Arc<dyn llmgw_side::Desk> {
    let desk = Desk::new(store);
    let desk = match watch {
        Some(watch) => desk.waking(watch.waker()),
        None => desk,
    };
    Arc::new(OfSide(desk))
}

struct OfSide(Desk);

impl llmgw_side::Desk for OfSide {
    fn answer(&self, asked: &Asked) -> Told {
        let Asked { method, path, query, body, actor } = asked;
        let Answer { status, body, allow } = self.0.answer(&Ask { verb: method, path, query, body, actor });
        Told { status, body, allow }
    }

    fn note(&self, act: Act) -> Result<(), String> {
        let Act { actor, action, target, before, after } = act;
        self.0.note(Deed { actor, action, target, before, after })
    }
}
