//! What is counted of a stream, and that asking for it on a client's behalf is never seen by the client.

use llmgw_test_kit::{Chat, chat};
use serde_json::{Value, json};

use super::rig::{DONE, Rig, event, scripted_as, usage_event};
use super::sse;

/// A streamed chat that generates 5 tokens, with `stream_options` set to this unless it is absent.
fn asking(options: Option<&Value>) -> Chat {
    let chat = chat("count me").streamed().max_tokens(5);
    match options {
        Some(options) => chat.field("stream_options", options.clone()),
        None => chat,
    }
}

pub(crate) fn check_every_form_of_the_usage_option(rig: &Rig) {
    let (mut ended, mut before) = (0, rig.tokens());
    let forms = [
        (None, false),
        (Some(json!({})), false),
        (Some(json!({ "include_usage": false })), false),
        (Some(json!({ "include_usage": true })), true),
        (Some(json!({ "include_usage": true, "continuous_usage_stats": true })), true),
        (Some(Value::Null), false),
    ];
    for (options, is_wanted) in forms {
        let reply = rig.ask(asking(options.as_ref()));
        let events = sse::data(&reply.body);
        assert_eq!(events.last().map(String::as_str), Some("[DONE]"), "{options:?}");
        let events: Vec<Value> = events
            .iter()
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).expect(data))
            .collect();
        let bare = events.iter().filter(|event| event["choices"].as_array().is_none_or(Vec::is_empty)).count();
        assert_eq!(bare, usize::from(is_wanted), "{options:?}: {events:?}");
        if is_wanted {
            let asked_for_all = options.as_ref().is_some_and(|options| options["continuous_usage_stats"] == true);
            assert_eq!(events[1]["usage"].is_object(), asked_for_all, "{options:?}");
        }
        ended += 1;
        rig.wait_for_ended(ended);
        let (after, calls) = (rig.tokens(), rig.engine.calls());
        let sent = calls.last().expect("a call").json();
        assert_eq!(sent["stream_options"]["include_usage"], true, "{options:?}");
        assert_eq!(after.1 - before.1, 5, "{options:?}");
        assert!(after.0 > before.0, "{options:?}");
        before = after;
    }
    assert_eq!(rig.usage_absent(), (0, 0));
}

// S14
#[test]
fn a_client_sees_the_usage_it_asked_for_and_every_stream_is_counted() {
    let rig = Rig::start();
    check_every_form_of_the_usage_option(&rig);
    rig.finish();
}

// S14
#[test]
fn an_engine_that_refuses_the_option_is_asked_once_more_without_and_not_again() {
    let rig = Rig::start();
    rig.engine.set_faults(json!({ "refuse_stream_options": true }));
    for calls in [2, 3, 4] {
        let reply = rig.ask(asking(None));
        assert_eq!((reply.status, reply.text().ends_with(DONE)), (200, true), "{}", reply.text());
        let seen = rig.engine.calls();
        assert_eq!(seen.len(), calls);
        assert!(seen[calls - 1].json().get("stream_options").is_none());
    }
    rig.wait_for_ended(3);
    assert_eq!((rig.count("llmgw_requests_total", &[("status", "200")]), rig.usage_absent()), (3, (3, 0)));
    // A client that asks for it itself is told.
    let reply = rig.ask(asking(Some(&json!({ "include_usage": true }))));
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"]["message"].as_str().is_some_and(|text| text.contains("stream_options")));
    // Another 400 is the client's, and is not tried again.
    rig.engine.set_faults(json!({}));
    let calls = rig.engine.calls().len();
    assert_eq!(rig.ask(chat("x").streamed().field("max_tokens", "many")).status, 400);
    assert_eq!(rig.engine.calls().len(), calls + 1);
    rig.finish();
}

#[test]
fn usage_is_asked_for_only_where_the_operator_wants_it() {
    let rig = Rig::with("", |builder| builder.router("inject_usage: false"));
    let reply = rig.ask(asking(None));
    assert_eq!(reply.status, 200);
    assert!(rig.engine.only_call().json().get("stream_options").is_none());
    rig.wait_for_ended(1);
    assert_eq!(rig.usage_absent(), (1, 0));
    rig.finish();
}

