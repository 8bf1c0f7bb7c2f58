//! Trying elsewhere before the first byte: a sick engine costs no client an error while another is well.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::check::{Bench, Check, Verdict, body, brief, need, post};
use crate::upstream::{Exchange, Then};

pub(super) const CHECKS: &[Check] = &[
    Check::new("retry.one-down", "with one engine of three down, 40 requests are all answered", one_down).alone(),
    Check::new("retry.two-down", "with two engines of three down, 40 requests are all answered", two_down).alone(),
    Check::new("retry.refusing", "an engine that answers 503 is passed over for another", |b| elsewhere(b, 503))
        .alone(),
    Check::new("retry.busy", "an engine that answers 429 is passed over for another", |b| elsewhere(b, 429)).alone(),
    Check::new("retry.same-body", "the second try sends the same body, a large one too", same_body).alone(),
    Check::new("retry.bounded", "when every engine answers 503, the tries are few and the client is told", bounded)
        .alone(),
    Check::new("retry.busy-everywhere", "when every engine answers 429, the client gets 429 and its Retry-After", busy)
        .alone(),
    Check::new("retry.not-for-500", "an engine's own 500 is passed on, not tried again", not_for_500).alone(),
    Check::new("retry.not-for-400", "an engine's 400 is passed on, not tried again", not_for_400),
    Check::new("retry.not-while-working", "a request that an engine works on is not given to another", not_working),
    Check::new("retry.sick-engine-rests", "an engine that always answers 503 is soon asked less often", rests).alone(),
];

fn down(bench: &Bench, which: &[usize]) -> Verdict {
    let case = bench.case(|x| x.good());
    which.iter().for_each(|at| bench.engines.down(*at));
    let mut statuses = BTreeSet::new();
    let mut fault = None;
    for _ in 0..40 {
        match bench.ask(&case) {
            Ok(reply) => {
                statuses.insert(reply.status);
            }
            Err(other) => fault = Some(other),
        }
    }
    which.iter().try_for_each(|at| bench.engines.up(*at))?;
    if let Some(fault) = fault {
        return Err(fault);
    }
    need(statuses.iter().eq([&200]), || format!("statuses {statuses:?}"))?;
    Ok("40 of 40 answered with 200".to_owned())
}

fn one_down(bench: &Bench) -> Verdict {
    down(bench, &[0])
}

fn two_down(bench: &Bench) -> Verdict {
    down(bench, &[0, 2])
}

/// The first try of each request fails with this status.
fn elsewhere(bench: &Bench, status: u16) -> Verdict {
    let case = bench.case(move |x| if x.attempt == 0 { x.answer(status, "", "{}") } else { x.good() });
    let reply = bench.ask(&case)?;
    need(reply.status == 200, || format!("status {}", reply.status))?;
    let engines: Vec<usize> = case.seen().iter().map(|seen| seen.engine).collect();
    need(engines.first() != engines.last(), || format!("the same engine again: {engines:?}"))?;
    Ok(format!("200 from the engine tried as number {}", engines.len()))
}

fn same_body(bench: &Bench) -> Verdict {
    let case = bench.case(|x| if x.attempt == 0 { x.answer(503, "", "{}") } else { x.good() });
    let body = body(&case).replacen("\"}", &format!("{}\"}}", "x".repeat(2 << 20)), 1);
    let reply = bench.call(&post(&body))?;
    need(reply.status == 200, || format!("status {}", reply.status))?;
    let seen = case.seen();
    let are_same = seen.iter().all(|seen| seen.asked.body == body.as_bytes());
    need(seen.len() == 2 && are_same, || format!("{} tries, bodies the same: {are_same}", seen.len()))?;
    Ok("2 tries with the same 2 MB".to_owned())
}

fn bounded(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.answer(503, "", r#"{"error":{"message":"overloaded"}}"#));
    let reply = bench.ask(&case)?;
    let asked = case.seen().len();
    need(matches!(reply.status, 502..=504), || format!("status {}", reply.status))?;
    need(asked <= 4, || format!("engines were asked {asked} times"))?;
    Ok(format!("status {}, engines asked {asked} times", reply.status))
}

fn busy(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.answer(429, "Retry-After: 7\r\n", r#"{"error":{"message":"busy"}}"#));
    let reply = bench.ask(&case)?;
    need(reply.status == 429, || format!("status {}: {}", reply.status, brief(&reply.text())))?;
    need(reply.header("retry-after") == Some("7"), || format!("Retry-After {:?}", reply.header("retry-after")))?;
    Ok(format!("429 with Retry-After, engines asked {} times", case.seen().len()))
}

fn passed_on(bench: &Bench, script: fn(&mut Exchange<'_>) -> std::io::Result<Then>, status: u16) -> Verdict {
    let case = bench.case(script);
    let reply = bench.ask(&case)?;
    let asked = case.seen().len();
    need(reply.status == status && reply.text().contains("its own words"), || {
        format!("status {}: {}", reply.status, brief(&reply.text()))
    })?;
    need(asked == 1, || format!("engines were asked {asked} times"))?;
    Ok(format!("{status} with its body, asked once"))
}

const OWN: &str = r#"{"error":{"message":"its own words","type":"x","param":null,"code":1}}"#;

fn not_for_500(bench: &Bench) -> Verdict {
    passed_on(bench, |x| x.answer(500, "", OWN), 500)
}

fn not_for_400(bench: &Bench) -> Verdict {
    passed_on(bench, |x| x.answer(400, "", OWN), 400)
}

fn not_working(bench: &Bench) -> Verdict {
    let pause = bench.limits.engine.map_or(std::time::Duration::from_secs(2), |limit| limit * 2 / 3);
    let case = bench.case(move |x| {
        std::thread::sleep(pause);
        x.good()
    });
    let reply = bench.ask(&case)?;
    let asked = case.seen().len();
    need(reply.status == 200 && asked == 1, || format!("status {}, engines asked {asked} times", reply.status))?;
    Ok(format!("asked once, answered after {pause:?}"))
}

fn rests(bench: &Bench) -> Verdict {
    let case = bench.case(|x| if x.engine == 1 { x.answer(503, "", "{}") } else { x.good() });
    let begin = Instant::now();
    let mut good = 0;
    for _ in 0..60 {
        good += usize::from(bench.ask(&case)?.status == 200);
    }
    let sick = case.seen().iter().filter(|seen| seen.engine == 1).count();
    need(sick <= 12, || format!("the sick engine was asked {sick} times in {:?}; {good} of 60 good", begin.elapsed()))?;
    need(good >= 57, || format!("{good} of 60 answered with 200"))?;
    Ok(format!("the sick engine was asked {sick} times for 60 requests"))
}
