use proptest::prelude::*;

use super::*;
use crate::limits::ServerLimits;

fn parse(raw: &[u8]) -> Result<Option<(usize, RequestHead)>, Reject> {
    let mut head = RequestHead::default();
    Ok(head.parse(raw, &ServerLimits::default().head())?.map(|end| (end, head)))
}

/// Parses one head whose lines are joined by CRLF; an empty line is added.
fn lines(lines: &[&str]) -> Result<RequestHead, Reject> {
    let raw = format!("{}\r\n\r\n", lines.join("\r\n"));
    let (end, head) = parse(raw.as_bytes())?.expect("complete");
    assert_eq!(end, raw.len());
    Ok(head)
}

fn check_status(rows: &[(&[&str], u16)]) {
    for (row, status) in rows {
        match lines(row) {
            Ok(_) => panic!("accepted {row:?}"),
            Err(reject) => assert_eq!(reject.status, *status, "{row:?} gave {reject}"),
        }
    }
}

const POST: &str = "POST /v1 HTTP/1.1";
const HOST: &str = "Host: h";

#[test]
fn a_head_reads_as_sent() {
    let head = lines(&[
        "POST /v1/chat/completions?beta=true HTTP/1.1",
        "Host: a:1",
        "content-LENGTH:   12  ",
        "X-Empty:",
        "X-Utf: \u{5317}",
        "Expect: 100-Continue",
    ])
    .unwrap();
    assert_eq!(head.method(), b"POST");
    assert_eq!(head.target(), b"/v1/chat/completions?beta=true");
    assert_eq!(head.framing(), Framing::Length(12));
    assert_eq!(head.header("host"), Some(&b"a:1"[..]));
    assert_eq!(head.header("x-empty"), Some(&b""[..]));
    assert_eq!(head.header("x-utf"), Some("\u{5317}".as_bytes()));
    assert_eq!(head.header("absent"), None);
    assert_eq!(head.headers().count(), 5);
    assert!(head.keeps_alive() && head.expects_continue());
}

#[test]
fn framing_that_two_readers_could_read_differently_is_refused() {
    check_status(&[
        (&[POST, HOST, "Content-Length: 5", "Transfer-Encoding: chunked"], 400),
        (&[POST, HOST, "Transfer-Encoding: chunked", "Content-Length: 5"], 400),
        (&[POST, HOST, "Content-Length: 5", "Content-Length: 6"], 400),
        (&[POST, HOST, "Content-Length: 5", "Content-Length: 5"], 400),
        (&[POST, HOST, "Content-Length: 5, 5"], 400),
        (&[POST, HOST, "Content-Length: +5"], 400),
        (&[POST, HOST, "Content-Length: -5"], 400),
        (&[POST, HOST, "Content-Length:  5 5"], 400),
        (&[POST, HOST, "Content-Length: 0x5"], 400),
        (&[POST, HOST, "Content-Length: 5.0"], 400),
        (&[POST, HOST, "Content-Length:"], 400),
        (&[POST, HOST, "Content-Length: 99999999999999999999"], 400),
        (&[POST, HOST, "Transfer-Encoding: gzip, chunked"], 400),
        (&[POST, HOST, "Transfer-Encoding: chunked, chunked"], 400),
        (&[POST, HOST, "Transfer-Encoding: chunked,"], 400),
        (&[POST, HOST, "Transfer-Encoding:"], 400),
        (&[POST, HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], 400),
        (&[POST, HOST, "Transfer-Encoding: gzip", "Transfer-Encoding: chunked"], 400),
        (&[POST, HOST, "Transfer-Encoding: identity"], 501),
        (&[POST, HOST, "Transfer-Encoding: gzip"], 501),
        (&[POST, HOST, "Transfer-Encoding: \"chunked\""], 501),
        (&[POST, HOST, "Transfer-Encoding: chunked;q=1"], 501),
        (&["POST /v1 HTTP/1.0", "Transfer-Encoding: chunked"], 400),
    ]);
    assert_eq!(lines(&[POST, HOST, "transfer-encoding: Chunked"]).unwrap().framing(), Framing::Chunked);
    assert_eq!(lines(&[POST, HOST]).unwrap().framing(), Framing::None);
    assert_eq!(lines(&[POST, HOST, "Content-Length: 0"]).unwrap().framing(), Framing::Length(0));
}

#[test]
fn lines_that_break_the_grammar_are_refused() {
    check_status(&[
        (&[POST, HOST, "Content-Length : 5"], 400),
        (&[POST, HOST, "X: a", " folded"], 400),
        (&[POST, HOST, "X: a", "\tfolded"], 400),
        (&[POST, " Host: h"], 400),
        (&[POST, HOST, "X: a\0b"], 400),
        (&[POST, HOST, "X: a\x01b"], 400),
        (&[POST, HOST, "X: a\rb"], 400),
        (&[POST, HOST, "X\0: a"], 400),
        (&[POST, HOST, "no colon"], 400),
        (&[POST, HOST, ": no name"], 400),
        (&["GET  / HTTP/1.1", HOST], 400),
        (&["GET /a b HTTP/1.1", HOST], 400),
        (&["GET /\0 HTTP/1.1", HOST], 400),
        (&["GET /", HOST], 400),
        (&["GET / HTTP/1.1 ", HOST], 400),
        (&["GET / http/1.1", HOST], 400),
        (&["GET / HTTP/2.0", HOST], 505),
        (&["PRI * HTTP/2.0"], 505),
        (&[POST], 400),
        (&[POST, HOST, HOST], 400),
        (&[POST, HOST, "Expect: 200-ok"], 417),
    ]);
    assert_eq!(parse(b"GET / HTTP/1.1\nHost: h\n\n").unwrap_err().status, 400);
    assert_eq!(parse(b"\x16\x03\x01\x02\x00").unwrap_err().status, 400);
}

