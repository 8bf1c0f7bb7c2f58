//! What a client gets within TLS: what any other gets, to the byte.

use llmgw_test_kit::raw::{Closed, Connection, End, Trust};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, chat};
use rustls::version::{TLS12, TLS13};
use serde_json::json;

use super::rig::{Rig, ask};
use crate::pair::crc32;
use crate::streams::rig::{CHAT, DONE, WITHIN, event, finish, scripted};

#[test]
fn streams_and_answers_come_to_the_byte_over_one_kept_connection_on_every_driver() {
    for driver in ["auto", "epoll"] {
        let rig = Rig::with("", |builder| builder.arg("--driver").arg(driver));
        for version in [&TLS12, &TLS13] {
            let trust = Trust::with(&[&rig.pair.cert()], &[version], &[]);
            let mut connection = rig.open_as(&trust);
            let whole = ask(&mut connection, &chat("hello"));
            assert_eq!((whole.status, whole.end), (200, End::Complete), "{}", whole.text());
            // Events of all sizes, up to more than a record holds.
            let texts: Vec<String> =
                [1, 100, 5_000, 16_300, 16_400, 60_000].map(|len| event(&"x".repeat(len))).to_vec();
            let mut pieces: Vec<&str> = texts.iter().map(String::as_str).collect();
            pieces.push(DONE);
            let stream = ask(&mut connection, &scripted(&pieces));
            assert_eq!((stream.status, stream.end), (200, End::Complete));
            assert_eq!(stream.text(), pieces.concat(), "{driver}");
            let many =
                ask(&mut connection, &chat("many").streamed().faults(json!({ "events": 300, "event_bytes": 200 })));
            assert!(many.text().ends_with(DONE) && many.events().len() > 300, "{}", many.events().len());
        }
        finish(rig.gateway);
    }
}

#[test]
fn a_body_of_30_mb_reaches_the_engine_to_the_byte() {
    let rig = Rig::over(Engine::local_with(|config| config.body_held_bytes_max = 1_000_000), "", |builder| builder);
    let body = chat(&"0123456789".repeat(3_000_000)).json().to_string();
    let mut connection = rig.open();
    connection.send(&Request::new("POST", CHAT).body("application/json", &body).bytes()).expect("sent");
    let reply = connection.reply().expect("a reply");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let call = rig.engine.only_call();
    assert_eq!((call.body_bytes, call.body_crc32), (body.len() as u64, crc32(body.as_bytes())));
    finish(rig.gateway);
}

#[test]
fn requests_in_records_of_one_byte_and_several_in_one_record_are_understood() {
    let rig = Rig::start();
    let mut connection = rig.open();
    let request = Request::new("POST", CHAT).json(&chat("hello").json()).bytes();
    connection.send_byte_by_byte(&request).expect("sent");
    assert_eq!(connection.reply().expect("a reply").status, 200);
    connection.send(&[&request[..], &request, &request].concat()).expect("sent");
    for _ in 0..3 {
        assert_eq!(connection.reply().expect("a reply").status, 200);
    }
    finish(rig.gateway);
}

#[test]
fn the_end_of_an_answer_is_told_from_one_that_was_cut_short() {
    let rig = Rig::start();
    let closing =
        |chat: llmgw_test_kit::Chat| Request::new("POST", CHAT).header("Connection", "close").json(&chat.json());
    let mut connection = rig.open();
    connection.send(&closing(chat("hello")).bytes()).expect("sent");
    assert_eq!(connection.reply().expect("a reply").status, 200);
    assert_eq!(connection.wait_for_close().expect("an end"), Closed::Fin, "with the goodbye of TLS");

    let mut connection = rig.open();
    let broken = chat("x").streamed().faults(json!({ "events": 20, "close_after_events": 5 }));
    connection.send(&closing(broken).bytes()).expect("sent");
    let reply = connection.reply().expect("a reply");
    assert_eq!(reply.end, End::Cut(Closed::Untold), "{}", reply.text());
    finish(rig.gateway);
}

#[test]
fn a_client_that_leaves_is_seen_by_the_engine() {
    let rig = Rig::start();
    let slow = json!({ "events": 10_000, "delay_us": 5_000 });
    let silent = json!({ "first_byte_delay_us": 60_000_000 });
    for (at, (faults, is_streamed)) in [(&slow, true), (&silent, true), (&silent, false)].into_iter().enumerate() {
        let asked = chat("leaves").faults(faults.clone());
        let asked = if is_streamed { asked.streamed() } else { asked };
        let mut connection: Connection = rig.open();
        connection.send(&Request::new("POST", CHAT).json(&asked.json()).bytes()).expect("sent");
        rig.engine.wait_for_calls(at + 1, WITHIN, |_| true);
        connection.leave();
        let calls = rig.engine.wait_for_calls(at + 1, WITHIN, |call| call.client_closed_at_ns.is_some());
        assert_eq!(calls[at].outcome, "client_closed", "call {at}");
    }
    finish(rig.gateway);
}

#[test]
fn a_client_that_comes_again_takes_its_session_up_on_any_core() {
    // Two cores: whichever the kernel picks knows the tickets of the other.
    let rig = Rig::with("", |builder| builder.env("LLMGW__CORES", "2"));
    for version in [&TLS12, &TLS13] {
        let trust = Trust::with(&[&rig.pair.cert()], &[version], &[]);
        let before = (rig.handshakes("full"), rig.handshakes("resumed"));
        for turn in 0..12 {
            let mut connection = rig.open_as(&trust);
            // Tickets come with what is read.
            assert_eq!(ask(&mut connection, &chat("again")).status, 200);
            assert_eq!(connection.is_resumed(), turn > 0, "{version:?}, turn {turn}");
        }
        assert_eq!((rig.handshakes("full"), rig.handshakes("resumed")), (before.0 + 1, before.1 + 11));
    }
    assert!(!rig.open().is_resumed(), "another client");
    finish(rig.gateway);
}
