//! Streams that have broken other gateways, and recordings of real engines: bytes as they came, counts always right.

mod common;

use common::{edited, payload, recording, relay};
use llmgw_openai::error::{ErrorBody, Wrapping, wrap};
use llmgw_openai::scan::scan;
use llmgw_openai::tap::{Learned, Withhold};
use llmgw_openai::usage::{Usage, of_body};

const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":18,"completion_tokens":12,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":7}}}"#;

fn counted(prompt: u64, completion: u64, total: u64, cached: Option<u64>) -> Usage {
    Usage { prompt: Some(prompt), completion: Some(completion), total: Some(total), cached, audio_ms: None }
}

/// The tap must pass the whole stream on when nothing is withheld.
fn passed(stream: &str) -> Learned {
    let (sent, learned) = relay(Withhold::Nothing, [stream.as_bytes()]);
    assert_eq!(sent, stream.as_bytes());
    learned
}

#[test]
fn characters_cut_between_bytes_arrive_whole_and_are_counted() {
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"北京🦀\"}}]}\n\n".repeat(3) + "data: [DONE]\n\n";
    for withhold in [Withhold::Nothing, Withhold::UsageEvent] {
        let (sent, learned) = relay(withhold, stream.as_bytes().chunks(1));
        assert_eq!(sent, stream.as_bytes());
        assert_eq!((learned.content_event_count, learned.is_done), (3, true));
    }
}

#[test]
fn data_without_a_space_counts_the_same() {
    let spaced = format!("data: {{\"choices\":[{{\"text\":\"a\"}}]}}\n\ndata: {USAGE}\n\ndata: [DONE]\n\n");
    let tight = spaced.replace("data: ", "data:");
    assert_eq!(passed(&tight), passed(&spaced));
    assert_eq!(passed(&tight).usage(), counted(18, 12, 30, Some(7)));
}

#[test]
fn usage_cut_at_any_byte_is_the_same_usage() {
    for name in ["vllm/chat-stream-usage.response", "llama-cpp/chat-stream-usage.response"] {
        let stream = payload(name);
        let from = memchr::memmem::find(&stream, b"\"choices\":[]").unwrap() - 200;
        for withhold in [Withhold::Nothing, Withhold::UsageEvent] {
            let whole = relay(withhold, [&stream[..]]);
            assert_eq!(whole.1.usage().completion, Some(12));
            for cut in from..stream.len() {
                assert_eq!(relay(withhold, [&stream[..cut], &stream[cut..]]), whole, "{name} cut at {cut}");
            }
        }
    }
}

#[test]
fn every_line_end_a_byte_order_mark_and_several_data_lines_are_understood() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!(
            "\u{feff}data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}]}}{end}{end}data: {{\"a\":1,{end}data: \"usage\":{{\"prompt_tokens\":3,{end}data: \
             \"completion_tokens\":4}}}}{end}{end}data: [DONE]{end}{end}"
        );
        let learned = passed(&stream);
        assert_eq!((learned.usage().prompt, learned.usage().completion), (Some(3), Some(4)), "{end:?}");
        assert_eq!((learned.content_event_count, learned.is_done), (1, true), "{end:?}");
    }
}

#[test]
fn an_engines_error_is_never_wrapped_twice_and_a_foreign_one_keeps_its_message() {
    let body = br#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#;
    let mut out = Vec::new();
    assert_eq!(wrap(body, 400, &mut out), Wrapping::Unneeded);
    ErrorBody { message: "m", kind: "k", param: None, code: None }.write(&mut out);
    assert_eq!(wrap(&out.clone(), 400, &mut Vec::new()), Wrapping::Unneeded, "what is wrapped counts as wrapped");
    for name in ["vllm/err-unknown-model.response", "llama-cpp/err-unknown-path.response"] {
        assert_eq!(wrap(&payload(name), 404, &mut Vec::new()), Wrapping::Unneeded, "{name}");
    }
    let mut out = Vec::new();
    assert_eq!(wrap(&payload("vllm/err-unknown-path.response"), 404, &mut out), Wrapping::Written);
    assert_eq!(out, br#"{"error":{"message":"Not Found","type":"not_found_error","param":null,"code":null}}"#);
}

#[test]
fn our_own_error_event_parses_whatever_the_cause_says() {
    let message = "upstream said: \"reset\"\nafter 5 events";
    let mut out = Vec::new();
    let error = ErrorBody { message, kind: "server_error", param: None, code: None };
    llmgw_openai::sse::error_event(&mut out, &error);
    let text = std::str::from_utf8(&out).unwrap();
    let json = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap()["error"]["message"], message);
    assert!(passed(text).has_error);
}

