//! Sound in forms, sound as answers: bytes are bytes.

use llmgw_test_kit::gateway::MODEL;
use llmgw_test_kit::raw::Reply;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::wait_for;
use serde_json::json;

use super::{INSIDE, renamed, tokens, usage_absent};
use crate::pair::{Pair, WITHIN, crc32, error_of};

const HEAR: &str = "/v1/audio/transcriptions";
const FORM: &str = "multipart/form-data; boundary=\"a b-9\"";

/// Bytes that look like boundaries, and all others.
fn sound() -> Vec<u8> {
    let mut sound =
        b"RIFF\r\n--a b-\r\n--a b-99\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nno\r\n".to_vec();
    sound.extend((0..200_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8));
    sound
}

fn part(name: &str, content: &str) -> Vec<u8> {
    format!("--a b-9\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n").into_bytes()
}

fn file() -> Vec<u8> {
    let head =
        "--a b-9\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav";
    [head.as_bytes(), b"\r\n\r\n", &sound(), b"\r\n"].concat()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat().as_slice(), b"--a b-9--\r\n"].concat()
}

#[track_caller]
fn hear(pair: &Pair, target: &str, body: &[u8]) -> Reply {
    pair.send(Request::new("POST", target).header("Connection", "close").body(FORM, body))
}

#[test]
fn a_form_reaches_the_engine_unchanged_wherever_its_model_stands() {
    let pair = Pair::own();
    let mut seconds = 0.0;
    let heard = format!("{} bytes of sound {}", sound().len(), crc32(&sound()));
    let more = || part("language", "en");
    for (target, parts) in [
        (HEAR, vec![part("model", MODEL), file(), more()]),
        (HEAR, vec![file(), more(), part("model", MODEL)]),
        ("/v1/audio/translations", vec![more(), part("model", MODEL), file()]),
    ] {
        let body = form(&parts);
        let reply = hear(&pair, target, &body);
        assert_eq!((reply.status, reply.json()["text"].as_str()), (200, Some(heard.as_str())), "{}", reply.text());
        seconds += reply.json()["usage"]["seconds"].as_f64().expect("a number");
        let call = pair.call_of(&reply);
        assert_eq!((call.target.as_str(), call.body_bytes), (target, body.len() as u64));
        assert_eq!(call.body_crc32, crc32(&body));
        assert_eq!(call.header("content-type"), Some(FORM));
    }
    assert_eq!((tokens(&pair), usage_absent(&pair)), ((0, 0), 0), "what is counted in seconds is no token");
    let counted = || pair.gateway.metrics().sum("llmgw_audio_seconds_total", &[("model", MODEL)]);
    wait_for(&format!("{seconds} seconds of sound"), WITHIN, || seconds > 0.0 && counted() == Some(seconds));
}

#[test]
fn another_name_for_the_model_is_spliced_into_its_part_alone() {
    let pair = renamed();
    let body = |name: &str| form(&[part("prompt", MODEL), file(), part("model", name), part("x", MODEL)]);
    let reply = hear(&pair, HEAR, &body(MODEL));
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(pair.call_of(&reply).body_crc32, crc32(&body(INSIDE)));
}

#[test]
fn a_form_in_chunks_and_one_whose_answer_streams_pass_as_well() {
    let pair = Pair::own();
    let body = form(&[file(), part("model", MODEL), part("stream", "true")]);
    let request = Request::new("POST", HEAR).header("Connection", "close").chunked(FORM, body.chunks(7_001));
    let reply = pair.send(request);
    let events = reply.events();
    assert!(events.len() > 3 && events.last().is_some_and(|event| event == "data: [DONE]\n\n"), "{events:?}");
    assert_eq!(pair.call_of(&reply).body_crc32, crc32(&body));
}

#[test]
fn a_form_that_cannot_be_read_one_way_only_is_refused() {
    let pair = Pair::shared();
    for (body, part_of_message) in [
        (form(&[file()]), "model"),
        (form(&[part("model", MODEL), part("model", "other")]), "second time"),
        (part("model", MODEL), "closing boundary"),
        (b"{\"model\":\"m\"}".to_vec(), "begin"),
    ] {
        let reply = hear(&pair, HEAR, &body);
        assert_eq!((error_of(&reply).0, error_of(&reply).1), (400, json!("bad_request")));
        assert!(reply.text().contains(part_of_message), "{}", reply.text());
    }
    let plain = pair.post(HEAR, &json!({ "model": MODEL }));
    assert!(plain.text().contains("multipart/form-data"), "{}", plain.text());
    let twice = Request::new("POST", HEAR).header("Content-Type", "multipart/form-data; boundary=x");
    assert_eq!(pair.send(twice.header("Connection", "close").body(FORM, form(&[part("model", MODEL)]))).status, 400);
    let unknown = hear(&pair, HEAR, &form(&[part("model", "other"), file()]));
    assert_eq!(error_of(&unknown), (404, json!("model_not_found"), json!("model")));
}

/// Trial S12.
#[test]
fn spoken_sound_comes_back_byte_for_byte_zeros_and_all() {
    let pair = renamed();
    let body = json!({ "model": MODEL, "input": "say this, please", "voice": "v" });
    let mut direct = body.clone();
    direct["model"] = INSIDE.into();
    let spoken = llmgw_test_kit::raw::post(pair.engine.addr(), "/v1/audio/speech", &direct);
    assert!(spoken.body.iter().filter(|byte| **byte == 0).count() > 500);
    for framing in ["length", "chunked", "chunked-bytes", "close"] {
        pair.engine.set_faults(json!({ "framing": framing }));
        let reply = pair.post("/v1/audio/speech", &body);
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("audio/wav")), "{framing}");
        assert!(reply.body == spoken.body, "{framing}: {} bytes, not {}", reply.body.len(), spoken.body.len());
    }
    assert_eq!((tokens(&pair), usage_absent(&pair)), ((0, 0), 0));
}
