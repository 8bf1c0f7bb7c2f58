//! What the official client makes of what the gateway refuses: one class of error for each kind, by which programs
//! decide.

use std::time::Duration;

use llmgw_test_kit::process::{Launch, Source};
use llmgw_test_kit::raw;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, wait_for};
use serde_json::{Value, json};

use crate::{install, llmgw};

const WITHIN: Duration = Duration::from_secs(60);

struct World {
    gateway: Gateway,
    _engine: Engine,
    _folder: tempfile::TempDir,
}

impl World {
    fn start() -> Self {
        let (folder, engine) = (tempfile::tempdir().expect("a folder"), Engine::local());
        let store = format!("auth: keys\nstore: {{ path: {} }}", folder.path().join("llmgw.db").display());
        let builder = Gateway::builder().engine(&engine).top(&store).router("timeouts: { settle: 0s }");
        Self { gateway: builder.start(llmgw()), _engine: engine, _folder: folder }
    }

    #[track_caller]
    fn admin(&self, what: &str, body: &Value) -> Value {
        let (method, path) = what.split_once(' ').expect("a method and a path");
        let request = Request::new(method, &format!("/api/v1{path}")).header("Connection", "close").json(body);
        let reply = raw::call(self.gateway.admin_addr(), &request.bytes());
        assert_eq!(reply.status, 200, "{what}: {}", reply.text());
        reply.json()
    }

    /// A key that is felt already, with limits or without.
    fn key(&self, name: &str, limits: Option<Value>) -> String {
        let made = self.admin("POST /keys", &json!({ "name": name }));
        let key = made["key"].as_str().expect("a key").to_owned();
        let wanted = limits.is_some();
        if let Some(limits) = limits {
            self.admin(&format!("PUT /limits/key/{name}"), &limits);
        }
        wait_for("the key", WITHIN, || {
            let request = Request::new("GET", "/me").header("Connection", "close");
            let me = raw::call(self.gateway.addr(), &request.header("x-api-key", &key).bytes());
            me.status == 200 && (!wanted || me.json()["limits"].as_array().is_some_and(|all| !all.is_empty()))
        });
        key
    }

    /// What the client makes of one call.
    #[track_caller]
    fn asks(&self, key: &str, model: &str, more: &[&str]) -> Value {
        let script = install::scripts().join("clients/openai_errors.py");
        let launch = Launch::new(install::openai()).arg(script).args(["--base", &self.gateway.url(), "--key", key]);
        let mut process = launch.args(["--model", model]).args(more).start().expect("started");
        let status = process.wait(WITHIN).expect("it ends");
        let lines = process.lines();
        assert!(status.success(), "{lines:?}");
        let said = lines.iter().rev().find(|line| line.source == Source::Stdout).expect("a line");
        serde_json::from_str(&said.text).expect("JSON")
    }
}

#[test]
fn each_refusal_is_the_class_of_error_that_programs_catch() {
    let world = World::start();
    let plain = world.key("plain", None);
    let check = |key: &str, model: &str, more: &[&str], class: Option<&str>, status: u16, code: &str| {
        for delivery in [&[][..], &["--stream"]] {
            let told = world.asks(key, model, &[more, delivery].concat());
            assert_eq!(told["class"].as_str(), class, "{code} {delivery:?}: {told}");
            if class.is_some() {
                assert_eq!((&told["status"], &told["code"]), (&json!(status), &json!(code)), "{delivery:?}: {told}");
                let (message, id) = (told["message"].as_str(), told["request_id"].as_str());
                assert!(message.is_some_and(|text| !text.is_empty()) && id.is_some(), "{told}");
            }
        }
    };
    check(&plain, "test-model", &[], None, 200, "");
    check("sk-llmgw-wrong", "test-model", &[], Some("AuthenticationError"), 401, "invalid_api_key");
    check(&plain, "no-model", &[], Some("NotFoundError"), 404, "model_not_found");
    check(&plain, "test-model", &["--replica", "a"], Some("PermissionDeniedError"), 403, "replica_not_allowed");
    let revoked = world.key("revoked", None);
    world.admin("POST /keys/revoked/revoke", &json!({}));
    wait_for("the end of a key", WITHIN, || world.asks(&revoked, "test-model", &[])["class"] == "AuthenticationError");
    check(&revoked, "test-model", &[], Some("AuthenticationError"), 401, "revoked_api_key");
    for (name, limits, code) in [
        ("requests", json!({ "rpm": 0 }), "limit_requests"),
        ("tokens", json!({ "tpm": 2 }), "limit_tokens"),
        ("parallel", json!({ "parallel": 0 }), "limit_parallel"),
    ] {
        let key = world.key(name, Some(limits));
        check(&key, "test-model", &[], Some("RateLimitError"), 429, code);
    }
    let spent = world.key("spent", Some(json!({ "rpm": 1 })));
    assert_eq!(world.asks(&spent, "test-model", &[])["class"], Value::Null);
    let told = world.asks(&spent, "test-model", &[]);
    assert_eq!((&told["class"], &told["code"]), (&json!("RateLimitError"), &json!("limit_requests")), "{told}");
    let wait: u32 = told["retry_after"].as_str().expect("a Retry-After").parse().expect("seconds");
    assert!((1..=61).contains(&wait), "{told}");
    world.gateway.finish(&[]);
}
