//! Clients that ask and ask and never read an answer.

use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::{chat, wait_for};

use crate::streams::rig::{Rig, WITHIN, request};

/// Sends the same request again and again, until all went out or the gateway has given this client up.
fn ask_without_reading(rig: &Rig, bytes: &[u8], times: usize) -> Connection {
    let mut connection = Connection::open_narrow(rig.gateway.addr(), 2_048).expect("a connection");
    let _ = (0..times).try_for_each(|_| connection.send(bytes));
    connection
}

#[test]
fn a_client_that_never_reads_its_answers_does_not_keep_its_place_at_an_engine() {
    let rig = Rig::with_timeouts("total: 1s");
    // Answers that come in one piece each, more of them than all buffers between can hold.
    let held = ask_without_reading(&rig, &request(&chat("x").max_tokens(300)), 6_000);
    rig.wait_until_idle();
    drop(held);
    rig.finish();
}

#[test]
fn a_client_that_never_reads_the_gateways_own_answers_is_given_up() {
    let rig = Rig::with_timeouts("client_idle: 1s");
    let bytes = b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n".repeat(64);
    let held = ask_without_reading(&rig, &bytes, 1_000);
    wait_for("no open connection", WITHIN, || rig.count("llmgw_client_connections", &[]) == 0);
    drop(held);
    rig.finish();
}
