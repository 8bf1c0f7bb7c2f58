//! Bodies: refused with the field that is wrong, or passed on to the byte.

use std::time::Instant;

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::Reply;
use llmgw_test_kit::request::Request;
use serde_json::{Value, json};

use crate::pair::{CHAT, Pair, WITHIN, crc32, error_of};

/// Trial H12.
#[test]
fn a_body_that_is_no_request_is_a_400_that_says_what_is_wrong_and_no_engine_is_called() {
    let pair = Pair::own();
    let deep = format!("{{\"model\":\"test-model\",\"messages\":{}", "[".repeat(10_000));
    let deep_objects = format!("{{\"model\":\"test-model\",\"x\":{}", "{\"a\":".repeat(10_000));
    let cases: [(&str, &[u8], Option<&str>, &str); 21] = [
        ("empty", b"", None, "empty"),
        ("blank", b" \r\n\t", None, "empty"),
        ("a list", b"[]", None, "not a JSON object"),
        ("a string", b"\"x\"", None, "not a JSON object"),
        ("a number as model", b"{\"model\":7}", Some("model"), "model"),
        ("null as model", b"{\"model\":null}", Some("model"), "model"),
        ("an empty model", b"{\"model\":\"\"}", Some("model"), "model"),
        ("no model", b"{\"messages\":[]}", Some("model"), "model"),
        ("an empty object", b"{}", Some("model"), "model"),
        ("two models", b"{\"model\":\"test-model\",\"model\":\"b\"}", Some("model"), "second time"),
        ("a model twice, once escaped", b"{\"model\":\"test-model\",\"mod\\u0065l\":\"b\"}", Some("model"), "second"),
        ("a string as stream", b"{\"model\":\"test-model\",\"stream\":\"yes\"}", Some("stream"), "stream"),
        (
            "a list as stream options",
            b"{\"model\":\"test-model\",\"stream_options\":[]}",
            Some("stream_options"),
            "stream_options",
        ),
        ("depth 10,000", deep.as_bytes(), None, "nested too deeply"),
        ("depth 10,000 of objects", deep_objects.as_bytes(), None, "nested too deeply"),
        ("something behind", b"{\"model\":\"test-model\"} x", None, "not valid JSON at byte 23"),
        ("a second object", b"{\"model\":\"test-model\"}{}", None, "not valid JSON at byte 22"),
        ("a byte order mark", b"\xef\xbb\xbf{\"model\":\"test-model\"}", None, "byte order mark"),
        ("broken UTF-8", b"{\"model\":\"test-model\",\"x\":\"\xff\"}", None, "UTF-8 at byte 27"),
        ("no end", b"{\"model\":\"test-model\"", None, "not valid JSON"),
        ("a comma too much", b"{\"model\":\"test-model\",}", None, "not valid JSON"),
    ];
    let mut connection = pair.connect();
    for (what, body, param, words) in cases {
        for target in [CHAT, "/v1/completions", "/v1/embeddings"] {
            connection.send(&Request::new("POST", target).body("application/json", body).bytes()).expect("sent");
            let reply = connection.reply().unwrap_or_else(|error| panic!("{what}: {error}"));
            let (status, code, said) = error_of(&reply);
            assert_eq!(
                (status, code.as_str(), said.as_str()),
                (400, Some("bad_request"), param),
                "{what}: {}",
                reply.text()
            );
            assert!(reply.text().contains(words), "{what}: {}", reply.text());
        }
    }
    assert!(pair.engine.calls().is_empty(), "{:?}", pair.engine.calls());
}

/// Trial H12, the legal one.
#[test]
fn a_megabyte_of_lone_surrogate_escapes_passes_untouched() {
    let pair = Pair::own();
    let escapes = r"\ud800".repeat((1 << 20) / 6);
    let body = format!("{{\"model\":\"test-model\",\"messages\":[{{\"role\":\"user\",\"content\":\"{escapes}\"}}]}}");
    let reply = pair.post_text(CHAT, &body);
    let call = pair.call_of(&reply);
    assert_eq!((call.body_bytes, &call.body_crc32), (body.len() as u64, &crc32(body.as_bytes())));
}

fn tools() -> String {
    let mut tools = Vec::new();
    for number in 0..30 {
        tools.push(format!(
            "{{ \"type\" :\"function\",\n\t\"function\":{{\"zeta\":1,\"name\":\"tool_{number}\" , \"alpha\":1.0,\
             \"parameters\":{{\"type\":\"object\",\"properties\":{{\"b\":{{\"maximum\":1e2}},\"a\":{{}} }}}}}}}}"
        ));
    }
    tools.join(" ,\r\n ")
}

fn odd(more: &str) -> String {
    format!(
        "  {{\"unknown_field\" : {{ \"x\":[ ] }},\"tools\": [{}], \"temperature\":1.0,\"top_p\":1e2,{more}\"model\":\"test-model\",\
         \"messages\":[{{\"role\":\"user\",\"content\":\"\\u00e9 é \\/ / \\ud83e\\udd80 🦀\"}}]  }} \n",
        tools()
    )
}

