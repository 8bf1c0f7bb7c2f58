//! The desk on a store of its own: every answer held to its schema, every change to its event.

use llmgw_store::usage::UsageRow;
use llmgw_store::{Batch, OpenOptions, Store};
use llmgw_tenancy::key::KeyHash;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::routes::{Found, ROUTES};
use crate::{Ask, Desk, openapi, routes};

struct World {
    folder: TempDir,
    store: Store,
    desk: Desk,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(OpenOptions::new(folder.path().join("llmgw.db"))).expect("a store");
        Self { folder, desk: Desk::new(Some(store.clone())), store }
    }

    /// Asks; the answer's status and body, which is held to its schema.
    fn ask(&self, what: &str, body: Value) -> (u16, Value) {
        let (verb, target) = what.split_once(' ').expect("a verb and a path");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let ask = Ask { verb, path, query, body: text.as_bytes(), actor: "tester" };
        let answer = self.desk.answer(&ask);
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        let schema = match (answer.status, routes::find(verb, path)) {
            (200, Found::Route(route, _)) => route.answer,
            (200, _) => return (200, body),
            _ => "Error",
        };
        conforms(&openapi::schemas()[schema], &body, schema);
        (answer.status, body)
    }

    fn done(&self, what: &str, body: Value) -> Value {
        let (status, body) = self.ask(what, body);
        assert_eq!(status, 200, "{what}: {body}");
        body
    }

    fn refused(&self, what: &str, body: Value, status: u16, word: &str) {
        let (answered, body) = self.ask(what, body);
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(answered == status && message.contains(word), "{what}: {answered} {body}");
    }

    fn tree(&self) {
        self.done("POST /organizations", json!({ "name": "acme" }));
        self.done("POST /teams", json!({ "organization": "acme", "name": "search" }));
        self.done("POST /projects", json!({ "team": "acme/search", "name": "chat", "band": "silver" }));
    }

    fn actions(&self) -> Vec<String> {
        let events = self.done("GET /audit?limit=1000", Value::Null);
        let events = events["events"].as_array().cloned().unwrap_or_default();
        events.iter().rev().map(|event| event["action"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// As much of JSON Schema as the document uses.
fn conforms(schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return conforms(&openapi::schemas()[name], value, at);
    }
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{at}: {value}");
    }
    let kinds = match &schema["type"] {
        Value::String(kind) => vec![kind.clone()],
        Value::Array(kinds) => kinds.iter().filter_map(|kind| Some(kind.as_str()?.to_owned())).collect(),
        _ => return,
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(kinds.iter().any(|one| one == kind), "{at}: {value} is not {kinds:?}");
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        conforms(&schema["items"], item, &format!("{at}"));
    }
    let Some(fields) = value.as_object() else { return };
    let properties = schema["properties"].as_object().expect("properties");
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(fields.contains_key(name.as_str().unwrap_or_default()), "{at} has no {name}");
    }
    for (name, field) in fields {
        conforms(properties.get(name).unwrap_or_else(|| panic!("{at}.{name} is in no schema")), field, name);
    }
}

#[test]
fn a_key_is_shown_once_and_only_its_hash_is_kept() {
    let world = World::new();
    let made = world.done("POST /keys", json!({ "name": "alice" }));
    let key = made["key"].as_str().expect("a key").to_owned();
    assert!(key.starts_with("sk-llmgw-") && key.len() == 52);
    let id = made["record"]["id"].as_str().expect("an id");
    let stored = world.store.read(|rows| rows.key(id)).expect("read").expect("a key");
    assert_eq!(stored.hash, KeyHash::of(key.as_bytes()));

    let rotated = world.done("POST /keys/alice/rotate", Value::Null);
    let second = rotated["key"].as_str().expect("a key").to_owned();
    assert_ne!(second, key);
    // Not in any other answer, not in the trail, not in the file or its log.
    let mut seen = String::new();
    for what in ["GET /keys?all=true", "GET /keys/alice", "GET /audit?limit=1000", "GET /projects"] {
        seen.push_str(&world.done(what, Value::Null).to_string());
    }
    for name in ["llmgw.db", "llmgw.db-wal"] {
        let bytes = std::fs::read(world.folder.path().join(name)).expect("a file");
        seen.push_str(&String::from_utf8_lossy(&bytes));
    }
    for key in [&key, &second] {
        assert!(!seen.contains(key.as_str()) && !seen.contains(&key[9 + 4..]), "a key was kept");
    }
    assert!(seen.contains(made["record"]["prefix"].as_str().unwrap_or("nothing")));
}

