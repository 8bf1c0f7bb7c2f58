//! Headers: what passes, what stays, what this gateway alone may say.

use std::collections::BTreeSet;
use std::time::Duration;

use llmgw_test_kit::process::Source;
use llmgw_test_kit::raw::Reply;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, chat, wait_for_some};
use serde_json::{Value, json};

use crate::pair::{CHAT, Pair, WITHIN, error_of, llmgw};

fn ask(headers: &[(&str, &str)]) -> Request {
    let request = Request::new("POST", CHAT).json(&chat("hello").json());
    headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// Trial H6, towards the engine.
#[test]
fn what_ends_at_a_connection_does_not_reach_the_engine() {
    let pair = Pair::shared();
    let sent = [
        ("Connection", "x-a, keep-alive"),
        ("X-A", "1"),
        ("connection", "X-B,,te"),
        ("x-b", "2"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "Basic eA=="),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Trailer", "X-T"),
        ("Trailers", "X-T"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABk"),
    ];
    let passing = [("X-Kept", "a"), ("x-kept", "b"), ("User-Agent", "trial/1"), ("X-Session-Id", "s")];
    let mut connection = pair.connect();
    connection.send(&ask(&[&sent[..], &passing].concat()).bytes()).expect("sent");
    let reply = connection.reply().expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let call = pair.call_of(&reply);
    for (name, _) in sent {
        assert_eq!(call.header(name), None, "{name} in {:?}", call.headers);
    }
    let kept: Vec<&str> =
        call.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-kept")).map(|(_, v)| v.as_str()).collect();
    assert_eq!((kept, call.header("user-agent")), (vec!["a", "b"], Some("trial/1")));
    assert_eq!(call.header("x-session-id"), Some("s"));
}

/// Trial H6, towards the client.
#[test]
fn what_ends_at_the_engines_connection_does_not_reach_the_client_and_there_is_one_server() {
    let pair = Pair::shared();
    let headers = json!([
        ["Server", "uvicorn"],
        ["Connection", "x-own"],
        ["X-Own", "1"],
        ["Keep-Alive", "timeout=5"],
        ["Proxy-Authenticate", "Basic"],
        ["Trailers", "x"],
        ["Upgrade", "h2c"],
        ["X-Kept", "yes"]
    ]);
    for body in [chat("hello"), chat("hello").streamed(), chat("hello").faults(json!({ "status": 429 }))] {
        let mut body = body.json();
        let faults = json!({ "headers": headers });
        body["user"] = json!("x");
        let request = Request::new("POST", CHAT).header("x-sim", faults.to_string()).json(&body);
        let mut connection = pair.connect();
        connection.send(&request.bytes()).expect("sent");
        let reply = connection.reply().expect("an answer");
        assert_eq!(reply.head.all("server").count(), 1, "{:?}", reply.head.headers);
        for name in ["x-own", "keep-alive", "proxy-authenticate", "trailers", "upgrade", "connection"] {
            assert_eq!(reply.header(name), None, "{name} in {:?}", reply.head.headers);
        }
        assert_eq!(reply.header("x-kept"), Some("yes"), "{:?}", reply.head.headers);
        assert_eq!(reply.head.all("date").count(), 1, "{:?}", reply.head.headers);
    }
    for target in ["/v1/models", "/nowhere"] {
        assert_eq!(pair.get(target).head.all("server").collect::<Vec<_>>(), ["llmgw"], "{target}");
    }
}

/// Trial H7, credentials.
#[test]
fn a_clients_credentials_stay_here_and_the_engine_sees_only_its_own_key() {
    let engine = Engine::local_with(|cfg| cfg.api_key = Some("engine-secret".to_owned()));
    let plain = Engine::local();
    let keyed = format!(
        "{{ name: keyed, url: \"{}\", model: keyed, served_as: test-model, engine: sim, api_key_env: TRIAL_ENGINE_KEY }}",
        engine.url()
    );
    let gateway =
        Gateway::builder().engine(&plain).endpoint(&keyed).env("TRIAL_ENGINE_KEY", "engine-secret").start(llmgw());
    let secrets = [
        ("Authorization", "Bearer client-secret"),
        ("Cookie", "session=client-secret"),
        ("x-api-key", "client-secret"),
        ("api-key", "client-secret"),
        ("OpenAI-Api-Key", "client-secret"),
        ("Proxy-Authorization", "Basic client-secret"),
    ];
    for (engine, model, key) in [(&engine, "keyed", Some("Bearer engine-secret")), (&plain, "test-model", None)] {
        let request = Request::new("POST", CHAT).header("Connection", "close");
        let request = secrets.iter().fold(request, |request, (name, value)| request.header(name, value));
        let request = request.json(&chat("hello").model(model).json());
        let reply = llmgw_test_kit::raw::call(gateway.addr(), &request.bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let call = engine.only_call();
        assert!(call.headers.iter().all(|(_, value)| !value.contains("client-secret")), "{:?}", call.headers);
        let keys: Vec<&str> = call
            .headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(keys, Vec::from_iter(key));
    }
}

/// Trial H7, targets.
#[test]
fn no_header_and_no_authority_of_a_client_chooses_where_a_request_goes() {
    let pair = Pair::shared();
    let trap = Engine::local();
    let (own, evil) = (pair.engine.addr().to_string(), trap.addr().to_string());
    let body = chat("hello").json();
    let absolute = format!("http://{evil}{CHAT}?x=1");
    let requests = [
        Request::new("POST", CHAT).header("x-llmgw-upstream", format!("http://{evil}/")),
        Request::new("POST", CHAT).header("X-Forwarded-Host", &evil).header("Forwarded", format!("host={evil}")),
        Request::bare("POST", CHAT, "HTTP/1.1").header("Host", "evil"),
        Request::bare("POST", CHAT, "HTTP/1.1").header("Host", &evil),
        Request::bare("POST", &absolute, "HTTP/1.1").header("Host", &evil),
        Request::bare("POST", &absolute.replace("http", "HTTP"), "HTTP/1.1").header("Host", "other"),
    ];
    for request in requests {
        let reply = pair.send(request.json(&body));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let call = pair.call_of(&reply);
        assert_eq!(call.header("host"), Some(own.as_str()));
        assert!(call.target.starts_with(CHAT), "{}", call.target);
        assert!(call.header("x-llmgw-upstream").is_none(), "{:?}", call.headers);
    }
    let redirected = chat("hello").faults(json!({ "redirect": format!("{}{CHAT}", trap.url()) })).json();
    let reply = pair.post(CHAT, &redirected);
    assert_eq!((error_of(&reply).0, error_of(&reply).1.as_str()), (502, Some("engine_redirect")));
    assert_eq!(reply.header("location"), None);
    assert!(trap.requests().is_empty(), "{:?}", trap.requests());
}

const OWNED: [&str; 8] = [
    "x-request-id",
    "x-llmgw-replica",
    "x-llmgw-pool",
    "x-llmgw-served-model",
    "x-llmgw-overhead-us",
    "x-llmgw-cache-decision",
    "x-llmgw-anything",
    "X-LLMGW-Key",
];

/// Trial H8, from the client.
#[test]
fn headers_of_this_gateway_are_replaced_when_a_client_sends_them() {
    let pair = Pair::shared();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let twice = [("traceparent", trace), ("Traceparent", trace), ("tracestate", "a=b")];
    let spoofed = OWNED.map(|name| (name, "spoof"));
    let reply = pair.send(ask(&[&spoofed[..], &spoofed, &twice, &[("Connection", "close")]].concat()));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let call = pair.call_of(&reply);
    for name in OWNED {
        let values: Vec<&String> =
            call.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect();
        assert!(!values.iter().any(|value| *value == "spoof"), "{name}: {values:?}");
        assert_eq!(values.len(), usize::from(name == "x-request-id"), "{name}");
    }
    assert_eq!((call.header("traceparent"), call.header("tracestate")), (None, None));
    assert_ours(&reply);

    let once = pair.send(ask(&[twice[0], twice[2], ("Connection", "close")]));
    let call = pair.call_of(&once);
    assert_eq!((call.header("traceparent"), call.header("tracestate")), (Some(trace), Some("a=b")));
}

/// Trial H8, from the engine.
#[test]
fn headers_of_this_gateway_are_replaced_when_an_engine_sends_them() {
    let pair = Pair::shared();
    let headers: Vec<Value> = OWNED.iter().map(|name| json!([name, "spoof"])).collect();
    for body in [chat("hello").json(), chat("hello").streamed().json()] {
        let request = Request::new("POST", CHAT).header("Connection", "close");
        let reply = pair.send(request.header("x-sim", json!({ "headers": headers }).to_string()).json(&body));
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_ours(&reply);
    }
}

/// The headers by which a client learns who answered it.
#[track_caller]
fn assert_ours(reply: &Reply) {
    for (name, value) in
        [("x-llmgw-replica", "engine-0"), ("x-llmgw-pool", "none/unknown"), ("x-llmgw-served-model", "test-model")]
    {
        assert_eq!(reply.head.all(name).collect::<Vec<_>>(), [value], "{name}");
    }
    let overheads: Vec<u64> = reply.head.all("x-llmgw-overhead-us").filter_map(|value| value.parse().ok()).collect();
    assert!(overheads.len() == 1 && overheads[0] < 10_000_000, "{:?}", reply.head.headers);
    let ids: Vec<&str> = reply.head.all("x-request-id").collect();
    assert!(ids.len() == 1 && ids[0].len() >= 16 && ids[0] != "spoof", "{ids:?}");
    let others = reply.head.headers.iter().filter(|(name, _)| name.to_ascii_lowercase().starts_with("x-llmgw-"));
    assert_eq!(reply.head.all("x-llmgw-queue-ms").count(), 1);
    assert_eq!(reply.head.all("x-llmgw-cache-decision").filter(|word| *word != "spoof").count(), 1);
    assert_eq!(others.count(), 6, "{:?}", reply.head.headers);
}

#[test]
fn every_request_has_an_id_of_its_own_in_the_reply_at_the_engine_and_in_the_log() {
    let mut pair = Pair::with(|_| (), |gateway| gateway.arg("--log-level").arg("debug"));
    let mut connection = pair.connect();
    let mut replies = Vec::new();
    for round in 0..50 {
        let body = if round % 2 == 0 { chat("hello").json() } else { chat("hello").streamed().json() };
        connection.send(&Request::new("POST", CHAT).json(&body).bytes()).expect("sent");
        replies.push(connection.reply().expect("an answer"));
    }
    replies.push(pair.get("/nowhere"));
    replies.push(pair.post_text(CHAT, "{"));
    let id = |reply: &Reply| reply.header("x-request-id").expect("an id").to_owned();
    let ids: BTreeSet<String> = replies.iter().map(id).collect();
    assert_eq!(ids.len(), replies.len());
    let at_engine: BTreeSet<String> =
        pair.engine.calls().iter().filter_map(|call| call.header("x-request-id").map(str::to_owned)).collect();
    assert_eq!(at_engine.len(), 50);
    assert!(at_engine.is_subset(&ids));

    let process = pair.gateway.process();
    let lines = wait_for_some("a log line for each request", WITHIN, || {
        let lines: Vec<String> =
            process.lines().into_iter().filter(|line| line.source == Source::Stderr).map(|line| line.text).collect();
        ids.iter().all(|id| lines.iter().any(|line| line.contains(id.as_str()))).then_some(lines)
    });
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in the log line {line}")))
        .collect();
    let of = |reply: &Reply| {
        let own: Vec<&Value> = lines.iter().filter(|line| line["request_id"] == id(reply)).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        own[0]
    };
    for reply in &replies {
        assert_eq!(of(reply)["status"], reply.status);
    }
    let (whole, streamed, unknown, refused) = (of(&replies[0]), of(&replies[1]), of(&replies[50]), of(&replies[51]));
    assert_eq!((&whole["route"], &whole["model"]), (&json!(CHAT), &json!("test-model")));
    assert_eq!((&whole["replica"], &whole["is_streamed"]), (&json!("engine-0"), &json!(false)));
    let used = |line: &Value, kind: &str| line[kind].as_u64().unwrap_or(0);
    assert!(used(whole, "prompt_tokens") > 0 && used(whole, "completion_tokens") > 0, "{whole}");
    assert!(streamed["is_streamed"] == true && used(streamed, "completion_tokens") > 0, "{streamed}");
    assert_eq!((&unknown["route"], &unknown["reason"]), (&json!("other"), &json!("unknown_url")));
    assert_eq!(refused["reason"], "bad_request");
    drop(connection);
    pair.gateway.finish(&[]);
}

#[test]
fn at_the_usual_level_the_log_tells_failures_only() {
    let mut pair = Pair::own();
    let good = pair.post(CHAT, &chat("hello").json());
    let bad = pair.post(CHAT, &chat("hello").faults(json!({ "status": 500 })).json());
    assert_eq!((good.status, bad.status), (200, 500));
    let id = |reply: &Reply| reply.header("x-request-id").expect("an id").to_owned();
    let (good, bad) = (id(&good), id(&bad));
    let process = pair.gateway.process();
    process
        .wait_for_line("the failure's line", WITHIN.max(Duration::from_secs(1)), |line| {
            line.text.contains(bad.as_str()).then_some(())
        })
        .expect("a line");
    assert!(!process.lines().iter().any(|line| line.text.contains(good.as_str())));
}
