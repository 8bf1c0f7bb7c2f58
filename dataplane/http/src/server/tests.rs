use std::time::Duration;

use llmgw_runtime::io::Io;
use llmgw_runtime::tcp::Tcp;
use llmgw_runtime::{Either, race, run_local};
use proptest::prelude::*;

use super::*;
use crate::chunk_buf::ChunkBuf;
use crate::error::Reject;
use crate::scripted::{Scripted, Step, run};

fn limits() -> ServerLimits {
    ServerLimits {
        body_bytes: 1000,
        client_header: Duration::from_millis(30),
        client_body: Duration::from_millis(30),
        client_idle: Duration::from_millis(30),
        ..ServerLimits::default()
    }
}

/// Answers every request with its method, target and body, refusals with their status, until the connection ends.
async fn serve<I: Io>(io: I, limits: ServerLimits) {
    let mut conn = ServerConn::new(io, Rc::new(limits));
    let mut head = RequestHead::default();
    loop {
        let refused = match answer(&mut conn, &mut head).await {
            Ok(true) => continue,
            Ok(false) => return,
            Err(reject) => reject,
        };
        let draft = conn.writer.draft(refused.status);
        let _ = conn.writer.send(draft, refused.message).await;
    }
}

async fn answer<I: Io>(conn: &mut ServerConn<I>, head: &mut RequestHead) -> Result<bool, Reject> {
    if conn.reader.next(head).await? == Next::Closed {
        return Ok(false);
    }
    let mut text = [head.method(), b" ", head.target(), b" "].concat();
    if head.target() != b"/unread" {
        let Some(body) = conn.reader.body(head, &mut conn.writer).await? else { return Ok(false) };
        text.extend_from_slice(&body);
    }
    let draft = conn.writer.draft(200);
    let sent = if head.target() == b"/stream" {
        stream(&mut conn.writer, draft, &text).await
    } else {
        conn.writer.send(draft, text).await
    };
    Ok(sent.is_ok())
}

async fn stream<I: Io>(
    writer: &mut ResponseWriter<I>,
    draft: crate::draft::ResponseDraft,
    text: &[u8],
) -> std::io::Result<()> {
    let mut buf = ChunkBuf::new();
    buf.extend(text);
    let (sent, mut buf) = writer.start_with(draft, BodyLength::Unknown, buf).await;
    sent?;
    buf.extend(b"two");
    let (sent, mut buf) = writer.chunk(buf).await;
    sent?;
    buf.extend(b"three");
    writer.finish_with(buf).await.0
}

fn serve_scripted(io: &Scripted) {
    let io = io.clone();
    run(async move { serve(io, limits()).await });
}