#[test]
fn the_first_key_needs_nothing_but_a_name() {
    let world = World::new();
    world.done("POST /keys", json!({ "name": "alice" }));
    world.done("POST /keys", json!({ "name": "bob" }));
    let keys = world.done("GET /keys?project=default%2Fdefault%2Fdefault", Value::Null);
    let names: Vec<_> = keys["keys"].as_array().into_iter().flatten().map(|key| key["name"].clone()).collect();
    assert_eq!(names, ["alice", "bob"]);
    assert_eq!(world.actions(), ["org.create", "team.create", "project.create", "key.create", "key.create"]);
}

#[test]
fn every_change_is_on_the_record_as_it_was_before_and_after() {
    let world = World::new();
    world.tree();
    world.done("POST /keys", json!({ "name": "k", "project": "acme/search/chat", "band": "gold" }));
    world.done("PATCH /keys/k", json!({ "band": null, "may_pin_replica": true }));
    world.done("PUT /limits/team/acme%2Fsearch", json!({ "rpm": 60 }));
    world.done("PUT /limits/team/acme%2Fsearch", json!({ "rpm": 30, "allowed_models": [] }));
    world.done("DELETE /limits/team/acme%2Fsearch", Value::Null);
    world.done("PATCH /projects/acme%2Fsearch%2Fchat", json!({ "name": "chats", "routing_profile": "batch" }));
    world.done("PATCH /teams/acme%2Fsearch", json!({ "name": "finding" }));
    world.done("PATCH /organizations/acme", json!({ "name": "acme inc" }));
    world.done("POST /keys/k/rotate", json!({ "overlap_seconds": 60 }));
    world.done("POST /keys/k/revoke", Value::Null);
    let expected = [
        "org.create",
        "team.create",
        "project.create",
        "key.create",
        "key.change",
        "limits.set",
        "limits.set",
        "limits.clear",
        "project.change",
        "team.rename",
        "org.rename",
        "key.rotate",
        "key.revoke",
    ];
    assert_eq!(world.actions(), expected);
    let events = world.done("GET /audit?limit=1000", Value::Null);
    let event = |action: &str| {
        let events = events["events"].as_array().into_iter().flatten();
        events.into_iter().find(|event| event["action"] == action).cloned().expect("an event")
    };
    let changed = event("key.change");
    assert_eq!(changed["actor"], "tester");
    assert_eq!([&changed["before"]["band"], &changed["after"]["band"]], [&json!("gold"), &Value::Null]);
    let set = event("limits.set");
    let rpm = |of: &Value| of["limits"]["rpm"].clone();
    assert_eq!([rpm(&set["before"]), rpm(&set["after"])], [json!(60), json!(30)]);
    assert_eq!(event("limits.clear")["after"], Value::Null);
    assert_eq!(event("key.revoke")["before"]["state"], "active");
    assert_eq!(event("key.revoke")["after"]["state"], "revoked");
}

#[test]
fn a_rotated_key_is_the_same_key_with_two_secrets_for_a_while() {
    let world = World::new();
    world.done("POST /keys", json!({ "name": "k" }));
    let before = world.done("GET /keys/k", Value::Null);
    world.done("POST /keys/k/rotate", Value::Null);
    let after = world.done("GET /keys/k", Value::Null);
    assert_eq!(after["record"]["id"], before["record"]["id"]);
    assert_eq!(after["old_secrets"][0]["prefix"], before["record"]["prefix"]);
    for _ in 0..2 {
        world.done("POST /keys/k/rotate", Value::Null);
    }
    world.refused("POST /keys/k/rotate", Value::Null, 409, "3 old secrets");
    // For one that leaked: nothing it ever was works on.
    world.done("POST /keys/k/rotate", json!({ "overlap_seconds": 0 }));
    assert_eq!(world.done("GET /keys/k", Value::Null)["old_secrets"], json!([]));
    let id = before["record"]["id"].as_str().expect("an id");
    world.done("POST /keys/k/rotate", Value::Null);
    world.done(&format!("POST /keys/{id}/revoke"), Value::Null);
    let events = world.actions().len();
    world.done(&format!("POST /keys/{id}/revoke"), Value::Null);
    assert_eq!(world.actions().len(), events, "what is done already is no act");
    assert_eq!(world.done(&format!("GET /keys/{id}"), Value::Null)["old_secrets"], json!([]));
    world.refused(&format!("POST /keys/{id}/rotate"), Value::Null, 409, "works no more");
    world.refused(&format!("PATCH /keys/{id}"), json!({ "name": "x" }), 409, "revoked");
}

