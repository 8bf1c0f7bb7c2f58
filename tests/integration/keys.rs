//! `llmgw keys` as an operator uses it: on a server that runs, on a store's file, and on both at once.

use std::path::Path;

use llmgw_test_kit::raw;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, Launch};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::reload::rig::{WITHIN, llmgw};

struct World {
    folder: TempDir,
    gateway: Gateway,
    _engine: Engine,
}

impl World {
    fn start(more: &str, env: &[(&str, &str)]) -> Self {
        let (folder, engine) = (tempfile::tempdir().expect("a folder"), Engine::local());
        let path = folder.path().join("llmgw.db");
        let builder = Gateway::builder().engine(&engine).router("timeouts: { settle: 0s }");
        let builder = builder.top(&format!("store: {{ path: {} }}\n{more}", path.display()));
        let builder = env.iter().fold(builder, |builder, (name, value)| builder.env(name, value));
        Self { gateway: builder.start(llmgw()), folder, _engine: engine }
    }

    fn file(&self) -> String {
        self.folder.path().join("llmgw.db").display().to_string()
    }

    /// Runs a role against the server.
    fn run(&self, role: &str, args: &[&str]) -> (i32, String) {
        run(role, &[&["--admin", &format!("http://{}", self.gateway.admin_addr())], args].concat())
    }

