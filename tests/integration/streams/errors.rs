//! Errors of engines: one error object, its message and status kept, JSON whatever the engine wrote.

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::{self, End, Reply};
use serde_json::{Value, json};

use super::rig::{CHAT, DONE, Rig, builder, event, finish, llmgw, scripted_as};
use super::sse;

/// Asks the engine for an error, as a stream and as a whole answer; both must look the same.
#[track_caller]
fn refused(rig: &Rig, status: u16, body: &str) -> Reply {
    let faults = json!({ "status": status, "body": body, "retry_after_s": 7 });
    let replies = [chat("x").streamed(), chat("x")].map(|chat| rig.ask(chat.faults(faults.clone())));
    for reply in &replies {
        assert_eq!((reply.status, reply.end), (status, End::Complete), "{body}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{body}");
        assert_eq!(reply.header("transfer-encoding"), None, "{body}");
        assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()), "{body}");
        assert_eq!(reply.body, replies[0].body);
    }
    replies.into_iter().next().expect("two")
}

// S6
#[test]
fn a_refused_stream_gets_the_whole_error_as_json() {
    let rig = Rig::start();
    let message = "m".repeat(110);
    let body = json!({ "error": { "message": message, "type": "BadRequestError", "param": null, "code": 400 } });
    let body = body.to_string();
    assert!((175..=185).contains(&body.len()), "{}", body.len());
    assert_eq!(refused(&rig, 400, &body).text(), body);
    rig.finish();
}

// S7
#[test]
fn an_error_is_wrapped_once_and_keeps_its_message_and_status() {
    let rig = Rig::start();
    let own = r#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#;
    for status in [400, 404, 413, 422, 429, 500, 503] {
        assert_eq!(refused(&rig, status, own).text(), own, "{status}");
    }
    let foreign = [
        (r#"{"object":"error","message":"too long","code":400}"#, "too long"),
        (r#"{"detail":"too long"}"#, "too long"),
        (r#"{"error":"too long"}"#, "too long"),
        ("too long", "too long"),
        ("<html>too long</html>", "<html>too long</html>"),
        ("", "the engine answered 422 without a message"),
    ];
    for (body, message) in foreign {
        let json = refused(&rig, 422, body).json();
        assert_eq!(json["error"]["message"], message, "{body}");
        assert!(json["error"]["error"].is_null() && json["error"]["type"].is_string(), "{json}");
    }
    rig.finish();
}

#[test]
fn the_time_after_which_to_try_again_is_kept() {
    let rig = Rig::start();
    for body in [r#"{"error":{"message":"busy"}}"#, "busy"] {
        for status in [429, 503] {
            assert_eq!(refused(&rig, status, body).header("retry-after"), Some("7"), "{status} {body}");
        }
    }
    rig.finish();
}

// S9
#[test]
fn an_error_stays_json_whatever_its_cause_holds() {
    let rig = Rig::start();
    let cause = "a \"quoted\" cause\nwith a line, a tab\t, a \\ and \u{1} and 北京";
    let json = refused(&rig, 500, cause).json();
    assert_eq!(json["error"]["message"], cause);
    rig.finish();
}

// S9
#[test]
fn an_error_event_stays_one_event_of_json_whatever_the_replica_is_called() {
    let rig = Rig::start();
    rig.engine.configure(&json!({ "models": ["other", "test-model"] }));
    let endpoint = format!(r#"{{ name: 'the"best"\engine', url: "{}", model: other, engine: sim }}"#, rig.engine.url());
    let gateway = builder("").endpoint(&endpoint).start(llmgw());
    let body = scripted_as("close", json!([event("a")])).model("other").json();
    let reply = raw::post(gateway.addr(), CHAT, &body);
    let error = sse::last_error(&reply.body);
    assert!(error["message"].as_str().is_some_and(|text| text.contains(r#"the"best"\engine"#)), "{error}");
    finish(gateway);
    rig.finish();
}

#[test]
fn an_error_that_an_engine_writes_into_its_stream_passes_as_it_is() {
    let rig = Rig::start();
    let own =
        "data: {\"error\":{\"message\":\"out of \\\"memory\\\"\",\"type\":\"InternalServerError\",\"code\":500}}\n\n";
    for end in ["", DONE] {
        let text = [&event("a"), own, end].concat();
        let reply = rig.ask(scripted_as("chunked", json!([text])));
        assert_eq!(reply.text(), text);
    }
    rig.wait_for_ended(2);
    assert_eq!(rig.count("llmgw_broken_streams_total", &[]), 2);
    rig.finish();
}

#[test]
fn a_refused_key_and_a_redirect_are_told_as_the_engines_fault() {
    let rig = Rig::start();
    for (faults, code) in [
        (json!({ "status": 401 }), "engine_auth"),
        (json!({ "status": 403 }), "engine_auth"),
        (json!({ "redirect": "http://127.0.0.1:1/secret" }), "engine_redirect"),
    ] {
        let reply = rig.ask(chat("x").streamed().faults(faults));
        let json: Value = reply.json();
        assert_eq!((reply.status, &json["error"]["code"]), (502, &json!(code)));
        assert!(!reply.text().contains("127.0.0.1"), "{json}");
    }
    rig.finish();
}
