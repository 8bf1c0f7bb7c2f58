//! Engines that die at work: what was sent arrives, and no broken answer looks like a whole one.

use std::time::{Duration, Instant};

use llmgw_test_kit::raw::{End, Reply};

use crate::check::{Bench, Check, Fault, SOON, Verdict, body, brief, failed, need, post, stream_body};
use crate::upstream::{Case, Exchange, STREAM_HEAD, Then};

pub(super) const CHECKS: &[Check] = &[
    Check::new("death.mid-stream", BROKEN, |b| broken_stream(b, |_| Ok(Then::Close))).alone(),
    Check::new("death.mid-stream-reset", BROKEN, |b| {
        broken_stream(b, |_| {
            // What was sent is to be read before the reset throws it away.
            std::thread::sleep(Duration::from_millis(100));
            Ok(Then::Reset)
        })
    })
    .alone(),
    Check::new("death.mid-event", BROKEN, |b| {
        broken_stream(b, |x| {
            x.chunk("data: {\"half\":")?;
            Ok(Then::Close)
        })
    })
    .alone(),
    Check::new("death.broken-chunk", BROKEN, |b| {
        broken_stream(b, |x| {
            x.send("zz\r\n")?;
            Ok(Then::Close)
        })
    })
    .alone(),
    Check::new("death.in-chunk", BROKEN, |b| {
        broken_stream(b, |x| {
            x.send("100\r\ndata: {\"cut\"")?;
            Ok(Then::Close)
        })
    })
    .alone(),
    Check::new("death.short-of-length", "an answer short of its length does not look whole", short_answer).alone(),
    Check::new("death.in-head", "an engine that dies in its head is answered for with 502, 503 or 504", in_head)
        .alone(),
    Check::new(
        "death.before-head",
        "an engine that dies without a byte is answered for, by another or with 50x",
        no_head,
    )
    .alone(),
    Check::new("death.not-asked-again", "a stream that has begun is not begun again elsewhere", not_again).alone(),
    Check::new("death.silent-before-head", "an engine that never answers is given up at the limit with 504", silent)
        .alone(),
    Check::new("death.silent-mid-stream", "a stream that stops is ended at the limit, and does not look whole", stops)
        .alone(),
    Check::new("death.process", "an engine whose process dies breaks its streams at once", process).alone(),
];

const BROKEN: &str = "of a stream that breaks every event arrives, and it does not look whole";
const SLACK: Duration = Duration::from_secs(4);

/// The stream that ends in the way of `last` after three events.
fn dying(bench: &Bench, last: fn(&mut Exchange<'_>) -> std::io::Result<Then>) -> Case {
    bench.case(move |x| {
        x.send(STREAM_HEAD)?;
        for event in 0..3 {
            x.chunk(format!("data: {{\"event\":{event}}}\n\n"))?;
        }
        last(x)
    })
}

fn broken_stream(bench: &Bench, last: fn(&mut Exchange<'_>) -> std::io::Result<Then>) -> Verdict {
    let case = dying(bench, last);
    let reply = bench.call(&post(&stream_body(&case)))?;
    looks_broken(&reply)
}

/// Three events and then an end that cannot be taken for a good one.
fn looks_broken(reply: &Reply) -> Verdict {
    let events = reply.events();
    let own = events.iter().filter(|event| event.starts_with("data: {\"event\":")).count();
    need(own == 3, || format!("{own} of 3 events arrived"))?;
    need(!reply.text().contains("[DONE]"), || "it ends with [DONE]".to_owned())?;
    let says_error = events.iter().any(|event| event.contains("\"error\""));
    match (reply.end, says_error) {
        (End::Complete, false) => failed("it looks whole: a complete body, no error event"),
        (end, true) => Ok(format!("3 events, an error event, {end:?}")),
        (end, false) => Ok(format!("3 events, {end:?}")),
    }
}

fn short_answer(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"half\":")?;
        Ok(Then::Close)
    });
    match bench.ask(&case) {
        Ok(reply) if reply.status >= 500 => Ok(format!("status {}", reply.status)),
        Ok(reply) if reply.end == End::Complete => failed("it looks whole"),
        Ok(reply) => Ok(format!("status {}, {:?}", reply.status, reply.end)),
        Err(_) => Ok("closed".to_owned()),
    }
}

