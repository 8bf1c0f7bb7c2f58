//! Clients that read slowly or not at all: the engine is held back, memory stays small, others are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use llmgw_test_kit::raw::{Connection, End, Head};
use llmgw_test_kit::usage::rss_bytes;

use crate::check::{Bench, Check, Fault, SOON, Verdict, body, comes_true, need, post, stream_body};
use crate::upstream::{Case, STREAM_HEAD, Then};

pub(super) const CHECKS: &[Check] = &[
    Check::new("pressure.engine-held-back", "an engine is read no faster than its client reads", held_back),
    Check::new("pressure.resumes", "a client that reads again gets every byte", resumes),
    Check::new("pressure.others-served", "clients that do not read keep nobody else waiting", others),
    Check::new("pressure.slow-engine-reader", "a request of 8 MB waits for an engine that reads late", late_reader),
    // Alone, since it looks at the memory of the whole process.
    Check::new("pressure.memory", "30 clients that do not read cost little memory", memory).alone(),
    Check::new("pressure.descriptors", "after all this no connection is left open", descriptors).alone(),
];

/// A stream of 64 MiB.
const EVENTS: usize = 1024;
const EVENT_BYTES: usize = 64 << 10;
const DONE: &str = "data: [DONE]\n\n";
const MIB: u64 = 1 << 20;

/// A case whose engine sends 64 MiB of events as fast as it can, until the check is over.
fn flood(bench: &Bench) -> Case {
    bench.case(|x| {
        x.narrow()?;
        x.send(STREAM_HEAD)?;
        let event = format!("data: {{\"x\":\"{}\"}}\n\n", "y".repeat(EVENT_BYTES - 16));
        for _ in 0..EVENTS {
            x.chunk(&event)?;
        }
        x.chunk(DONE)?;
        x.end()
    })
}

/// A client that has the head and the first bytes of a stream, and reads no more.
fn stalled(bench: &Bench, case: &Case) -> Result<(Connection, Head), Fault> {
    let mut connection = Connection::open_narrow(bench.proxy, 32 << 10)?;
    connection.send(&post(&stream_body(case)))?;
    let head = connection.head()?;
    need(head.status == 200, || format!("status {}", head.status))?;
    Ok((connection, head))
}

/// Waits until these engines send no more; how much they have sent.
fn standstill(cases: &[Case]) -> u64 {
    let sent = || cases.iter().map(Case::sent_bytes).sum();
    let (mut last, mut since): (u64, _) = (sent(), Instant::now());
    let deadline = Instant::now() + SOON;
    while since.elapsed() < Duration::from_millis(400) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        if sent() != last {
            (last, since) = (sent(), Instant::now());
        }
    }
    last
}

fn held_back(bench: &Bench) -> Verdict {
    let case = flood(bench);
    let _client = stalled(bench, &case)?;
    let sent = standstill(std::slice::from_ref(&case));
    // The kernel's own buffers on both sides of a proxy may hold some megabytes.
    need(sent < 20 * MIB, || format!("the engine could send {} MiB to a client that reads nothing", sent / MIB))?;
    Ok(format!("the engine could send {:.1} MiB", sent as f64 / MIB as f64))
}

fn resumes(bench: &Bench) -> Verdict {
    let case = flood(bench);
    let (mut client, head) = stalled(bench, &case)?;
    standstill(std::slice::from_ref(&case));
    let mut body = client.body(&head);
    let mut count = 0;
    while let Some(piece) = body.piece()? {
        count += piece.len() as u64;
    }
    let (end, want) = (body.end(), (EVENTS * EVENT_BYTES + DONE.len()) as u64);
    need(count == want && end == End::Complete, || format!("{count} of {want} bytes, {end:?}"))?;
    Ok(format!("{} MiB to the end", count / MIB))
}

fn others(bench: &Bench) -> Verdict {
    let cases: Vec<Case> = (0..16).map(|_| flood(bench)).collect();
    let mut clients = Vec::new();
    for case in &cases {
        clients.push(stalled(bench, case)?);
    }
    let good = bench.case(|x| x.good());
    let begin = Instant::now();
    for _ in 0..20 {
        let reply = bench.ask(&good)?;
        need(reply.status == 200, || format!("status {}", reply.status))?;
    }
    Ok(format!("20 answers in {} ms beside 16 stalled clients", begin.elapsed().as_millis()))
}

fn late_reader(bench: &Bench) -> Verdict {
    // The scripted engine reads a body at once; late is its answer, while a large body waits at the proxy.
    let is_free = Arc::new(AtomicBool::new(false));
    let known = is_free.clone();
    let case = bench.case(move |x| {
        comes_true(Duration::from_secs(2), || known.load(Ordering::SeqCst));
        x.good()
    });
    let large = body(&case).replacen("\"}", &format!("{}\"}}", "x".repeat(8 << 20)), 1);
    let mut connection = bench.connect()?;
    connection.send(&post(&large))?;
    need(comes_true(SOON, || !case.seen().is_empty()), || "it never arrived".to_owned())?;
    is_free.store(true, Ordering::SeqCst);
    let reply = connection.reply()?;
    let got = case.seen().first().map_or(0, |seen| seen.asked.body.len());
    need(reply.status == 200 && got == large.len(), || format!("status {}, {got} bytes", reply.status))?;
    Ok("8 MB, then the answer".to_owned())
}

fn pid(bench: &Bench) -> Result<u32, Fault> {
    bench.pid.ok_or_else(|| Fault::NotApplicable("its process is not known: no --pid".to_owned()))
}

fn memory(bench: &Bench) -> Verdict {
    let pid = pid(bench)?;
    let before = rss_bytes(pid);
    let cases: Vec<Case> = (0..30).map(|_| flood(bench)).collect();
    let mut clients = Vec::new();
    for case in &cases {
        clients.push(stalled(bench, case)?);
    }
    let sent = standstill(&cases);
    let grown = rss_bytes(pid).saturating_sub(before);
    need(grown < 30 * MIB, || format!("{} MiB more for 30 clients", grown / MIB))?;
    Ok(format!("{:.1} MiB more, while {} MiB are on their way", grown as f64 / MIB as f64, sent / MIB))
}

fn descriptors(bench: &Bench) -> Verdict {
    let pid = pid(bench)?;
    let count = || llmgw_test_kit::usage::usage_of(pid).map_or(0, |usage| usage.fd_count);
    let before = count();
    let good = bench.case(|x| {
        x.wait_for_close(Duration::from_millis(100))?;
        Ok(Then::Close)
    });
    for _ in 0..100 {
        let mut connection = bench.connect()?;
        connection.send(&post(&body(&good)))?;
        connection.abort()?;
    }
    let is_back = comes_true(SOON, || count() <= before + 12);
    need(is_back, || format!("{before} before, {} after 100 clients that left", count()))?;
    Ok(format!("{before} before, {} after 100 clients that left", count()))
}
