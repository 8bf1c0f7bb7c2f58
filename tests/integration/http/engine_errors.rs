//! What a client gets of an engine that refuses, fails, or talks nonsense.

use llmgw_test_kit::raw::Reply;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, chat};
use serde_json::{Value, json};

use crate::pair::{CHAT, Pair, error_of, llmgw};

/// Both ways to ask, with these faults.
fn ask(pair: &Pair, faults: &Value) -> [Reply; 2] {
    [chat("hello").json(), chat("hello").streamed().json()].map(|body| {
        let request = Request::new("POST", CHAT).header("Connection", "close").header("x-sim", faults.to_string());
        pair.send(request.json(&body))
    })
}

#[test]
fn errors_in_the_known_shape_pass_unchanged() {
    let pair = Pair::shared();
    for (status, body) in [
        (400, r#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#),
        (422, r#"{ "object":"error", "error" : {"message":"é \u00e9","param":null} , "x":1.0}"#),
        (429, r#"{"error":{"message":"slow down","type":"rate_limit_error","code":"x"}}"#),
        (500, r#"{"error":{}}"#),
        (503, r#"{"error":{"message":"loading"}}"#),
    ] {
        for reply in ask(&pair, &json!({ "status": status, "body": body })) {
            assert_eq!((reply.status, reply.text().as_str()), (status, body));
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert_eq!(reply.header("x-llmgw-replica"), Some("engine-0"));
            assert_eq!(pair.calls_of(&reply).len(), 1, "{status} is not tried again");
        }
    }
}

#[test]
fn errors_in_any_other_shape_are_wrapped_with_their_message_and_status() {
    let pair = Pair::shared();
    let html = "<html><body>Bad \"Gateway\"\n</body></html>";
    for (status, content_type, body, message) in [
        (404, "application/json", r#"{"detail":"Not Found"}"#, "Not Found"),
        (422, "application/json", r#"{"detail":[{"loc":["body","n"],"msg":"too small"}]}"#, "too small"),
        (400, "application/json", r#"{"object":"error","message":"too long","code":400}"#, "too long"),
        (400, "application/json", r#"{"error":"text only"}"#, "text only"),
        (502, "text/html", html, "Bad \"Gateway\""),
        (500, "text/plain", "Internal Server Error", "Internal Server Error"),
        (503, "text/plain", "", "503"),
        (500, "application/json", "{\"error\":{\"message\":\"cut", "cut"),
    ] {
        let faults = json!({ "status": status, "body": body, "content_type": content_type });
        for reply in ask(&pair, &faults) {
            assert_eq!(error_of(&reply).0, status, "{body}");
            assert_eq!(reply.header("content-type"), Some("application/json"), "{body}");
            let said = reply.json()["error"]["message"].as_str().unwrap_or("").to_owned();
            assert!(said.contains(message), "{body}: {said}");
        }
    }
}

#[test]
fn how_long_to_wait_is_passed_on() {
    let pair = Pair::shared();
    for faults in [
        json!({ "status": 429, "retry_after_s": 7 }),
        json!({ "status": 503, "retry_after_s": 7, "body": "busy", "content_type": "text/plain" }),
    ] {
        for reply in ask(&pair, &faults) {
            assert_eq!(
                (u64::from(reply.status), reply.header("retry-after")),
                (faults["status"].as_u64().unwrap_or(0), Some("7"))
            );
        }
    }
}

#[test]
fn a_refused_engine_key_is_our_fault_not_the_clients() {
    let pair = Pair::shared();
    for status in [401, 403] {
        for reply in ask(&pair, &json!({ "status": status, "headers": [["WWW-Authenticate", "Bearer"]] })) {
            let (status, code, _) = error_of(&reply);
            assert_eq!((status, code.as_str()), (502, Some("engine_auth")));
            assert_eq!(reply.header("www-authenticate"), None);
        }
    }
}

#[test]
fn an_answer_that_is_no_http_is_a_502_and_the_next_request_is_served() {
    let pair = Pair::shared();
    for head in [
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/3.0 200 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ] {
        for reply in ask(&pair, &json!({ "framing": "raw", "script": [head] })) {
            let (status, code, _) = error_of(&reply);
            assert_eq!((status, code.as_str()), (502, Some("engine_malformed")), "{head:?}");
        }
        assert_eq!(pair.post(CHAT, &chat("next").json()).status, 200, "{head:?}");
    }
}

#[test]
fn an_answer_that_ends_in_its_head_or_before_is_a_502() {
    let pair = Pair::shared();
    for start in ["", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 100 Continue\r\n\r\n"] {
        for reply in ask(&pair, &json!({ "framing": "raw", "script": [start] })) {
            let (status, code, _) = error_of(&reply);
            assert_eq!((status, code.as_str()), (502, Some("engine_closed")), "{start:?}");
        }
    }
}

#[test]
fn an_engine_that_left_is_a_502_that_names_it_but_not_where_it_is() {
    let engine = Engine::local();
    let gateway = Gateway::builder().engine(&engine).router("scrape_interval: 1h").start(llmgw());
    let addr = engine.addr();
    engine.stop();
    let reply = llmgw_test_kit::raw::post(gateway.addr(), CHAT, &chat("hello").json());
    assert!(matches!(reply.status, 502 | 503), "{}", reply.text());
    let code = error_of(&reply).1;
    assert!(matches!(code.as_str(), Some("engine_unreachable" | "no_endpoint")), "{}", reply.text());
    assert!(reply.text().contains("engine-0") && !reply.text().contains(&addr.port().to_string()), "{}", reply.text());
}
