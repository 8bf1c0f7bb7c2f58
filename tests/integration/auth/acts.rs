//! The audit trail: every act that the API's own description names, with who, what, before and after, or not at all.

use llmgw_test_kit::Engine;
use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use serde_json::{Value, json};

use super::rig::Rig;

/// One act: what the description calls it, how it is asked for, and what the trail has of it.
struct Act {
    operation: &'static str,
    path: &'static str,
    body: Value,
    action: &'static str,
    /// Whether there was something before it, and is after it.
    is_there: [bool; 2],
}

fn act(operation: &'static str, path: &'static str, body: Value, action: &'static str) -> Act {
    Act { operation, path, body, action, is_there: [true, true] }
}

fn made(act: Act) -> Act {
    Act { is_there: [false, true], ..act }
}

/// Each once, in an order in which each can be done.
fn acts(rig: &Rig) -> Vec<Act> {
    let copy = rig.folder.path().join("copy.db");
    let team = json!({ "team": "acme/search", "name": "chat" });
    let cleared = act("clearLimits", "/limits/key/alice", Value::Null, "limits.clear");
    let change = json!({ "name": "chats", "band": "default" });
    vec![
        made(act("createOrganization", "/organizations", json!({ "name": "acme" }), "org.create")),
        made(act("createTeam", "/teams", json!({ "organization": "acme", "name": "search" }), "team.create")),
        made(act("createProject", "/projects", team, "project.create")),
        made(act("createKey", "/keys", json!({ "name": "alice", "project": "acme/search/chat" }), "key.create")),
        act("changeKey", "/keys/alice", json!({ "may_pin_replica": true }), "key.change"),
        act("rotateKey", "/keys/alice/rotate", Value::Null, "key.rotate"),
        made(act("setLimits", "/limits/key/alice", json!({ "rpm": 60 }), "limits.set")),
        Act { is_there: [true, false], ..cleared },
        act("revokeKey", "/keys/alice/revoke", Value::Null, "key.revoke"),
        act("changeProject", "/projects/acme%2Fsearch%2Fchat", change, "project.change"),
        act("renameTeam", "/teams/acme%2Fsearch", json!({ "name": "finding" }), "team.rename"),
        act("renameOrganization", "/organizations/acme", json!({ "name": "acme inc" }), "org.rename"),
        act("drainEndpoint", "/endpoints/engine-0/drain", Value::Null, "endpoint.drain"),
        act("undrainEndpoint", "/endpoints/engine-0/undrain", Value::Null, "endpoint.undrain"),
        act("reload", "/reload", Value::Null, "config.reload"),
        made(act("backup", "/backup", json!({ "path": copy }), "store.backup")),
    ]
}

/// Acts on the server itself: they are done though the store is away, and so before they are recorded.
const OF_THE_SERVER: [&str; 4] = ["drainEndpoint", "undrainEndpoint", "reload", "backup"];

fn call(rig: &Rig, method: &str, path: &str, body: &Value) -> Reply {
    let request = Request::new(method, &format!("/api/v1{path}")).header("Connection", "close");
    let request = request.header("x-llmgw-actor", "carol");
    let request = if body.is_null() { request.header("Content-Length", "0") } else { request.json(body) };
    raw::call(rig.gateway.admin_addr(), &request.bytes())
}

/// What the description says is done with another method than GET: operation and method.
fn described(rig: &Rig) -> Vec<(String, String)> {
    let document = rig.admin("GET /openapi.json", &Value::Null);
    let paths = document["paths"].as_object().expect("paths").values();
    let operations = paths.flat_map(|path| path.as_object().expect("operations"));
    let named = operations.filter(|(method, _)| *method != "get").map(|(method, operation)| {
        (operation["operationId"].as_str().expect("a name").to_owned(), method.to_uppercase())
    });
    named.collect()
}

fn trail(rig: &Rig) -> Vec<Value> {
    let events = rig.admin("GET /audit?limit=1000", &Value::Null);
    events["events"].as_array().expect("events").iter().rev().cloned().collect()
}

#[test]
fn every_act_that_the_api_describes_leaves_one_event_and_one_that_cannot_changes_nothing() {
    let rig = Rig::with(vec![Engine::local()], &["model: test-model"], "", "");
    let described = described(&rig);
    let acts = acts(&rig);
    for (operation, _) in &described {
        assert!(acts.iter().any(|act| act.operation == operation), "nothing here shows that {operation} is recorded");
    }
    let method = |act: &Act| {
        let found = described.iter().find(|(operation, _)| operation == act.operation);
        &found.unwrap_or_else(|| panic!("{} is not described", act.operation)).1
    };
    let trigger = |sql: &str| {
        let store = rusqlite::Connection::open(rig.file()).expect("the store");
        store.busy_timeout(std::time::Duration::from_secs(10)).expect("set");
        store.execute_batch(sql).expect("done");
    };
    let lists = ["organizations", "teams", "projects", "keys?all=true", "limits", "audit?limit=1000"];
    let all = || lists.map(|list| rig.admin(&format!("GET /{list}"), &Value::Null));
    for act in &acts {
        if !OF_THE_SERVER.contains(&act.operation) {
            // With a trail that takes nothing.
            let before = all();
            trigger("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no trail'); END");
            let reply = call(&rig, method(act), act.path, &act.body);
            trigger("DROP TRIGGER full");
            assert!(reply.status >= 400, "{}: {} {}", act.operation, reply.status, reply.text());
            assert_eq!(all(), before, "{} without its event", act.operation);
        }
        let before = trail(&rig).len();
        let reply = call(&rig, method(act), act.path, &act.body);
        assert_eq!(reply.status, 200, "{}: {}", act.operation, reply.text());
        let events = trail(&rig);
        let [event] = &events[before..] else { panic!("{}: {:?}", act.operation, &events[before..]) };
        assert_eq!(event["action"], act.action);
        assert_eq!(event["actor"], "carol (loopback from 127.0.0.1)");
        let is_there = [!event["before"].is_null(), !event["after"].is_null()];
        assert_eq!(is_there, act.is_there, "{event}");
        assert!(event["ts"].as_i64().is_some_and(|at| at > 1_700_000_000_000), "{event}");
        assert_ne!(event["before"], event["after"], "{event}");
    }
    // What is so already is no act.
    let before = trail(&rig).len();
    assert_eq!(call(&rig, "POST", "/endpoints/engine-0/undrain", &Value::Null).status, 200);
    assert_eq!(trail(&rig).len(), before);
    // And the same trail for an operator at a terminal.
    let told = rig.offline(&["list", "--all"]);
    assert!(told.contains("alice"), "{told}");
    rig.gateway.finish(&["store"]);
}
