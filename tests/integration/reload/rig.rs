//! A gateway whose configuration file is written again and again, and `llmgw ctl` as a person would run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway, Launch, Signal, chat, wait_for};
use serde_json::Value;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const WITHIN: Duration = Duration::from_secs(15);

/// Prompts that tests repeat spread as those of many clients do.
const ROUTER: &str = "scrape_interval: 100ms\ntimeouts: { settle: 0s }\nprefix: { approx_tree: { enabled: false } }";

pub(crate) fn llmgw() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_llmgw"))
}

/// A configuration with those endpoints, and more keys at the top level.
pub(crate) fn yaml(endpoints: &[(&str, &Engine)], more: &str) -> String {
    let builder = endpoints.iter().fold(Gateway::builder(), |builder, (name, engine)| {
        builder.endpoint(&format!("{{ name: {name}, url: \"{}\", model: test-model, engine: sim }}", engine.url()))
    });
    builder.top(more).router(ROUTER).yaml()
}

pub(crate) struct Rig {
    pub(crate) gateway: Gateway,
}

impl Rig {
    /// A gateway that serves these endpoints, every one of them ready: it says that it is ready with the first one.
    #[track_caller]
    pub(crate) fn start(endpoints: &[(&str, &Engine)]) -> Self {
        let builder = endpoints.iter().fold(Gateway::builder(), |builder, (name, engine)| {
            builder.endpoint(&format!("{{ name: {name}, url: \"{}\", model: test-model, engine: sim }}", engine.url()))
        });
        let gateway = builder.router(ROUTER).start(llmgw());
        let rig = Self { gateway };
        endpoints.iter().for_each(|(name, _)| rig.wait_until_ready(name));
        rig
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.gateway.config_path().to_owned()
    }

    /// Writes the file in place.
    #[track_caller]
    pub(crate) fn write(&self, text: &str) {
        fs::write(self.path(), text).expect("written");
    }

    /// Asks for a reload over the admin API.
    #[track_caller]
    pub(crate) fn reload(&self) -> Reply {
        self.post("/api/v1/reload")
    }

    /// Puts a file in the place of the other and reloads it; the answer of one that is taken. Whoever looks at the
    /// file meanwhile finds one of the two whole.
    #[track_caller]
    pub(crate) fn reload_with(&self, text: &str) -> Value {
        let next = self.path().with_extension("next");
        fs::write(&next, text).expect("written");
        fs::rename(next, self.path()).expect("renamed");
        let reply = self.reload();
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    #[track_caller]
    pub(crate) fn post(&self, target: &str) -> Reply {
        let request = Request::new("POST", target).header("Connection", "close").header("Content-Length", "0");
        raw::call(self.gateway.admin_addr(), &request.bytes())
    }

    /// What the admin API says of every endpoint.
    #[track_caller]
    pub(crate) fn endpoints(&self) -> Vec<Value> {
        let reply = self.gateway.admin("/api/v1/endpoints");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["endpoints"].as_array().expect("a list").clone()
    }

    #[track_caller]
    pub(crate) fn names(&self) -> Vec<String> {
        self.endpoints().iter().map(|endpoint| endpoint["name"].as_str().unwrap_or("").to_owned()).collect()
    }

    #[track_caller]
    pub(crate) fn wait_for_names(&self, expected: &[&str]) {
        wait_for(&format!("endpoints {expected:?}"), WITHIN, || self.names() == expected);
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self, name: &str) {
        let is_it = |endpoint: &Value| endpoint["name"] == name && endpoint["is_ready"] == true;
        wait_for(&format!("{name} ready"), WITHIN, || self.endpoints().iter().any(is_it));
    }

    #[track_caller]
    pub(crate) fn ask(&self) -> Reply {
        raw::post(self.gateway.addr(), CHAT, &chat("hello").json())
    }

    /// The replicas that so many requests in a row go to, each once, sorted.
    #[track_caller]
    pub(crate) fn replicas(&self, requests: usize) -> Vec<String> {
        let mut seen: Vec<String> = (0..requests)
            .map(|_| {
                let reply = self.ask();
                assert_eq!(reply.status, 200, "{}", reply.text());
                reply.header("x-llmgw-replica").expect("a replica").to_owned()
            })
            .collect();
        seen.sort();
        seen.dedup();
        seen
    }

    /// Sends a chat and reads the head of its answer.
    #[track_caller]
    pub(crate) fn stream(&self, chat: Chat) -> (Connection, raw::Head) {
        let mut connection = Connection::open(self.gateway.addr()).expect("a connection");
        connection.send(&Request::new("POST", CHAT).json(&chat.streamed().json()).bytes()).expect("sent");
        let head = connection.head().expect("a head");
        assert_eq!(head.status, 200);
        (connection, head)
    }

    /// Lines of the log that hold all of these texts.
    pub(crate) fn lines(&mut self, texts: &[&str]) -> Vec<String> {
        let lines = self.gateway.process().lines().into_iter().map(|line| line.text);
        lines.filter(|line| texts.iter().all(|text| line.contains(text))).collect()
    }

    #[track_caller]
    pub(crate) fn hang_up(&mut self) {
        self.gateway.process().signal(Signal::HUP).expect("a signal");
    }

    /// Runs `llmgw ctl` against this gateway: its exit code and all it wrote.
    #[track_caller]
    pub(crate) fn ctl(&self, args: &[&str]) -> (i32, String) {
        let admin = format!("http://{}", self.gateway.admin_addr());
        ctl(&[&["--admin", &admin], args].concat(), &[])
    }
}

/// Runs `llmgw ctl`: its exit code and all it wrote.
#[track_caller]
pub(crate) fn ctl(args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    let launch =
        env.iter().fold(Launch::new(llmgw()).arg("ctl").args(args), |launch, (key, value)| launch.env(key, value));
    let mut process = launch.start().expect("started");
    let status = process.wait(WITHIN).expect("it ends");
    let lines: Vec<String> = process.lines().into_iter().map(|line| line.text).collect();
    (status.code().expect("an exit code"), lines.join("\n"))
}
