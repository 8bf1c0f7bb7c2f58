//! What the tables of many keys hold in memory beside each other, in bytes a key: who may ask, what they are held to,
//! and what their makers keep for the tables after them.

use std::sync::Arc;

use llmgw_control::tenants;
use llmgw_router::quota::build::Builder;
use llmgw_store::{OpenOptions, Store, StoreError};
use llmgw_tenancy::key::{KeyHash, KeyRow};
use llmgw_tenancy::limits::{Limits, LimitsRow, Period};
use llmgw_tenancy::scope::{Organization, Project, Scope, ScopeKind, Team};

use crate::counter;
use crate::rig::Unspent;

const KEYS: usize = 2000;
/// Ids as long as those that the control plane makes.
const ID_BYTES: usize = 21;

fn id(start: &str, number: usize) -> String {
    format!("{start}-{number:0>width$}", width = ID_BYTES - start.len() - 1)
}

/// Keys of twenty projects, with limits of every kind on every level.
fn store(folder: &std::path::Path) -> Store {
    let store = Store::open(OpenOptions::new(folder.join("llmgw.db"))).expect("a store");
    let written = store.write(|tx| {
        let limited = |kind, id: String| {
            let limits = Limits {
                rpm: Some(1 << 40),
                tpm: Some(1 << 40),
                parallel: Some(1 << 40),
                budget_micros: Some(1 << 50),
                budget_period: Some(Period::Month),
                ..Limits::default()
            };
            tx.set_limits(&LimitsRow { scope: Scope::new(kind, id), model: None, limits })
        };
        let (org, team) = (id("org", 0), id("team", 0));
        tx.add_organization(&Organization { id: org.clone(), name: "bench".into(), created_at: 0 })?;
        tx.add_team(&Team { id: team.clone(), org_id: org.clone(), name: "load".into(), created_at: 0 })?;
        limited(ScopeKind::Org, org)?;
        limited(ScopeKind::Team, team.clone())?;
        for number in 0..20 {
            let (id, name) = (id("proj", number), format!("project-{number}"));
            let (team_id, band, routing_profile) = (team.clone(), None, None);
            tx.add_project(&Project { id: id.clone(), team_id, name, band, routing_profile, created_at: 0 })?;
            limited(ScopeKind::Project, id)?;
        }
        for number in 0..KEYS {
            let key = KeyRow {
                id: id("key", number),
                hash: KeyHash::of(&number.to_le_bytes()),
                prefix: "sk-llmgw-abcd…".into(),
                name: format!("key-{number}"),
                project_id: id("proj", number % 20),
                band: None,
                routing_profile: None,
                may_pin_replica: false,
                created_at: 0,
                expires_at: None,
                revoked_at: None,
                last_used_at: None,
            };
            tx.add_key(&key)?;
            limited(ScopeKind::Key, key.id)?;
        }
        Ok::<_, StoreError>(())
    });
    written.expect("written");
    store
}

#[test]
fn a_key_with_limits_of_its_own_holds_no_more_memory_than_is_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(folder.path());
    // A first look at the store, whose connection is kept.
    drop(tenants::Builder::default().build(&store).expect("a table"));
    let a_key = |before: i64| (counter::held() - before) / KEYS as i64;
    let before = counter::held();
    let mut builder = tenants::Builder::default();
    let snapshot = builder.build(&store).expect("a table").snapshot;
    let asking = a_key(before);
    let before = counter::held();
    let mut limiting = Builder::default();
    let limits = Arc::new(limiting.build(snapshot.table(), &mut Unspent));
    let limited = a_key(before);
    println!("{asking} bytes a key to know who may ask, {limited} for limits");
    assert!(asking <= 370, "{asking}");
    assert!(limited <= 335, "{limited}");
    drop((builder, snapshot, limiting, limits));
}
