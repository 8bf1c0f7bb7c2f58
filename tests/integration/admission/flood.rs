//! The built gateway between a flood of the lowest band and an engine whose batch it would fill, over sockets: what the
//! highest band notices. Counts are asserted; times are printed, and run at length with `LLMGW_FULL_TRIALS=1`.

#![expect(clippy::print_stdout, reason = "the figures are what the full run is for")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use llmgw_engine_sim::batch::Policy;
use llmgw_test_kit::raw::{self, Connection};
use llmgw_test_kit::{Engine, Gateway, chat, full_or, wait_for};

use super::rig::{endpoint, request};
use crate::pair::{WITHIN, llmgw};

/// Requests that the engine runs at once, and tokens of an answer; a step takes 5 ms.
const BATCH: usize = 32;
const TOKENS: u32 = 64;
const STEPS_A_SECOND: f64 = 200.0;
const HIGH: &str = "platinum";

struct Flood {
    clients: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
}

fn flood(gateway: &Gateway, clients: usize) -> Flood {
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let client = |at: usize| {
        let (addr, is_over, answered) = (gateway.addr(), is_over.clone(), answered.clone());
        let bytes = request("bronze").json(&chat("a job").max_tokens(TOKENS).json()).bytes();
        spawn(move || {
            // They do not begin in one step.
            sleep(Duration::from_millis(at as u64 % 1000));
            while !is_over.load(Ordering::Relaxed) {
                match raw::call(addr, &bytes).status {
                    200 => drop(answered.fetch_add(1, Ordering::Relaxed)),
                    503 | 504 => sleep(Duration::from_secs(1)),
                    status => panic!("a client of the flood was told {status}"),
                }
            }
        })
    };
    Flood { clients: (0..clients).map(client).collect(), is_over, answered }
}

/// The time to the first token of one interactive request. Units: milliseconds.
fn ask(gateway: &Gateway) -> f64 {
    let bytes = request(HIGH).json(&chat("a question").streamed().max_tokens(TOKENS).json()).bytes();
    let mut connection = Connection::open(gateway.addr()).expect("a connection").patience(WITHIN * 12);
    let began = Instant::now();
    connection.send(&bytes).expect("sent");
    let head = connection.head().expect("a head");
    assert_eq!(head.status, 200);
    let mut body = connection.body(&head);
    while body.event().expect("in time").is_some_and(|event| !event.contains("\"content\":\"")) {}
    began.elapsed().as_secs_f64() * 1000.0
}

struct Figures {
    times: Vec<f64>,
    answered_a_second: f64,
}

impl Figures {
    fn part(&self, part: f64) -> f64 {
        let at = (self.times.len() as f64 * part).ceil() as usize;
        self.times[at.clamp(1, self.times.len()) - 1]
    }
}

/// So many interactive requests, one after the other, beside so many clients of the flood.
fn run(policy: Policy, clients: usize, is_held: bool, count: u64) -> Figures {
    let engine = Engine::local_with(|config| {
        config.batch.policy = policy;
        config.batch.max_num_seqs = BATCH;
        config.batch.pace.tokens_per_second = STEPS_A_SECOND;
        config.batch.pace.prefill_tokens_per_second = 0.0;
    });
    let scheduling = if policy == Policy::Priority { "priority" } else { "fifo" };
    let keys = format!("batch_capacity: {BATCH}, scheduling: {scheduling}");
    let ceilings = if is_held { (0.3, 1.0, 0.95) } else { (1000.0, 1000.0, 1.0) };
    let bands = format!(
        "bands: [{{ name: bronze, priority: 100, saturation_ceiling: {}, capacity_share: {} }}, \
         {{ name: {HIGH}, priority: 400, saturation_ceiling: {} }}]",
        ceilings.0, ceilings.2, ceilings.1
    );
    let router = format!("timeouts: {{ settle: 0s }}\nadmission: {{ {bands} }}");
    let gateway = Gateway::builder().endpoint(&endpoint("e", &engine, &keys)).router(&router).start(llmgw());
    wait_for("a first answer", WITHIN, || {
        raw::call(gateway.addr(), &request(HIGH).json(&chat("x").json()).bytes()).status == 200
    });
    let flood = flood(&gateway, clients);
    if clients > BATCH {
        let passed = || flood.answered.load(Ordering::Relaxed) >= 2 * BATCH as u64;
        wait_for("a flood under way", WITHIN * 3, passed);
    }
    let (before, began) = (flood.answered.load(Ordering::Relaxed), Instant::now());
    let mut times: Vec<f64> = Vec::new();
    for at in 0..count {
        times.push(ask(&gateway));
        // Anywhere in the engine's steps, and far enough apart to find the place that is left free.
        sleep(Duration::from_micros(100_000 + 7_919 * (at % 13)));
    }
    let answered = flood.answered.load(Ordering::Relaxed) - before;
    let answered_a_second = answered as f64 / began.elapsed().as_secs_f64();
    let waited = gateway.metrics().sum("llmgw_admission_wait_seconds_count", &[("band", "bronze")]).unwrap_or(0.0);
    let refused = gateway.metrics().sum("llmgw_admission_rejected_total", &[("band", HIGH)]).unwrap_or(0.0);
    assert_eq!((waited > 0.0, refused), (is_held && clients > BATCH, 0.0), "the flood waits where it is held");
    flood.is_over.store(true, Ordering::Relaxed);
    flood.clients.into_iter().for_each(|client| client.join().expect("no panic"));
    times.sort_by(f64::total_cmp);
    Figures { times, answered_a_second }
}

#[test]
fn a_flood_over_sockets_waits_for_its_turn_and_interactive_requests_are_answered() {
    let clients = full_or(500, 48);
    for policy in [Policy::Fifo, Policy::Priority] {
        let count = full_or(200, 5);
        let alone = run(policy, 0, true, count);
        let held = run(policy, clients, true, count);
        let say = |what: &str, figures: &Figures| {
            let (p50, p90, p99) = (figures.part(0.5), figures.part(0.9), figures.part(0.99));
            let rate = figures.answered_a_second;
            println!("{policy:?}, {what}: TTFT p50 {p50:.1} p90 {p90:.1} p99 {p99:.1} ms, flood {rate:.1} answers/s");
        };
        say("alone", &alone);
        say(&format!("beside {clients}"), &held);
        if full_or(true, false) {
            say(&format!("beside {clients}, nobody held back"), &run(policy, clients, false, 5));
        }
    }
}