/// What is written to a client that sends `raw` and then ends its side.
fn written(raw: &str) -> String {
    let io = Scripted::new([Step::Bytes(raw.as_bytes().to_vec()), Step::Eof]);
    serve_scripted(&io);
    assert!(io.is_closed());
    assert_eq!(io.faults(), Vec::<&str>::new());
    io.written_text()
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn ok_close(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn status_of(text: &str) -> &str {
    text.get(9..12).unwrap_or_default()
}

#[test]
fn requests_in_a_row_are_answered_in_order() {
    let raw = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n\
               POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
               3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n\
               GET /d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /never HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(written(raw), [ok("POST /a abc"), ok("GET /b "), ok("POST /c abcde"), ok_close("GET /d ")].concat());
}

#[test]
fn a_whole_answer_is_one_write_whatever_its_size() {
    let io = Scripted::new([Step::Bytes(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()), Step::Eof]);
    serve_scripted(&io);
    assert_eq!(io.write_count(), 1);
    let io = Scripted::default();
    let mut conn = ServerConn::new(io.clone(), Rc::new(limits()));
    run(async move {
        let draft = conn.writer.draft(200);
        conn.writer.send(draft, vec![b'x'; 20_000]).await.unwrap();
    });
    assert_eq!((io.write_count(), io.written().len()), (1, 20_000 + ok("").len() + 4));
}

#[test]
fn a_stream_is_one_write_a_chunk() {
    let io = Scripted::new([Step::Bytes(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()), Step::Eof]);
    serve_scripted(&io);
    let want =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc\r\nGET /stream \r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n";
    assert_eq!((io.written_text().as_str(), io.write_count()), (want, 3));
}

#[test]
fn old_clients_get_a_body_up_to_the_end_of_the_connection() {
    let want = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nGET /stream twothree";
    assert_eq!(written("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), want);
    assert_eq!(written("GET /a HTTP/1.0\r\n\r\n"), ok_close("GET /a "));
}

#[test]
fn a_head_request_gets_the_head_alone() {
    assert_eq!(written("HEAD /abc HTTP/1.1\r\nHost: h\r\n\r\n"), "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
    let stream = written("HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(stream, ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &ok("GET /b ")].concat());
}

#[test]
fn a_refused_request_is_answered_and_ends_the_connection() {
    for (raw, status) in [
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", "413"),
        ("GET /\r\n", "400"),
        ("\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "400"),
    ] {
        let raw = format!("{raw}\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
        let text = written(&raw);
        assert_eq!(status_of(&text), status, "{raw:?} gave {text:?}");
        assert!(text.contains("Connection: close\r\n"), "{text:?}");
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "{text:?}");
    }
}

#[test]
fn a_refusal_after_a_head_request_has_its_text() {
    let text = written("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\nnonsense\r\n\r\n");
    assert!(
        text.ends_with("Connection: close\r\n\r\nmalformed request line; expected METHOD TARGET VERSION"),
        "{text:?}"
    );
}

#[test]
fn a_client_that_cannot_be_written_to_is_given_up() {
    let request = "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3);
    let io = Scripted::new([Step::Bytes(request.into_bytes())]);
    io.fail_writes();
    serve_scripted(&io);
    assert!(io.is_closed());
    assert_eq!((io.write_count(), io.faults()), (0, vec![]));
}

#[test]
fn a_body_at_the_limit_passes_and_one_byte_more_does_not() {
    let body = "x".repeat(1000);
    let length = |body: &str| format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let chunked = |body: &str| {
        format!(
            "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        )
    };
    assert_eq!(written(&length(&body)), ok(&format!("POST /a {body}")));
    assert_eq!(written(&chunked(&body)), ok(&format!("POST /a {body}")));
    let body = "x".repeat(1001);
    assert_eq!(status_of(&written(&length(&body))), "413");
    assert_eq!(status_of(&written(&chunked(&body))), "413");
}

#[test]
fn a_client_that_waits_is_told_to_continue_unless_it_is_refused() {
    let head = "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: ";
    let io = Scripted::new([Step::Bytes(format!("{head}3\r\n\r\n").into_bytes()), Step::Pause, Step::Pause]);
    io.push(Step::Bytes(b"abc".to_vec()));
    io.push(Step::Eof);
    serve_scripted(&io);
    assert_eq!(io.written_text(), ["HTTP/1.1 100 Continue\r\n\r\n", &ok("POST /a abc")].concat());
    assert_eq!(status_of(&written(&format!("{head}2000\r\n\r\n"))), "413");
    assert_eq!(written(&format!("{head}3\r\n\r\nabc")), ok("POST /a abc"), "a body that came along needs no word");
}

#[test]
fn an_unread_body_ends_the_connection_after_the_answer() {
    let text =
        written("POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(text, ok_close("POST /unread "));
}

#[test]
fn an_unread_body_is_drained_within_bounds() {
    let head = b"POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n".to_vec();
    let io = Scripted::new([Step::Bytes(head.clone()), Step::Bytes(vec![b'x'; 900]), Step::Eof]);
    serve_scripted(&io);
    assert_eq!(io.unread_bytes(), 0);
    let io = Scripted::new([Step::Bytes(head), Step::Bytes(vec![b'x'; 10_000_000])]);
    serve_scripted(&io);
    assert!(io.is_closed() && io.unread_bytes() > 9_000_000);
}

#[test]
fn silence_ends_a_connection_and_slowness_is_told() {
    let after = |raw: &str| {
        let io = Scripted::new([Step::Bytes(raw.as_bytes().to_vec())]);
        serve_scripted(&io);
        assert!(io.is_closed());
        assert_eq!(io.faults(), Vec::<&str>::new());
        io.written_text()
    };
    assert_eq!(after(""), "");
    assert_eq!(after("\r\n"), "");
    assert_eq!(after("GET /a HTTP/1.1\r\nHost: h\r\n\r\n"), ok("GET /a "));
    assert_eq!(status_of(&after("GET /a HTTP/1.1\r\nHost")), "408");
    assert_eq!(status_of(&after("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab")), "408");
    assert_eq!(status_of(&after("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab")), "408");
}

#[test]
fn a_client_that_leaves_in_the_middle_gets_no_answer() {
    for raw in
        ["", "GE", "GET /a HTTP/1.1\r\nHost: h\r\n", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab"]
    {
        assert_eq!(written(raw), "", "{raw:?}");
    }
    let io = Scripted::new([Step::Bytes(b"GET /a".to_vec()), Step::Reset]);
    serve_scripted(&io);
    assert_eq!(io.written_text(), "");
}

/// Reads one request and races the client's leaving with `work`.
async fn watch(io: Scripted, work: impl Future<Output = ()>) -> (ServerConn<Scripted>, bool) {
    let mut conn = ServerConn::new(io, Rc::new(limits()));
    let mut head = RequestHead::default();
    assert_eq!(conn.reader.next(&mut head).await, Ok(Next::Request));
    let is_gone = matches!(race(conn.reader.gone(), work).await, Either::Left(()));
    (conn, is_gone)
}

#[test]
fn a_client_that_leaves_while_it_waits_is_noticed() {
    for end in [Step::Eof, Step::Reset] {
        let io = Scripted::new([Step::Bytes(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()), Step::Pause, end]);
        let (_, is_gone) = run(watch(io.clone(), std::future::pending()));
        assert!(is_gone);
        assert_eq!(io.faults(), Vec::<&str>::new());
    }
}

#[test]
fn requests_that_come_while_one_is_answered_are_kept() {
    let request = |path: &str| Step::Bytes(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes());
    let io = Scripted::new([request("/a"), Step::Pause, request("/b"), Step::Pause, request("/c"), Step::Pause]);
    io.push(Step::Eof);
    let seen = io.clone();
    run(async move {
        let (mut conn, is_gone) = watch(io, std::future::pending()).await;
        assert!(is_gone);
        let mut head = RequestHead::default();
        for path in [&b"/b"[..], b"/c"] {
            let draft = conn.writer.draft(200);
            conn.writer.send(draft, "").await.unwrap();
            assert_eq!(conn.reader.next(&mut head).await, Ok(Next::Request));
            assert_eq!(head.target(), path);
        }
        let draft = conn.writer.draft(200);
        conn.writer.send(draft, "").await.unwrap();
        assert_eq!(conn.reader.next(&mut head).await, Ok(Next::Closed));
    });
    assert_eq!(seen.faults(), Vec::<&str>::new());
}

#[test]
fn a_client_that_floods_is_not_read_beyond_a_bound() {
    let io =
        Scripted::new([Step::Bytes(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()), Step::Bytes(vec![b'x'; 1 << 20])]);
    let nap = async { llmgw_runtime::timer::sleep(Duration::from_millis(5)).await };
    let (conn, is_gone) = run(watch(io.clone(), nap));
    assert!(!is_gone);
    assert!(conn.reader.ahead.held().len() < 2 * limits().header_bytes);
    assert!(io.unread_bytes() > 900_000);
}

#[test]
fn an_answer_that_breaks_off_cannot_be_taken_for_a_whole_one() {
    let io = Scripted::new([Step::Bytes(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec())]);
    let seen = io.clone();
    run(async move {
        let (mut conn, _) = watch(io, std::future::ready(())).await;
        let draft = conn.writer.draft(200);
        conn.writer.start(draft, BodyLength::Known(10)).await.unwrap();
        let mut buf = ChunkBuf::new();
        buf.extend(b"short");
        conn.writer.chunk(buf).await.0.unwrap();
        assert!(conn.writer.finish().await.is_err());
        assert_eq!(conn.reader.next(&mut RequestHead::default()).await, Ok(Next::Closed));
    });
    assert!(seen.is_closed());
    assert!(seen.written_text().ends_with("Content-Length: 10\r\n\r\nshort"));
}

#[test]
fn a_request_that_was_never_answered_ends_the_connection() {
    let io =
        Scripted::new([Step::Bytes(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec())]);
    run(async move {
        let (mut conn, _) = watch(io, std::future::ready(())).await;
        assert_eq!(conn.reader.next(&mut RequestHead::default()).await, Ok(Next::Closed));
    });
}

/// A client thread that sends `request`, ends its side and gives back all it was sent.
fn over_tcp(request: Vec<u8>, limits: ServerLimits) -> Vec<u8> {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        peer.write_all(&request).unwrap();
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).unwrap();
        answer
    });
    run_local(async move {
        let io: Tcp = llmgw_runtime::tcp::connect(addr).await.unwrap();
        serve(io, limits).await;
    });
    client.join().unwrap()
}

#[test]
fn a_large_body_arrives_whole_over_a_socket() {
    let body: Vec<u8> = (0..5_000_003u32).map(|i| (i % 251) as u8).collect();
    let head = format!("POST /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let limits = ServerLimits::default();
    let answer = over_tcp([head.as_bytes(), &body].concat(), limits.clone());
    assert!(answer.ends_with(&body) && answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let head = "POST /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut request = head.as_bytes().to_vec();
    for chunk in body.chunks(70_000) {
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let answer = over_tcp(request, limits);
    assert!(answer.ends_with(&body) && answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_long_body_is_held_in_little_more_than_its_size() {
    let len = 9_000_000;
    let sent = vec![b'x'; len];
    let head = format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n");
    let io = Scripted::new([Step::Bytes(head.into_bytes()), Step::Bytes(sent)]);
    run(async move {
        let mut conn = ServerConn::new(io, Rc::new(ServerLimits::default()));
        let mut head = RequestHead::default();
        assert_eq!(conn.reader.next(&mut head).await, Ok(Next::Request));
        let body = conn.reader.read_length(len).await.unwrap().unwrap();
        assert_eq!((body.len(), body.capacity()), (len, len));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_of_the_requests_gives_the_same_answers(cuts in prop::collection::vec(any::<usize>(), 0..20)) {
        let raw = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\r\n\
                   GET /stream HTTP/1.1\r\nHost: h\r\n\r\n\
                   POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n\
                   HEAD /d HTTP/1.1\r\nHost: h\r\n\r\n\
                   POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
        let io = Scripted::split(raw.as_bytes(), &cuts);
        io.push(Step::Eof);
        serve_scripted(&io);
        prop_assert_eq!(io.written_text(), written(raw));
        prop_assert_eq!(io.faults(), Vec::<&str>::new());
    }
}
