//! Many reloads while requests and streams run: none fails, none is cut.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use llmgw_test_kit::raw::End;
use llmgw_test_kit::{Engine, chat, full_or, wait_for};
use serde_json::json;

use super::rig::{Rig, WITHIN, yaml};

#[test]
fn no_reload_fails_a_request_or_cuts_a_stream() {
    let engines: Vec<Engine> = (0..3).map(|_| Engine::local()).collect();
    let (a, b, c) = (&engines[0], &engines[1], &engines[2]);
    let mut rig = Rig::start(&[("a", a), ("b", b)]);
    let texts = [
        yaml(&[("a", a), ("b", b), ("c", c)], ""),
        yaml(&[("a", a), ("c", c)], ""),
        yaml(&[("a", a), ("b", b)], "").replace("settle: 0s", "settle: 0s, total: 30m"),
    ];
    let reloads = full_or(500, 50);
    let (is_over, requests, streams) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let (rig, is_over, requests, streams) = (&rig, &is_over, &requests, &streams);
        for _ in 0..2 {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let reply = rig.ask();
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..4 {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Long enough to see several reloads pass.
                    let faults = json!({ "events": 40, "delay_us": 5000 });
                    let (mut connection, head) = rig.stream(chat("x").faults(faults));
                    let mut body = connection.body(&head);
                    let mut text = String::new();
                    while let Some(piece) = body.piece().expect("more of the stream") {
                        text.push_str(&String::from_utf8_lossy(&piece));
                    }
                    assert_eq!(body.end(), End::Complete);
                    assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("\"error\""), "{text}");
                    streams.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..reloads {
            rig.reload_with(&texts[round % texts.len()]);
            // Every reload meets requests of its own.
            let seen = requests.load(Ordering::Relaxed);
            wait_for("a request between two reloads", WITHIN, || requests.load(Ordering::Relaxed) > seen);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(streams.load(Ordering::Relaxed) >= 4);
    wait_for("nothing in flight", WITHIN, || rig.gateway.inflight() == 0.0);
    assert_eq!(rig.gateway.metrics().sum("llmgw_broken_streams_total", &[]), Some(0.0));
    assert!(rig.lines(&["configuration reloaded", "admin API"]).len() >= reloads);
    rig.gateway.finish(&[]);
}
