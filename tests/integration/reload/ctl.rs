//! `llmgw ctl` as an operator uses it, and who the admin API lets in.

use llmgw_test_kit::raw;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, chat, wait_for};
use serde_json::{Value, json};

use super::rig::{Rig, WITHIN, ctl, llmgw, yaml};

#[test]
fn a_drained_endpoint_gets_no_new_requests_until_it_is_taken_back() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a), ("b", &b)]);
    rig.wait_until_ready("a");
    rig.wait_until_ready("b");
    let (stream, _) = rig.stream(chat("x").faults(json!({ "events": 5, "stall_after_events": 2 })));
    let busy = if a.state().open_requests == 1 { "a" } else { "b" };
    let idle = if busy == "a" { "b" } else { "a" };

    let (code, text) = rig.ctl(&["endpoints", "drain", busy]);
    assert_eq!((code, text), (0, format!("{busy} is draining: it gets no new requests; 1 request runs to the end")));
    assert_eq!(rig.replicas(20), [idle]);
    let (code, text) = rig.ctl(&["endpoints"]);
    assert_eq!(code, 0);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or("").to_owned();
    assert!(text.starts_with("NAME ") && text.ends_with("1 of 2 take requests"), "{text}");
    assert!(line(busy).contains("draining") && line(idle).contains("ready"), "{text}");
    let draining = |name| rig.gateway.metrics().sum("llmgw_endpoint_draining", &[("replica", name)]);
    assert_eq!((draining(busy), draining(idle)), (Some(1.0), Some(0.0)));

    // It outlives a reload that does not move it.
    let (code, text) = rig.ctl(&["reload"]);
    assert_eq!((code, text.as_str()), (0, "nothing changed"));
    assert_eq!(rig.replicas(10), [idle]);

    // A second one leaves nobody: said, not hidden.
    assert_eq!(rig.ctl(&["endpoints", "drain", idle]).0, 0);
    assert_eq!(rig.ask().status, 503);
    for name in [busy, idle] {
        assert_eq!(rig.ctl(&["endpoints", "undrain", name]), (0, format!("{name} takes requests")));
    }
    drop(stream);
    wait_for("both", WITHIN, || rig.replicas(6) == ["a", "b"]);
    rig.gateway.finish(&["\"request_id\""]);
}

#[test]
fn a_reload_says_what_changed_and_what_was_wrong_and_ends_accordingly() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a)]);
    rig.write(&yaml(&[("b", &b)], "").replace("cores: 2", "cores: 1"));
    assert_eq!(
        rig.ctl(&["reload"]),
        (0, "endpoint b added\nendpoint a removed\ncores from 2 to 1: takes effect at a restart".to_owned())
    );
    rig.write("enpoints: []\n");
    let (code, text) = rig.ctl(&["reload"]);
    assert_eq!(code, 1);
    assert!(text.contains("the running one stays") && text.contains("did you mean \"endpoints\""), "{text}");
    let (code, text) = rig.ctl(&["endpoints", "--json"]);
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &answer["endpoints"][0]["name"]), (0, &json!("b")));
    rig.gateway.finish(&["takes effect at a restart", "configuration not reloaded"]);
}

#[test]
fn mistakes_are_told_from_refusals_by_the_exit_code() {
    let a = Engine::local();
    let rig = Rig::start(&[("a", &a)]);
    let (code, text) = rig.ctl(&["endpoints", "drain", "nobody"]);
    assert_eq!(code, 1);
    assert!(text.contains("no endpoint of that name") && text.contains("llmgw ctl endpoints"), "{text}");
    for args in [&["endpoint"] as &[&str], &["endpoints", "drain"], &["endpoints", "--nope"], &[]] {
        assert_eq!(rig.ctl(args).0, 64, "{args:?}");
    }
    for args in [&["--admin", "127.0.0.1:1", "reload"] as &[&str], &["--token-env", "NOT_SET_HERE", "reload"]] {
        assert_eq!(ctl(args, &[]).0, 64, "{args:?}");
    }
    let (code, text) = ctl(&["--admin", "http://127.0.0.1:1", "endpoints"], &[]);
    assert_eq!(code, 1);
    assert!(text.contains("http://127.0.0.1:1") && text.contains("admin_listen"), "{text}");
    let (code, text) = ctl(&["--help"], &[]);
    assert_eq!(code, 0);
    for word in ["endpoints", "reload", "--admin", "--token-file", "Exit codes"] {
        assert!(text.contains(word), "{text}");
    }
    rig.gateway.finish(&[]);
}

#[test]
fn a_configured_admin_token_is_needed_for_the_api_and_for_nothing_else() {
    let a = Engine::local();
    let builder = Gateway::builder().engine(&a).top("admin_token_env: THE_TOKEN").env("THE_TOKEN", "t0ken");
    let gateway = builder.router("timeouts: { settle: 0s }").start(llmgw());
    let rig = Rig { gateway };
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(rig.gateway.admin(path).status, 200, "{path}");
    }
    assert_eq!(rig.gateway.admin("/api/v1/endpoints").status, 401);
    for path in ["/api/v1/reload", "/api/v1/endpoints/engine-0/drain", "/api/v1/nowhere"] {
        assert_eq!(rig.post(path).status, 401, "{path}");
    }
    let with = |authorization: &str| {
        let request = Request::new("GET", "/api/v1/endpoints").header("Connection", "close");
        raw::call(rig.gateway.admin_addr(), &request.header("Authorization", authorization).bytes()).status
    };
    assert_eq!((with("Bearer t0ken"), with("Bearer t0kem"), with("Basic t0ken")), (200, 401, 401));
    assert_eq!(rig.ask().status, 200);

    let (code, text) = rig.ctl(&["endpoints"]);
    assert_eq!(code, 1);
    assert!(text.contains("--token-env"), "{text}");
    let admin = format!("http://{}", rig.gateway.admin_addr());
    let file = rig.path().with_file_name("token");
    std::fs::write(&file, "t0ken\n").expect("written");
    let file = file.display().to_string();
    for (args, env) in [
        (vec!["endpoints"], ("LLMGW_ADMIN_TOKEN", "t0ken")),
        (vec!["endpoints", "--token-env", "OTHER"], ("OTHER", "t0ken")),
        (vec!["endpoints", "--token-file", &file], ("OTHER", "")),
    ] {
        let (code, text) = ctl(&[&["--admin", &admin], args.as_slice()].concat(), &[env]);
        assert_eq!(code, 0, "{args:?}: {text}");
    }
    rig.gateway.finish(&[]);
}

#[test]
fn the_api_knows_its_paths_and_methods_and_no_browser() {
    let a = Engine::local();
    let rig = Rig::start(&[("a", &a)]);
    for (path, status) in [("/api/v1/endpoints", 405), ("/api/v1/endpoints/nobody/drain", 404), ("/api/v1/x", 404)] {
        assert_eq!(rig.post(path).status, status, "{path}");
    }
    for (path, status) in
        [("/api/v1/reload", 405), ("/api/v1/endpoints/a/drain", 405), ("/api/v1", 404), ("/api/v1/endpoints/a", 404)]
    {
        assert_eq!(rig.gateway.admin(path).status, status, "{path}");
    }
    let request = Request::new("POST", "/api/v1/endpoints/a/drain").header("Origin", "http://elsewhere.example");
    let request = request.header("Connection", "close").header("Content-Length", "0");
    assert_eq!(raw::call(rig.gateway.admin_addr(), &request.bytes()).status, 403);
    assert_eq!(rig.endpoints()[0]["is_draining"], false);
    rig.gateway.finish(&[]);
}
