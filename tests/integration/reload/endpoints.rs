//! Endpoints that come, go and come back while requests run.

use std::time::Instant;

use llmgw_test_kit::raw::{self, Connection, End};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, chat, full_or, wait_for, wait_for_some};
use serde_json::json;

use super::rig::{CHAT, Rig, WITHIN, yaml};

#[test]
fn an_added_endpoint_gets_requests_and_a_removed_one_none_while_its_stream_ends_well() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a)]);
    let faults = json!({ "events": 5, "stall_after_events": 2 });
    let (mut stream, head) = rig.stream(chat("x").faults(faults));
    wait_for("a stream", WITHIN, || a.state().open_requests == 1);

    let answer = rig.reload_with(&yaml(&[("a", &a), ("b", &b)], ""));
    assert_eq!(answer["changes"]["endpoints"]["added"], json!(["b"]));
    rig.wait_until_ready("b");
    wait_for("a request at b", WITHIN, || rig.replicas(4).contains(&"b".to_owned()));

    let answer = rig.reload_with(&yaml(&[("b", &b)], ""));
    assert_eq!(answer["changes"]["endpoints"]["removed"], json!(["a"]));
    assert_eq!(rig.replicas(20), ["b"]);
    // Trial M2: its series are gone, though its stream still runs.
    let page = rig.gateway.admin("/metrics").text();
    assert!(!page.contains("replica=\"a\"") && page.contains("replica=\"b\""), "{page}");
    assert_eq!(a.state().open_requests, 1);
    a.release();
    let mut body = stream.body(&head);
    let mut text = String::new();
    while let Some(piece) = body.piece().expect("more of the stream") {
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    assert_eq!(body.end(), End::Complete);
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    rig.gateway.finish(&[]);
}

#[test]
fn an_endpoint_that_comes_later_begins_with_a_small_part_of_its_share() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a)]);
    // Without metrics weights alone decide: a page that was read while a request ran says until the next one that its
    // engine is the busier.
    let both = yaml(&[("a", &a), ("b", &b)], "").replace("engine: sim", "engine: sim, metrics_path: off");
    let before = Instant::now();
    rig.reload_with(&both);
    rig.wait_until_ready("b");
    // On one connection, so that each request is over for the gateway, too, when the next one comes.
    let mut connection = Connection::open(rig.gateway.addr()).expect("a connection");
    let request = Request::new("POST", CHAT).json(&chat("hello").json()).bytes();
    let asked = 400;
    for _ in 0..asked {
        connection.send(&request).expect("sent");
        assert_eq!(connection.reply().expect("a reply").status, 200);
    }
    let share = b.calls().len();
    // A tenth of the other's weight at first, all of it after half a minute: no more than it has by now, however slow
    // the machine is, give or take the lot.
    let weight = (0.1 + 0.9 * before.elapsed().as_secs_f64() / 30.0).min(1.0);
    let part = weight / (1.0 + weight);
    let (mean, deviation) = (f64::from(asked) * part, (f64::from(asked) * part * (1.0 - part)).sqrt());
    assert!(share > 0 && (share as f64) < mean + 6.0 * deviation, "{share} of {asked}, {mean:.0} expected");
    rig.gateway.finish(&[]);
}

#[test]
fn a_removed_models_series_are_gone_with_its_endpoint() {
    let a = Engine::local();
    let rig = Rig::start(&[("a", &a)]);
    let with = yaml(&[("a", &a)], "").replace("router:", "models: [{ name: test-model, aliases: [alias] }]\nrouter:");
    rig.reload_with(&with);
    assert_eq!(rig.ask().status, 200);
    wait_for("its series", WITHIN, || rig.gateway.admin("/metrics").text().contains("model=\"test-model\""));
    let renamed = yaml(&[("a", &a)], "").replace("model: test-model", "model: other-name, served_as: test-model");
    let answer = rig.reload_with(&renamed);
    assert_eq!(answer["changes"]["models"]["removed"], json!(["test-model"]));
    let page = rig.gateway.admin("/metrics").text();
    assert!(!page.contains("model=\"test-model\""), "{page}");
    assert_eq!(rig.ask().status, 404);
    rig.gateway.finish(&["\"request_id\""]);
}