/// Trial H13.
#[test]
fn an_engine_gets_the_bytes_the_client_sent() {
    let pair = Pair::shared();
    for body in
        [odd(""), odd("\"stream\":false , "), odd("\"stream\" :true,\"stream_options\":{ \"include_usage\":true },")]
    {
        let reply = pair.post_text(CHAT, &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(pair.call_of(&reply).body_text, Some(body));
    }
    // Asking for usage on the client's behalf adds one field and touches nothing else.
    let body = odd("\"stream\": true,");
    let reply = pair.post_text(CHAT, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let arrived = pair.call_of(&reply).body_text.expect("text");
    let added = "\"stream_options\":{\"include_usage\":true},";
    assert_eq!((arrived.matches(added).count(), arrived.replacen(added, "", 1)), (1, body));
}

/// Trial H14.
#[test]
fn no_number_is_rounded_on_its_way() {
    let pair = Pair::shared();
    let body = "{\"model\":\"test-model\",\"seed\":9007199254740993,\"x\":[1e400,-0.0,1E+2,0.10,123456789012345678901234567890],\
                \"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\
                \"arguments\":\"{\\\"n\\\":-9223372036854775808}\"}}]},{\"role\":\"user\",\"content\":\"-9223372036854775808\"}]}";
    let reply = pair.post_text(CHAT, body);
    let call = pair.call_of(&reply);
    assert_eq!(call.body_text.as_deref(), Some(body));
}

/// Trial H16.
#[test]
fn prompts_and_inputs_in_all_their_forms_are_forwarded_and_counted() {
    let pair = Pair::own();
    let forms = [json!("one two three"), json!(["one", "two three"]), json!([1, 2, 3, 4]), json!([[1, 2], [3, 4, 5]])];
    let mut prompt_tokens = 0;
    for (target, field) in [("/v1/completions", "prompt"), ("/v1/embeddings", "input")] {
        for form in &forms {
            let body = json!({ "model": "test-model", field: form, "max_tokens": 3 });
            let reply = pair.post(target, &body);
            assert_eq!(reply.status, 200, "{target} {form}: {}", reply.text());
            assert_eq!(pair.call_of(&reply).body_text, Some(body.to_string()));
            let said = reply.json()["usage"]["prompt_tokens"].as_u64().unwrap_or(0);
            assert!(said > 0, "{target} {form}: {}", reply.text());
            prompt_tokens += said;
        }
    }
    let counted = llmgw_test_kit::wait_for_some("the tokens on the metrics page", WITHIN, || {
        let counted = pair.gateway.metrics().sum("llmgw_tokens_total", &[("direction", "prompt")]).unwrap_or(0.0);
        (counted >= prompt_tokens as f64).then_some(counted)
    });
    assert_eq!(counted, prompt_tokens as f64);
}

/// Trial H17.
#[test]
fn null_is_absent_and_what_is_not_used_is_not_judged() {
    let pair = Pair::shared();
    let with = |fields: Value| {
        let mut body = chat("hello").json();
        let (into, from) = (body.as_object_mut().expect("an object"), fields);
        into.extend(from.as_object().expect("an object").clone());
        body
    };
    for fields in [
        json!({ "stream": null }),
        json!({ "stream": null, "stream_options": null }),
        json!({ "stream": false, "stream_options": null }),
        json!({ "logprobs": null, "tools": null, "tool_choice": null, "user": null }),
        json!({ "tools": [{ "type": "function", "function": { "name": "f" } }] }),
        json!({ "min_tokens": 0, "max_tokens": null, "n": null, "max_completion_tokens": null }),
        json!({ "prompt_cache_key": null, "cache_salt": null, "priority": null }),
        json!({ "anything": { "else": ["", {}, null] } }),
    ] {
        let body = with(fields);
        let reply = pair.post(CHAT, &body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"), "{body}");
        assert_eq!(pair.call_of(&reply).body_text, Some(body.to_string()));
    }
    // Fields that are wrong but not ours are for the engine to judge.
    for fields in [json!({ "max_tokens": "x" }), json!({ "n": -1 }), json!({ "user": 7 }), json!({ "messages": 1 })] {
        let reply = pair.post(CHAT, &with(fields));
        let _ = pair.call_of(&reply);
    }
    let streamed: Reply = pair.post(CHAT, &with(json!({ "stream": true, "stream_options": null })));
    assert_eq!(streamed.events().last().map(String::as_str), Some("data: [DONE]\n\n"));
    assert!(!streamed.text().contains("\"choices\":[]"), "{}", streamed.text());
}

#[test]
fn the_largest_body_passes_and_arrives_to_the_byte() {
    let pair = Pair::with(|cfg| cfg.body_held_bytes_max = 1 << 20, |gateway| gateway);
    let front = "{\"model\":\"test-model\",\"messages\":[{\"role\":\"user\",\"content\":\"";
    let back = "\"}]}";
    let letters = (64 << 20) - front.len() - back.len();
    let mut body = Vec::with_capacity(64 << 20);
    body.extend_from_slice(front.as_bytes());
    body.extend((0..letters).map(|at| b'a' + (at % 25 + at / 4096 % 2) as u8));
    body.extend_from_slice(back.as_bytes());
    assert_eq!(body.len(), 64 << 20);
    let began = Instant::now();
    let reply = pair.post_text(CHAT, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let call = pair.call_of(&reply);
    assert_eq!((call.body_bytes, &call.body_crc32), (64 << 20, &crc32(&body)), "after {:?}", began.elapsed());
}
