//! A connection's life: many requests, odd cuts, old versions, other methods.

use std::time::Duration;

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::{Closed, End, Framing};
use llmgw_test_kit::request::Request;

use crate::pair::{CHAT, Pair, error_of};

#[test]
fn three_requests_sent_at_once_are_answered_in_their_order() {
    let pair = Pair::shared();
    let mut connection = pair.connect();
    let streamed = Request::new("POST", CHAT).json(&chat("two").with_usage().json()).bytes();
    let whole = Request::new("POST", CHAT).json(&chat("one").json()).bytes();
    let list = Request::new("GET", "/v1/models").bytes();
    connection.send(&[whole, streamed, list].concat()).expect("sent");
    let one = connection.reply().expect("the first");
    assert_eq!((one.status, one.json()["object"].as_str()), (200, Some("chat.completion")));
    let two = connection.reply().expect("the second");
    assert_eq!((two.status, two.end), (200, End::Complete));
    assert_eq!(two.events().last().map(String::as_str), Some("data: [DONE]\n\n"));
    let three = connection.reply().expect("the third");
    assert_eq!((three.status, three.json()["object"].as_str()), (200, Some("list")));
    for (reply, asked) in [(&one, "one"), (&two, "two")] {
        assert_eq!(pair.call_of(reply).json()["messages"][0]["content"], asked);
    }
}

#[test]
fn a_connection_serves_request_after_request_until_it_is_told_to_close() {
    let pair = Pair::shared();
    let mut connection = pair.connect();
    for round in 0..20 {
        let request = match round % 4 {
            0 => Request::new("POST", CHAT).json(&chat("again").json()),
            1 => Request::new("POST", CHAT).json(&chat("again").streamed().json()),
            2 => Request::new("POST", CHAT).body("application/json", "{"),
            _ => Request::new("GET", "/nowhere"),
        };
        connection.send(&request.bytes()).expect("sent");
        let reply = connection.reply().expect("an answer");
        assert_eq!(reply.status, [200, 200, 400, 404][round % 4]);
        assert_eq!((reply.end, reply.header("connection")), (End::Complete, None), "round {round}");
    }
    connection.send(&Request::new("GET", "/v1/models").header("Connection", "close").bytes()).expect("sent");
    let last = connection.reply().expect("an answer");
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert_eq!(connection.wait_for_close().expect("closed"), Closed::Fin);
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let pair = Pair::shared();
    let mut connection = pair.connect();
    let request = Request::new("POST", CHAT).json(&chat("bytes").json());
    let chunked = Request::new("POST", CHAT).chunked("application/json", [chat("bytes").json().to_string()]);
    for request in [request, chunked] {
        connection.send_byte_by_byte(&request.bytes()).expect("sent");
        let reply = connection.reply().expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(pair.call_of(&reply).json(), chat("bytes").json());
    }
}

#[test]
fn chunks_with_extensions_and_trailers_arrive_at_the_engine_as_one_body() {
    let pair = Pair::shared();
    let body = chat("chunks").json().to_string();
    let (front, back) = body.split_at(17);
    let head = Request::new("POST", CHAT).header("Content-Type", "application/json");
    let head = head.header("Transfer-Encoding", "chunked").head_bytes();
    let chunks = format!(
        "{:X};name=value;flag\r\n{front}\r\n000{:x}\r\n{back}\r\n0;last\r\nX-Checksum: 7\r\nX-More: 1\r\n\r\n",
        front.len(),
        back.len()
    );
    let mut connection = pair.connect();
    for _ in 0..2 {
        connection.send(&[head.as_slice(), chunks.as_bytes()].concat()).expect("sent");
        let reply = connection.reply().expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let call = pair.call_of(&reply);
        assert_eq!(call.body_text.as_deref(), Some(body.as_str()));
        assert_eq!(call.header("content-length"), Some(body.len().to_string().as_str()));
        assert_eq!((call.header("transfer-encoding"), call.header("x-checksum")), (None, None));
    }
}

#[test]
fn a_chunked_body_of_nothing_is_an_empty_body() {
    let pair = Pair::shared();
    let mut connection = pair.connect();
    let empty: [&str; 0] = [];
    connection.send(&Request::new("POST", CHAT).chunked("application/json", empty).bytes()).expect("sent");
    let reply = connection.reply().expect("an answer");
    assert_eq!((reply.status, reply.header("connection")), (400, None), "{}", reply.text());
    assert!(reply.text().contains("empty"), "{}", reply.text());
}

