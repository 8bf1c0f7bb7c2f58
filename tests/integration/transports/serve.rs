//! What a client gets through engines behind TLS and behind UNIX sockets: what it gets from any other.

use llmgw_test_kit::engine::EngineConfig;
use llmgw_test_kit::raw::{Connection, End};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, chat};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::relay;
use super::tls::{certified, endpoint};
use crate::pair::{CHAT, WITHIN, crc32, llmgw};
use crate::streams::rig::{DONE, Rig, builder};

/// A gateway before one engine, and how it gets there.
struct Door {
    name: &'static str,
    rig: Rig,
    /// With the certificate or the socket.
    _folder: TempDir,
}

fn doors(change: fn(&mut EngineConfig)) -> [Door; 2] {
    let tls = {
        let (engine, certified) = (Engine::local_with(change), certified("127.0.0.1", |_| {}));
        let addr = relay::tls(certified.server.clone(), engine.addr());
        let gateway = builder("").endpoint(&endpoint(addr, &certified.ca())).start(llmgw());
        Door { name: "https", rig: Rig { engine, gateway }, _folder: certified.folder }
    };
    let unix = {
        let (engine, folder) = (Engine::local_with(change), tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("engine.sock");
        relay::unix(&path, engine.addr());
        let gateway = builder("").url(&format!("unix:{}", path.display())).start(llmgw());
        Door { name: "unix", rig: Rig { engine, gateway }, _folder: folder }
    };
    [tls, unix]
}

#[test]
fn answers_and_streams_come_whole_over_one_kept_connection() {
    for Door { name, rig, _folder } in doors(|_| ()) {
        let reply = rig.ask(chat("hello"));
        assert_eq!((reply.status, reply.end), (200, End::Complete), "{name}: {}", reply.text());
        assert_eq!(reply.json()["object"], "chat.completion", "{name}");
        let events = json!({ "events": 200, "event_bytes": 3000 });
        let reply = rig.ask(chat("hello").streamed().faults(events));
        assert_eq!((reply.status, reply.end), (200, End::Complete), "{name}");
        assert!(reply.text().ends_with(DONE) && reply.events().len() > 200, "{name}: {}", reply.events().len());
        assert_eq!(rig.ask(chat("again")).status, 200, "{name}");
        rig.wait_for_ended(3);
        let connections: Vec<u64> = rig.engine.calls().iter().map(|call| call.connection).collect();
        assert!(connections.len() == 3 && connections.iter().all(|one| *one == connections[0]), "{connections:?}");
        rig.finish();
    }
}

#[test]
fn a_body_of_30_mb_reaches_the_engine_to_the_byte() {
    for Door { name, rig, _folder } in doors(|cfg| cfg.body_held_bytes_max = 1_000_000) {
        let body = chat(&"0123456789".repeat(3_000_000)).json().to_string();
        let request = Request::new("POST", CHAT).header("Connection", "close").body("application/json", &body);
        let reply = llmgw_test_kit::raw::call(rig.gateway.addr(), &request.bytes());
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        let call = rig.engine.only_call();
        assert_eq!((call.body_bytes, call.body_crc32), (body.len() as u64, crc32(body.as_bytes())), "{name}");
        rig.finish();
    }
}

#[test]
fn a_client_that_leaves_is_seen_by_the_engine() {
    for Door { name, rig, _folder } in doors(|_| ()) {
        let slow = json!({ "events": 10_000, "delay_us": 5_000 });
        let silent = json!({ "first_byte_delay_us": 60_000_000 });
        let cases: [(bool, &Value, usize); 4] =
            [(true, &slow, 3), (true, &silent, 0), (false, &slow, 0), (false, &silent, 0)];
        for (at, (is_streamed, faults, events)) in cases.into_iter().enumerate() {
            let asked = chat("leaves").faults(faults.clone());
            let connection: Connection = match (is_streamed, events) {
                (true, 0) => rig.send(asked.streamed()),
                (true, events) => rig.stream(asked, events),
                (false, _) => rig.send(asked),
            };
            rig.engine.wait_for_calls(at + 1, WITHIN, |_| true);
            connection.leave();
            let calls = rig.engine.wait_for_calls(at + 1, WITHIN, |call| call.client_closed_at_ns.is_some());
            assert_eq!(calls[at].outcome, "client_closed", "{name}, call {at}");
        }
        rig.finish();
    }
}

#[test]
fn an_engine_that_closes_after_its_answer_costs_no_client_an_error() {
    for Door { name, rig, _folder } in doors(|_| ()) {
        rig.engine.set_faults(json!({ "close_after_reply": true }));
        for round in 0..60 {
            let asked = if round % 3 == 0 { chat("again").streamed() } else { chat("again") };
            let reply = rig.ask(asked);
            assert_eq!(reply.status, 200, "{name}, round {round}: {}", reply.text());
        }
        let answered = rig.engine.calls().iter().filter(|call| call.bytes_written > 0).count();
        assert_eq!(answered, 60, "{name}: nobody is answered twice");
        rig.finish();
    }
}

#[test]
fn an_engine_that_dies_in_a_stream_is_told_to_the_client() {
    for Door { name, rig, _folder } in doors(|_| ()) {
        let reply = rig.ask(chat("x").streamed().faults(json!({ "events": 20, "close_after_events": 5 })));
        assert!(matches!(reply.end, End::Cut(_)), "{name}: {:?}", reply.end);
        let text = reply.text();
        assert!(text.contains("\"engine_closed\"") && !text.contains("[DONE]"), "{name}: {text}");
        rig.finish();
    }
}
