//! What the API says: words, counts, choices, tools, stops, embeddings, keys, metrics.

use llmgw_engine_sim::{EngineConfig, Vocabulary};
use serde_json::{Value, json};

use crate::support::{Client, chat, config, immediate, start};

fn ask(client: &mut Client, path: &str, body: &Value) -> Value {
    let reply = client.post(path, &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn hello(more: &Value) -> Value {
    let mut body = json!({ "model": "tiny", "max_tokens": 8, "messages": [{ "role": "user", "content": "hello" }] });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn the_same_prompt_gets_the_same_words_streamed_or_whole_on_any_engine() {
    let (one, two) = (immediate(), immediate());
    let (mut one, mut two) = (Client::connect(&one), Client::connect(&two));
    let whole = one.chat(&chat(false)).json();
    let said = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(said.len(), 20);
    assert_eq!(two.chat(&chat(true)).said(0), said);
    let other = ask(&mut one, "/v1/chat/completions", &hello(&json!({ "seed": 5 })));
    assert_ne!(other["choices"][0]["message"]["content"], whole["choices"][0]["message"]["content"]);
}

#[test]
fn a_stream_may_send_some_tokens_in_one_event_but_the_first_at_once() {
    let engine = start(EngineConfig { stream_interval: 3, ..config() });
    let reply = Client::connect(&engine).chat(&chat(true));
    let said = |event: &Value| event["choices"][0]["delta"]["content"].as_str().map(|text| text.len() / 4);
    let tokens: Vec<usize> = reply.events().iter().filter_map(said).collect();
    assert_eq!(tokens, [0, 1, 3, 1], "{}", reply.text());
    assert_eq!(reply.said(0), Client::connect(&immediate()).chat(&chat(true)).said(0));
}

#[test]
fn choices_differ_and_are_counted_together() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let whole = ask(&mut client, "/v1/chat/completions", &hello(&json!({ "n": 3 })));
    let said: Vec<&str> =
        whole["choices"].as_array().unwrap().iter().map(|c| c["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(said.len(), 3);
    assert!(said[0] != said[1] && said[1] != said[2] && said[0] != said[2]);
    assert_eq!(whole["usage"]["completion_tokens"], 24);
    let streamed = client.chat(&hello(&json!({ "n": 3, "stream": true })).to_string());
    for (idx, said) in said.iter().enumerate() {
        assert_eq!(streamed.said(idx as u64), *said);
    }
}

#[test]
fn a_stop_string_ends_the_answer_before_it() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let plain = ask(&mut client, "/v1/chat/completions", &hello(&json!({})));
    let said = plain["choices"][0]["message"]["content"].as_str().unwrap();
    // Across the border of two words, so that no single token holds it.
    let stop = &said[10..14];
    let end = said.find(stop).unwrap();
    for stops in [json!(stop), json!(["never said", stop])] {
        let body = hello(&json!({ "stop": stops }));
        let choice = ask(&mut client, "/v1/chat/completions", &body)["choices"][0].clone();
        assert_eq!(choice["message"]["content"], said[..end]);
        assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), &json!(stop)));
        let mut body = body;
        body["stream"] = true.into();
        assert_eq!(client.chat(&body.to_string()).said(0), said[..end]);
    }
}

#[test]
fn a_forced_tool_is_called_with_arguments_that_are_json() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let tools = json!([{ "type": "function", "function": { "name": "get_price", "parameters": {
        "type": "object", "properties": { "model": { "enum": ["a", "b"] }, "count": { "type": "integer" } } } } }]);
    let named = json!({ "type": "function", "function": { "name": "get_price" } });
    for (choice, reason) in [(named, "stop"), (json!("required"), "tool_calls")] {
        let mut body = hello(&json!({ "tools": tools, "tool_choice": choice, "max_tokens": 100 }));
        let whole = ask(&mut client, "/v1/chat/completions", &body);
        let call = &whole["choices"][0]["message"]["tool_calls"][0];
        assert_eq!(call["function"]["name"], "get_price");
        let arguments = call["function"]["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(arguments).unwrap(), json!({ "model": "a", "count": 7 }));
        assert_eq!(whole["choices"][0]["finish_reason"], reason);

        body["stream"] = true.into();
        let events = client.chat(&body.to_string()).events();
        let calls: Vec<&Value> = events
            .iter()
            .map(|event| &event["choices"][0]["delta"]["tool_calls"][0])
            .filter(|c| !c.is_null())
            .collect();
        assert_eq!(calls[0]["function"]["name"], "get_price");
        let streamed: String = calls.iter().filter_map(|c| c["function"]["arguments"].as_str()).collect();
        assert_eq!(streamed, arguments);
    }
    let other = json!({ "type": "function", "function": { "name": "other" } });
    let body = hello(&json!({ "tools": tools, "tool_choice": other }));
    assert_eq!(client.chat(&body.to_string()).status, 400);
    let body = hello(&json!({ "tools": tools, "tool_choice": "auto" }));
    assert_eq!(client.chat(&body.to_string()).json()["choices"][0]["message"]["content"].as_str().unwrap().len(), 32);
}

