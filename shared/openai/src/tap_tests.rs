//! Streams of a few events, each cut at every byte, with what is seen by the client and what is learned.

use super::*;

const ROLE: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":18,"completion_tokens":2,"total_tokens":20}}"#;

fn token(text: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#)
}

fn stream(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn run(withhold: Withhold, chunks: &[&[u8]]) -> (Vec<u8>, Learned) {
    let mut tap = StreamTap::new(withhold);
    let (mut sent, mut out) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let range = tap.feed(chunk, &mut out);
        sent.extend_from_slice(&out);
        sent.extend_from_slice(&chunk[range]);
    }
    tap.end(&mut out);
    sent.extend_from_slice(&out);
    (sent, *tap.learned())
}

/// Runs a stream whole, cut in two at every byte, and byte by byte; all must send `expected` and learn the same.
fn check(withhold: Withhold, stream: &str, expected: &str) -> Learned {
    let bytes = stream.as_bytes();
    let (sent, learned) = run(withhold, &[bytes]);
    assert_eq!(String::from_utf8_lossy(&sent), expected);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(run(withhold, &single), (sent.clone(), learned), "byte by byte");
    for cut in 0..=bytes.len() {
        assert_eq!(run(withhold, &[&bytes[..cut], &bytes[cut..]]), (sent.clone(), learned), "cut at {cut}");
    }
    learned
}

fn passes(stream: &str) -> Learned {
    let withholding = check(Withhold::UsageEvent, stream, stream);
    assert_eq!(check(Withhold::Nothing, stream, stream), withholding);
    withholding
}

#[test]
fn a_usage_event_the_client_did_not_ask_for_is_withheld_exactly() {
    for (before, after) in [("\n\n", "\n\n"), ("\r\n\r\n", "\r\n\r\n"), ("\r\r", "\r\r"), ("\n\n", "\r\n\r\n")] {
        let token = token("a");
        let (head, tail) = (format!("data: {token}{before}"), format!("data: [DONE]{after}"));
        let whole = format!("{head}data: {USAGE}{after}{tail}");
        let learned = check(Withhold::UsageEvent, &whole, &format!("{head}{tail}"));
        assert_eq!((learned.usage().prompt, learned.usage().completion), (Some(18), Some(2)));
        assert_eq!((learned.withheld_count, learned.content_event_count, learned.is_done), (1, 1, true));
        assert_eq!(check(Withhold::Nothing, &whole, &whole), Learned { withheld_count: 0, ..learned });
    }
}

