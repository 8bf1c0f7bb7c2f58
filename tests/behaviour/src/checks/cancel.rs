//! A client that leaves ends the engine's work, whenever it leaves.

use std::time::{Duration, Instant};

use llmgw_test_kit::request::Request;

use crate::check::{Bench, CHAT, Check, SOON, Verdict, body, comes_true, failed, need, post, stream_body};
use crate::upstream::{Case, STREAM_HEAD};

pub(super) const CHECKS: &[Check] = &[
    Check::new("cancel.before-head", "a client that leaves before the first token ends the engine's work", |b| {
        before_head(b, Leaves::Orderly, stream_body)
    }),
    Check::new("cancel.not-streaming", "a client that leaves a call that does not stream ends it too", |b| {
        before_head(b, Leaves::Orderly, body)
    }),
    Check::new("cancel.reset-before-head", "a client that resets before the first token ends it too", |b| {
        before_head(b, Leaves::Reset, stream_body)
    }),
    Check::new("cancel.mid-stream", "a client that leaves mid-stream ends the engine's work", |b| {
        mid_stream(b, Leaves::Orderly)
    }),
    Check::new("cancel.reset-mid-stream", "a client that resets mid-stream ends the engine's work", |b| {
        mid_stream(b, Leaves::Reset)
    }),
    Check::new("cancel.silent-stream", "a client that leaves while the engine is silent is noticed", silent_stream),
    Check::new("cancel.upload", "a body that breaks off never becomes a request", upload),
    Check::new("cancel.half-closed", "a client that ends only its sending is answered, or let go at once", half_closed),
    Check::new("cancel.fifty", "50 clients that leave at once end 50 calls", fifty),
];

#[derive(Clone, Copy)]
enum Leaves {
    Orderly,
    Reset,
}

/// How long an engine works for nobody at most.
const WORKS: Duration = Duration::from_millis(2500);

fn leave(connection: llmgw_test_kit::raw::Connection, leaves: Leaves) -> std::io::Result<()> {
    match leaves {
        Leaves::Orderly => {
            connection.leave();
            Ok(())
        }
        Leaves::Reset => connection.abort(),
    }
}

fn ended(case: &Case) -> Verdict {
    let begin = Instant::now();
    match comes_true(WORKS, || case.is_closed()) {
        true => Ok(format!("the engine saw it after {} ms", begin.elapsed().as_millis())),
        false => failed(format!("the engine still worked {WORKS:?} later")),
    }
}

fn before_head(bench: &Bench, leaves: Leaves, body: fn(&Case) -> String) -> Verdict {
    let case = bench.case(|x| x.wait_for_close(SOON));
    let mut connection = bench.connect()?;
    connection.send(&post(&body(&case)))?;
    need(comes_true(SOON, || !case.seen().is_empty()), || "no engine was asked".to_owned())?;
    leave(connection, leaves)?;
    ended(&case)
}

fn mid_stream(bench: &Bench, leaves: Leaves) -> Verdict {
    // Small events with pauses: what ends this is the client's end, not a full buffer.
    let case = bench.case(|x| {
        x.send(STREAM_HEAD)?;
        for event in 0..500 {
            if x.chunk(format!("data: {{\"event\":{event}}}\n\n")).is_err() {
                break;
            }
            x.wait_for_close(Duration::from_millis(10))?;
        }
        x.wait_for_close(Duration::from_millis(10))
    });
    let mut connection = bench.connect()?;
    connection.send(&post(&stream_body(&case)))?;
    let head = connection.head()?;
    let events = connection.body(&head).events(3)?;
    need(events.len() == 3, || format!("{} events", events.len()))?;
    leave(connection, leaves)?;
    ended(&case)
}

fn silent_stream(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send(STREAM_HEAD)?;
        x.chunk("data: {\"event\":0}\n\n")?;
        x.wait_for_close(SOON)
    });
    let mut connection = bench.connect()?;
    connection.send(&post(&stream_body(&case)))?;
    let head = connection.head()?;
    connection.body(&head).event()?;
    connection.leave();
    ended(&case)
}

fn upload(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let mut connection = bench.connect()?;
    let request = Request::new("POST", CHAT).header("Content-Type", "application/json");
    let head = request.header("Content-Length", (body.len() + 1000).to_string());
    connection.send(&[head.head_bytes(), body.into_bytes()].concat())?;
    std::thread::sleep(Duration::from_millis(200));
    connection.leave();
    std::thread::sleep(Duration::from_millis(300));
    need(case.seen().is_empty(), || "an engine got a whole request".to_owned())?;
    Ok("no engine got a whole request".to_owned())
}

fn half_closed(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        std::thread::sleep(Duration::from_millis(300));
        x.good()
    });
    let mut connection = bench.connect()?.patience(SOON);
    connection.send(&post(&body(&case)))?;
    connection.finish_sending()?;
    match connection.reply() {
        Ok(reply) => Ok(format!("answered with {}", reply.status)),
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => failed("neither answered nor let go"),
        Err(_) => Ok("let go".to_owned()),
    }
}

fn fifty(bench: &Bench) -> Verdict {
    let cases: Vec<Case> = (0..50).map(|_| bench.case(|x| x.wait_for_close(SOON))).collect();
    let mut connections = Vec::new();
    for case in &cases {
        let mut connection = bench.connect()?;
        connection.send(&post(&body(case)))?;
        connections.push(connection);
    }
    need(comes_true(SOON, || cases.iter().all(|case| !case.seen().is_empty())), || "not all were asked".to_owned())?;
    drop(connections);
    let begin = Instant::now();
    need(comes_true(WORKS, || cases.iter().all(Case::is_closed)), || {
        format!("{} of 50 ended", cases.iter().filter(|case| case.is_closed()).count())
    })?;
    Ok(format!("all ended after {} ms", begin.elapsed().as_millis()))
}