#[test]
fn a_target_is_only_ever_a_path() {
    let target = |target: &str| lines(&[&format!("GET {target} HTTP/1.1"), HOST]).map(|head| head.target().to_vec());
    for (sent, kept) in [
        ("/a?b=c", "/a?b=c"),
        ("http://evil:80/a/b?c", "/a/b?c"),
        ("HTTPS://u:p@evil/x", "/x"),
        ("http://evil", "/"),
        ("//evil/x", "//evil/x"),
        ("/v1/models/\u{6a21}", "/v1/models/\u{6a21}"),
    ] {
        assert_eq!(target(sent), Ok(kept.as_bytes().to_vec()), "{sent}");
    }
    for sent in ["*", "evil:80", "ftp://evil/x", "http://", "http://evil?x", "v1/models", "?x"] {
        assert_eq!(target(sent).map_err(|reject| reject.status), Err(400), "{sent}");
    }
    check_status(&[(&["CONNECT evil:443 HTTP/1.1", HOST], 400), (&["CONNECT /x HTTP/1.1", HOST], 400)]);
}

#[test]
fn sizes_are_bounded_at_the_byte_that_breaks_them() {
    let limits = ServerLimits { header_bytes: 200, headers: 3, ..ServerLimits::default() }.head();
    let status = |raw: String| RequestHead::default().parse(raw.as_bytes(), &limits).map_err(|reject| reject.status);
    assert_eq!(status(format!("GET /{}", "a".repeat(300))), Err(414));
    assert_eq!(status(format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(300))), Err(431));
    assert_eq!(status("GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n".into()), Err(431));
    assert_eq!(status("GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\n\r\n".into()), Ok(Some(39)));
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: {}\r\n\r\n", "a,".repeat(50));
    assert_eq!(status(many), Err(400));
}

#[test]
fn persistence_follows_version_and_connection() {
    let keeps = |version: &str, connection: &str| {
        lines(&[&format!("GET / HTTP/{version}"), HOST, &format!("Connection: {connection}")]).unwrap().keeps_alive()
    };
    assert!(keeps("1.1", ""));
    assert!(keeps("1.1", "keep-alive"));
    assert!(!keeps("1.1", "Close"));
    assert!(!keeps("1.1", "x, close"));
    assert!(!keeps("1.0", ""));
    assert!(!keeps("1.0", "keep-alive"));
}

#[test]
fn headers_of_this_connection_do_not_travel() {
    let head = lines(&[
        POST,
        HOST,
        "Connection: x-a, close",
        "X-A: 1",
        "x-b: 2",
        "Keep-Alive: timeout=5",
        "Proxy-Authorization: Basic x",
        "Proxy-Connection: keep-alive",
        "TE: trailers",
        "Trailers: x",
        "Trailer: x",
        "Upgrade: websocket",
        "Content-Length: 5",
    ])
    .unwrap();
    let names: Vec<&[u8]> = head.end_to_end().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"Host"[..], b"x-b"]);
    assert_eq!(head.header("x-a"), Some(&b"1"[..]));
}

#[test]
fn a_head_is_reusable_after_anything() {
    let mut head = RequestHead::default();
    let limits = ServerLimits::default().head();
    let big = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "a".repeat(20_000));
    assert_eq!(head.parse(big.as_bytes(), &limits), Ok(Some(big.len())));
    assert!(head.parse(b"GET / HTTP/1.1\r\n\r\n", &limits).is_err());
    assert_eq!(head.parse(b"GET /x HTTP/1.0\r\n\r\n", &limits), Ok(Some(19)));
    assert_eq!((head.target(), head.headers().count(), head.version()), (&b"/x"[..], 0, Version::Http10));
}

proptest! {
    #[test]
    fn any_split_gives_the_same_head(cuts in prop::collection::vec(0usize..140, 0..8)) {
        let raw = b"POST /v1/x HTTP/1.1\r\nHost: h\r\nA: 1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n";
        let limits = ServerLimits::default().head();
        let (mut head, mut scan) = (RequestHead::default(), HeadScan::default());
        let mut ends: Vec<usize> = cuts.into_iter().filter(|cut| *cut < raw.len()).chain([raw.len()]).collect();
        ends.sort_unstable();
        let found = ends.into_iter().find_map(|end| head.resume(&raw[..end], &mut scan, &limits).unwrap());
        prop_assert_eq!(found, Some(57));
        prop_assert_eq!(head.target(), b"/v1/x");
        prop_assert_eq!(head.framing(), Framing::Length(3));
    }

    #[test]
    fn no_bytes_panic(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&raw);
        let _ = parse(&[b"GET / HTTP/1.1\r\n", &raw[..], b"\r\n\r\n"].concat());
    }
}
