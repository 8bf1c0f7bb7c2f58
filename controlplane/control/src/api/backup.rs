//! A copy of the store, made while it is in use.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::desk::{Desk, Request};
use crate::refusal::Refusal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupTo {
    path: PathBuf,
}

pub(crate) fn make(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let BackupTo { path } = request.body()?;
    if !path.is_absolute() {
        return Err(Refusal::wrong("path must be absolute: it is a path on the server's machine"));
    }
    let (path, bytes) = desk.backup(path)?;
    let answer = json!({ "path": path, "bytes": bytes });
    let event = request.event("store.backup", ("store", ""), None, Some(answer.clone()));
    desk.write(move |tx| {
        tx.audit(&event)?;
        Ok(answer)
    })
}