    fn json(&self, role: &str, args: &[&str]) -> Value {
        let (code, text) = self.run(role, &[&["--json"], args].concat());
        assert_eq!(code, 0, "{args:?}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

#[track_caller]
fn run(role: &str, args: &[&str]) -> (i32, String) {
    let mut process = Launch::new(llmgw()).arg(role).args(args).env("USER", "tester").start().expect("started");
    let status = process.wait(WITHIN).expect("it ends");
    let lines: Vec<String> = process.lines().into_iter().map(|line| line.text).collect();
    (status.code().expect("an exit code"), lines.join("\n"))
}

#[test]
fn a_key_is_made_shown_once_rotated_and_revoked_and_all_of_it_is_on_the_record() {
    let world = World::start("", &[]);
    let (code, text) = world.run("keys", &["create", "alice", "--band", "gold", "--expires-in", "90d"]);
    let key = text.lines().next().unwrap_or_default().to_owned();
    assert!(code == 0 && key.starts_with("sk-llmgw-") && key.len() == 52, "{text}");
    assert!(text.contains("alice (key-") && text.contains("only time the key is shown"), "{text}");

    let (_, listed) = world.run("keys", &["list"]);
    assert!(listed.contains("alice") && listed.contains("gold") && listed.contains("default/default/default"));
    let (code, rotated) = world.run("keys", &["rotate", "alice", "--overlap", "7d"]);
    assert!(code == 0 && !rotated.contains(&key), "{rotated}");
    let (_, shown) = world.run("keys", &["show", "alice"]);
    assert!(shown.contains("the old secret sk-llmgw-") && shown.contains("every model"), "{shown}");
    assert_eq!(world.run("keys", &["org", "create", "acme"]).0, 0);
    assert_eq!(world.run("keys", &["team", "create", "acme/search"]).0, 0);
    assert_eq!(world.run("keys", &["project", "create", "acme/search/chat", "--band", "silver"]).0, 0);
    let (code, limits) = world.run("keys", &["limits", "set", "team", "acme/search", "--rpm", "60", "--allow", "m"]);
    assert!(code == 0 && limits.contains(" 60 "), "{limits}");
    let (code, revoked) = world.run("keys", &["revoke", "alice"]);
    assert!(code == 0 && revoked.contains("revoked"), "{revoked}");
    let (code, text) = world.run("keys", &["revoke", "nobody"]);
    assert!(code == 1 && text.contains("nobody"), "{text}");

    let (code, trail) = world.run("ctl", &["audit", "--limit", "100"]);
    assert_eq!(code, 0, "{trail}");
    let by = "tester (loopback from 127.0.0.1)";
    for act in ["key.create", "key.rotate", "key.revoke", "org.create", "limits.set", by] {
        assert!(trail.contains(act), "{act} is not in {trail}");
    }
    for secret in [&key, rotated.lines().next().unwrap_or_default()] {
        for text in [&listed, &shown, &trail, &revoked] {
            assert!(!text.contains(secret), "a key is shown twice");
        }
    }
    let mut gateway = world.gateway;
    assert!(gateway.process().lines().iter().all(|line| !line.text.contains(&key)), "the log holds a key");
    gateway.finish(&[]);
}

#[test]
fn the_same_commands_work_on_the_file_of_a_server_that_runs_or_does_not() {
    let world = World::start("", &[]);
    let file = world.file();
    let (code, text) = run("keys", &["--store", &file, "create", "bob"]);
    assert!(code == 0 && text.starts_with("sk-llmgw-"), "{text}");
    let keys = world.json("keys", &["list"]);
    assert_eq!(keys["keys"][0]["name"], "bob");
    let trail = world.json("ctl", &["audit"]);
    assert_eq!(trail["events"][0]["actor"], "tester (the store's file)");

    let copy = world.folder.path().join("copy.db").display().to_string();
    let (code, text) = world.run("ctl", &["backup", &copy]);
    assert!(code == 0 && text.contains("looked over and whole"), "{text}");
    world.gateway.finish(&[]);
    let (code, text) = run("keys", &["--store", &copy, "list"]);
    assert!(code == 0 && text.contains("bob"), "{text}");
    let (code, text) = run("keys", &["--store", "/nowhere/llmgw.db", "list"]);
    assert!(code == 1 && text.contains("/nowhere"), "{text}");
}

#[test]
fn the_admin_token_guards_keys_as_everything_else_and_bodies_are_bounded() {
    let world = World::start("admin_token_env: THE_TOKEN", &[("THE_TOKEN", "t0ken")]);
    let ask = |authorization: &str, body: &str| {
        let request = Request::new("POST", "/api/v1/keys").header("Connection", "close");
        let request = request.body("application/json", body);
        raw::call(world.gateway.admin_addr(), &request.header("Authorization", authorization).bytes())
    };
    assert_eq!(ask("Bearer wrong", r#"{"name":"a"}"#).status, 401);
    assert_eq!(ask("Bearer t0ken", r#"{"name":"a"}"#).status, 200);
    assert_eq!(ask("Bearer t0ken", r#"{"name":1}"#).status, 400);
    assert_eq!(ask("Bearer t0ken", &format!(r#"{{"name":"{}"}}"#, "a".repeat(600_000))).status, 413);
    assert_eq!(world.gateway.admin("/api/v1/openapi.json").status, 401);
    world.gateway.finish(&[]);
}

#[test]
fn without_a_store_keys_say_how_to_get_one_and_a_damaged_store_stops_the_start() {
    let engine = Engine::local();
    let gateway = Gateway::builder().engine(&engine).router("timeouts: { settle: 0s }").start(llmgw());
    let reply = gateway.admin("/api/v1/keys");
    assert!(reply.status == 409 && reply.text().contains("store.path"), "{}", reply.text());
    let document: Value = serde_json::from_str(&gateway.admin("/api/v1/openapi.json").text()).expect("JSON");
    assert_eq!(document["openapi"], json!("3.1.0"));
    gateway.finish(&[]);

    let folder = tempfile::tempdir().expect("a folder");
    let (file, config) = (folder.path().join("llmgw.db"), folder.path().join("server.yaml"));
    std::fs::write(&file, "no database at all, but text ".repeat(50)).expect("written");
    let text = format!(
        "listen: '127.0.0.1:0'\nadmin_listen: '127.0.0.1:0'\nstore: {{ path: {} }}\n\
         endpoints: [{{ url: '{}', model: m }}]\n",
        file.display(),
        engine.url()
    );
    std::fs::write(&config, text).expect("written");
    let (code, said) = run("server", &["--config", &config.display().to_string()]);
    assert!(code == 1 && said.contains("the file is damaged") && said.contains("backup"), "{said}");
    assert!(Path::new(&file).exists(), "what is damaged is left for whoever mends it");
}
