//! Tables made from a store that operators change: what a key may follows from its levels, and rows stay.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use llmgw_store::{OpenOptions, Store};
use llmgw_tenancy::key::KeyHash;
use llmgw_types::tenants::Caller;
use llmgw_types::{ArchivedTenantTable, KeyIdx, TenantSnapshot};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Builder, Seats, Watch};
use crate::{Ask, Desk};

const WITHIN: Duration = Duration::from_secs(20);

struct World {
    _folder: TempDir,
    store: Store,
    desk: Desk,
    builder: Builder,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(OpenOptions::new(folder.path().join("llmgw.db"))).expect("a store");
        let desk = Desk::new(Some(store.clone()));
        let world = Self { _folder: folder, desk, store, builder: Builder::default() };
        world.ask("POST /organizations", json!({ "name": "acme" }));
        world.ask("POST /teams", json!({ "organization": "acme", "name": "search" }));
        world.ask("POST /projects", json!({ "team": "acme/search", "name": "chat", "band": "silver" }));
        world
    }

    fn ask(&self, what: &str, body: Value) -> Value {
        ask(&self.desk, what, body)
    }

    /// Makes a key of the project; the key itself and its id.
    fn key(&self, name: &str, more: Value) -> (String, String) {
        let mut body = json!({ "name": name, "project": "acme/search/chat" });
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let made = self.ask("POST /keys", body);
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        (text(&made["key"]), text(&made["record"]["id"]))
    }

    fn table(&mut self) -> Arc<TenantSnapshot> {
        self.builder.build(&self.store).expect("a table").snapshot
    }
}

