//! Bounds on what a client may send, and how slowly.

use std::time::{Duration, Instant};

use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::request::Request;

use crate::check::{Bench, CHAT, Check, Fault, Verdict, body, failed, framed, need, post};

pub(super) const CHECKS: &[Check] = &[
    Check::new("limits.header-bytes", "a header of 1 MB is refused with 4xx", header_bytes),
    Check::new("limits.header-count", "5000 header lines are refused with 4xx", header_count),
    Check::new("limits.target", "a target of 1 MB is refused with 4xx", target),
    Check::new("limits.body-length", "a body over the limit is refused with 413 before it is sent", body_length),
    Check::new("limits.body-chunked", "a chunked body over the limit is refused with 413", body_chunked),
    Check::new("limits.slow-head", "a client that never ends its head is let go at the limit", slow_head),
    Check::new(
        "limits.dripping-head",
        "a client that drips its head is let go at the limit all the same",
        dripping_head,
    ),
    Check::new("limits.slow-body", "a client that never ends its body is let go at the limit", slow_body),
    Check::new("limits.idle-client", "a connection without requests is closed at the limit", idle),
    Check::new("limits.fresh-connection", "a connection that says nothing at all is closed at a limit", fresh),
    Check::new("limits.idle-crowd", "500 connections that say nothing keep nobody else waiting", crowd),
];

/// How much later than its limit an end may come, on a busy machine.
const SLACK: Duration = Duration::from_secs(4);

fn refused(bench: &Bench, bytes: &[u8]) -> Verdict {
    let mut connection = bench.connect()?;
    // It may be refused before all of it is written.
    let _ = connection.send(bytes);
    match connection.reply() {
        Ok(reply) if (400..500).contains(&reply.status) => Ok(format!("status {}", reply.status)),
        Ok(reply) => failed(format!("status {}", reply.status)),
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => failed("no answer"),
        Err(_) => failed("closed without an answer"),
    }
}

fn header_bytes(bench: &Bench) -> Verdict {
    refused(bench, &framed(&format!("X: {}", "y".repeat(1 << 20)), ""))
}

fn header_count(bench: &Bench) -> Verdict {
    let lines: Vec<String> = (0..5000).map(|at| format!("X-{at}: y")).collect();
    refused(bench, &framed(&lines.join("\r\n"), ""))
}

fn target(bench: &Bench) -> Verdict {
    refused(bench, &Request::new("GET", &format!("{CHAT}?{}", "x".repeat(1 << 20))).bytes())
}

fn size(bench: &Bench) -> Result<u64, Fault> {
    bench.limits.size.ok_or_else(|| Fault::NotApplicable("it has no limit of a body's size".to_owned()))
}

fn body_length(bench: &Bench) -> Verdict {
    let over = size(bench)? + 1;
    let mut connection = bench.connect()?;
    connection.send(&framed(&format!("Content-Length: {over}"), ""))?;
    let reply = connection.reply()?;
    need(reply.status == 413, || format!("status {}", reply.status))?;
    Ok("413 before a byte of it".to_owned())
}

fn body_chunked(bench: &Bench) -> Verdict {
    let over = size(bench)? + (1 << 20);
    let mut connection = bench.connect()?;
    connection.send(&framed("Transfer-Encoding: chunked", ""))?;
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..=over / 0x10000 {
        if connection.send(&chunk).is_err() {
            break;
        }
    }
    let reply = connection.reply()?;
    need(reply.status == 413, || format!("status {}", reply.status))?;
    Ok("413".to_owned())
}

/// The connection must end within the limit, answered with 408 or not.
fn ends(mut connection: Connection, limit: Option<Duration>, drip: Option<&[u8]>) -> Verdict {
    let limit = limit.ok_or_else(|| Fault::NotApplicable("it has no such limit".to_owned()))?;
    let begin = Instant::now();
    connection.set_patience(if drip.is_some() { Duration::from_millis(200) } else { limit + SLACK });
    let mut status = None;
    while begin.elapsed() < limit + SLACK {
        if let Some(bytes) = drip {
            // Once it is refused the rest cannot be sent.
            let _ = connection.send(bytes);
        }
        match connection.reply() {
            Ok(reply) => status = Some(reply.status),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => continue,
            Err(_) => {
                let took = begin.elapsed().as_secs_f64();
                return Ok(status.map_or_else(
                    || format!("closed after {took:.1} s"),
                    |status| format!("{status} and closed after {took:.1} s"),
                ));
            }
        }
    }
    failed(format!("still open {SLACK:?} after its limit of {limit:?}"))
}

fn slow_head(bench: &Bench) -> Verdict {
    let mut connection = bench.connect()?;
    connection.send(format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-Slow: ").as_bytes())?;
    ends(connection, bench.limits.head, None)
}

fn dripping_head(bench: &Bench) -> Verdict {
    let mut connection = bench.connect()?;
    connection.send(format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-Slow: ").as_bytes())?;
    ends(connection, bench.limits.head, Some(b"x"))
}

fn slow_body(bench: &Bench) -> Verdict {
    let mut connection = bench.connect()?;
    connection.send(&framed("Content-Length: 1000", "{\"model\":"))?;
    ends(connection, bench.limits.body, None)
}

fn idle(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let mut connection = bench.connect()?;
    connection.send(&post(&body(&case)))?;
    let reply = connection.reply()?;
    need(reply.status == 200, || format!("status {}", reply.status))?;
    ends(connection, bench.limits.idle, None)
}

fn fresh(bench: &Bench) -> Verdict {
    let limits = [bench.limits.head, bench.limits.idle];
    ends(bench.connect()?, limits.into_iter().flatten().max(), None)
}

fn crowd(bench: &Bench) -> Verdict {
    let mut crowd = Vec::new();
    for _ in 0..500 {
        crowd.push(bench.connect()?);
    }
    let case = bench.case(|x| x.good());
    for _ in 0..10 {
        let reply = bench.ask(&case)?;
        need(reply.status == 200, || format!("status {}", reply.status))?;
    }
    Ok("10 answers beside 500 silent connections".to_owned())
}
