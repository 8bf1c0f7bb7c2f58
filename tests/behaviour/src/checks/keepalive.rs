//! Connections to engines: used again, never after their end, and no client's trouble when they end.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::check::{Bench, Check, Fault, Verdict, body, brief, need, post};
use crate::upstream::{Exchange, GOOD, Then};

pub(super) const CHECKS: &[Check] = &[
    // Alone: beside others that begin and end, any connection may be in use just then.
    Check::new("keepalive.reuse", "connections to engines are used again", reuse).alone(),
    Check::new("keepalive.engine-says-close", "a connection whose engine says close is not used again", says_close),
    Check::new(
        "keepalive.engine-closes-after",
        "an engine that closes after each answer costs no client an error",
        |b| {
            rounds(b, |x| {
                x.good()?;
                Ok(Then::Close)
            })
        },
    ),
    Check::new(
        "keepalive.engine-resets-after",
        "an engine that resets after each answer costs no client an error",
        |b| {
            rounds(b, |x| {
                x.good()?;
                // The answer is to be read before the reset throws it away.
                std::thread::sleep(Duration::from_millis(20));
                Ok(Then::Reset)
            })
        },
    )
    .alone(),
    Check::new("keepalive.race", "an engine that closes an idle connection as a request comes costs no error", |b| {
        rounds(b, |x| if x.turn > 0 { Ok(Then::Close) } else { x.good() })
    })
    .alone(),
    Check::new("keepalive.race-reset", "an engine that resets it as a request comes costs no error", |b| {
        rounds(b, |x| if x.turn > 0 { Ok(Then::Reset) } else { x.good() })
    })
    .alone(),
    Check::new("keepalive.idle-closed", "connections that engines closed while idle cost no error", idle_closed)
        .alone(),
    Check::new("keepalive.unread-answer", "an answer that its client did not take is not another's", unread).alone(),
];

fn reuse(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let mut connection = bench.connect()?;
    for _ in 0..30 {
        connection.send(&post(&body(&case)))?;
        connection.reply()?;
    }
    let used: BTreeSet<u64> = case.seen().iter().map(|seen| seen.connection).collect();
    need(used.len() <= 15, || format!("{} connections for 30 requests", used.len()))?;
    Ok(format!("{} connections for 30 requests", used.len()))
}

fn says_close(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.answer(200, "Connection: close\r\n", GOOD));
    let mut connection = bench.connect()?;
    for _ in 0..9 {
        connection.send(&post(&body(&case)))?;
        let reply = connection.reply()?;
        need(reply.status == 200, || format!("status {}", reply.status))?;
    }
    let used: BTreeSet<u64> = case.seen().iter().map(|seen| seen.connection).collect();
    need(used.len() == 9, || format!("{} connections for 9 requests", used.len()))?;
    Ok("9 connections for 9 requests".to_owned())
}

fn rounds(bench: &Bench, script: fn(&mut Exchange<'_>) -> std::io::Result<Then>) -> Verdict {
    let case = bench.case(script);
    let mut connection = bench.connect()?;
    for round in 0..30 {
        connection.send(&post(&body(&case)))?;
        let reply = connection.reply().map_err(Fault::from)?;
        need(reply.status == 200, || format!("request {round}: status {}", reply.status))?;
    }
    Ok(format!("30 answers, engines asked {} times", case.seen().len()))
}

fn idle_closed(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.good()?;
        Ok(Then::KeepFor(Duration::from_millis(150)))
    });
    for round in 0..5 {
        for _ in 0..3 {
            let reply = bench.ask(&case)?;
            need(reply.status == 200, || format!("round {round}: status {}", reply.status))?;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    Ok("15 answers over 5 rounds of closing".to_owned())
}

fn unread(bench: &Bench) -> Verdict {
    let slow = bench.case(|x| {
        std::thread::sleep(Duration::from_millis(100));
        // The proxy may have gone by then.
        let _ = x.answer(200, "", "{\"other\":1}");
        Ok(Then::Keep)
    });
    let good = bench.case(|x| x.good());
    for _ in 0..10 {
        let mut connection = bench.connect()?;
        connection.send(&post(&body(&slow)))?;
        std::thread::sleep(Duration::from_millis(30));
        connection.leave();
        for _ in 0..4 {
            let reply = bench.ask(&good)?;
            need(reply.status == 200, || format!("the next request: status {}", reply.status))?;
            need(reply.text() == GOOD, || format!("another's answer: {}", brief(&reply.text())))?;
        }
    }
    Ok("40 answers, each its own".to_owned())
}