#[test]
fn a_name_that_moves_to_another_engine_is_another_endpoint() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("x", &a)]);
    assert_eq!(rig.post("/api/v1/endpoints/x/drain").status, 200);
    let answer = rig.reload_with(&yaml(&[("x", &b)], ""));
    assert_eq!(answer["changes"]["endpoints"]["changed"], json!([{ "name": "x", "keys": ["url"] }]));
    rig.wait_until_ready("x");
    assert_eq!(rig.endpoints()[0]["is_draining"], false, "the drain was the other one's");
    let before = a.calls().len();
    wait_for("an answer", WITHIN, || rig.ask().status == 200);
    assert_eq!(a.calls().len(), before);
    assert_eq!(b.calls().len(), 1);
    rig.gateway.finish(&["\"request_id\""]);
}

/// Trial R11.
#[test]
fn an_endpoint_that_is_removed_and_added_again_is_there_each_time() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a), ("b", &b)]);
    let (one, both) = (yaml(&[("a", &a)], ""), yaml(&[("a", &a), ("b", &b)], ""));
    let rounds = full_or(1000, 40);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let reply = rig.ask();
                assert_eq!(reply.status, 200, "{}", reply.text());
                count += 1;
            }
            count
        });
        for round in 0..rounds {
            rig.reload_with(&one);
            assert_eq!(rig.names(), ["a"], "round {round}");
            rig.reload_with(&both);
            assert_eq!(rig.names(), ["a", "b"], "round {round}");
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(load.join().expect("no request failed") > 0);
    });
    rig.wait_until_ready("b");
    wait_for("a request at b", WITHIN, || rig.replicas(4).contains(&"b".to_owned()));
    rig.gateway.finish(&[]);
}

#[test]
fn readiness_says_what_endpoints_that_are_drained_or_failed_leave() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a), ("b", &b)]);
    rig.wait_until_ready("a");
    rig.wait_until_ready("b");
    // Both addresses say the same, but for what happens between the two questions.
    let standing = || {
        wait_for_some("both addresses to say the same", WITHIN, || {
            let pages = [rig.gateway.admin("/readyz"), raw::get(rig.gateway.addr(), "/readyz")];
            let [page, other] = pages.map(|reply| {
                let body = reply.json();
                let counts = ["ready", "draining", "out"];
                let counts = counts.map(|name| body[format!("endpoints_{name}")].as_u64().unwrap());
                (reply.status, body["status"].as_str().unwrap().to_owned(), counts)
            });
            (page == other).then_some(page)
        })
    };
    let drain = |name: &str, act: &str| assert_eq!(rig.post(&format!("/api/v1/endpoints/{name}/{act}")).status, 200);
    assert_eq!(standing(), (200, "ready".to_owned(), [2, 0, 0]));
    drain("a", "drain");
    assert_eq!(standing(), (200, "ready".to_owned(), [1, 1, 0]));
    b.set_faults(json!({ "status": 503 }));
    assert_eq!(rig.ask().status, 503);
    wait_for("its cooldown", WITHIN, || standing().2 == [1, 1, 1]);
    // It is asked all the same, so traffic is wanted.
    assert_eq!(standing(), (200, "every ready endpoint failed a moment ago".to_owned(), [1, 1, 1]));
    b.set_faults(json!({}));
    assert_eq!(rig.ask().status, 200);
    drain("b", "drain");
    assert_eq!(standing(), (503, "every endpoint is drained".to_owned(), [0, 2, 0]));
    drain("a", "undrain");
    assert_eq!(standing(), (200, "ready".to_owned(), [1, 1, 0]));
    rig.gateway.finish(&["\"request_id\""]);
}
