//! Models and paths by the names clients use for them.

use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, chat, wait_for};

use crate::pair::{CHAT, Pair, WITHIN, error_of, llmgw};

/// Trial H10.
#[test]
fn models_with_slashes_escapes_and_other_scripts_are_found_and_echoed() {
    const NAMES: [&str; 3] = ["org/m:7b@q4", "a%2Fb", "模型"];
    let engine = Engine::local_with(|cfg| cfg.models = NAMES.map(str::to_owned).to_vec());
    let models = NAMES.map(|name| format!("{{ name: \"{name}\" }}")).join(", ");
    let endpoint = format!("{{ name: e, url: \"{}\", engine: sim, models: [{models}] }}", engine.url());
    let gateway = Gateway::builder().endpoint(&endpoint).start(llmgw());
    let pair = Pair { gateway, engine };

    for name in NAMES {
        let reply = pair.post(CHAT, &chat("hello").model(name).json());
        assert_eq!((reply.status, reply.json()["model"].as_str()), (200, Some(name)));
        assert_eq!(reply.header("x-llmgw-served-model"), Some(name));
        assert_eq!(pair.call_of(&reply).json()["model"], name);
    }
    for (target, name) in [
        ("/v1/models/org/m:7b@q4", NAMES[0]),
        ("/v1/models/org%2Fm%3A7b%40q4", NAMES[0]),
        ("/v1/models/org%2fm:7b@q4?x=1", NAMES[0]),
        ("/v1/models/a%252Fb", NAMES[1]),
        ("/v1/models/模型", NAMES[2]),
        ("/v1/models/%E6%A8%A1%E5%9E%8B/", NAMES[2]),
    ] {
        let reply = pair.get(target);
        assert_eq!((reply.status, reply.json()["id"].as_str()), (200, Some(name)), "{target}");
    }
    let listed = pair.get("/v1/models").json();
    let listed: Vec<&str> =
        listed["data"].as_array().expect("a list").iter().filter_map(|m| m["id"].as_str()).collect();
    assert!(NAMES.iter().all(|name| listed.contains(name)) && listed.len() == 3, "{listed:?}");

    for name in NAMES {
        wait_for(&format!("{name} on the metrics page"), WITHIN, || {
            let metrics = pair.gateway.metrics();
            metrics.sum("llmgw_requests_total", &[("model", name), ("status", "200")]) == Some(1.0)
        });
    }
}

#[test]
fn a_model_that_is_not_there_is_a_404_that_lists_those_that_are() {
    let pair = Pair::shared();
    for reply in [pair.post(CHAT, &chat("hello").model("no\"such\nmodel").json()), pair.get("/v1/models/nothing")] {
        let (status, code, param) = error_of(&reply);
        assert_eq!((status, code.as_str(), param.as_str()), (404, Some("model_not_found"), Some("model")));
        assert!(reply.text().contains("test-model"), "{}", reply.text());
        assert!(pair.calls_of(&reply).is_empty());
    }
}

#[test]
fn an_alias_means_its_model_and_is_answered_by_it() {
    let pair = Pair::with(|_| (), |gateway| gateway.top("models: [{ name: test-model, aliases: [short, gpt-4o] }]"));
    for alias in ["short", "gpt-4o"] {
        let reply = pair.post(CHAT, &chat("hello").model(alias).json());
        assert_eq!((reply.status, reply.header("x-llmgw-served-model")), (200, Some("test-model")));
        assert_eq!(pair.call_of(&reply).json(), chat("hello").json());
        let shown = pair.get(&format!("/v1/models/{alias}"));
        assert_eq!((shown.status, shown.json()["id"].as_str()), (200, Some(alias)));
    }
    wait_for("both on the metrics page under the model's name", WITHIN, || {
        let metrics = pair.gateway.metrics();
        metrics.sum("llmgw_requests_total", &[("model", "test-model"), ("status", "200")]) == Some(2.0)
    });
}

