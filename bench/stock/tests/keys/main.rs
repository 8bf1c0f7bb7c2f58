//! The conventional gateway where keys are asked for: the same answers as `llmgw server`, and what requests used in the
//! same store.

use std::path::Path;
use std::time::Duration;

use llmgw_test_kit::engine::Engine;
use llmgw_test_kit::gateway::Gateway;
use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

const CHAT: &str = "/v1/chat/completions";
const WITHIN: Duration = Duration::from_secs(20);

struct Rig {
    #[expect(dead_code, reason = "holds the store")]
    folder: TempDir,
    gateway: Gateway,
    engine: Engine,
}

impl Rig {
    fn start() -> Self {
        let (folder, engine) = (tempfile::tempdir().expect("a folder"), Engine::local());
        let store = folder.path().join("llmgw.db");
        let builder = Gateway::builder().env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s").engine(&engine);
        let builder = builder.top(&format!("auth: keys\nstore: {{ path: {} }}", store.display()));
        let gateway = builder.start(Path::new(env!("CARGO_BIN_EXE_llmgw-stock")));
        Self { folder, gateway, engine }
    }

    #[track_caller]
    fn admin(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::new(method, &format!("/api/v1{path}")).header("Connection", "close");
        let request = if body.is_null() { request } else { request.json(body) };
        let reply = raw::call(self.gateway.admin_addr(), &request.bytes());
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.text());
        reply.json()
    }

    fn ask(&self, key: &str) -> Reply {
        let request = Request::new("POST", CHAT).header("Authorization", format!("Bearer {key}"));
        raw::call(self.gateway.addr(), &request.json(&chat("hello").max_tokens(4).json()).bytes())
    }

    /// Makes a key and waits until it works.
    fn key(&self, name: &str) -> String {
        let made = self.admin("POST", "/keys", &json!({ "name": name }));
        let key = made["key"].as_str().expect("a key").to_owned();
        let listed = || {
            let request = Request::new("GET", "/v1/models").header("X-Api-Key", &key).header("Connection", "close");
            raw::call(self.gateway.addr(), &request.bytes()).status == 200
        };
        wait_for("the key", WITHIN, listed);
        key
    }
}

#[test]
fn who_has_no_key_is_refused_and_a_key_that_is_revoked_works_no_more() {
    let rig = Rig::start();
    let key = rig.key("alice");
    let refused = |key: &str| {
        let reply = rig.ask(key);
        (reply.status, reply.json()["error"]["code"].clone())
    };
    assert_eq!(refused(""), (401, json!("missing_api_key")));
    assert_eq!(refused("sk-llmgw-none"), (401, json!("invalid_api_key")));
    assert_eq!(rig.ask(&key).status, 200);
    assert!(rig.engine.only_call().header("authorization").is_none(), "the key stays here");
    rig.admin("POST", "/keys/alice/revoke", &json!({}));
    wait_for("it is felt", WITHIN, || refused(&key) == (401, json!("revoked_api_key")));
    rig.gateway.finish(&[]);
}

#[test]
fn what_a_request_used_is_on_the_record_with_its_key() {
    let rig = Rig::start();
    let key = rig.key("bob");
    let reply = rig.ask(&key);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let id = reply.header("x-request-id").expect("an id").to_owned();
    let path = format!("/api/v1/usage/requests/{id}");
    wait_for("its record", WITHIN, || rig.gateway.admin(&path).status == 200);
    let record = rig.gateway.admin(&path).json();
    assert_eq!((&record["status"], &record["completion_tokens"]), (&json!(200), &json!(4)), "{record}");
    let keys = rig.admin("GET", "/keys", &Value::Null);
    assert_eq!(record["key_id"], keys["keys"][0]["id"], "{keys}");
    rig.gateway.finish(&[]);
}