#[test]
fn completions_take_every_form_of_prompt() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    for (prompt, choices, tokens) in [
        (json!("one two"), 1, 2),
        (json!(["one two", "three"]), 2, 4),
        (json!([1, 2, 3]), 1, 3),
        (json!([[1, 2, 3], [4]]), 2, 4),
    ] {
        let whole = ask(&mut client, "/v1/completions", &json!({ "model": "tiny", "prompt": prompt, "max_tokens": 3 }));
        assert_eq!(whole["choices"].as_array().unwrap().len(), choices, "{prompt}");
        assert_eq!(whole["usage"]["prompt_tokens"], tokens, "{prompt}");
        let embedded = ask(&mut client, "/v1/embeddings", &json!({ "model": "tiny", "input": prompt }));
        assert_eq!(embedded["data"].as_array().unwrap().len(), choices, "{prompt}");
        assert_eq!(embedded["usage"]["prompt_tokens"], tokens, "{prompt}");
    }
    for prompt in [json!([]), json!(""), json!({}), json!(5), json!([[]])] {
        let reply = client.post("/v1/completions", &json!({ "prompt": prompt }).to_string());
        assert_eq!(reply.status, 400, "{prompt}");
    }
}

#[test]
fn embeddings_are_the_same_as_numbers_and_as_base64() {
    let engine = start(EngineConfig { embedding_dims: 2, ..config() });
    let mut client = Client::connect(&engine);
    let body = json!({ "model": "tiny", "input": "hello" });
    let numbers = ask(&mut client, "/v1/embeddings", &body)["data"][0]["embedding"].clone();
    assert_eq!(numbers.as_array().unwrap().len(), 2);
    let mut body = body;
    body["encoding_format"] = "base64".into();
    let text = ask(&mut client, "/v1/embeddings", &body)["data"][0]["embedding"].clone();
    assert_eq!(text.as_str().unwrap().len(), 12);
    body["encoding_format"] = "odd".into();
    assert_eq!(client.post("/v1/embeddings", &body.to_string()).status, 400);
}

#[test]
fn a_repeated_prefix_is_told_as_cached() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let long = "all work and no play makes a dull engine ".repeat(20);
    let body = hello(&json!({ "messages": [{ "role": "user", "content": long }] }));
    let cached = |whole: &Value| whole["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(&ask(&mut client, "/v1/chat/completions", &body)), 0);
    let again = ask(&mut client, "/v1/chat/completions", &body);
    let prompt = again["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(cached(&again), (prompt - 1) / 16 * 16);
    let mut salted = body;
    salted["cache_salt"] = "other".into();
    assert_eq!(cached(&ask(&mut client, "/v1/chat/completions", &salted)), 0);
}

#[test]
fn the_next_turn_of_a_chat_finds_the_answer_before_it() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let mut messages = vec![json!({ "role": "user", "content": "tell me a story" })];
    let first = ask(&mut client, "/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 100 }));
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    messages.push(json!({ "role": "assistant", "content": first["choices"][0]["message"]["content"] }));
    messages.push(json!({ "role": "user", "content": "and then?" }));
    let second = ask(&mut client, "/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 1 }));
    // The last token of an answer is not computed before it is needed.
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], (prompt + 99) / 16 * 16);
}

#[test]
fn a_key_is_asked_for_under_v1_only() {
    let engine = start(EngineConfig { api_key: Some("secret".to_owned()), ..config() });
    let mut client = Client::connect(&engine);
    for (header, status) in [
        ("", 401),
        ("Authorization: Bearer wrong\r\n", 401),
        ("Authorization: secret\r\n", 401),
        ("Authorization: bearer secret\r\n", 200),
        ("Authorization: Bearer secret\r\n", 200),
    ] {
        client.start_post("/v1/chat/completions", header, &chat(false));
        let reply = client.reply();
        assert_eq!(reply.status, status, "{header}");
        if status == 401 {
            assert_eq!(reply.json(), json!({ "error": "Unauthorized" }));
        }
    }
    assert_eq!(client.get("/v1/models").status, 401);
    assert_eq!([client.get("/health").status, client.get("/metrics").status], [200, 200]);
}

