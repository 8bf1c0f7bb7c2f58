//! The raw client against a server of a few lines that misbehaves as told.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use super::*;

/// Accepts one connection, reads one head, runs the script; the connection closes when the script returns.
fn server(script: impl FnOnce(&mut TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        read_head(&mut stream);
        script(&mut stream);
    });
    addr
}

fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("readable") > 0 {
        head.push(byte[0]);
    }
}

fn say(stream: &mut TcpStream, bytes: &str) {
    stream.write_all(bytes.as_bytes()).expect("writable");
}

fn check(answer: &'static str, status: u16, body: &str, end: End) {
    let addr = server(move |stream| {
        for byte in answer.as_bytes() {
            stream.write_all(&[*byte]).expect("writable");
        }
    });
    let reply = get(addr, "/");
    assert_eq!((reply.status, reply.text().as_str(), reply.end), (status, body, end), "{answer:?}");
}

#[test]
fn a_body_is_decoded_by_length_by_chunks_and_by_close_however_it_is_split() {
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", End::Complete);
    check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, "", End::Complete);
    check("HTTP/1.1 204 No Content\r\n\r\n", 204, "", End::Complete);
    check("HTTP/1.0 404 Not Found\r\n\r\nno", 404, "no", End::Complete);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nT: 1\r\n\r\n";
    check(chunked, 200, "abcd", End::Complete);
    check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x", End::Complete);
}

#[test]
fn a_cut_or_broken_body_is_told_from_a_complete_one() {
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", 200, "he", End::Cut(Closed::Fin));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cases = [
        ("3\r\nabc\r\n", "abc", End::Cut(Closed::Fin)),
        ("zz\r\n", "", End::Broken),
        ("1\r\nab\r\n", "a", End::Broken),
    ];
    for (rest, body, end) in cases {
        check(Box::leak(format!("{chunked}{rest}").into_boxed_str()), 200, body, end);
    }
}

#[test]
fn events_are_given_out_one_by_one_while_the_stream_is_open() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let addr = server(move |stream| {
        say(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n");
        wait.recv().expect("the client has seen the first event");
        say(stream, "c\r\ndata: 2\r\n\r\n:\r\n3\r\n x\n\r\n0\r\n\r\n");
    });
    let mut connection = Connection::open(addr).expect("open");
    connection.send(&Request::new("GET", "/").bytes()).expect("sent");
    let head = connection.head().expect("a head");
    let mut body = connection.body(&head);
    assert_eq!(body.event().expect("first").as_deref(), Some("data: 1\n\n"));
    assert_eq!(body.end(), End::Open);
    go.send(()).expect("the server waits");
    assert_eq!(body.events(9).expect("the rest"), ["data: 2\r\n\r\n", ": x\n"]);
    assert_eq!(body.end(), End::Complete);
}

#[test]
fn a_connection_serves_several_requests() {
    let addr = server(|stream| {
        say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
        read_head(stream);
        say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
        read_head(stream);
        say(stream, "HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n3");
    });
    let mut connection = Connection::open(addr).expect("open");
    let request = Request::new("GET", "/").bytes();
    connection.send_byte_by_byte(&request).expect("sent");
    assert_eq!(connection.reply().expect("first").text(), "1");
    connection.send(&request).expect("sent");
    assert_eq!(connection.reply_to_head().expect("second").body, b"");
    connection.send(&request).expect("sent");
    assert_eq!(connection.reply().expect("third").status, 201);
    assert_eq!(connection.wait_for_close().expect("closed"), Closed::Fin);
}

#[test]
fn the_server_sees_a_reset_as_a_reset_and_a_half_close_as_an_end() {
    let (seen, ended) = std::sync::mpsc::channel();
    for abort in [true, false] {
        let seen = seen.clone();
        let addr =
            server(move |stream| seen.send(stream.read(&mut [0; 8]).map_err(|error| error.kind())).expect("told"));
        let mut connection = Connection::open(addr).expect("open");
        connection.send(&Request::new("GET", "/").bytes()).expect("sent");
        if abort {
            connection.abort().expect("aborted");
            let read = ended.recv_timeout(PATIENCE).expect("the server reads");
            assert!(matches!(read, Err(io::ErrorKind::ConnectionReset)), "{read:?}");
        } else {
            connection.finish_sending().expect("half closed");
            assert_eq!(ended.recv_timeout(PATIENCE).expect("the server reads").expect("an orderly end"), 0);
            assert_eq!(connection.wait_for_close().expect("closed"), Closed::Fin);
        }
    }
}

#[test]
fn a_server_that_says_nothing_is_a_timeout_and_not_a_hang() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let addr = server(move |_| assert!(wait.recv().is_err()));
    let mut connection = Connection::open(addr).expect("open").patience(Duration::from_millis(20));
    connection.send(&Request::new("GET", "/").bytes()).expect("sent");
    assert_eq!(connection.reply().expect_err("silent").kind(), io::ErrorKind::TimedOut);
    assert!(connection.is_silent_for(Duration::from_millis(20)));
    drop(done);
    assert!(!connection.is_silent_for(Duration::from_secs(10)));
}