fn ask(desk: &Desk, what: &str, body: Value) -> Value {
    let (verb, target) = what.split_once(' ').expect("a verb and a path");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = desk.answer(&Ask { verb, path, query, body: text.as_bytes(), actor: "tester" });
    assert_eq!(answer.status, 200, "{what}: {}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

/// The row of what is shown, and whether it was revoked.
fn row(table: &ArchivedTenantTable, shown: &str) -> Option<(u32, bool)> {
    let secret = table.secret(&KeyHash::of(shown.as_bytes()).0)?;
    let key = secret.key.to_native();
    Some((key, table.key(KeyIdx(key))?.is_revoked))
}

#[test]
fn a_key_is_found_by_what_is_shown_and_keeps_its_row_whatever_becomes_of_it() {
    let mut world = World::new();
    let (alice, id) = world.key("alice", json!({ "may_pin_replica": true }));
    let (bob, _) = world.key("bob", json!({ "band": "gold", "routing_profile": "batch" }));
    let first = world.table();
    let (a, b) = (row(first.table(), &alice).expect("alice").0, row(first.table(), &bob).expect("bob").0);
    let key = |row: u32| first.table().key(KeyIdx(row)).expect("a key");
    assert_eq!((key(a).band.as_deref(), key(a).profile.as_deref()), (Some("silver"), None));
    assert_eq!((key(b).band.as_deref(), key(b).profile.as_deref()), (Some("gold"), Some("batch")));
    assert!(key(a).may_pin_replica && !key(b).may_pin_replica);
    let caller = Caller::of(first.table(), KeyIdx(a)).expect("a caller");
    assert_eq!(caller.key_id.as_str(), id);
    assert_eq!(first.table().project(caller.project).expect("a project").path, "acme/search/chat");

    let rotated = world.ask("POST /keys/alice/rotate", json!({ "overlap_seconds": 60 }));
    world.ask("POST /keys/bob/revoke", Value::Null);
    let (carol, _) = world.key("carol", Value::Null);
    let second = world.table();
    let found = |shown: &str| row(second.table(), shown);
    assert_eq!(found(&alice), Some((a, false)), "the old secret works on");
    assert_eq!(found(rotated["key"].as_str().expect("a key")), Some((a, false)));
    assert_eq!(found(&bob), Some((b, true)), "whoever shows it is told that it was revoked");
    assert!(found(&carol).is_some_and(|(row, _)| row != a && row != b));
    assert!(found("sk-llmgw-nothing").is_none());
    assert!(second.table().generation > first.table().generation);
}

#[test]
fn limits_of_every_level_are_named_and_versions_change_only_with_what_they_are_of() {
    let mut world = World::new();
    let (alice, _) = world.key("alice", Value::Null);
    let (bob, _) = world.key("bob", Value::Null);
    let version = |snapshot: &TenantSnapshot, shown: &str| {
        let (row, _) = row(snapshot.table(), shown).expect("a key");
        snapshot.table().key(KeyIdx(row)).expect("a key").limits_version.to_native()
    };
    let held = |snapshot: &TenantSnapshot, shown: &str, model: &str| {
        let table = snapshot.table();
        let (row, _) = row(table, shown).expect("a key");
        let levels = table.levels_of(table.key(KeyIdx(row)).expect("a key"), model);
        let words = levels.map(|(_, level)| {
            let rpm = level.limits.rpm.as_ref().map_or(-1, |rpm| i64::try_from(rpm.to_native()).unwrap_or(-1));
            format!("{} {rpm}", level.kind.word())
        });
        words.collect::<Vec<_>>().join(", ")
    };
    let none = world.table();
    assert_eq!(held(&none, &alice, "m"), "");

    world.ask("PUT /limits/org/acme", json!({ "rpm": 100 }));
    world.ask("PUT /limits/team/acme%2Fsearch?model=m", json!({ "rpm": 10 }));
    world.ask("PUT /limits/key/alice", json!({ "rpm": 0, "allowed_models": ["m"] }));
    world.ask("PUT /limits/project/acme%2Fsearch%2Fchat", json!({ "allowed_models": ["n", "m"] }));
    let some = world.table();
    assert_eq!(held(&some, &alice, "m"), "key 0, team 10, org 100");
    assert_eq!(held(&some, &alice, "n"), "key 0, org 100");
    assert_eq!(held(&some, &bob, "m"), "team 10, org 100");
    assert!(version(&some, &alice) != version(&none, &alice) && version(&some, &bob) != version(&none, &bob));
    let allowed = |snapshot: &TenantSnapshot, shown: &str| {
        let table = snapshot.table();
        let (row, _) = row(table, shown).expect("a key");
        let list = table.allowlist(table.key(KeyIdx(row)).expect("a key"));
        list.map(|list| list.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(allowed(&none, &alice), None);
    assert_eq!((allowed(&some, &alice).as_deref(), allowed(&some, &bob).as_deref()), (Some("m"), Some("m n")));

    world.ask("PUT /limits/key/alice", json!({ "rpm": 5, "allowed_models": [] }));
    let more = world.table();
    assert!(version(&more, &alice) != version(&some, &alice));
    assert_eq!(version(&more, &bob), version(&some, &bob), "nothing of bob's changed");
    assert_eq!(allowed(&more, &alice).as_deref(), Some(""), "an empty list is no absent one");

    world.ask("DELETE /limits/key/alice", Value::Null);
    let fewer = world.table();
    assert_eq!(held(&fewer, &alice, "m"), "team 10, org 100");
    assert!(version(&fewer, &alice) != version(&more, &alice));
    assert_eq!(fewer.table().levels.len(), more.table().levels.len(), "what is gone leaves its row");
    assert_eq!(allowed(&fewer, &alice).as_deref(), Some("m n"));
}

/// Seats that pass on what they are told.
struct Told {
    tables: Sender<Arc<TenantSnapshot>>,
    used: Vec<(KeyIdx, i64)>,
}

impl Seats for Told {
    fn publish(&mut self, snapshot: Arc<TenantSnapshot>) {
        // A test that ended needs no more of them.
        let _ = self.tables.send(snapshot);
    }

    fn tend(&mut self) {}

    fn used(&mut self) -> Vec<(KeyIdx, i64)> {
        std::mem::take(&mut self.used)
    }
}

fn watched(mut world: World, used: Vec<(KeyIdx, i64)>) -> (World, Watch, Receiver<Arc<TenantSnapshot>>) {
    let (tables, told) = channel();
    let built = world.builder.build(&world.store).expect("a table").generation;
    let builder = std::mem::take(&mut world.builder);
    let watch = Watch::start(world.store.clone(), builder, built, Told { tables, used }).expect("a thread");
    (world, watch, told)
}

#[test]
fn a_change_is_published_whoever_made_it_and_only_then() {
    let (world, watch, told) = watched(World::new(), Vec::new());
    // By another process, as far as anybody can tell.
    let (key, _) = world.key("alice", Value::Null);
    let table = told.recv_timeout(WITHIN).expect("a table");
    assert_eq!(row(table.table(), &key), Some((0, false)));
    // By this one, which says so.
    let desk = Desk::new(Some(world.store.clone())).waking(watch.waker());
    ask(&desk, "POST /keys/alice/revoke", Value::Null);
    let table = told.recv_timeout(WITHIN).expect("a table");
    assert_eq!(row(table.table(), &key), Some((0, true)));
    drop(watch);
    assert!(told.try_recv().is_err(), "nothing changed");
}

#[test]
fn the_use_of_keys_is_noted_at_the_latest_at_the_end() {
    let world = World::new();
    let (_, id) = world.key("alice", Value::Null);
    let (world, watch, _told) = watched(world, vec![(KeyIdx(0), 7_000_000), (KeyIdx(9), 1)]);
    drop(watch);
    // The writer takes acts in their order.
    world.store.write(|_| Ok::<_, llmgw_store::StoreError>(())).expect("written");
    let key = world.store.read(|rows| rows.key(&id)).expect("read").expect("a key");
    assert_eq!(key.last_used_at, Some(7_000_000));
}
