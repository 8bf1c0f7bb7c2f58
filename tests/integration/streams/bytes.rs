//! The bytes of a stream: identical at the client however an engine cuts, ends and frames them.

use llmgw_test_kit::raw::End;
use serde_json::{Value, json};

use super::rig::{DONE, Rig, event, scripted_as, usage_event};

/// Every way an engine may tell where a body ends.
const FRAMINGS: [&str; 4] = ["chunked", "chunked-bytes", "length", "close"];

/// One piece for each byte, `delay_us` apart.
fn byte_by_byte(text: &str, delay_us: u64) -> Value {
    text.bytes().map(|byte| json!({ "base64": base64_of(byte), "delay_us": delay_us })).collect()
}

fn base64_of(byte: u8) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u8| char::from(LETTERS[usize::from(bits)]);
    format!("{}{}==", letter(byte >> 2), letter((byte & 3) << 4))
}

/// Asks with usage wanted, so that nothing is kept back, and compares every byte.
#[track_caller]
fn check_identical(rig: &Rig, framing: &str, script: Value, expected: &str) {
    let chat = scripted_as(framing, script).with_usage();
    let reply = rig.ask(chat);
    assert_eq!((reply.status, reply.end), (200, End::Complete), "{framing}");
    assert_eq!(String::from_utf8_lossy(&reply.body), expected, "{framing}");
}

pub(crate) fn check_text_cut_at_every_byte(rig: &Rig) {
    let text = [&event("北京🦀"), &usage_event(100, 7), DONE].concat();
    for (done, framing) in FRAMINGS.into_iter().enumerate() {
        check_identical(rig, framing, byte_by_byte(&text, 1_000), &text);
        let done = done as u64 + 1;
        rig.wait_for_ended(done);
        assert_eq!(rig.tokens(), (100 * done, 7 * done), "{framing}");
    }
}

// S1
#[test]
fn text_that_arrives_byte_by_byte_reaches_the_client_as_it_was() {
    let rig = Rig::start();
    check_text_cut_at_every_byte(&rig);
    rig.finish();
}

#[test]
fn many_events_in_one_piece_and_one_event_in_many_pieces_are_the_same_to_the_client() {
    let rig = Rig::start();
    let text = [&event("one"), &event("two"), &event("three"), &usage_event(5, 3), DONE].concat();
    for framing in FRAMINGS {
        check_identical(&rig, framing, json!([text]), &text);
        for size in [7, 64, 150] {
            let pieces: Vec<&str> =
                text.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            check_identical(&rig, framing, json!(pieces), &text);
        }
    }
    rig.wait_for_ended(16);
    assert_eq!(rig.tokens(), (16 * 5, 16 * 3));
    rig.finish();
}

/// Streams that the standard allows and whose usage must be found; each says 11 prompt and 4 completion tokens.
fn dialects() -> Vec<(&'static str, String)> {
    let usage = r#""usage":{"prompt_tokens":11,"completion_tokens":4,"total_tokens":15}"#;
    let whole = [&event("a"), &usage_event(11, 4), DONE].concat();
    vec![
        // S2
        ("no space after the colon", whole.replace("data: ", "data:")),
        // S4
        ("CRLF", whole.replace('\n', "\r\n")),
        ("CR", whole.replace('\n', "\r")),
        ("a byte order mark", format!("\u{feff}{whole}")),
        ("data in several lines", format!("data: {{\"choices\":[],\r\ndata: {usage}}}\r\n\r\ndata: [DONE]\r\n\r\n")),
        ("fields that are not data", format!("retry: 5\nid: 1\nevent: message\n{whole}")),
        ("comments between lines", format!(": hi\n\n:\ndata: {{\"choices\":[],\n: between\ndata: {usage}}}\n\n{DONE}")),
        ("mixed line ends", format!("data: {{\"choices\":[],{usage}}}\r\n\ndata: [DONE]\n\r\n")),
    ]
}

#[test]
fn every_dialect_of_event_streams_passes_as_it_is_and_is_counted() {
    let rig = Rig::start();
    let mut asked = 0;
    for (name, text) in dialects() {
        let cuts: Vec<Value> = vec![json!([text]), byte_by_byte(&text, 0)];
        for script in cuts {
            check_identical(&rig, "chunked", script, &text);
            asked += 1;
            rig.wait_for_ended(asked);
            assert_eq!(rig.tokens(), (11 * asked, 4 * asked), "{name}");
        }
    }
    assert_eq!(rig.usage_absent(), (0, 0));
    rig.finish();
}

pub(crate) fn check_usage_event_cut_anywhere(rig: &Rig, step: usize) {
    let (before, usage) = (event("hello"), usage_event(100, 7));
    let mut asked = 0;
    for at in (1..usage.len()).step_by(step) {
        let (start, end) = usage.split_at(at);
        let script = json!([before, start, [end, 1_000], DONE]);
        // Once for a client that wants the event, once for one that must not see it.
        let reply = rig.ask(scripted_as("chunked", script.clone()).with_usage());
        assert_eq!(reply.text(), [&before, &usage, DONE].concat(), "cut at {at}");
        let reply = rig.ask(scripted_as("chunked", script));
        assert_eq!(reply.text(), [&before, DONE].concat(), "cut at {at}");
        asked += 2;
        rig.wait_for_ended(asked);
        assert_eq!(rig.tokens(), (100 * asked, 7 * asked), "cut at {at}");
    }
    assert_eq!(rig.usage_absent(), (0, 0));
}

// S3
#[test]
fn usage_is_found_wherever_its_event_is_cut() {
    let rig = Rig::start();
    check_usage_event_cut_anywhere(&rig, llmgw_test_kit::full_or(1, 3));
    rig.finish();
}