#[test]
fn what_a_key_may_follows_from_all_its_levels() {
    let world = World::new();
    world.tree();
    world.done("POST /keys", json!({ "name": "k", "project": "acme/search/chat" }));
    let effective = || world.done("GET /keys/k", Value::Null)["effective"].clone();
    assert_eq!(effective(), json!({ "band": "silver", "routing_profile": null, "allowed_models": null }));
    world.done("PUT /limits/org/acme", json!({ "allowed_models": ["a", "b"] }));
    world.done("PUT /limits/key/k", json!({ "allowed_models": ["b", "c"] }));
    world.done("PUT /limits/key/k?model=b", json!({ "parallel": 0 }));
    world.done("PATCH /keys/k", json!({ "band": "gold" }));
    assert_eq!(effective(), json!({ "band": "gold", "routing_profile": null, "allowed_models": ["b"] }));
    world.done("PUT /limits/project/acme%2Fsearch%2Fchat", json!({ "allowed_models": [] }));
    assert_eq!(effective()["allowed_models"], json!([]));
    let listed = world.done("GET /limits", Value::Null);
    assert_eq!(listed["limits"].as_array().map(Vec::len), Some(4));
}

#[test]
fn what_cannot_be_done_is_told_and_leaves_nothing() {
    let world = World::new();
    world.tree();
    world.done("POST /keys", json!({ "name": "k" }));
    world.done("POST /keys", json!({ "name": "k" }));
    let before = world.actions().len();
    for (what, body, status, word) in [
        ("POST /organizations", json!({ "name": "acme" }), 409, "one already"),
        ("POST /organizations", json!({ "name": "a/b" }), 400, "slash"),
        ("POST /organizations", json!({ "nmae": "a" }), 400, "nmae"),
        ("POST /organizations", json!([]), 400, "not what is asked for"),
        ("POST /teams", json!({ "organization": "nobody", "name": "a" }), 404, "nobody"),
        ("POST /projects", json!({ "team": "search", "name": "a" }), 404, "search"),
        ("POST /keys", json!({ "name": "a", "project": "acme/search/none" }), 404, "acme/search/none"),
        ("POST /keys", json!({ "name": "a", "expires_at": 5 }), 400, "expired already"),
        ("POST /keys", json!({ "name": "a", "expires_in_seconds": u64::MAX }), 400, "future"),
        ("PATCH /keys/k", json!({ "name": "b" }), 409, "2 keys"),
        ("POST /keys/sk-llmgw-abc/revoke", Value::Null, 400, "itself"),
        ("GET /keys/nobody", Value::Null, 404, "nobody"),
        ("PUT /limits/planet/acme", json!({ "rpm": 1 }), 400, "no level"),
        ("PUT /limits/org/acme", json!({}), 400, "no limit is named"),
        ("PUT /limits/org/acme", json!({ "rpm": -1 }), 400, "not what is asked for"),
        ("PUT /limits/org/acme?modl=x", json!({ "rpm": 1 }), 400, "modl"),
        ("DELETE /limits/org/acme", Value::Null, 404, "limit"),
        ("GET /audit?limit=x", Value::Null, 400, "limit"),
        ("POST /backup", json!({ "path": "here.db" }), 400, "absolute"),
        ("GET /usage?by=planet", Value::Null, 400, "planet"),
        ("GET /usage?since=5&until=5", Value::Null, 400, "before"),
        ("GET /usage?key=nobody", Value::Null, 404, "nobody"),
        ("GET /usage/requests/req-5", Value::Null, 400, "32 digits"),
        ("GET /usage/requests/req-00000000000000000000000000000005", Value::Null, 404, "record"),
        ("DELETE /keys", Value::Null, 405, "GET, POST"),
        ("GET /nothing", Value::Null, 404, "openapi.json"),
        ("GET /keys/", Value::Null, 404, "openapi.json"),
    ] {
        world.refused(what, body, status, word);
    }
    assert_eq!(world.actions().len(), before);
    let bare = World { desk: Desk::new(None), ..world };
    bare.refused("GET /keys", Value::Null, 409, "store.path");
}

