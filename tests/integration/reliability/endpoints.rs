//! Endpoints that an operator takes out and back, and one that does far worse than its pool, while requests come.

use llmgw_test_kit::raw::{self, Connection, End};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for};
use serde_json::{Value, json};

use super::rig::{Fleet, assert_all_well};
use crate::pair::{CHAT, WITHIN, llmgw};
use crate::streams::rig::DONE;

#[track_caller]
fn ctl(fleet: &Fleet, act: &str, name: &str) -> String {
    let admin = format!("http://{}", fleet.gateway.admin_addr());
    let args = ["ctl", "--admin", &admin, "endpoints", act, name];
    let output = std::process::Command::new(llmgw()).args(args).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Streams that wait at their engines for a release, among them one at the first engine.
fn held(fleet: &Fleet) -> Vec<Connection> {
    let stalling = chat("x").streamed().faults(json!({ "events": 5, "stall_after_events": 2 })).json();
    let bytes = Request::new("POST", CHAT).header("Connection", "close").json(&stalling).bytes();
    let mut streams = Vec::new();
    wait_for("a stream at the first engine", WITHIN, || {
        let mut stream = Connection::open(fleet.gateway.addr()).expect("a connection");
        stream.send(&bytes).expect("sent");
        streams.push(stream);
        fleet.engines[0].state().open_requests > 0
    });
    streams
}

#[test]
fn a_drained_endpoint_ends_what_it_runs_gets_nothing_new_under_load_and_comes_back_slowly() {
    let fleet = Fleet::local(3, "");
    let streams = held(&fleet);
    let said = ctl(&fleet, "drain", "engine-0");
    assert!(said.contains("draining"), "{said}");
    let before = fleet.engines[0].calls().len();
    assert_all_well(&fleet.load(4, 30, &chat("hello"), || ()));
    assert_eq!(fleet.engines[0].calls().len(), before, "nothing new");
    assert!(fleet.engines[0].state().open_requests > 0, "what it runs is not cut");
    fleet.engines.iter().for_each(llmgw_test_kit::Engine::release);
    for mut stream in streams {
        let reply = stream.reply().expect("a reply");
        assert_eq!((reply.status, reply.end), (200, End::Complete));
        assert!(reply.text().ends_with(DONE), "{}", reply.text());
    }
    ctl(&fleet, "undrain", "engine-0");
    let request = Request::new("POST", CHAT).header("x-llmgw-explain", "1").header("Connection", "close");
    let reply = raw::call(fleet.gateway.addr(), &request.json(&chat("hello").json()).bytes());
    let said: Value = serde_json::from_str(reply.header("x-llmgw-explain").expect("the header")).expect("JSON");
    let weight = |name: &str| {
        let candidates = said["decisions"][0]["candidates"].as_array().expect("candidates");
        candidates.iter().find(|one| one["replica"] == name).expect("it is there")["weight"].as_f64().expect("a number")
    };
    assert!(weight("engine-0") < weight("engine-1") / 2.0, "a small share at first: {said}");
    assert!((weight("engine-1") - weight("engine-2")).abs() < 1e-6, "those that stayed have their whole share");
    wait_for("requests at the one that came back", WITHIN, || {
        assert_all_well(&fleet.load(2, 10, &chat("hello"), || ()));
        fleet.engines[0].calls().len() > before
    });
}

#[test]
fn an_endpoint_that_fails_far_more_than_its_pool_is_ejected_although_it_answers_most_requests() {
    let fleet = Fleet::local(5, "cooldown_seconds: 0");
    // Four of nine fail, never two in a row: too few for its own breaker, far more than the others.
    let fails = [false, true, false, true, false, true, false, true, false];
    let (mut served, mut failed) = (0, 0);
    wait_for("an open breaker", WITHIN * 6, || {
        for _ in 0..60 {
            let reply = fleet.ask(&chat("hello"));
            if reply.header("x-llmgw-replica") == Some("engine-0") {
                failed += usize::from(reply.status == 500);
                served += 1;
                let faults = if fails[served % fails.len()] { json!({ "status": 500 }) } else { json!({}) };
                fleet.engines[0].set_faults(faults);
            }
        }
        fleet.breaker(0) != 0
    });
    assert!(served >= 20 && failed * 2 < served, "{failed} of {served}");
    for engine in 1..5 {
        assert_eq!(fleet.breaker(engine), 0, "engine-{engine}");
    }
    assert_eq!(fleet.count("llmgw_cooldowns_total", &[]), 0);
}
