//! A gateway with `auth: keys`, simulated engines behind it, and an operator beside it.

use llmgw_test_kit::gateway::Builder;
use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway, Launch, chat};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::{CHAT, WITHIN, llmgw};

/// Connections, each of which the kernel gives to some core, after which every core has had one.
pub(super) const CONNECTIONS: usize = 24;

pub(super) struct Rig {
    pub(super) folder: TempDir,
    pub(super) gateway: Gateway,
    pub(super) engines: Vec<Engine>,
    builder: Builder,
}

impl Rig {
    /// With one engine of the kit's model.
    pub(super) fn start() -> Self {
        Self::with(vec![Engine::local()], &["model: test-model"], "", "")
    }

    /// With an endpoint `engine-N` for each engine, of which `models` says what it serves.
    pub(super) fn with(engines: Vec<Engine>, models: &[&str], top: &str, router: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("llmgw.db");
        let builder = Gateway::builder().top(&format!("auth: keys\nstore: {{ path: {} }}\n{top}", path.display()));
        let endpoints = engines.iter().zip(models).enumerate();
        let builder = endpoints.fold(builder, |builder, (at, (engine, models))| {
            builder.endpoint(&format!("{{ name: engine-{at}, url: \"{}\", {models}, engine: sim }}", engine.url()))
        });
        let builder = builder.router(&format!("timeouts: {{ settle: 0s }}\n{router}"));
        let gateway = builder.clone().start(llmgw());
        let rig = Self { folder, gateway, engines, builder };
        rig.wait_for_engines();
        rig
    }

    fn wait_for_engines(&self) {
        let count = self.engines.len() as f64;
        let ready = || self.gateway.metrics().sum("llmgw_endpoint_ready", &[]) == Some(count);
        llmgw_test_kit::wait_for("every engine", WITHIN, ready);
    }

    /// Ends the gateway in order and starts another on the same files.
    #[track_caller]
    pub(super) fn restart(self, expected_warnings: &[&str]) -> Self {
        let Self { folder, gateway, engines, builder } = self;
        gateway.finish(expected_warnings);
        let rig = Self { folder, gateway: builder.clone().start(llmgw()), engines, builder };
        rig.wait_for_engines();
        rig
    }

    pub(super) fn file(&self) -> String {
        self.folder.path().join("llmgw.db").display().to_string()
    }

    /// Asks the admin API, as an operator's program does.
    #[track_caller]
    pub(super) fn admin(&self, what: &str, body: &Value) -> Value {
        let (method, path) = what.split_once(' ').expect("a method and a path");
        let request = Request::new(method, &format!("/api/v1{path}")).header("Connection", "close");
        let request = if body.is_null() { request } else { request.json(body) };
        let reply = raw::call(self.gateway.admin_addr(), &request.bytes());
        assert_eq!(reply.status, 200, "{what}: {}", reply.text());
        reply.json()
    }

    /// Makes a key and waits until it works.
    #[track_caller]
    pub(super) fn key(&self, name: &str, more: Value) -> String {
        let mut body = json!({ "name": name });
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let made = self.admin("POST /keys", &body);
        let key = made["key"].as_str().expect("a key").to_owned();
        self.wait_for(&key, 200);
        key
    }

    /// Makes the projects `acme/search/NAME`.
    pub(super) fn projects(&self, names: &[&str]) {
        self.admin("POST /organizations", &json!({ "name": "acme" }));
        self.admin("POST /teams", &json!({ "organization": "acme", "name": "search" }));
        for name in names {
            self.admin("POST /projects", &json!({ "team": "acme/search", "name": name }));
        }
    }

    /// Waits until a key gets that status on every core.
    #[track_caller]
    pub(super) fn wait_for(&self, key: &str, status: u16) {
        let asked = || (0..CONNECTIONS).all(|_| self.get(key, "/v1/models").status == status);
        llmgw_test_kit::wait_for(&format!("{status} for a key"), WITHIN, asked);
    }

    /// A GET with a key.
    #[track_caller]
    pub(super) fn get(&self, key: &str, target: &str) -> Reply {
        self.send(Request::new("GET", target).header("Authorization", format!("Bearer {key}")))
    }

    /// A chat with a key.
    #[track_caller]
    pub(super) fn ask(&self, key: &str, chat: &Chat, headers: &[(&str, &str)]) -> Reply {
        let request = Request::new("POST", CHAT).header("Authorization", format!("Bearer {key}"));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        self.send(request.json(&chat.json()))
    }

    #[track_caller]
    pub(super) fn say(&self, key: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask(key, &chat("hello"), headers)
    }

    #[track_caller]
    pub(super) fn send(&self, request: Request) -> Reply {
        raw::call(self.gateway.addr(), &request.header("Connection", "close").bytes())
    }

    /// Runs `llmgw keys` on the store's file, as another process does.
    #[track_caller]
    pub(super) fn offline(&self, args: &[&str]) -> String {
        let launch = Launch::new(llmgw()).arg("keys").args(["--store", &self.file()]).args(args);
        let mut process = launch.env("USER", "tester").start().expect("started");
        let status = process.wait(WITHIN).expect("it ends");
        let lines: Vec<String> = process.lines().into_iter().map(|line| line.text).collect();
        assert!(status.success(), "{args:?}: {lines:?}");
        lines.join("\n")
    }
}

/// What an answer explains, for a request that asked.
pub(super) fn explained(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_str(reply.header("x-llmgw-explain").expect("the header")).expect("JSON")
}