#[test]
fn only_an_event_without_choices_is_withheld() {
    let on_choice =
        r#"{"choices":[{"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":4,"completion_tokens":12}}"#;
    let learned = passes(&stream(&[on_choice, "[DONE]"]));
    assert_eq!((learned.usage().completion, learned.withheld_count), (Some(12), 0));
    passes(&stream(&[r#"{"choices":[],"prompt_filter_results":[]}"#, r#"{"choices":[],"usage":null}"#]));
    passes(&stream(&[r#"{"choices":[],"usage":{},"error":{"message":"x"}}"#]));
    passes(&stream(&[r#"{"choices":[],"usage":{"prompt_tokens":1"#]));
    let absurd = stream(&[r#"{"choices":[],"usage":"n/a"}"#]);
    assert_eq!(check(Withhold::UsageEvent, &absurd, "").absurd_count, 1);
    // Every usage event goes, not only the first.
    assert_eq!(check(Withhold::UsageEvent, &stream(&[USAGE, USAGE]), "").withheld_count, 2);
}

#[test]
fn usage_events_of_several_answers_add_up_and_repeated_totals_do_not() {
    let usage =
        |completion| format!(r#"{{"choices":[],"usage":{{"completion_tokens":{completion},"total_tokens":20}}}}"#);
    for (reports, completion, total) in
        [(vec![2, 3], 5, 22), (vec![1, 2, 3, 4, 5], 5, 20), (vec![7, 7], 7, 20), (vec![5], 5, 20)]
    {
        let mut events = vec![token("a"); 5];
        events.extend(reports.iter().map(|&completion| usage(completion)));
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let (_, learned) = run(Withhold::UsageEvent, &[stream(&events).as_bytes()]);
        assert_eq!((learned.usage().completion, learned.usage().total), (Some(completion), Some(total)), "{reports:?}");
    }
}

#[test]
fn a_withheld_event_may_be_the_last_without_a_blank_line() {
    let whole = format!("data: [DONE]\n\ndata: {USAGE}");
    check(Withhold::UsageEvent, &whole, "data: [DONE]\n\n");
    assert!(passes("data: [DONE]").is_done);
}

#[test]
fn bytes_pass_at_once_when_nothing_is_withheld() {
    let mut tap = StreamTap::new(Withhold::Nothing);
    let mut out = Vec::new();
    for byte in stream(&[ROLE, &token("北京🦀"), USAGE]).as_bytes() {
        assert_eq!(tap.feed(&[*byte], &mut out), 0..1);
        assert!(out.is_empty());
    }
}

#[test]
fn whole_events_are_not_copied_while_withholding() {
    let mut tap = StreamTap::new(Withhold::UsageEvent);
    let mut out = Vec::new();
    let chunk = stream(&[ROLE, &token("a")]);
    assert_eq!(tap.feed(chunk.as_bytes(), &mut out), 0..chunk.len());
    assert!(out.is_empty());
    let chunk = stream(&[USAGE, "[DONE]"]);
    assert_eq!(tap.feed(chunk.as_bytes(), &mut out), chunk.len() - 14..chunk.len());
    assert!(out.is_empty());
}

#[test]
fn an_event_beyond_the_bound_passes_and_the_next_is_still_withheld() {
    let large = format!("data: {}\n\n", token(&"x".repeat(3 * crate::sse::KEPT_EVENT_BYTES)));
    let whole = format!("{large}data: {USAGE}\n\ndata: [DONE]\n\n");
    for size in [1000, 4096, 65_536, 70_000] {
        let mut tap = StreamTap::new(Withhold::UsageEvent);
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        for (idx, chunk) in whole.as_bytes().chunks(size).enumerate() {
            let range = tap.feed(chunk, &mut out);
            sent.extend_from_slice(&out);
            sent.extend_from_slice(&chunk[range]);
            let came = (idx * size + chunk.len()).min(large.len());
            assert!(came - sent.len().min(came) <= crate::sse::KEPT_EVENT_BYTES, "held more than the bound");
        }
        assert_eq!(sent, format!("{large}data: [DONE]\n\n").as_bytes(), "{size}");
        assert_eq!(tap.learned().content_event_count, 1);
    }
}

#[test]
fn the_first_token_is_an_event_with_text_or_a_tool_call() {
    for data in [
        r#"{"choices":[{"delta":{"content":"a"}}]}"#,
        r#"{"choices": [{"delta": {"content": "a"}}]}"#,
        r#"{"choices":[{"text":"\"","index":0}]}"#,
        r#"{"choices":[{"delta":{"content":"","reasoning_content":"a"}}]}"#,
        r#"{"choices":[{"delta":{"content":null,"tool_calls":[{"function":{"name":"f"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#,
        r#"{"choices":[{"delta":{"content":" "},"logprobs":{"content":[]}}]}"#,
        r#"{"type":"response.output_text.delta","delta":"a"}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#,
    ] {
        assert!(passes(&stream(&[data])).has_first_token(), "{data}");
    }
    for data in [
        ROLE,
        USAGE,
        r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":18}}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"prompt_text":"a"}"#,
        r#"{"choices":[{"delta":{"tool_calls":[]}}]}"#,
        r#"{"id":"\"content\":\"a\""}"#,
        "[DONE]",
    ] {
        let learned = check(Withhold::Nothing, &stream(&[data]), &stream(&[data]));
        assert!(!learned.has_first_token(), "{data}");
    }
    assert!(!passes(": ping\n\nevent: ping\n\n").has_first_token());
}

#[test]
fn an_engine_error_in_the_stream_is_noticed() {
    for stream in [
        "data: {\"error\": {\"message\": \"x\"}}\n\n",
        "data: {\"object\":\"error\",\"message\":\"x\"}\n\n",
        "error: {\"code\":500}\n\n",
        "event: error\ndata: {\"type\":\"error\"}\n\n",
        "event: response.failed\ndata: {}\n\n",
    ] {
        assert!(passes(stream).has_error, "{stream}");
    }
    for stream in [
        "data: {\"choices\":[{\"delta\":{\"content\":\"error\"}}],\"error\":null}\n\n",
        "data: {\"choices\":[{\"error\":{}}]}\n\n",
        ": error\n\n",
    ] {
        assert!(!passes(stream).has_error, "{stream}");
    }
}
