//! What this crate's tests have in common: a store in a folder of its own, and rows for it.

use llmgw_tenancy::key::{KeyHash, KeyRow};
use llmgw_tenancy::scope::{Organization, Project, Team};
use llmgw_types::{CoreId, RequestId};
use tempfile::TempDir;

use crate::usage::UsageRow;
use crate::{Batch, OpenOptions, Store, StoreError, Tx};

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(options(&folder)).expect("a store");
        Self { folder, store }
    }

    /// Ends the store, keeps the file.
    pub(crate) fn closed(self) -> TempDir {
        drop(self.store);
        self.folder
    }
}

pub(crate) fn options(folder: &TempDir) -> OpenOptions {
    OpenOptions::new(folder.path().join("llmgw.db"))
}

pub(crate) fn organization(id: &str, name: &str) -> Organization {
    Organization { id: id.to_owned(), name: name.to_owned(), created_at: 1 }
}

/// An organisation, a team and a project.
pub(crate) fn add_tree(tx: &Tx<'_>) -> Result<(), StoreError> {
    tx.add_organization(&organization("org-1", "acme"))?;
    tx.add_team(&Team { id: "team-1".into(), org_id: "org-1".into(), name: "search".into(), created_at: 2 })?;
    let project = Project {
        id: "proj-1".into(),
        team_id: "team-1".into(),
        name: "chat".into(),
        band: Some("gold".into()),
        routing_profile: None,
        created_at: 3,
    };
    tx.add_project(&project)
}

pub(crate) fn key(id: &str, of: u8) -> KeyRow {
    KeyRow {
        id: id.to_owned(),
        hash: KeyHash([of; 32]),
        prefix: "sk-llmgw-0000…".to_owned(),
        name: "a key".to_owned(),
        project_id: "proj-1".to_owned(),
        band: None,
        routing_profile: Some("batch".to_owned()),
        may_pin_replica: true,
        created_at: 4,
        expires_at: Some(99),
        revoked_at: None,
        last_used_at: None,
    }
}

/// Requests that last from half a second to two hours, so that they end in another order than they came in.
pub(crate) fn usage(record: u64, admitted_at: i64, key: u8, tokens: u64) -> UsageRow {
    let duration_ms = 500 + record % 7 * 1_200_000;
    let ended_at = admitted_at + duration_ms as i64;
    UsageRow {
        ts: ended_at,
        record_id: RequestId::new(admitted_at as u64, CoreId(0), record).0.to_be_bytes(),
        admitted_at,
        key_id: format!("key-{key}"),
        project_id: "proj-1".to_owned(),
        model: if tokens.is_multiple_of(2) { "even" } else { "odd" }.to_owned(),
        served_model: if record.is_multiple_of(2) { "odd" } else { "m" }.to_owned(),
        pool: None,
        replica: Some("gpu-1".to_owned()),
        status: 200,
        reason: None,
        prompt_tokens: tokens,
        completion_tokens: tokens + 1,
        cached_tokens: tokens / 2,
        units_micros: tokens * 3,
        is_estimated: tokens.is_multiple_of(3),
        ttft_ms: Some(7),
        duration_ms,
        queue_ms: None,
    }
}

/// Adds rows in one transaction. Answer: how many were new.
#[track_caller]
pub(crate) fn add(world: &World, rows: &[UsageRow]) -> usize {
    let batch: Batch = rows.iter().collect();
    world.store.write(move |tx| tx.add_usage(&batch)).expect("written")
}
