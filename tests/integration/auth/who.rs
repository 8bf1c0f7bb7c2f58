//! Who is let in, and what whoever is not is told: what official clients show as an authentication error.

use llmgw_test_kit::raw::{Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for};
use serde_json::{Value, json};

use super::rig::Rig;
use crate::pair::{CHAT, WITHIN, error_of};

fn headers(headers: &[(&str, &str)]) -> Request {
    headers.iter().fold(Request::new("POST", CHAT), |request, (name, value)| request.header(name, value))
}

fn refused(reply: &Reply) -> (u16, String) {
    let (status, code, _) = error_of(reply);
    assert_eq!(reply.header("www-authenticate"), (status == 401).then_some("Bearer"));
    (status, code.as_str().unwrap_or_default().to_owned())
}

#[test]
fn without_a_key_that_works_nothing_reaches_an_engine_and_the_answer_says_why() {
    let rig = Rig::start();
    let key = rig.key("alice", json!({ "expires_in_seconds": 3600 }));
    let bearer = format!("Bearer {key}");
    let body = chat("hello").json();
    let before = rig.engines[0].calls().len();
    for (shown, code) in [
        (&[][..], "missing_api_key"),
        (&[("Authorization", "Basic dXNlcjpwYXNz")], "missing_api_key"),
        (&[("Authorization", "Bearer sk-llmgw-wrong")], "invalid_api_key"),
        (&[("x-api-key", "sk-another")], "invalid_api_key"),
    ] {
        assert_eq!(refused(&rig.send(headers(shown).json(&body))), (401, code.to_owned()), "{shown:?}");
    }
    let two = [("Authorization", bearer.as_str()), ("x-api-key", "sk-another")];
    assert_eq!(refused(&rig.send(headers(&two).json(&body))), (400, "bad_request".to_owned()));
    for target in ["/v1/models", "/v1/models/test-model", "/v1/responses/resp_1", "/me"] {
        assert_eq!(rig.send(Request::new("GET", target)).status, 401, "{target}");
    }
    let messages = rig.send(Request::new("POST", "/v1/messages").json(&body)).json();
    assert_eq!((&messages["type"], &messages["error"]["type"]), (&json!("error"), &json!("authentication_error")));
    assert_eq!(rig.engines[0].calls().len(), before, "no engine was asked");
    // What says nothing of anybody is for everybody.
    for (target, status) in [("/healthz", 200), ("/readyz", 200), ("/nothing", 404)] {
        assert_eq!(rig.send(Request::new("GET", target)).status, status, "{target}");
    }

    for shown in [
        &[("Authorization", bearer.as_str())][..],
        &[("X-Api-Key", &key)],
        &[("authorization", &bearer), ("x-api-key", &key)],
    ] {
        assert_eq!(rig.send(headers(shown).json(&body)).status, 200, "{shown:?}");
    }
    let calls = rig.engines[0].calls();
    let has_key = |name: &str, value: &str| value.contains(&key) || name.eq_ignore_ascii_case("authorization");
    assert!(calls.iter().flat_map(|call| &call.headers).all(|(name, value)| !has_key(name, value)));
    rig.gateway.finish(&[]);
}

#[test]
fn whatever_stands_in_a_keys_place_is_refused_and_harms_nobody() {
    let rig = Rig::start();
    let key = rig.key("alice", Value::Null);
    let long = format!("Bearer {}", "x".repeat(8_000));
    let check = |lines: &[&[u8]], status: u16| {
        let lines = lines.iter().flat_map(|line| [line, &b"\r\n"[..]].concat()).collect::<Vec<u8>>();
        let head = [&b"GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"[..], &lines, b"\r\n"].concat();
        let reply = llmgw_test_kit::raw::call(rig.gateway.addr(), &head);
        assert_eq!(reply.status, status, "{:?}: {}", String::from_utf8_lossy(&lines), reply.text());
        assert_eq!(error_of(&reply).0, status);
    };
    for value in [
        "Bearer",
        "Bearer ",
        "Bearer  ",
        "bearer x",
        "Bearer \u{5bc6}\u{94a5}",
        "\u{1f980}",
        "Bearer a b",
        "Basic eA==",
    ] {
        check(&[format!("Authorization: {value}").as_bytes()], 401);
    }
    check(&[b"Authorization: Bearer \xff\xfe"], 401);
    check(&[b"x-api-key:"], 401);
    check(&["x-api-key: \u{5bc6}".as_bytes()], 401);
    check(&[format!("Authorization: {long}").as_bytes()], 401);
    // More than any head may be.
    let huge = format!("Authorization: Bearer {}", "x".repeat(70_000));
    check(&[huge.as_bytes()], 431);
    let good = format!("Authorization: Bearer {key}");
    check(&[good.as_bytes(), good.as_bytes()], 400);
    check(&[good.as_bytes(), b"Authorization: Bearer sk-other"], 400);
    assert_eq!(rig.get(&key, "/v1/models").status, 200);
    rig.gateway.finish(&[]);
}

