//! HTTP/1.1 as a client meets it: keep-alive, pipelining, bodies of every framing.

use llmgw_engine_sim::EngineConfig;
use llmgw_engine_sim::record::Outcome;

use crate::support::{Client, Ending, chat, config, immediate, start, until};

#[test]
fn a_connection_serves_one_request_after_another() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    for _ in 0..3 {
        assert_eq!(client.chat(&chat(false)).status, 200);
        assert_eq!(client.chat(&chat(true)).status, 200);
        assert_eq!(client.get("/v1/nothing").status, 404);
    }
    assert_eq!(engine.state().accepted_connections, 1);
    assert!(engine.requests().iter().all(|request| request.connection == 1 && request.outcome == Outcome::Complete));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let one = "GET /version HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!("{one}GET /v1/nothing HTTP/1.1\r\nHost: a\r\n\r\n{one}").as_bytes());
    assert_eq!([client.reply().status, client.reply().status, client.reply().status], [200, 404, 200]);
}

#[test]
fn an_expected_continue_comes_before_the_body_is_sent() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let body = chat(false);
    let length = body.len();
    client.send(
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(body.as_bytes());
    assert_eq!(client.reply().status, 200);
}

#[test]
fn a_chunked_body_is_read_and_recorded_without_its_framing() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let body = chat(false);
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    client.send(head.as_bytes());
    for byte in body.as_bytes() {
        client.send(&[b"1;x=y\r\n", &[*byte][..], b"\r\n"].concat());
    }
    client.send(b"0\r\nTrailer: 1\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert!(client.is_alive());
    assert_eq!(engine.requests()[0].body, body.as_bytes());
}

#[test]
fn a_body_of_64_mib_is_read_and_hashed() {
    let engine = start(EngineConfig { recorded_body_bytes_max: 1000, ..config() });
    let image = "A".repeat(64 << 20);
    let part = format!(r#"{{"type":"image_url","image_url":{{"url":"data:{image}"}}}}"#);
    let body = format!(r#"{{"max_tokens":2,"messages":[{{"role":"user","content":[{part}]}}]}}"#);
    let mut crc = flate2::Crc::new();
    crc.update(body.as_bytes());
    let reply = Client::connect(&engine).chat(&body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let received = &engine.requests()[0];
    assert_eq!((received.body_bytes, received.body_crc32), (body.len() as u64, crc.sum()));
    assert_eq!(received.body, body.as_bytes()[..1000]);
}

#[test]
fn a_body_that_is_not_held_is_counted_and_answered_all_the_same() {
    let engine = start(EngineConfig { body_held_bytes_max: 10_000, recorded_body_bytes_max: 100, ..config() });
    let body = format!(r#"{{"model":"tiny","prompt":"{}"}}"#, "abc ".repeat(100_000));
    let mut crc = flate2::Crc::new();
    crc.update(body.as_bytes());
    let reply = Client::connect(&engine).post("/v1/completions", &body);
    assert_eq!((reply.status, &reply.json()["usage"]["completion_tokens"]), (200, &1.into()));
    let received = &engine.requests()[0];
    assert_eq!((received.body_bytes, received.body_crc32, received.body.len()), (body.len() as u64, crc.sum(), 100));
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let engine = start(EngineConfig { body_bytes_max: 1_000, ..config() });
    let mut client = Client::connect(&engine);
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    assert_eq!(client.rest().1, Ending::Closed);
}

#[test]
fn http_1_0_gets_a_body_without_chunks_and_a_close() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let body = chat(true);
    let length = body.len();
    let head = "POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length:";
    client.send(format!("{head} {length}\r\n\r\n{body}").as_bytes());
    let reply = client.reply();
    assert!(reply.header("transfer-encoding").is_none());
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
}

#[test]
fn a_client_that_wants_to_close_is_told_so_and_closed() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_post("/v1/chat/completions", "Connection: close\r\n", &chat(false));
    assert_eq!(client.reply().header("connection"), Some("close"));
    assert_eq!(client.rest(), (Vec::new(), Ending::Closed));
    until("the connection is gone", || engine.state().open_connections == 0);
}

#[test]
fn what_is_no_http_gets_400_and_a_close() {
    let engine = immediate();
    for bytes in [&b"hello\r\n\r\n"[..], b"POST /x HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"\x16\x03\x01\0\r\n\r\n"] {
        let mut client = Client::connect(&engine);
        client.send(bytes);
        assert_eq!(client.reply().status, 400, "{bytes:?}");
        assert_eq!(client.rest().1, Ending::Closed);
    }
}

#[test]
fn a_port_in_use_is_an_error() {
    let engine = immediate();
    assert!(llmgw_engine_sim::Engine::start(config(), engine.local_addr()).is_err());
}

#[test]
fn a_stopped_engine_closes_its_connections_and_its_port() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_chat_with(r#"{"stall_after_events":1}"#, true);
    client.head();
    let addr = engine.local_addr();
    engine.stop();
    client.rest();
    assert!(std::net::TcpStream::connect(addr).is_err());
}
