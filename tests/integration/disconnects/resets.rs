//! Many clients that reset their streams anywhere: nothing is left of them, and nothing falls over.

use std::thread;

use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::{chat, full_or, wait_for};
use serde_json::json;

use crate::streams::rig::{Rig, WITHIN, request};

const CLIENTS: usize = 8;

/// A small generator: where each client stops is drawn, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }
}

fn open_files(rig: &mut Rig) -> u64 {
    rig.gateway.process().usage().expect("it runs").fd_count
}

/// Reads a drawn number of bytes of a stream, then resets; or resets with the request half sent.
fn reset_somewhere(addr: std::net::SocketAddr, draw: &mut Draw) {
    let mut connection = Connection::open(addr).expect("a connection");
    let faults =
        [json!({ "events": 2_000 }), json!({ "events": 50, "delay_us": 500 }), json!({ "close_after_events": 9 })];
    let bytes = request(&chat("x").streamed().faults(faults[draw.below(faults.len())].clone()));
    if draw.below(10) == 0 {
        connection.send(&bytes[..draw.below(bytes.len())]).expect("sent");
    } else {
        connection.send(&bytes).expect("sent");
        let mut left = draw.below(20_000);
        if let Ok(head) = connection.head() {
            let mut body = connection.body(&head);
            while let Ok(Some(piece)) = body.piece() {
                if piece.len() >= left {
                    break;
                }
                left -= piece.len();
            }
        }
    }
    connection.abort().expect("a reset");
}

// D4
#[test]
fn streams_that_clients_reset_anywhere_leave_nothing_behind() {
    let mut rig = Rig::with("", |builder| builder.cores(2));
    let addr = rig.gateway.addr();
    let round = |count: usize, seed: u64| {
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    let mut draw = Draw(seed + client as u64);
                    (0..count / CLIENTS).for_each(|_| reset_somewhere(addr, &mut draw));
                });
            }
        });
    };
    let settle = |rig: &Rig| {
        rig.wait_until_idle();
        wait_for("no connection", WITHIN, || rig.gateway.metrics().sum("llmgw_client_connections", &[]) == Some(0.0));
        wait_for("an idle engine", WITHIN, || rig.engine.state().open_requests == 0);
    };
    // One round lets pools and buffers grow to what they keep.
    round(64, 1);
    settle(&rig);
    let (before, rss) = (open_files(&mut rig), rig.gateway.process().usage().expect("it runs").rss_bytes);
    round(full_or(1_000, 240), 99);
    settle(&rig);
    // Idle connections to the engine may stay, as many as there were clients at most.
    let most = before + CLIENTS as u64;
    wait_for("the descriptors to be given back", WITHIN, || open_files(&mut rig) <= most);
    let grown = rig.gateway.process().usage().expect("it runs").rss_bytes.saturating_sub(rss);
    assert!(grown < 32 << 20, "{grown} bytes more resident");
    assert_eq!(rig.ask(chat("still here").streamed()).status, 200);
    rig.finish();
}