fn event_with(usage: &str) -> String {
    event("x").replacen("{\"id\"", &format!("{{\"usage\":{usage},\"id\""), 1)
}

// S15
#[test]
fn usage_in_parts_and_usage_in_running_totals_come_to_the_same() {
    let rig = Rig::start();
    let parts: Vec<String> = (1..=9)
        .map(|number| match number {
            1 => event_with(r#"{"prompt_tokens":100}"#),
            9 => event_with(r#"{"completion_tokens":7}"#),
            _ => event("x"),
        })
        .collect();
    let running = |prompt: u64| {
        let total = move |number| event_with(&format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":{number}}}"#));
        (1..=7).map(total).collect::<Vec<String>>()
    };
    let with_zeros = [event_with(r#"{"prompt_tokens":100,"completion_tokens":0}"#)];
    let with_zeros = with_zeros.into_iter().chain([event_with(r#"{"prompt_tokens":0,"completion_tokens":7}"#)]);
    let mut ended = 0;
    for events in [parts, running(100), with_zeros.collect(), [running(100), vec![usage_event(100, 7)]].concat()] {
        let script: Vec<String> = events.into_iter().chain([DONE.to_owned()]).collect();
        let reply = rig.ask(scripted_as("chunked", json!(script)).with_usage());
        assert_eq!(reply.text(), script.concat());
        ended += 1;
        rig.wait_for_ended(ended);
        assert_eq!(rig.tokens(), (100 * ended, 7 * ended), "{script:?}");
    }
    rig.finish();
}

// S16
#[test]
fn usage_that_makes_no_sense_is_passed_on_and_counted_as_such() {
    let rig = Rig::start();
    let nonsense = [
        "\"n/a\"",
        r#"{"prompt_tokens":"12"}"#,
        r#"{"prompt_tokens":-1}"#,
        r#"{"prompt_tokens":9223372036854775808}"#,
        r#"{"prompt_tokens":1e400}"#,
        r#"{"prompt_tokens":1.5}"#,
        r#"{"prompt_tokens":[1]}"#,
        "[]",
        "7",
        "null",
        "{}",
    ];
    let (mut ended, mut before) = (0, (0, 0));
    for usage in nonsense {
        let script = json!([event("a"), event_with(usage), DONE]);
        let text = [&event("a"), &event_with(usage), DONE].concat();
        assert_eq!(rig.ask(scripted_as("chunked", script)).text(), text, "{usage}");
        let body = format!(r#"{{"id":"c","choices":[],"usage":{usage}}}"#);
        assert_eq!(rig.ask(chat("x").faults(json!({ "body": body }))).text(), body, "{usage}");
        ended += 2;
        rig.wait_for_ended(ended);
        let (missing, absurd) = rig.usage_absent();
        assert_eq!(missing + absurd, ended, "{usage}: {missing} missing, {absurd} absurd");
        // The gateway's own count stands in: a quarter of the bytes, two events.
        let after = rig.tokens();
        let (prompt, completion) = (after.0 - before.0, after.1 - before.1);
        assert!((4..400).contains(&prompt) && (2..40).contains(&completion), "{usage}: {prompt} and {completion}");
        before = after;
    }
    assert_eq!(rig.usage_absent(), (4, ended - 4), "null and empty are missing, the rest is absurd");
    // What is a whole number counts, however it is written.
    let body = r#"{"id":"c","choices":[],"usage":{"prompt_tokens":1e3,"completion_tokens":2.0}}"#;
    assert_eq!(rig.ask(chat("x").faults(json!({ "body": body }))).text(), body);
    rig.wait_for_ended(ended + 1);
    let (tokens, absent) = (rig.tokens(), rig.usage_absent());
    assert!(tokens == (before.0 + 1000, before.1 + 2) || absent == (4, ended - 3), "{tokens:?} {absent:?}");
    rig.finish();
}
