//! Requests that two readers could take for different ones. Right is a refusal and the end of the connection; also
//! right is one reading, as long as what hides behind it never reaches an engine.

use std::time::Duration;

use llmgw_test_kit::request::Request;

use crate::check::{Bench, CHAT, Check, SOON, Verdict, body, brief, failed, framed, need, post};

pub(super) const CHECKS: &[Check] = &[
    Check::new("smuggling.length-and-chunked", HIDDEN, |b| {
        hides(b, "Content-Length: {n}\r\nTransfer-Encoding: chunked")
    }),
    Check::new("smuggling.chunked-and-length", HIDDEN, |b| {
        hides(b, "Transfer-Encoding: chunked\r\nContent-Length: {n}")
    }),
    Check::new("smuggling.two-lengths", HIDDEN, |b| hides(b, "Content-Length: 5\r\nContent-Length: {n}")),
    Check::new("smuggling.length-list", HIDDEN, |b| hides(b, "Content-Length: 5, {n}")),
    Check::new("smuggling.length-plus", HIDDEN, |b| hides(b, "Content-Length: +5")),
    Check::new("smuggling.length-overflow", HIDDEN, |b| hides(b, "Content-Length: 18446744073709551621")),
    Check::new("smuggling.coding-list", HIDDEN, |b| {
        hides(b, "Content-Length: {n}\r\nTransfer-Encoding: gzip, chunked")
    }),
    Check::new("smuggling.coding-twice", HIDDEN, |b| {
        hides(b, "Content-Length: {n}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity")
    }),
    Check::new("smuggling.coding-unknown", HIDDEN, |b| hides(b, "Transfer-Encoding: xchunked\r\nContent-Length: {n}")),
    Check::new("smuggling.coding-control-byte", HIDDEN, |b| {
        hides(b, "Content-Length: {n}\r\nTransfer-Encoding: \x0bchunked")
    }),
    Check::new("smuggling.blank-before-colon", HIDDEN, |b| {
        hides(b, "Content-Length: {n}\r\nTransfer-Encoding : chunked")
    }),
    Check::new("smuggling.folded-line", HIDDEN, |b| {
        hides(b, "Content-Length: {n}\r\nX: y\r\n Transfer-Encoding: chunked")
    }),
    Check::new("smuggling.bare-carriage-return", HIDDEN, |b| {
        hides(b, "Content-Length: {n}\r\nX: y\rTransfer-Encoding: chunked")
    }),
    Check::new("smuggling.nul-in-header", "a NUL in a header is refused, or reaches no engine", nul),
    Check::new("smuggling.chunk-size-0x", STRICT, |b| chunk(b, "0x5\r\nhello\r\n0\r\n\r\n")),
    Check::new("smuggling.chunk-size-sign", STRICT, |b| chunk(b, "+5\r\nhello\r\n0\r\n\r\n")),
    Check::new("smuggling.chunk-size-overflow", STRICT, |b| chunk(b, "10000000000000005\r\nhello\r\n0\r\n\r\n")),
    Check::new("smuggling.chunk-bare-line-feed", STRICT, |b| chunk(b, "5\nhello\n0\n\n")),
    Check::new("smuggling.chunk-too-long", STRICT, |b| chunk(b, "5\r\nhelloXX\r\n0\r\n\r\n")),
    Check::new("smuggling.chunk-extension-flood", "an extension of 100 kB does not pass", extension_flood),
    Check::new("smuggling.http-1.0-chunked", HIDDEN, http10_chunked),
    Check::new("smuggling.get-with-body", "the body of a GET is never taken for a request", get_with_body),
    Check::new("smuggling.upgrade-h2c", "a client cannot talk past the proxy by an upgrade to h2c", upgrade),
    Check::new("smuggling.two-hosts", "two Host lines are refused with 400", |b| host(b, "Host: a\r\nHost: b\r\n")),
    Check::new("smuggling.no-host", "HTTP/1.1 without a Host line is refused with 400", |b| host(b, "")),
];

const HIDDEN: &str = "an ambiguous request is refused, or read one way: what hides behind it reaches no engine";

const STRICT: &str = "chunks that are not to the letter are refused: what stands behind them reaches no engine";

/// Sends a request with this framing; what follows its first reading is a request of its own, which must stay hidden.
fn hides(bench: &Bench, lines: &str) -> Verdict {
    let hidden = bench.case(|x| x.good());
    let inner = post(&body(&hidden));
    let inner = String::from_utf8_lossy(&inner);
    let lines = lines.replace("{n}", &(5 + inner.len()).to_string());
    stays_hidden(bench, &hidden, &framed(&lines, &format!("0\r\n\r\n{inner}")))
}

