//! Clients of other kinds: HTTP/1.0, HEAD, a connection kept for the next request.

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::{self, Closed, Connection, End};
use llmgw_test_kit::request::Request;
use serde_json::json;

use super::rig::{CHAT, DONE, Rig, event, request, scripted, scripted_as};
use super::sse;

fn old_request(body: &serde_json::Value) -> Vec<u8> {
    Request::bare("POST", CHAT, "HTTP/1.0").json(body).bytes()
}

#[test]
fn a_client_of_http_1_0_gets_a_stream_that_ends_with_its_connection() {
    let rig = Rig::start();
    let text = [&event("a"), &event("b"), DONE].concat();
    let reply = raw::call(rig.gateway.addr(), &old_request(&scripted(&[&text]).json()));
    assert_eq!((reply.status, reply.text(), reply.end), (200, text, End::Complete));
    assert_eq!((reply.header("transfer-encoding"), reply.header("content-length")), (None, None));
    // A break is told in the stream all the same, and the end is none that could pass for a proper one.
    let broken = scripted_as("close", json!([event("a")])).json();
    let reply = raw::call(rig.gateway.addr(), &old_request(&broken));
    assert_eq!(sse::last_error(&reply.body)["code"], "engine_closed");
    // What has a length keeps it.
    let reply = raw::call(rig.gateway.addr(), &old_request(&chat("x").json()));
    assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()));
    rig.finish();
}

#[test]
fn head_of_the_models_is_their_head_alone_and_the_connection_goes_on() {
    let rig = Rig::start();
    let addr = rig.gateway.addr();
    let listed = raw::get(addr, "/v1/models");
    let mut connection = Connection::open(addr).expect("a connection");
    for target in ["/v1/models", "/v1/models/test-model"] {
        connection.send(&Request::new("HEAD", target).bytes()).expect("sent");
        let reply = connection.reply_to_head().expect("a reply");
        assert_eq!((reply.status, reply.body.len()), (200, 0), "{target}");
    }
    connection.send(&Request::new("HEAD", "/v1/models").bytes()).expect("sent");
    let reply = connection.reply_to_head().expect("a reply");
    assert_eq!(reply.header("content-length"), Some(listed.body.len().to_string().as_str()));
    connection.send(&Request::new("GET", "/v1/models").bytes()).expect("sent");
    assert_eq!(connection.reply().expect("a reply").body, listed.body);
    rig.finish();
}

pub(crate) fn check_one_connection_carries_many_requests(rig: &Rig) {
    let mut connection = Connection::open(rig.gateway.addr()).expect("a connection");
    let text = [&event("a"), DONE].concat();
    for number in 0..10 {
        let is_streamed = number % 2 == 0;
        connection.send(&request(&if is_streamed { scripted(&[&text]) } else { chat("whole") })).expect("sent");
        let reply = connection.reply().expect("a reply");
        assert_eq!((reply.status, reply.end), (200, End::Complete), "{number}");
        if is_streamed {
            assert_eq!(reply.text(), text, "{number}");
        }
    }
    rig.wait_for_ended(10);
    assert_eq!(rig.gateway.metrics().sum("llmgw_client_connections", &[]), Some(1.0));
    // The engine's connection is kept as well.
    let opened = rig.count("llmgw_upstream_connections_total", &[("event", "opened")]);
    assert!(opened <= 2, "{opened} connections to the engine");
}

#[test]
fn a_connection_carries_streams_and_whole_answers_one_after_the_other() {
    let rig = Rig::start();
    check_one_connection_carries_many_requests(&rig);
    rig.finish();
}

#[test]
fn a_client_that_asks_for_the_end_of_its_connection_gets_it_after_a_complete_stream() {
    let rig = Rig::start();
    let text = [&event("a"), DONE].concat();
    let asking = Request::new("POST", CHAT).header("Connection", "close").json(&scripted(&[&text]).json());
    let mut connection = Connection::open(rig.gateway.addr()).expect("a connection");
    connection.send(&asking.bytes()).expect("sent");
    let reply = connection.reply().expect("a reply");
    assert_eq!((reply.text(), reply.end), (text, End::Complete));
    assert_eq!(connection.wait_for_close().expect("an end"), Closed::Fin);
    rig.finish();
}