#[test]
fn model_names_with_slashes_and_escapes_are_found() {
    let names = ["org/m:7b@q4", "a%2Fb", "模型"].map(str::to_owned);
    let engine = start(EngineConfig { models: names.to_vec(), ..config() });
    let mut client = Client::connect(&engine);
    for (path, id) in [
        ("org/m:7b@q4", "org/m:7b@q4"),
        ("org%2Fm%3A7b%40q4", "org/m:7b@q4"),
        ("a%252Fb", "a%2Fb"),
        ("%E6%A8%A1%E5%9E%8B", "模型"),
    ] {
        assert_eq!(client.get(&format!("/v1/models/{path}")).json()["id"], id, "{path}");
    }
    let missing = client.get("/v1/models/%zz%");
    assert_eq!((missing.status, &missing.json()["error"]["type"]), (404, &json!("NotFoundError")));
    let reply = client.chat(r#"{"model":"模型","max_tokens":1,"messages":[{"role":"user","content":"x"}]}"#);
    assert_eq!(reply.json()["model"], "模型");
}

#[test]
fn null_counts_as_absent_and_large_numbers_pass() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    for body in [
        r#"{"stream":null,"logprobs":null,"n":null,"stop":null,"max_tokens":2,"messages":[{"content":null}]}"#,
        r#"{"seed":9007199254740993,"max_tokens":2.0,"min_tokens":0,"messages":[{"content":"x"}],"tools":[{}]}"#,
        r#"{"seed":1e30,"max_completion_tokens":2,"odd":1e400,"messages":[{"content":"\ud800"}]}"#,
    ] {
        let reply = client.chat(body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.text());
        assert_eq!(reply.json()["usage"]["completion_tokens"], 2, "{body}");
    }
}

#[test]
fn broken_bodies_are_refused_and_never_more_than_that() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let deep = format!(r#"{{"messages":{}"#, "[".repeat(10_000));
    let deep_whole = format!(r#"{{"messages":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    for body in ["", "[]", "{", "nul", "{}x", "\u{feff}{}", r#"{"model":7}"#, r#"{"stream":"yes"}"#, &deep, &deep_whole]
    {
        assert_eq!(client.chat(body).status, 400, "{}", &body[..body.len().min(40)]);
        assert_eq!(client.post("/v1/embeddings", body).status, 400);
    }
}

#[test]
fn a_request_id_comes_back_and_names_the_answer() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_post("/v1/chat/completions", "X-Request-Id: req-1\r\n", &chat(false));
    let reply = client.reply();
    assert_eq!(reply.header("x-request-id"), Some("req-1"));
    assert_eq!(reply.json()["id"], "chatcmpl-req-1");
}

#[test]
fn metrics_speak_each_engines_words() {
    for (vocabulary, names) in [
        (
            Vocabulary::Vllm,
            &[
                "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0.0\n",
                "vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 0.0\n",
                "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.0\n",
                "vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 5.0\n",
                "vllm:prefix_cache_queries_total{",
                "vllm:prefix_cache_hits_total{",
                "vllm:cache_config_info{block_size=\"16\"",
                "finished_reason=\"length\",model_name=\"tiny\"} 1.0\n",
            ][..],
        ),
        (Vocabulary::Sglang, &["sglang:num_running_reqs{", "sglang:num_queue_reqs{", "sglang:token_usage{"]),
        (Vocabulary::Llamacpp, &["llamacpp:requests_processing 0.0\n", "llamacpp:requests_deferred 0.0\n"]),
    ] {
        let engine = start(EngineConfig { vocabulary, ..config() });
        let mut client = Client::connect(&engine);
        client.chat(&chat(false));
        let page = client.get("/metrics").text();
        for name in names {
            assert!(page.contains(name), "{name} in {page}");
        }
        assert!(page.ends_with('\n'));
    }
    let engine = start(EngineConfig { vocabulary: Vocabulary::Llamacpp, ..config() });
    assert_eq!(Client::connect(&engine).get("/health").json(), json!({ "status": "ok" }));
}

#[test]
fn running_and_waiting_are_told_while_they_last() {
    let mut cfg = config();
    cfg.batch.max_num_seqs = 2;
    cfg.batch.pace.tokens_per_second = 0.001;
    let engine = start(cfg);
    let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(&engine)).collect();
    for client in &mut clients {
        client.start_post("/v1/chat/completions", "", &chat(true));
    }
    crate::support::until("two run and three wait", || {
        let state = engine.state();
        (state.running, state.waiting) == (2, 3)
    });
    let page = Client::connect(&engine).get("/metrics").text();
    assert!(page.contains("vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 2.0\n"));
    assert!(page.contains("vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 3.0\n"));
    drop(clients);
    crate::support::until("all are gone", || engine.state().running + engine.state().waiting == 0);
}