#[test]
fn a_request_that_is_refused_for_its_key_leaves_the_connection_to_the_next_unless_it_has_a_body() {
    let rig = Rig::start();
    let key = rig.key("alice", Value::Null);
    let mut connection = Connection::open(rig.gateway.addr()).expect("a connection");
    for (shown, status) in [("wrong", 401), (key.as_str(), 200), ("wrong", 401), (&key, 200)] {
        connection.send(&models(shown)).expect("sent");
        assert_eq!(connection.reply().expect("an answer").status, status);
    }
    // A body that nobody may send is not read.
    let body = headers(&[("x-api-key", "wrong")]).json(&chat("hello").json()).bytes();
    connection.send(&body).expect("sent");
    let reply = connection.reply().expect("an answer");
    assert_eq!((reply.status, reply.header("connection")), (401, Some("close")));
    rig.gateway.finish(&[]);
}

fn models(key: &str) -> Vec<u8> {
    Request::new("GET", "/v1/models").header("x-api-key", key).bytes()
}

#[test]
fn a_change_is_felt_on_every_core_and_open_connections_whoever_made_it() {
    let rig = Rig::start();
    let key = rig.key("alice", Value::Null);
    let ask = models(&key);
    // Enough for both cores to have some.
    let mut connections: Vec<Connection> =
        (0..16).map(|_| Connection::open(rig.gateway.addr()).expect("a connection")).collect();
    let mut statuses = || -> Vec<Reply> {
        connections.iter_mut().for_each(|connection| connection.send(&ask).expect("sent"));
        connections.iter_mut().map(|connection| connection.reply().expect("an answer")).collect()
    };
    assert!(statuses().iter().all(|reply| reply.status == 200));
    // Over the admin API, which says so at once.
    let rotated = rig.admin("POST /keys/alice/rotate", &json!({ "overlap_seconds": 3600 }));
    rig.wait_for(rotated["key"].as_str().expect("a key"), 200);
    assert!(statuses().iter().all(|reply| reply.status == 200), "the old one works on");
    // By another process, on the file.
    rig.offline(&["revoke", "alice"]);
    wait_for("a refusal on every connection", WITHIN, || statuses().iter().all(|reply| reply.status == 401));
    let newest = rotated["key"].as_str().expect("a key");
    rig.wait_for(newest, 401);
    assert_eq!(error_of(&rig.get(newest, "/v1/models")).1, json!("revoked_api_key"));
    assert_eq!(error_of(&rig.get(&key, "/v1/models")).1, json!("invalid_api_key"), "an old secret ends with its key");
    rig.gateway.finish(&[]);
}

#[test]
fn logs_name_a_keys_id_and_project_and_never_the_key_and_its_use_is_noted() {
    let mut rig = Rig::with(vec![llmgw_test_kit::Engine::local()], &["model: test-model"], "", "retries: 0");
    let key = rig.key("alice", Value::Null);
    let id = rig.admin("GET /keys/alice", &Value::Null)["record"]["id"].as_str().expect("an id").to_owned();
    let failing = chat("hello").faults(json!({ "status": 500 }));
    assert_eq!(rig.ask(&key, &failing, &[]).status, 500);
    let is_told = |line: &str| line.contains(&id) && line.contains("\"project_id\":\"proj-");
    wait_for("its line", WITHIN, || rig.gateway.process().lines().iter().any(|line| is_told(&line.text)));
    assert!(rig.gateway.process().lines().iter().all(|line| !line.text.contains(&key)), "the log holds a key");
    let used = || rig.admin("GET /keys/alice", &Value::Null)["record"]["last_used_at"].is_i64();
    wait_for("its use", WITHIN, used);
    rig.gateway.finish(&["\"request_id\""]);
}

#[test]
fn without_keys_nobody_is_asked_for_one() {
    let engine = llmgw_test_kit::Engine::local();
    let gateway = llmgw_test_kit::Gateway::builder().engine(&engine).router("timeouts: { settle: 0s }");
    let gateway = gateway.start(crate::pair::llmgw());
    let ask = |request: Request| llmgw_test_kit::raw::call(gateway.addr(), &request.bytes());
    let request = headers(&[("Authorization", "Bearer whatever"), ("x-api-key", "another"), ("Connection", "close")]);
    assert_eq!(ask(request.json(&chat("hello").json())).status, 200);
    let me = ask(Request::new("GET", "/me").header("Connection", "close"));
    assert_eq!(refused(&me), (404, "unknown_url".to_owned()));
    gateway.finish(&[]);
}