/// What an engine streams for these options, as the recordings show it.
fn engine_answer(body: &[u8]) -> Vec<u8> {
    let scan = scan(body).unwrap();
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    let options = &body["stream_options"];
    payload(match (scan.asks_for_usage(), options["continuous_usage_stats"] == true) {
        (false, _) => "vllm/chat-stream-usage-false.response",
        (true, false) => "vllm/chat-stream-usage.response",
        (true, true) => "vllm/chat-continuous-usage.response",
    })
}

#[test]
fn a_client_sees_the_usage_it_asked_for_and_accounting_always_has_it() {
    for options in [
        "",
        r#","stream_options":{}"#,
        r#","stream_options":{"include_usage":false}"#,
        r#","stream_options":{"include_usage":null}"#,
        r#","stream_options":{"include_usage":true}"#,
        r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#,
        r#","stream_options":{"continuous_usage_stats":true}"#,
        r#","stream_options":null"#,
    ] {
        let body = format!(r#"{{"model":"tiny","stream":true{options}}}"#);
        let request = scan(body.as_bytes()).unwrap();
        let sent_to_engine = edited(body.as_bytes(), |edits, scan| edits.include_usage(scan));
        let withhold = if request.asks_for_usage() { Withhold::Nothing } else { Withhold::UsageEvent };
        let answer = engine_answer(&sent_to_engine);
        let (seen, learned) = relay(withhold, answer.chunks(50));
        assert!(learned.usage().prompt == Some(18) && learned.usage().completion.is_some(), "{options}");
        assert!(learned.is_done && learned.absurd_count == 0, "{options}");
        if request.asks_for_usage() {
            assert_eq!(sent_to_engine, body.as_bytes(), "{options}");
            assert_eq!(seen, answer, "{options}");
        } else {
            let seen = String::from_utf8(seen).unwrap();
            assert!(!seen.contains("\"usage\"") && !seen.contains("\"choices\":[]"), "{options}: {seen}");
            let without = |text: &str| text.matches("data: ").count();
            assert_eq!(without(&seen) + 1, without(&String::from_utf8(answer).unwrap()), "{options}");
        }
    }
}

#[test]
fn usage_in_parts_and_as_running_totals_adds_up_to_the_same() {
    let event =
        |usage: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}],\"usage\":{usage}}}\n\n");
    let mut parts = event(r#"{"prompt_tokens":100}"#);
    parts += &"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".repeat(7);
    parts += &event(r#"{"completion_tokens":7}"#);
    let running: String =
        (1..=7).map(|count| event(&format!(r#"{{"prompt_tokens":100,"completion_tokens":{count}}}"#))).collect();
    for stream in [parts, running] {
        let learned = passed(&stream);
        assert_eq!((learned.usage().prompt, learned.usage().completion), (Some(100), Some(7)), "{stream}");
    }
}

#[test]
fn absurd_usage_is_left_out_and_counted() {
    for (usage, absurd_count) in [
        (r#""n/a""#, 1),
        ("7", 1),
        ("[]", 1),
        ("null", 0),
        ("{}", 0),
        (r#"{"prompt_tokens":"12","completion_tokens":2.0,"total_tokens":null}"#, 3),
        (r#"{"prompt_tokens":1e3,"completion_tokens":-1,"total_tokens":9223372036854775808}"#, 3),
        (r#"{"prompt_tokens":99999999999999999999999999,"completion_tokens":[],"total_tokens":{}}"#, 3),
        (r#"{"prompt_tokens_details":{"cached_tokens":"x"}}"#, 1),
        (r#"{"prompt_tokens_details":7,"completion_tokens_details":null}"#, 0),
    ] {
        let event = format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"usage":{usage}}}"#);
        let learned = passed(&format!("data: {event}\n\n"));
        assert_eq!((learned.usage(), learned.absurd_count), (Usage::default(), absurd_count), "{usage}");
        assert_eq!(learned.completion_tokens(), 1, "our own count stands in");
        let whole = of_body(event.as_bytes());
        assert_eq!((whole.usage, whole.absurd_count), (Usage::default(), absurd_count), "{usage}");
    }
    assert_eq!(passed("data: {\"usage\":{\"prompt_tokens\":1\n\n").absurd_count, 1, "broken off");
}

#[test]
fn recorded_streams_pass_unchanged_and_are_understood() {
    let check = |name: &str, content_event_count, usage: Usage| {
        let stream = payload(name);
        let (sent, learned) = relay(Withhold::Nothing, [&stream[..]]);
        assert_eq!(sent, stream, "{name}");
        assert_eq!((learned.usage(), learned.content_event_count), (usage, content_event_count), "{name}");
        assert!(learned.is_done && !learned.has_error && learned.absurd_count == 0, "{name}");
        assert_eq!(relay(Withhold::Nothing, stream.chunks(7)), (sent, learned), "{name}");
    };
    let none = Usage::default();
    check("vllm/chat-stream-usage.response", 12, counted(18, 12, 30, Some(0)));
    check("vllm/chat-stream-usage-false.response", 12, none);
    check("vllm/chat-continuous-usage.response", 3, counted(18, 3, 21, Some(0)));
    check("vllm/completion-stream.response", 12, none);
    check("vllm/completion-stream-usage.response", 12, counted(4, 12, 16, Some(0)));
    check("llama-cpp/chat-stream-usage.response", 12, counted(18, 12, 30, Some(17)));
    check("llama-cpp/chat-stream-usage-false.response", 12, none);
    check("llama-cpp/completion-stream-usage.response", 12, counted(4, 12, 16, Some(3)));
    check("vllm/chat-n2-stream-usage.response", 8, counted(18, 8, 26, Some(0)));
    // One usage event for each of two answers, four tokens each.
    check("llama-cpp/chat-n2-stream-usage.response", 8, counted(18, 8, 26, Some(17)));
    // About three tokens of a tool call go into one event here: why the count of events is only an estimate.
    check("vllm/chat-tool-forced-stream.response", 21, counted(235, 60, 295, Some(224)));
    check("llama-cpp/chat-tool-forced-stream.response", 60, counted(235, 60, 295, Some(234)));
    check("llama-cpp/chat-return-progress.response", 2, counted(18, 2, 20, Some(17)));
}

#[test]
fn usage_on_the_last_choice_stays_while_withholding() {
    let stream = payload("llama-cpp/completion-stream-usage.response");
    let (sent, learned) = relay(Withhold::UsageEvent, stream.chunks(33));
    assert_eq!(sent, stream);
    assert_eq!(learned.usage(), counted(4, 12, 16, Some(3)));
}

#[test]
fn an_engine_killed_in_mid_stream_says_so_before_its_done() {
    let stream = recording("vllm/engine-killed-mid-stream.tail");
    let (sent, learned) = relay(Withhold::UsageEvent, stream.chunks(5));
    assert_eq!(sent, stream);
    assert!(learned.has_error && learned.is_done);
}

#[test]
fn recorded_whole_answers_give_their_usage() {
    for (name, usage) in [
        ("vllm/chat.response", counted(18, 12, 30, Some(0))),
        ("llama-cpp/chat.response", counted(18, 12, 30, Some(0))),
        ("vllm/responses.response", counted(13, 5, 18, Some(0))),
        ("llama-cpp/responses.response", counted(13, 5, 18, Some(0))),
        ("vllm/messages.response", Usage { total: None, ..counted(13, 5, 18, Some(0)) }),
        ("llama-cpp/messages.response", Usage { total: None, ..counted(13, 5, 18, Some(12)) }),
    ] {
        let reading = of_body(&payload(name));
        assert_eq!((reading.usage, reading.absurd_count), (usage, 0), "{name}");
    }
}
