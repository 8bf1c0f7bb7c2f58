//! The recording and the control routes.

use llmgw_engine_sim::EngineConfig;
use serde_json::{Value, json};

use crate::support::{Client, chat, config, immediate, start};

#[test]
fn the_recording_shows_requests_as_they_arrived() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let body = "{\"model\": \"tiny\",\n \"max_tokens\": 1.0, \"x\":\"\\u00e9é\", \"messages\": [{\"content\": \"a\"}]}";
    client.start_post("/v1/chat/completions?api-version=1", "X-oDD: one\r\nx-odd: two\r\n", body);
    client.reply();
    let seen = client.get("/sim/requests").json()["requests"][0].clone();
    assert_eq!((&seen["method"], &seen["target"]), (&json!("POST"), &json!("/v1/chat/completions?api-version=1")));
    assert_eq!(seen["body_text"], body);
    let headers: Vec<&Value> = seen["headers"].as_array().unwrap().iter().collect();
    assert!(headers.contains(&&json!(["X-oDD", "one"])) && headers.contains(&&json!(["x-odd", "two"])));
    assert_eq!(headers[0], &json!(["Host", "sim"]));
    assert_eq!((&seen["outcome"], &seen["status"]), (&json!("complete"), &json!(200)));
    assert_eq!(seen["client_closed_at_ns"], Value::Null);
    let written = seen["bytes_written"].as_u64().unwrap();
    assert!(written > 700, "{written}");
    let order = ["received_at_ns", "first_byte_at_ns", "ended_at_ns"].map(|name| seen[name].as_u64().unwrap());
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(engine.requests()[0].header("X-ODD"), Some("one"));
}

#[test]
fn only_the_newest_requests_are_kept_and_control_routes_are_not_recorded() {
    let engine = start(EngineConfig { recorded_requests_max: 3, ..config() });
    let mut client = Client::connect(&engine);
    for _ in 0..5 {
        client.chat(&chat(false));
    }
    let seqs = |reply: Value| -> Vec<u64> {
        reply["requests"].as_array().unwrap().iter().map(|request| request["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(seqs(client.get("/sim/requests").json()), [2, 3, 4]);
    assert_eq!(seqs(client.get("/sim/requests?since=3&limit=1").json()), [3]);
    let bare = client.get("/sim/requests?body=none&since=4").json();
    assert_eq!(
        (&bare["requests"][0]["body_text"], bare["requests"][0]["body_bytes"].as_u64().is_some()),
        (&json!(""), true)
    );
    assert_eq!(client.get("/sim/requests?since=x").status, 400);
    assert_eq!(client.post("/sim/reset", "").status, 200);
    assert_eq!(seqs(client.get("/sim/requests").json()), [0; 0]);
    let state = client.get("/sim/state").json();
    assert_eq!((&state["received_requests"], &state["open_connections"]), (&json!(5), &json!(1)));
    assert_eq!(state["totals"]["generation_tokens"], 25);
}

#[test]
fn faults_metrics_models_and_pace_change_at_run_time() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let change = |client: &mut Client, body: Value| client.post("/sim/config", &body.to_string()).status;
    assert_eq!(change(&mut client, json!({ "faults": { "status": 503, "retry_after_s": 2 } })), 200);
    assert_eq!(client.chat(&chat(false)).header("retry-after"), Some("2"));
    assert_eq!(change(&mut client, json!({ "faults_overlay": { "status": 429 } })), 200);
    assert_eq!(client.chat(&chat(false)).header("retry-after"), Some("2"));
    assert_eq!(change(&mut client, json!({ "faults": {} })), 200);
    assert_eq!(client.chat(&chat(false)).status, 200);

    assert_eq!(change(&mut client, json!({ "metrics_text": "x NaN\n# EOF" })), 200);
    assert_eq!(client.get("/metrics").text(), "x NaN\n# EOF");
    assert_eq!(change(&mut client, json!({ "metrics_text": null })), 200);
    assert!(client.get("/metrics").text().starts_with("# HELP vllm:"));

    assert_eq!(change(&mut client, json!({ "models": ["other"], "pace": { "tokens_per_second": 9.0 } })), 200);
    assert_eq!(client.chat(&chat(false)).status, 404);
    let cfg = client.get("/sim/config").json();
    assert_eq!((&cfg["models"], &cfg["batch"]["pace"]["tokens_per_second"]), (&json!(["other"]), &json!(9.0)));
    let again: EngineConfig = serde_json::from_value(cfg).unwrap();
    assert_eq!(again.models, ["other"]);
}

#[test]
fn a_change_with_a_mistake_changes_nothing() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    for body in [
        r#"{"faults":{"status":500},"metric_text":"x"}"#,
        r#"{"faults":{"staus":500}}"#,
        r#"{"faults":{"status":500},"metrics_text":5}"#,
        r#"{"faults":{"status":500},"models":[]}"#,
        "",
    ] {
        assert_eq!(client.post("/sim/config", body).status, 400, "{body}");
        assert_eq!(client.chat(&chat(false)).status, 200, "{body}");
    }
    assert_eq!(client.get("/sim/nothing").status, 404);
}
