//! A conventional gateway with `auth: keys`, simulated engines behind it, and an operator beside it.

use std::path::Path;
use std::time::Duration;

use llmgw_test_kit::engine::Engine;
use llmgw_test_kit::gateway::{Builder, Gateway};
use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    /// Holds the store.
    folder: TempDir,
    builder: Builder,
    pub(crate) gateway: Gateway,
    pub(crate) engines: Vec<Engine>,
}

impl Rig {
    /// With one engine of the kit's model.
    pub(crate) fn start() -> Self {
        Self::with(vec![Engine::local()], &["test-model"], "")
    }

    /// With engines of these models.
    pub(crate) fn with(engines: Vec<Engine>, models: &[&str], top: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("llmgw.db");
        let builder = Gateway::builder().top(&format!("auth: keys\nstore: {{ path: {} }}\n{top}", store.display()));
        let builder = builder.router("timeouts: { settle: 0s }\nretries: 0\ncooldown_seconds: 0");
        let builder = engines.iter().zip(models).fold(builder, |builder, (engine, model)| {
            builder.endpoint(&format!("{{ url: \"{}\", model: {model}, engine: sim }}", engine.url()))
        });
        let gateway = started(&builder, engines.len());
        Self { folder, builder, gateway, engines }
    }

    /// Ends the gateway in order and starts another on the same files.
    pub(crate) fn restart(self) -> Self {
        let Self { folder, builder, gateway, engines } = self;
        gateway.finish(&[]);
        let gateway = started(&builder, engines.len());
        Self { folder, builder, gateway, engines }
    }

    #[track_caller]
    pub(crate) fn admin(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::new(method, &format!("/api/v1{path}")).header("Connection", "close");
        let request = if body.is_null() { request } else { request.json(body) };
        let reply = raw::call(self.gateway.admin_addr(), &request.bytes());
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.text());
        reply.json()
    }

    pub(crate) fn ask(&self, key: &str, chat: &Chat) -> Reply {
        let request = Request::new("POST", CHAT).header("Authorization", format!("Bearer {key}"));
        raw::call(self.gateway.addr(), &request.header("Connection", "close").json(&chat.json()).bytes())
    }

    /// Makes a key and waits until it works.
    #[track_caller]
    pub(crate) fn key(&self, name: &str) -> String {
        let made = self.admin("POST", "/keys", &json!({ "name": name }));
        let key = made["key"].as_str().expect("a key").to_owned();
        wait_for("the key", WITHIN, || self.get(&key, "/v1/models").status == 200);
        key
    }

    /// Makes a key that is held to that, and waits until it is.
    #[track_caller]
    pub(crate) fn limited(&self, name: &str, limits: &Value) -> String {
        let key = self.key(name);
        self.admin("PUT", &format!("/limits/key/{name}"), limits);
        wait_for("the limits", WITHIN, || !self.level(&key).is_null());
        key
    }

    /// What `/me` says of a key's own level.
    #[track_caller]
    pub(crate) fn level(&self, key: &str) -> Value {
        self.get(key, "/me").json()["limits"][0].clone()
    }

    /// What was used of it, once nothing is reserved any more.
    #[track_caller]
    pub(crate) fn used_at_rest(&self, key: &str) -> Value {
        let is_nothing =
            |held: &Value| held.as_object().is_some_and(|held| held.values().all(|it| it.is_null() || it == 0));
        wait_for("nothing held", WITHIN, || is_nothing(&self.level(key)["used"]["held"]));
        self.level(key)["used"].clone()
    }

    #[track_caller]
    fn get(&self, key: &str, target: &str) -> Reply {
        let request = Request::new("GET", target).header("X-Api-Key", key).header("Connection", "close");
        raw::call(self.gateway.addr(), &request.bytes())
    }
}

fn started(builder: &Builder, engines: usize) -> Gateway {
    let gateway = builder.clone().start(Path::new(env!("CARGO_BIN_EXE_llmgw-stock")));
    let is_ready = || gateway.metrics().sum("llmgw_endpoint_ready", &[]) == Some(engines as f64);
    wait_for("every engine", WITHIN, is_ready);
    gateway
}
