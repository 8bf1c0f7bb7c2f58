//! Requests that two readers could take for different ones: refused, the connection closed, nothing
//! forwarded.

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::Closed;
use llmgw_test_kit::request::Request;

use crate::pair::{CHAT, Pair, error_of};

/// Sends these bytes and expects one refusal and the end of the connection, whatever else the bytes hold.
#[track_caller]
fn check(pair: &Pair, what: &str, status: u16, bytes: &[u8]) {
    let mut connection = pair.connect();
    // The gateway may have refused and closed before all was written.
    let _ = connection.send(bytes);
    let reply = connection.reply().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(error_of(&reply).0, status, "{what}: {}", reply.text());
    assert_eq!(reply.header("connection"), Some("close"), "{what}");
    let rest = connection.reply();
    assert!(rest.is_err(), "{what}: a second reply came: {rest:?}");
    connection.wait_for_close().unwrap_or_else(|error| panic!("{what}: still open ({error})"));
}

/// Checks all cases at once: the gateway gives each refused client a moment to read, which adds up.
#[track_caller]
fn check_all(pair: &Pair, status: u16, cases: &[(&str, Vec<u8>)]) {
    std::thread::scope(|scope| {
        for (what, bytes) in cases {
            scope.spawn(move || check(pair, what, status, bytes));
        }
    });
    assert!(pair.engine.calls().is_empty(), "{:?}", pair.engine.calls());
}

/// A chat request's head with these lines where its framing would be, then these bytes.
fn with(lines: &str, body: &str) -> Vec<u8> {
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{lines}\r\n\r\n{body}");
    head.into_bytes()
}

/// A chat request whose chunked body is these bytes.
fn chunks(body: &str) -> Vec<u8> {
    with("Transfer-Encoding: chunked", body)
}

#[test]
fn two_ways_to_tell_a_bodys_length_are_refused_and_never_forwarded() {
    let pair = Pair::own();
    let body = chat("hello").json().to_string();
    let length = body.len();
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let cases = [
        format!("Content-Length: {length}\r\nTransfer-Encoding: chunked"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}"),
        "Transfer-Encoding: gzip, chunked".to_owned(),
        "Transfer-Encoding: chunked, chunked".to_owned(),
        "Transfer-Encoding: chunked, identity".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity".to_owned(),
        "Transfer-Encoding: \x0bchunked".to_owned(),
        "Transfer-Encoding : chunked".to_owned(),
        "Transfer-Encoding: \r\n chunked".to_owned(),
        " Transfer-Encoding: chunked".to_owned(),
        "X: y\n Transfer-Encoding: chunked".to_owned(),
        "Transfer-Encoding: chunked,".to_owned(),
    ];
    let mut cases: Vec<_> = cases.iter().map(|lines| (lines.as_str(), with(lines, &chunked))).collect();
    let old = with("Transfer-Encoding: chunked", &chunked);
    cases.push(("chunked in HTTP/1.0", String::from_utf8_lossy(&old).replace("HTTP/1.1", "HTTP/1.0").into_bytes()));
    check_all(&pair, 400, &cases);
    // One coding that is not known is no ambiguity, only something this gateway cannot do.
    let unknown = ["Transfer-Encoding: xchunked", "Transfer-Encoding: identity", "Transfer-Encoding: \"chunked\""];
    check_all(&pair, 501, &unknown.map(|lines| (lines, with(lines, &chunked))));
}

#[test]
fn a_length_that_is_not_one_plain_number_is_refused_and_never_forwarded() {
    let pair = Pair::own();
    let body = chat("hello").json().to_string();
    let length = body.len();
    let cases = [
        format!("Content-Length: {length}\r\nContent-Length: 5"),
        format!("Content-Length: {length}\r\nContent-Length: {length}"),
        format!("Content-Length: {length}, {length}"),
        format!("Content-Length: +{length}"),
        format!("Content-Length: -{length}"),
        format!("Content-Length: 0x{length:x}"),
        format!("Content-Length: {length} 1"),
        format!("Content-Length: {length}.0"),
        format!("Content-Length : {length}"),
        format!("Content-Length: \0{length}"),
        "Content-Length:".to_owned(),
        "Content-Length: 18446744073709551617".to_owned(),
        format!("Content-Length: \n{length}"),
    ];
    check_all(&pair, 400, &cases.each_ref().map(|lines| (lines.as_str(), with(lines, &body))));
}

