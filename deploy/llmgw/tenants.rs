//! Who may ask, put together: the store, the control plane's desk on it, and who is to be answered there.

use std::io;
use std::path::Path;
use std::sync::Arc;

use llmgw_config::ServerConfig;
use llmgw_control::{Answer, Ask, Desk};
use llmgw_ctl::{OfflineAnswer, OfflineDesk};
use llmgw_side::{Asked, Told};
use llmgw_store::{OpenOptions, Store};

/// The store of a server, if it has one: where a path is named, or a file is at the default one.
///
/// Errors: it is there and cannot be used.
pub(crate) fn store(config: &ServerConfig) -> io::Result<Option<Store>> {
    let path = &config.store.path;
    if !config.store.is_named && !path.exists() {
        return Ok(None);
    }
    Store::open(OpenOptions::new(path)).map(Some).map_err(io::Error::other)
}

/// Answers what the side runtime passes on.
pub(crate) fn desk(store: Option<Store>) -> llmgw_side::Desk {
    let desk = Desk::new(store);
    Arc::new(move |asked: &Asked| {
        let Asked { method, path, query, body, actor } = asked;
        let Answer { status, body, allow } = desk.answer(&Ask { verb: method, path, query, body, actor });
        Told { status, body, allow }
    })
}

/// Answers on a store's file, for a command line.
///
/// Errors: the file is not there, or cannot be used.
pub(crate) fn offline(file: &Path) -> Result<OfflineDesk, String> {
    let make_first = "a server makes it, with store.path in its configuration";
    if !file.parent().is_some_and(|folder| folder.as_os_str().is_empty() || folder.is_dir()) {
        return Err(format!("--store {}: there is no such folder; {make_first}", file.display()));
    }
    let store = Store::open(OpenOptions::new(file)).map_err(|error| error.to_string())?;
    let desk = Desk::new(Some(store));
    Ok(Box::new(move |verb, target, body, actor| {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let answer = desk.answer(&Ask { verb, path, query, body: body.as_bytes(), actor });
        OfflineAnswer { status: answer.status, body: answer.body }
    }))
}