fn in_head(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send("HTTP/1.1 200 OK\r\nContent-Ty")?;
        Ok(Then::Close)
    });
    let reply = bench.ask(&case)?;
    need(matches!(reply.status, 502..=504), || format!("status {}", reply.status))?;
    Ok(format!("status {}, engines asked {} times", reply.status, case.seen().len()))
}

fn no_head(bench: &Bench) -> Verdict {
    let case = bench.case(|_| Ok(Then::Close));
    let reply = bench.ask(&case)?;
    let asked = case.seen().len();
    need(matches!(reply.status, 502..=504), || format!("status {}", reply.status))?;
    need(asked <= 8, || format!("engines were asked {asked} times"))?;
    Ok(format!("status {}, engines asked {asked} times", reply.status))
}

fn not_again(bench: &Bench) -> Verdict {
    let case = dying(bench, |_| Ok(Then::Close));
    // The reply is judged elsewhere.
    let _ = bench.call(&post(&stream_body(&case)));
    std::thread::sleep(Duration::from_millis(200));
    let asked = case.seen().len();
    need(asked == 1, || format!("engines were asked {asked} times"))?;
    Ok("asked once".to_owned())
}

fn limit(bench: &Bench) -> Result<Duration, Fault> {
    bench.limits.engine.ok_or_else(|| Fault::NotApplicable("it has no limit of an engine's silence".to_owned()))
}

fn silent(bench: &Bench) -> Verdict {
    let limit = limit(bench)?;
    let case = bench.case(move |x| x.wait_for_close(limit * 2 + SLACK));
    let mut connection = bench.connect()?.patience(limit * 2 + SLACK);
    let begin = Instant::now();
    connection.send(&post(&body(&case)))?;
    let reply = connection.reply()?;
    need(reply.status == 504, || format!("status {}: {}", reply.status, brief(&reply.text())))?;
    let took = begin.elapsed();
    need(took < limit + SLACK, || format!("504 after {took:?} with a limit of {limit:?}"))?;
    Ok(format!("504 after {:.1} s, engines asked {} times", took.as_secs_f64(), case.seen().len()))
}

fn stops(bench: &Bench) -> Verdict {
    let limit = limit(bench)?;
    let case = dying(bench, |x| x.wait_for_close(Duration::from_secs(30)));
    let mut connection = bench.connect()?.patience(limit + SLACK);
    connection.send(&post(&stream_body(&case)))?;
    looks_broken(&connection.reply()?)
}

fn process(bench: &Bench) -> Verdict {
    let cases: Vec<Case> = (0..bench.engines.count() * 4).map(|_| dying(bench, |x| x.wait_for_close(SOON))).collect();
    let mut open = Vec::new();
    for case in &cases {
        let mut connection = bench.connect()?.patience(SOON);
        connection.send(&post(&stream_body(case)))?;
        let head = connection.head()?;
        let events = connection.body(&head).events(3)?.len();
        need(events == 3, || format!("{events} of 3 events"))?;
        open.push((connection, head));
    }
    bench.engines.down(0);
    let (mut broken, mut hanging) = (0, 0);
    for ((mut connection, head), case) in open.into_iter().zip(&cases) {
        if case.seen().first().is_none_or(|seen| seen.engine != 0) {
            continue;
        }
        let mut body = connection.body(&head);
        loop {
            match body.event() {
                Ok(Some(_)) => {}
                Ok(None) if body.end() == End::Complete => hanging += 1,
                Ok(None) => broken += 1,
                Err(_) => hanging += 1,
            }
            if !matches!(body.end(), End::Open) || hanging > 0 {
                break;
            }
        }
    }
    bench.engines.up(0)?;
    need(hanging == 0, || format!("{hanging} streams of the dead engine went on or looked whole"))?;
    Ok(format!("{broken} streams of the dead engine broke"))
}
