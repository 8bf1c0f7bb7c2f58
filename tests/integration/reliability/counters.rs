//! Requests that end in every way there is leave nothing counted behind.

use std::sync::atomic::{AtomicBool, Ordering};

use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, full_or};
use serde_json::{Value, json};

use super::rig::Fleet;
use crate::pair::CHAT;

fn endings() -> Vec<(Value, bool)> {
    let faults = |faults: Value| chat("x").faults(faults).json();
    let streamed = |faults: Value| chat("x").streamed().faults(faults).json();
    vec![
        (chat("x").json(), false),
        (chat("x").streamed().json(), false),
        (faults(json!({ "status": 503 })), false),
        (faults(json!({ "status": 429, "retry_after_s": 0 })), false),
        (faults(json!({ "status": 500 })), false),
        (faults(json!({ "status": 400 })), false),
        (streamed(json!({ "events": 5, "close_after_events": 2 })), false),
        (streamed(json!({ "events": 5, "close_after_events": 2, "reset": true })), false),
        (streamed(json!({ "events": 200, "delay_us": 1_000 })), true),
        (faults(json!({ "first_byte_delay_us": 5_000 })), true),
        (json!({ "model": "nobody" }), false),
    ]
}

// R10
#[test]
fn every_gauge_is_0_after_mixed_endings_and_never_below() {
    let fleet = Fleet::local(3, "cooldown_seconds: 0");
    let endings = endings();
    let is_over = AtomicBool::new(false);
    let each = full_or(12_500, 60);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (endings, addr) = (&endings, fleet.gateway.addr());
                scope.spawn(move || {
                    for turn in 0..each {
                        let (body, leaves) = &endings[(client * 5 + turn) % endings.len()];
                        let request = Request::new("POST", CHAT).header("Connection", "close").json(body).bytes();
                        let mut connection = Connection::open(addr).expect("a connection");
                        connection.send(&request).expect("sent");
                        if *leaves {
                            connection.leave();
                        } else {
                            connection.reply().unwrap_or_else(|error| panic!("{body}: {error}"));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                for gauge in ["llmgw_endpoint_inflight", "llmgw_requests_in_flight", "llmgw_client_connections"] {
                    let value = fleet.gateway.metrics().sum(gauge, &[]).unwrap_or(0.0);
                    assert!(value >= 0.0, "{gauge} is {value}");
                }
            }
        });
        let ended: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Release);
        ended.into_iter().for_each(|ended| ended.expect("a client that came to its end"));
    });
    fleet.wait_until_idle();
    assert_eq!(fleet.count("llmgw_panics_total", &[]), 0);
}