#[test]
fn usage_is_summed_up_with_the_names_of_who_used_it() {
    let world = World::new();
    world.tree();
    let key = world.done("POST /keys", json!({ "name": "k", "project": "acme/search/chat" }));
    let (key_id, project_id) = (key["record"]["id"].clone(), key["record"]["project_id"].clone());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = UsageRow {
        ts: 3_600_500,
        record_id: ((3_600_000 << 80) | 0xabc_u128).to_be_bytes(),
        admitted_at: 3_600_000,
        key_id: text(&key_id),
        project_id: text(&project_id),
        model: "m".into(),
        served_model: "small".into(),
        pool: Some("none/l4".into()),
        replica: None,
        status: 200,
        reason: None,
        prompt_tokens: 10,
        completion_tokens: 5,
        cached_tokens: 4,
        units_micros: 15_000_000,
        is_estimated: true,
        ttft_ms: Some(7),
        duration_ms: 500,
        queue_ms: None,
    };
    let keyless = UsageRow { record_id: [1; 16], key_id: String::new(), project_id: String::new(), ..row.clone() };
    let batch: Batch = [row, keyless].iter().collect();
    world.store.write(move |tx| tx.add_usage(&batch)).expect("written");

    let answer = world.done("GET /usage?by=organization,team,project,key,day&since=0&until=7200000", Value::Null);
    let sums = answer["usage"].as_array().expect("sums");
    assert_eq!((sums.len(), &sums[0]["key_id"], &sums[0]["key"]), (2, &json!(""), &Value::Null));
    assert_eq!((&sums[1]["organization"], &sums[1]["team"]), (&json!("acme"), &json!("acme/search")));
    assert_eq!((&sums[1]["project"], &sums[1]["key"]), (&json!("acme/search/chat"), &json!("k")));
    assert_eq!(
        (&sums[1]["day"], &sums[1]["units_micros"], &sums[1]["model"]),
        (&json!(0), &json!(15_000_000), &Value::Null)
    );
    let one = world.done("GET /usage?key=k&project=acme%2Fsearch%2Fchat&model=m&since=0&until=7200000", Value::Null);
    assert_eq!((&one["usage"][0]["requests"], &one["usage"][0]["estimated_requests"]), (&json!(1), &json!(1)));
    assert_eq!(world.done("GET /usage?model=other&since=0", Value::Null)["usage"], json!([]));
    let request = world.done("GET /usage/requests/req-00000036ee8000000000000000000abc", Value::Null);
    assert_eq!((&request["served_model"], &request["key_id"]), (&json!("small"), &key_id));
}

#[test]
fn a_backup_holds_the_keys_and_is_on_the_record() {
    let world = World::new();
    world.done("POST /keys", json!({ "name": "k" }));
    let path = world.folder.path().join("copy.db");
    let made = world.done("POST /backup", json!({ "path": path }));
    assert_eq!(made["bytes"].as_u64(), std::fs::metadata(&path).ok().map(|file| file.len()));
    assert_eq!(world.actions().last().map(String::as_str), Some("store.backup"));
    world.refused("POST /backup", json!({ "path": path }), 409, "there is one of that name");
    let copy = Store::open(OpenOptions::new(&path)).expect("a store");
    assert_eq!(copy.read(|rows| rows.keys()).expect("read").len(), 1);
}

#[test]
fn the_document_names_every_route_and_every_schema_it_refers_to() {
    let world = World::new();
    let document = world.done("GET /openapi.json", Value::Null);
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.verb.word().to_lowercase()];
        assert_eq!(operation["operationId"], route.name);
    }
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap_or_default();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
    let mut names: Vec<_> = ROUTES.iter().map(|route| route.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROUTES.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_is_sent_breaks_the_desk(
        verb in "GET|POST|PUT|PATCH|DELETE|HEAD|x",
        path in "(/(organizations|teams|projects|keys|limits|org|audit|a|%[0-9a-f]{2}|%|\\PC{0,6})){0,4}",
        query in "\\PC{0,12}",
        body in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let desk = Desk::new(None);
        let answer = desk.answer(&Ask { verb: &verb, path: &path, query: &query, body: &body, actor: "x" });
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        conforms(&openapi::schemas()["Error"], &body, "Error");
        prop_assert!(matches!(answer.status, 400 | 404 | 405 | 409));
    }
}
