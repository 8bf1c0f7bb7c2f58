//! Faults in what is answered: scripts, framings, statuses, heads, usage, compression.

use std::io::Read as _;

use llmgw_engine_sim::record::Outcome;
use serde_json::json;

use crate::support::{Client, Ending, chat, config, faulty, immediate, parse, start};

const SCRIPT: &str = r#""script":["data: a\n\n",["data: b\n\n",100],{"base64":"ZGF0YTogW0RPTkVdCgo="}]"#;
const SCRIPTED: &[u8] = b"data: a\n\ndata: b\n\ndata: [DONE]\n\n";

#[test]
fn a_script_is_written_to_the_letter_in_any_framing() {
    let engine = immediate();
    for (framing, chunks) in [("chunked", 3), ("chunked-bytes", SCRIPTED.len()), ("length", 1), ("close", 1)] {
        let mut client = Client::connect(&engine);
        let reply = client.chat_with(&format!(r#"{{"framing":"{framing}",{SCRIPT}}}"#), true);
        assert_eq!(reply.body(), SCRIPTED, "{framing}");
        assert_eq!(reply.chunks.len(), chunks, "{framing}");
        assert_eq!(reply.header("content-length").is_some(), framing == "length");
        if framing == "close" {
            assert_eq!(reply.header("connection"), Some("close"));
        } else {
            assert!(client.is_alive(), "{framing}");
        }
    }
}

#[test]
fn a_raw_script_is_the_whole_reply() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let raw =
        r#"{"framing":"raw","script":["HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n","abc"]}"#;
    client.start_chat_with(raw, true);
    let expected = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc".to_vec();
    assert_eq!(client.rest(), (expected, Ending::Closed));
}

#[test]
fn a_marker_in_the_prompt_asks_for_a_fault_and_the_header_wins_over_it() {
    let engine = faulty(r#"{"status":500}"#);
    let mut client = Client::connect(&engine);
    assert_eq!(client.chat(&chat(false)).status, 500);
    let marked = json!({ "messages": [{ "role": "user", "content": r#"x @@sim {"status":418} @@ y"# }] }).to_string();
    assert_eq!(client.chat(&marked).status, 418);
    client.start_post("/v1/chat/completions", "x-sim: {\"status\":503}\r\n", &marked);
    assert_eq!(client.reply().status, 503);
    client.start_post("/v1/chat/completions", "x-sim: {\"status\":null}\r\n", &marked);
    assert_eq!(client.reply().status, 200);
}

#[test]
fn a_fault_that_is_misspelt_is_named() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let reply = client.chat_with(r#"{"close_after_byte":1}"#, false);
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("close_after_byte"), "{}", reply.text());
}

#[test]
fn configured_faults_reach_inference_alone_unless_told_otherwise() {
    let engine = faulty(r#"{"status":500}"#);
    let mut client = Client::connect(&engine);
    assert_eq!([client.get("/health").status, client.get("/v1/models").status], [200, 200]);
    engine.set_faults(parse(r#"{"status":500,"reach":"all"}"#));
    assert_eq!([client.get("/health").status, client.get("/metrics").status], [500, 500]);
    assert_eq!(client.get("/sim/state").status, 200, "the control routes stay");
}

#[test]
fn a_chosen_status_body_and_headers_are_sent() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let own = r#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#;
    let faults = json!({ "status": 400, "body": own, "headers": [["X-A", "1"], ["server", "mine"], ["X-A", "2"]] });
    let reply = client.chat_with(&faults.to_string(), true);
    assert_eq!((reply.status, reply.text().as_str()), (400, own));
    assert!(reply.head.contains("X-A: 1\r\n") && reply.head.contains("X-A: 2\r\n"));
    assert_eq!(reply.head.to_lowercase().matches("server:").count(), 1);
    assert!(client.is_alive());
}

#[test]
fn rates_fail_a_share_of_requests_with_retry_after() {
    let engine = faulty(r#"{"rates":{"503":0.5,"429":0.25},"retry_after_s":3}"#);
    let mut client = Client::connect(&engine);
    let replies: Vec<_> = (0..200).map(|_| client.chat(&chat(false))).collect();
    let count = |status| replies.iter().filter(|reply| reply.status == status).count();
    assert!(count(503) > 60 && count(429) > 20 && count(200) > 20);
    assert_eq!(count(503) + count(429) + count(200), 200);
    for reply in replies {
        assert_eq!(reply.header("retry-after").is_some(), reply.status != 200);
    }
}

#[test]
fn a_redirect_names_its_target() {
    let engine = faulty(r#"{"redirect":"http://127.0.0.1:1/elsewhere"}"#);
    let reply = Client::connect(&engine).chat(&chat(false));
    assert_eq!((reply.status, reply.header("location")), (302, Some("http://127.0.0.1:1/elsewhere")));
}

#[test]
fn types_and_lengths_can_be_wrong() {
    let engine = immediate();
    let reply = Client::connect(&engine).chat_with(r#"{"content_type":"audio/wav"}"#, true);
    assert_eq!(reply.header("content-type"), Some("audio/wav"));
    for stream in [false, true] {
        let mut client = Client::connect(&engine);
        client.start_chat_with(r#"{"content_length":100000}"#, stream);
        let (bytes, ending) = client.rest();
        assert!(String::from_utf8(bytes).unwrap().contains("content-length: 100000\r\n"));
        assert_eq!(ending, Ending::Closed, "short of what it said");
    }
}

#[test]
fn a_stream_can_have_a_length() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let reply = client.chat_with(r#"{"framing":"length"}"#, true);
    assert!(reply.header("content-length").is_some() && reply.header("transfer-encoding").is_none());
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(reply.said(0), client.chat(&chat(true)).said(0));
}

#[test]
fn json_and_streams_are_compressed_when_accepted_or_forced() {
    let engine = immediate();
    for stream in [false, true] {
        for (fault, accept, is_packed) in [
            (r#"{"gzip":"accepted"}"#, "Accept-Encoding: br, gzip;q=1\r\n", true),
            (r#"{"gzip":"accepted"}"#, "", false),
            (r#"{"gzip":"forced"}"#, "", true),
        ] {
            let mut client = Client::connect(&engine);
            client.start_post("/v1/chat/completions", &format!("X-Sim: {fault}\r\n{accept}"), &chat(stream));
            let reply = client.reply();
            assert_eq!(reply.header("content-encoding"), is_packed.then_some("gzip"));
            let mut text = String::new();
            if is_packed {
                flate2::read::GzDecoder::new(&reply.body()[..]).read_to_string(&mut text).unwrap();
                assert!(!stream || reply.chunks.len() > 5, "events are still told apart");
            } else {
                text = reply.text();
            }
            assert!(if stream { text.ends_with("data: [DONE]\n\n") } else { text.ends_with('}') });
        }
    }
}

#[test]
fn trailers_and_chunk_extensions_are_written() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_chat_with(r#"{"trailers":[["X-T","1"],["X-U","2"]],"chunk_extension":";a=b"}"#, true);
    client.head();
    assert!(String::from_utf8(client.take_through(b"\r\n")).unwrap().ends_with(";a=b\r\n"));
    let mut client = Client::connect(&engine);
    let reply = client.chat_with(r#"{"trailers":[["X-T","1"],["X-U","2"]],"chunk_extension":";a=b"}"#, true);
    assert_eq!(reply.trailers, ["X-T: 1", "X-U: 2"]);
    assert!(client.is_alive());
}

#[test]
fn chosen_usage_is_written_to_the_letter() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    for usage in ["\"n/a\"", "null", "{\"prompt_tokens\":\"12\"}", "1e3", "-1", "9223372036854775808", "1e400"] {
        let faults = format!(r#"{{"usage":{usage}}}"#);
        let expected = format!(r#""usage":{usage}"#);
        assert!(client.chat_with(&faults, false).text().contains(&expected), "{usage}");
        let body = r#"{"stream":true,"stream_options":{"include_usage":true},"messages":[{"content":"x"}]}"#;
        client.start_post("/v1/chat/completions", &format!("X-Sim: {faults}\r\n"), body);
        assert!(client.reply().text().contains(&expected), "{usage}");
    }
    let reply = client.chat_with(r#"{"usage_at":[[1,{"prompt_tokens":100}],[4,{"completion_tokens":7}]]}"#, true);
    let events = reply.events();
    // The role comes first.
    assert_eq!(events[1]["usage"], json!({ "prompt_tokens": 100 }));
    assert_eq!(events[4]["usage"], json!({ "completion_tokens": 7 }));
    assert!(events[2].get("usage").is_none());
}

#[test]
fn events_tell_when_they_were_sent_when_asked_to() {
    let engine = immediate();
    let events =
        Client::connect(&engine).chat_with(r#"{"stamp":true,"delay_us":200,"event_bytes":300}"#, true).events();
    let sent: Vec<u64> = events.iter().filter_map(|event| event["sent_unix_ns"].as_u64()).collect();
    assert_eq!(sent.len(), 5);
    assert!(sent.is_sorted());
    let plain = Client::connect(&engine).chat(&chat(true)).text();
    assert!(!plain.contains("sent_unix_ns"));
}

#[test]
fn stream_options_can_be_refused() {
    let engine = faulty(r#"{"refuse_stream_options":true}"#);
    let mut client = Client::connect(&engine);
    let body = r#"{"stream":true,"stream_options":{"include_usage":true},"messages":[{"content":"x"}]}"#;
    let reply = client.chat(body);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("stream_options")));
    assert_eq!(client.chat(&body.replace(r#""stream_options":{"include_usage":true},"#, "")).status, 200);
}

#[test]
fn number_and_size_of_events_are_as_asked() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    for delay in ["", r#","delay_us":0"#, r#","delay_us":50"#] {
        let reply = client.chat_with(&format!(r#"{{"events":500,"event_bytes":250{delay}}}"#), true);
        // Role, 500 words, [DONE].
        assert_eq!(reply.chunks.len(), 502);
        assert!(reply.chunks[1..500].iter().all(|chunk| chunk.len() == 250), "{delay}");
        assert!(reply.text().contains(r#""finish_reason":"length""#));
    }
    assert_eq!(engine.state().self_paced, 0);
}

#[test]
fn a_body_is_as_many_mib_as_asked() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let whole = client.chat_with(r#"{"body_mib":3}"#, false);
    assert_eq!(whole.body().len(), 3 << 20);
    assert!(whole.json()["pad"].is_string());
    let streamed = client.chat_with(r#"{"body_mib":2}"#, true);
    let size = streamed.body().len();
    assert!((2 << 20..(2 << 20) + 20_000).contains(&size), "{size}");
    assert_eq!(streamed.events().len(), 1 + 128);
}

#[test]
fn a_slow_start_is_not_ready_then_has_no_models() {
    let engine = start(config());
    let mut client = Client::connect(&engine);
    engine.set_faults(parse(r#"{"unready_us":3600000000,"models_empty_us":3600000000}"#));
    assert_eq!([client.get("/health").status, client.chat(&chat(false)).status], [503, 503]);
    assert_eq!(client.get("/v1/models").json()["data"], json!([]));
    engine.set_faults(parse(r#"{"unready_us":1,"models_empty_us":3600000000}"#));
    crate::support::until("ready", || client.get("/health").status == 200);
    assert_eq!(client.get("/v1/models").json()["data"], json!([]));
    engine.set_faults(parse("{}"));
    assert_eq!(client.get("/v1/models").json()["data"].as_array().unwrap().len(), 2);
    assert!(engine.requests().iter().all(|request| request.outcome == Outcome::Complete));
}