#[test]
fn an_engine_that_knows_its_model_by_another_name_gets_that_name_and_nothing_else_changes() {
    let engine = Engine::local_with(|cfg| cfg.models = vec!["/models/served \"x\"".to_owned()]);
    let endpoint =
        format!("{{ name: e, url: \"{}\", model: m, served_as: '/models/served \"x\"', engine: sim }}", engine.url());
    let pair = Pair { gateway: Gateway::builder().endpoint(&endpoint).start(llmgw()), engine };
    let body = |model: &str| {
        format!(
            " {{ \"seed\" :9007199254740993,\t\"m\\u006fdel\"\n: {model} , \"x\":{{\"model\":\"m\"}}, \"temperature\":1.0,\
             \"messages\":[{{\"role\":\"user\",\"content\":\"model é \\u00e9\"}}] }}\r\n "
        )
    };
    for name in ["\"m\"", "\"\\u006d\""] {
        let reply = pair.post_text(CHAT, body(name));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let call = pair.call_of(&reply);
        assert_eq!(call.body_text, Some(body("\"/models/served \\\"x\\\"\"")));
        assert_eq!(reply.header("x-llmgw-served-model"), Some("m"));
    }
}

/// Trial H9.
#[test]
fn no_way_of_writing_a_path_leads_out_of_it() {
    let pair = Pair::shared();
    for target in [
        "/v1/models/..%2f..%2fadmin",
        "/v1/models/../../admin",
        "/v1//evil/x",
        "//evil/v1/models",
        "/v1/%2e%2e/metrics",
        "/v1/../metrics",
        "/v1/models/%00",
        "/v1/models/test-model%00",
        "/v1/models/..\\..\\admin",
        "/\\evil/v1/models",
        "/v1/chat/completions/../../../metrics",
        "/v1/chat/completions/%2e%2e",
        "/v1/chat%2fcompletions",
        "/metrics",
        "/admin",
        "/sim/requests",
        "/v1/models/%252e%252e",
    ] {
        for method in ["GET", "POST"] {
            let request = Request::new(method, target).header("Connection", "close");
            let request = if method == "POST" { request.json(&chat("hello").json()) } else { request };
            let reply = pair.send(request);
            assert!(matches!(reply.status, 400 | 404 | 405), "{method} {target}: {}", reply.status);
            assert!(!reply.text().contains("llmgw_") && pair.calls_of(&reply).is_empty(), "{method} {target}");
        }
    }
    for target in ["/v1/models/a\0b", "v1/models", "\\v1\\models", "ftp://a/v1/models", ""] {
        let reply = pair.send(Request::new("GET", target));
        assert_eq!(reply.status, 400, "{target:?}");
    }
    let seen: Vec<String> = pair.engine.requests().into_iter().map(|request| request.target).collect();
    let is_known = |target: &String| {
        let path = target.split('?').next().unwrap_or("");
        ["/health", "/metrics", "/version", "/v1/models", CHAT, "/v1/completions", "/v1/embeddings"].contains(&path)
    };
    assert!(seen.iter().all(is_known), "{seen:?}");
}

/// Trial H11.
#[test]
fn a_query_and_a_slash_at_the_end_change_no_route_and_the_query_is_forwarded() {
    let pair = Pair::shared();
    for (sent, arrived) in [
        ("/v1/chat/completions?api-version=1", "/v1/chat/completions?api-version=1"),
        ("/v1/chat/completions/?beta=true&x=%2F..%2f", "/v1/chat/completions?beta=true&x=%2F..%2f"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/chat/completions?", "/v1/chat/completions?"),
        ("/v1/chat/completions?a?b=/../c", "/v1/chat/completions?a?b=/../c"),
    ] {
        let reply = pair.post(sent, &chat("hello").json());
        assert_eq!(reply.status, 200, "{sent}: {}", reply.text());
        assert_eq!(pair.call_of(&reply).target, arrived, "{sent}");
    }
    for target in ["/v1/models", "/v1/models/", "/v1/models?x=y", "/v1/models/?x", "/v1/models/test-model/"] {
        assert_eq!(pair.get(target).status, 200, "{target}");
    }
}
