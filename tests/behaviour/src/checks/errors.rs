//! What clients are told when engines cannot answer, and that it ends when they can.

use std::time::{Duration, Instant};

use llmgw_test_kit::request::Request;

use crate::check::{Bench, CHAT, Check, Fault, SOON, Verdict, body, brief, comes_true, need, post, stream_body};

pub(super) const CHECKS: &[Check] = &[
    Check::new("errors.engine-body", "an engine's refusal keeps its status and body", engine_body),
    Check::new("errors.all-down", "with every engine down a client hears of it at once: 502, 503 or 504", all_down)
        .alone(),
    Check::new("errors.comes-back", "once an engine is back, requests are answered again within 10 s", comes_back)
        .alone(),
    Check::new("errors.connection-goes-on", "after an engine's error the client's connection serves on", goes_on)
        .alone(),
    Check::new("errors.still-running", "after all this the same process runs", still_running).alone(),
];

fn engine_body(bench: &Bench) -> Verdict {
    for status in [400, 404, 413, 422] {
        let text = format!(r#"{{"error":{{"message":"no {status}","type":"x","param":null,"code":{status}}}}}"#);
        let sent = text.clone();
        let case = bench.case(move |x| x.answer(status, "", &sent));
        let reply = bench.ask(&case)?;
        need(reply.status == status && reply.text() == text, || {
            format!("{status} became {} {}", reply.status, brief(&reply.text()))
        })?;
    }
    Ok("400, 404, 413 and 422 as they were".to_owned())
}

fn with_all_down<T>(bench: &Bench, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let all = 0..bench.engines.count();
    all.clone().for_each(|at| bench.engines.down(at));
    let done = work();
    all.clone().try_for_each(|at| bench.engines.up(at))?;
    done
}

fn all_down(bench: &Bench) -> Verdict {
    with_all_down(bench, || {
        let case = bench.case(|x| x.good());
        let mut statuses = Vec::new();
        for text in [body(&case), stream_body(&case)] {
            let begin = Instant::now();
            let reply = bench.call(&post(&text))?;
            let took = begin.elapsed();
            need(matches!(reply.status, 502..=504), || format!("status {}", reply.status))?;
            need(took < SOON, || format!("{} after {took:?}", reply.status))?;
            statuses.push(reply.status);
        }
        Ok(format!("statuses {statuses:?}"))
    })
}

fn comes_back(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    with_all_down(bench, || {
        for _ in 0..20 {
            // What they come to is judged elsewhere.
            let _ = bench.ask(&case);
        }
        Ok(())
    })?;
    let begin = Instant::now();
    need(comes_true(Duration::from_secs(10), || bench.ask(&case).is_ok_and(|reply| reply.status == 200)), || {
        "no answer 10 s after every engine was back".to_owned()
    })?;
    Ok(format!("answered again after {:.1} s", begin.elapsed().as_secs_f64()))
}

fn goes_on(bench: &Bench) -> Verdict {
    let bad = bench.case(|x| x.answer(500, "", r#"{"error":{"message":"x"}}"#));
    let good = bench.case(|x| x.good());
    let mut connection = bench.connect()?;
    for _ in 0..3 {
        for (case, status) in [(&bad, 500), (&good, 200)] {
            connection.send(&Request::new("POST", CHAT).body("application/json", body(case)).bytes())?;
            let reply = connection.reply()?;
            need(reply.status == status, || format!("status {} in place of {status}", reply.status))?;
        }
    }
    Ok("3 errors and 3 answers on one connection".to_owned())
}

fn still_running(bench: &Bench) -> Verdict {
    let pid = bench.pid.ok_or_else(|| Fault::NotApplicable("its process is not known: no --pid".to_owned()))?;
    let usage = llmgw_test_kit::usage::usage_of(pid);
    match usage {
        Some(usage) => Ok(format!("{} MiB, {} descriptors", usage.rss_bytes >> 20, usage.fd_count)),
        None => crate::check::failed(format!("process {pid} is gone")),
    }
}