fn chunk(bench: &Bench, chunks: &str) -> Verdict {
    let hidden = bench.case(|x| x.good());
    let inner = post(&body(&hidden));
    stays_hidden(
        bench,
        &hidden,
        &framed("Transfer-Encoding: chunked", &format!("{chunks}{}", String::from_utf8_lossy(&inner))),
    )
}

fn http10_chunked(bench: &Bench) -> Verdict {
    let hidden = bench.case(|x| x.good());
    let inner = post(&body(&hidden));
    let lines = format!("Transfer-Encoding: chunked\r\nContent-Length: {}", 5 + inner.len());
    let bytes = framed(&lines, &format!("0\r\n\r\n{}", String::from_utf8_lossy(&inner)));
    stays_hidden(bench, &hidden, String::from_utf8_lossy(&bytes).replacen("HTTP/1.1", "HTTP/1.0", 1).as_bytes())
}

fn stays_hidden(bench: &Bench, hidden: &crate::upstream::Case, bytes: &[u8]) -> Verdict {
    let mut connection = bench.connect()?.patience(Duration::from_secs(3));
    // It may be refused before all of it is written.
    let _ = connection.send(bytes);
    let mut statuses = Vec::new();
    while let Ok(reply) = connection.reply() {
        statuses.push(reply.status);
        if statuses.len() > 3 {
            break;
        }
    }
    // Within the outer request's body the hidden one is only bytes; as a request of its own it begins with its JSON.
    let reached = hidden.seen().iter().filter(|seen| seen.asked.body.starts_with(b"{")).count();
    need(reached == 0, || format!("the hidden request reached an engine; answers {statuses:?}"))?;
    need(statuses.len() < 2, || format!("two answers to one request: {statuses:?}"))?;
    match statuses.first() {
        Some(status) => Ok(format!("{status}, nothing behind it")),
        None => Ok("closed without an answer".to_owned()),
    }
}

fn nul(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let reply =
        bench.call(&Request::new("POST", CHAT).header("X", "y\0z").body("application/json", body(&case)).bytes())?;
    let has_nul = case.seen().iter().any(|seen| seen.asked.head.contains('\0'));
    need(!has_nul, || "it reached an engine".to_owned())?;
    Ok(format!("status {}", reply.status))
}

fn extension_flood(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let rest = format!("{:x};{}\r\n{body}\r\n0\r\n\r\n", body.len(), "x".repeat(100_000));
    let mut connection = bench.connect()?;
    let _ = connection.send(&framed("Transfer-Encoding: chunked", &rest));
    match connection.reply() {
        Ok(reply) if reply.status < 400 => failed(format!("status {}", reply.status)),
        Ok(reply) => Ok(format!("status {}", reply.status)),
        Err(_) if case.seen().is_empty() => Ok("closed".to_owned()),
        Err(error) => failed(error),
    }
}

fn get_with_body(bench: &Bench) -> Verdict {
    let hidden = bench.case(|x| x.good());
    let inner = post(&body(&hidden));
    let mut connection = bench.connect()?.patience(Duration::from_millis(1500));
    connection.send(&Request::new("GET", "/v1/models").body("text/plain", &inner).bytes())?;
    let first = connection.reply()?;
    let second = connection.reply();
    need(second.is_err(), || "its body was answered".to_owned())?;
    // An engine sees the mark within the GET's own body; as a request of its own it would be a POST.
    let posts = hidden.seen().iter().filter(|seen| seen.asked.method() == "POST").count();
    need(posts == 0, || "its body reached an engine as a request".to_owned())?;
    Ok(format!("status {}", first.status))
}

fn upgrade(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let request = Request::new("POST", CHAT)
        .header("Connection", "Upgrade, HTTP2-Settings")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQAAP__");
    let reply = bench.call(&request.body("application/json", body(&case)).bytes())?;
    need(reply.status != 101, || "101: the upgrade was made".to_owned())?;
    for seen in case.seen() {
        need(seen.asked.header("upgrade").is_none(), || "the engine was asked to upgrade".to_owned())?;
    }
    Ok(format!("status {}, no upgrade at the engine", reply.status))
}

fn host(bench: &Bench, lines: &str) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let head = format!("POST {CHAT} HTTP/1.1\r\n{lines}Content-Type: application/json\r\n");
    let mut connection = bench.connect()?.patience(SOON);
    connection.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
    let reply = connection.reply()?;
    need(reply.status == 400, || format!("status {}: {}", reply.status, brief(&reply.text())))?;
    Ok("400".to_owned())
}