#[test]
fn broken_chunks_are_refused_and_never_forwarded() {
    let pair = Pair::own();
    let body = chat("hello").json().to_string();
    let size = format!("{:x}", body.len());
    let sized = |line: &str| format!("{line}\r\n{body}\r\n0\r\n\r\n");
    let cases = [
        ("an extension of 100 kB", sized(&format!("{size};ext={}", "x".repeat(100_000)))),
        ("0x in front", sized(&format!("0x{size}"))),
        ("a plus", sized(&format!("+{size}"))),
        ("a minus", sized(&format!("-{size}"))),
        ("a blank in front", sized(&format!(" {size}"))),
        ("an empty size", sized("")),
        ("no digits", sized("zz")),
        ("too many digits", sized("fffffffffffffffff")),
        ("a bare line feed behind the size", format!("{size}\n{body}\r\n0\r\n\r\n")),
        ("a bare line feed in an extension", sized(&format!("{size};a\nb"))),
        ("a carriage return in an extension", sized(&format!("{size};a\rb"))),
        ("more bytes than the size", format!("{size}\r\n{body}XX\r\n0\r\n\r\n")),
        ("a bare line feed behind the data", format!("{size}\r\n{body}\n0\r\n\r\n")),
        ("a bare line feed behind the last size", format!("{size}\r\n{body}\r\n0\n\r\n")),
        ("trailers without end", format!("{size}\r\n{body}\r\n0\r\n{}", "a: b\r\n".repeat(4_000))),
    ];
    check_all(&pair, 400, &cases.map(|(what, sent)| (what, chunks(&sent))));
}

#[test]
fn heads_that_two_readers_could_read_differently_are_refused() {
    let pair = Pair::own();
    let body = chat("hello").json().to_string();
    let rest = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let cases = [
        ("bare line feeds", format!("POST {CHAT} HTTP/1.1\nHost: a\n{}", rest.replace("\r\n", "\n"))),
        ("one bare line feed", format!("POST {CHAT} HTTP/1.1\r\nHost: a\nX: y\r\n{rest}")),
        ("a bare carriage return", format!("POST {CHAT} HTTP/1.1\r\nHost: a\rX: y\r\n{rest}")),
        ("a folded line", format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n{rest}")),
        ("a line without a colon", format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nnothing\r\n{rest}")),
        ("a blank in a name", format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nX y: z\r\n{rest}")),
        ("an empty name", format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\n: z\r\n{rest}")),
        ("a NUL in a value", format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nX: y\0z\r\n{rest}")),
        ("two blanks", format!("POST  {CHAT} HTTP/1.1\r\nHost: a\r\n{rest}")),
        ("a tab", format!("POST\t{CHAT} HTTP/1.1\r\nHost: a\r\n{rest}")),
        ("words behind the version", format!("POST {CHAT} HTTP/1.1 x\r\nHost: a\r\n{rest}")),
        ("no version", format!("POST {CHAT}\r\nHost: a\r\n{rest}")),
        ("no host", format!("POST {CHAT} HTTP/1.1\r\n{rest}")),
        ("two hosts", format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nHost: a\r\n{rest}")),
        ("a NUL in the target", format!("POST {CHAT}\0 HTTP/1.1\r\nHost: a\r\n{rest}")),
    ];
    check_all(&pair, 400, &cases.map(|(what, head)| (what, head.into_bytes())));
}

#[test]
fn a_request_hidden_behind_a_good_one_is_not_served() {
    let pair = Pair::own();
    let good = Request::new("POST", CHAT).json(&chat("good").json()).bytes();
    let hidden = Request::new("POST", CHAT).json(&chat("hidden").json()).bytes();
    let hidden_text = String::from_utf8_lossy(&hidden);
    let ambiguous = with("Content-Length: 4\r\nTransfer-Encoding: chunked", &format!("0\r\n\r\n{hidden_text}"));
    let cut_early = chunks(&format!("0;{}\r\n\r\n{hidden_text}", "x".repeat(300)));
    for (what, bad) in [("two lengths", ambiguous), ("a long extension", cut_early)] {
        pair.engine.reset();
        let mut connection = pair.connect();
        connection.send(&[good.as_slice(), &bad, &hidden].concat()).expect("sent");
        assert_eq!(connection.reply().expect("the good one is answered").status, 200, "{what}");
        assert_eq!(connection.reply().expect("the bad one is refused").status, 400, "{what}");
        assert!(connection.reply().is_err(), "{what}: the hidden one was answered");
        assert_eq!(pair.engine.calls().len(), 1, "{what}");
    }
}

#[test]
fn a_body_on_a_path_that_takes_none_is_never_read_as_a_request() {
    let pair = Pair::own();
    let hidden = Request::new("POST", CHAT).json(&chat("hidden").json()).bytes();
    let ask = |target: &str| {
        let mut connection = pair.connect();
        connection.send(&Request::new("GET", target).body("text/plain", &hidden).bytes()).expect("sent");
        let reply = connection.reply().expect("an answer");
        assert!(matches!(reply.status, 200 | 404), "{target}: {}", reply.status);
        assert!(connection.reply().is_err(), "{target}: its body was answered as a request");
        assert_eq!(connection.wait_for_close().expect("closed"), Closed::Fin, "{target}");
    };
    std::thread::scope(|scope| {
        for target in ["/v1/models", "/healthz", "/nowhere"] {
            scope.spawn(move || ask(target));
        }
    });
    assert!(pair.engine.calls().is_empty(), "{:?}", pair.engine.calls());
}