#[test]
fn an_old_client_gets_its_answer_ended_by_the_connection() {
    let pair = Pair::shared();
    let whole = Request::bare("POST", CHAT, "HTTP/1.0").json(&chat("old").json());
    let streamed = Request::bare("POST", CHAT, "HTTP/1.0").json(&chat("old").streamed().json());
    for (request, is_stream) in [(whole, false), (streamed, true)] {
        let mut connection = pair.connect();
        connection.send(&request.bytes()).expect("sent");
        let reply = connection.reply().expect("an answer");
        assert_eq!((reply.status, reply.header("transfer-encoding")), (200, None));
        assert_eq!(reply.header("connection"), Some("close"));
        assert_eq!(reply.head.framing() == Framing::Close, is_stream);
        assert_eq!(reply.text().ends_with("data: [DONE]\n\n"), is_stream, "{}", reply.text());
        assert_eq!(connection.wait_for_close().expect("closed"), Closed::Fin);
        assert_eq!(pair.call_of(&reply).version, "HTTP/1.1");
    }
}

#[test]
fn the_answer_to_head_is_that_to_get_without_its_body() {
    let pair = Pair::shared();
    let mut connection = pair.connect();
    let lengths = ["HEAD", "GET"].map(|method| {
        connection.send(&Request::new(method, "/v1/models").bytes()).expect("sent");
        let reply = if method == "HEAD" { connection.reply_to_head() } else { connection.reply() };
        let reply = reply.expect("an answer");
        assert_eq!(reply.status, 200);
        reply.header("content-length").map(str::to_owned)
    });
    assert!(lengths[0].is_some() && lengths[0] == lengths[1], "{lengths:?}");
}

#[test]
fn a_method_a_path_does_not_take_is_told_which_it_takes() {
    let pair = Pair::shared();
    for (method, target, allow) in [
        ("OPTIONS", CHAT, "POST"),
        ("GET", CHAT, "POST"),
        ("PUT", CHAT, "POST"),
        ("HEAD", CHAT, "POST"),
        ("post", CHAT, "POST"),
        ("OPTIONS", "/v1/models", "GET, HEAD"),
        ("DELETE", "/v1/models/test-model", "GET, HEAD"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("TRACE", "/healthz", "GET, HEAD"),
    ] {
        let mut connection = pair.connect();
        connection.send(&Request::new(method, target).bytes()).expect("sent");
        let reply = if method == "HEAD" { connection.reply_to_head() } else { connection.reply() };
        let reply = reply.expect("an answer");
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allow)), "{method} {target}");
        if method != "HEAD" {
            assert_eq!(error_of(&reply).1, "method_not_allowed", "{method} {target}");
        }
    }
}

#[test]
fn a_path_that_is_not_served_is_a_404_in_the_shape_of_all_errors() {
    let pair = Pair::shared();
    for target in ["/", "/v1", "/v1/audio", "/metrics", "/v1/chat", "/admin/api", "/v1/x?y=z"] {
        for method in ["GET", "POST", "BREW"] {
            let reply = pair.send(Request::new(method, target).header("Connection", "close"));
            let (status, code, _) = error_of(&reply);
            assert_eq!((status, code.as_str()), (404, Some("unknown_url")), "{method} {target}");
        }
    }
}

#[test]
fn empty_lines_between_requests_are_forgiven_and_other_versions_refused() {
    let pair = Pair::shared();
    let mut connection = pair.connect();
    connection.send(b"\r\n\r\n").expect("sent");
    connection.send(&Request::new("GET", "/healthz").bytes()).expect("sent");
    assert_eq!(connection.reply().expect("an answer").status, 200);
    assert!(connection.is_silent_for(Duration::from_millis(50)));

    for (first, status) in [
        ("GET /healthz HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET /healthz HTTP/0.9\r\n\r\n", 505),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", 400),
    ] {
        let mut connection = pair.connect();
        connection.send(first.as_bytes()).expect("sent");
        assert_eq!(connection.reply().expect("an answer").status, status, "{first:?}");
        connection.wait_for_close().unwrap_or_else(|error| panic!("{first:?}: {error}"));
    }
}
