//! Many mixed requests: every kind of call and every kind of ending, again and again, and what they leave behind.
//!
//! Memory is read after the first tenth and after the last call; the gauges of open work must come back to 0. Each kind
//! knows how it must end, so that a gateway that answers everything with an error does not pass.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Connection, Done, Failure, Pool};
use crate::control;
use crate::events::Events;
use crate::progress::Progress;
use crate::prompt::{self, Chat, Delivery};
use crate::report::{Report, bytes, row, watched_rows};
use crate::target::Target;
use crate::watch::{Watch, Watched};
use crate::wire::Part;

/// Gauges of open work; those a page does not have are not asked for, but one it must have.
const GAUGES: &[&str] = &["llmgw_endpoint_inflight", "llmgw_requests_in_flight", "llmgw_client_connections"];
const GAUGES_WITHIN: Duration = Duration::from_secs(10);
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// No sum of open work comes near it; a count that went below 0 without a sign would be far above.
const PLAUSIBLE_MAX: f64 = 1e6;

/// What to run.
#[derive(Debug, Clone)]
pub struct Mixed {
    /// Any path of the gateway; each kind has its own.
    pub via: Target,
    /// Where the metrics page is.
    pub admin: Target,
    pub model: String,
    pub call_count: u64,
    pub connection_count: usize,
    pub pid: u32,
    /// The most that memory may grow between the first tenth and the end.
    pub growth_bytes_max: u64,
    /// Limit of one call.
    pub within: Duration,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct MixedReport {
    pub call_count: u64,
    pub kinds: BTreeMap<&'static str, u64>,
    /// Kind and how it ended, where it should have ended otherwise.
    pub unexpected: BTreeMap<String, u64>,
    pub stale_count: u64,
    pub rss_warm_bytes: u64,
    pub rss_after_bytes: u64,
    pub growth_bytes: i64,
    pub growth_bytes_max: u64,
    /// Each gauge's value at the end.
    pub gauges: BTreeMap<String, f64>,
    /// The least and the most that any series of a gauge showed while calls ran.
    pub sampled: BTreeMap<String, (f64, f64)>,
    /// How often the page was read for it.
    pub sample_count: u64,
    pub watched: Watched,
}

/// A kind of call and how it must end.
struct Kind {
    name: &'static str,
    request: Vec<u8>,
    ends: Ends,
}

#[derive(Clone, Copy)]
enum Ends {
    /// With one of these statuses, complete.
    Status(&'static [u16]),
    /// With a whole stream.
    Stream,
    /// With a stream whose break the client can see.
    BrokenStream,
    /// The client leaves after so many reads of the body; 0: before the head.
    Leaving { after_parts: u32 },
}

struct Shared {
    plan: Mixed,
    kinds: Vec<Kind>,
    begun_count: Cell<u64>,
    counts: RefCell<BTreeMap<&'static str, u64>>,
    unexpected: RefCell<BTreeMap<String, u64>>,
    stale_count: Cell<u64>,
    sampled: RefCell<BTreeMap<String, (f64, f64)>>,
    sample_count: Cell<u64>,
}

/// Runs it; must be called inside a local task set.
///
/// Errors: the metrics page does not answer.
pub async fn run(plan: Mixed, progress: Progress) -> Result<MixedReport, String> {
    let watch = Watch::start(Some(plan.pid));
    let shared = Rc::new(Shared {
        kinds: kinds(&plan),
        plan,
        begun_count: Cell::new(0),
        counts: RefCell::default(),
        unexpected: RefCell::default(),
        stale_count: Cell::new(0),
        sampled: RefCell::default(),
        sample_count: Cell::new(0),
    });
    let sampling = tokio::task::spawn_local(sample(Rc::clone(&shared)));
    let plan = &shared.plan;
    let line = progress.show("mixed", {
        let shared = Rc::clone(&shared);
        move || format!("{} calls, unexpected: {}", shared.begun_count.get(), shared.unexpected.borrow().len())
    });
    part(&shared, plan.call_count / 10).await;
    gauges_at_rest(plan).await?;
    let rss_warm_bytes = crate::usage::rss_bytes(plan.pid);
    part(&shared, plan.call_count).await;
    drop(line);
    sampling.abort();
    let gauges = gauges_at_rest(plan).await?;
    let rss_after_bytes = crate::usage::rss_bytes(plan.pid);
    let difference =
        |after: u64, before: u64| i64::try_from(after).unwrap_or(i64::MAX) - i64::try_from(before).unwrap_or(0);
    Ok(MixedReport {
        call_count: shared.begun_count.get(),
        kinds: shared.counts.borrow().clone(),
        unexpected: shared.unexpected.borrow().clone(),
        stale_count: shared.stale_count.get(),
        rss_warm_bytes,
        rss_after_bytes,
        growth_bytes: difference(rss_after_bytes, rss_warm_bytes),
        growth_bytes_max: plan.growth_bytes_max,
        gauges,
        sampled: shared.sampled.borrow().clone(),
        sample_count: shared.sample_count.get(),
        watched: watch.finish(),
    })
}

/// Runs calls until so many have begun since the start.
async fn part(shared: &Rc<Shared>, until_count: u64) {
    let mut loops = JoinSet::new();
    for _ in 0..shared.plan.connection_count {
        let shared = Rc::clone(shared);
        loops.spawn_local(async move {
            let pool = Pool::new(shared.plan.via.clone(), shared.plan.within);
            while shared.begun_count.get() < until_count {
                let number = shared.begun_count.get();
                shared.begun_count.set(number + 1);
                let turn = usize::try_from(number).unwrap_or(0) % shared.kinds.len();
                if let Some(kind) = shared.kinds.get(turn) {
                    one_call(&shared, kind, &pool).await;
                }
            }
            shared.stale_count.set(shared.stale_count.get() + pool.stale_count());
        });
    }
    while loops.join_next().await.is_some() {}
}

async fn one_call(shared: &Shared, kind: &Kind, pool: &Pool) {
    *shared.counts.borrow_mut().entry(kind.name).or_default() += 1;
    let wrong = match kind.ends {
        Ends::Leaving { after_parts } => leave(&shared.plan, &kind.request, after_parts).await,
        _ => {
            let mut events = Events::default();
            let mut on = |part: Part<'_>, _: u64| {
                if let Part::Body(bytes) = part {
                    events.push(bytes, |_| ());
                }
            };
            let ended = pool.call(&kind.request, &mut on).await;
            wrong_ending(kind.ends, ended, &events)
        }
    };
    if let Some(wrong) = wrong {
        *shared.unexpected.borrow_mut().entry(format!("{}: {wrong}", kind.name)).or_default() += 1;
    }
}

fn wrong_ending(ends: Ends, ended: Result<Done, Failure>, events: &Events) -> Option<String> {
    let is_whole_stream = events.is_done && !events.is_faulty && events.count > 0;
    let is_right = match (ends, ended) {
        (Ends::Status(expected), Ok(done)) => expected.contains(&done.status),
        (Ends::Stream, Ok(done)) => done.status == 200 && is_whole_stream,
        (Ends::BrokenStream, Ok(done)) => done.status != 200 || events.is_faulty,
        (Ends::BrokenStream, Err(failure)) => matches!(failure, Failure::Short | Failure::Reset),
        _ => false,
    };
    let shown = || match ended {
        Ok(done) if done.status == 200 => format!("200, {} events, done {}", events.count, events.is_done),
        Ok(done) => done.status.to_string(),
        Err(failure) => failure.name().to_owned(),
    };
    (!is_right).then(shown)
}

/// Begins a call and leaves; wrong is only what comes before the leaving.
async fn leave(plan: &Mixed, request: &[u8], after_parts: u32) -> Option<String> {
    let mut connection = match Connection::open(&plan.via).await {
        Ok(connection) => connection,
        Err(failure) => return Some(failure.name().to_owned()),
    };
    if let Err(failure) = connection.send(request).await {
        return Some(failure.name().to_owned());
    }
    if after_parts == 0 {
        // Long enough for the call to be under way, short enough for many of them.
        tokio::time::sleep(Duration::from_millis(2)).await;
        return None;
    }
    let seen = Cell::new(0);
    let enough = async {
        while seen.get() < after_parts {
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let mut on = |part: Part<'_>, _: u64| {
        if matches!(part, Part::Body(_)) {
            seen.set(seen.get() + 1);
        }
    };
    let read = connection.read(&mut on);
    let ended = timeout(plan.within, async {
        tokio::select! {
            () = enough => None,
            ended = read => Some(match ended {
                Ok(done) => done.status.to_string(),
                Err(failure) => failure.name().to_owned(),
            }),
        }
    });
    let ended = ended.await.unwrap_or_else(|_| Some("timed_out".to_owned()));
    connection.abort();
    ended
}

fn kinds(plan: &Mixed) -> Vec<Kind> {
    let at = |path: &str| plan.via.at(path);
    let chat_at = at("/v1/chat/completions");
    let model = plan.model.as_str();
    let chat = |delivery, instruction: Option<serde_json::Value>, seed| {
        let max_tokens = instruction.is_none().then_some(8);
        Chat { model: model.to_owned(), delivery, instruction, seed, max_tokens, ..Chat::default() }.bytes(&chat_at)
    };
    let post = |path: &str, body: serde_json::Value| prompt::post(&at(path), &body.to_string(), &[]);
    let kind = |name, request, ends| Kind { name, request, ends };
    let slow = json!({ "events": 500, "delay_us": 5000 });
    let breaks = json!({ "events": 20, "delay_us": 100, "close_after_events": 5 });
    vec![
        kind("chat", chat(Delivery::Whole, None, 1), Ends::Status(&[200])),
        kind("streamed chat", chat(Delivery::Streamed, None, 2), Ends::Stream),
        kind(
            "completion",
            post("/v1/completions", json!({ "model": model, "prompt": "a b c", "max_tokens": 4 })),
            Ends::Status(&[200]),
        ),
        kind(
            "embeddings",
            post("/v1/embeddings", json!({ "model": model, "input": ["a", "b"] })),
            Ends::Status(&[200]),
        ),
        kind("models", prompt::get(&at("/v1/models")), Ends::Status(&[200])),
        kind(
            "chat, long prompt",
            {
                Chat { model: model.to_owned(), prompt_bytes: 100_000, max_tokens: Some(2), ..Chat::default() }
                    .bytes(&chat_at)
            },
            Ends::Status(&[200]),
        ),
        kind("bad JSON", prompt::post(&chat_at, "{\"model\":", &[]), Ends::Status(&[400])),
        kind(
            "unknown model",
            post("/v1/chat/completions", json!({ "model": "no-such-model", "messages": [] })),
            Ends::Status(&[404]),
        ),
        kind("unknown path", post("/v1/nothing", json!({})), Ends::Status(&[404])),
        kind("engine refuses", chat(Delivery::Whole, Some(json!({ "status": 400 })), 3), Ends::Status(&[400])),
        kind(
            "engine refuses a stream",
            chat(Delivery::Streamed, Some(json!({ "status": 400 })), 4),
            Ends::Status(&[400]),
        ),
        kind("stream breaks", chat(Delivery::Streamed, Some(breaks), 5), Ends::BrokenStream),
        kind(
            "client leaves before the head",
            chat(Delivery::Whole, Some(slow.clone()), 6),
            Ends::Leaving { after_parts: 0 },
        ),
        kind("client leaves a stream", chat(Delivery::Streamed, Some(slow), 7), Ends::Leaving { after_parts: 2 }),
    ]
}

/// Reads the gauges again and again, series by series: what is too much in one must not hide what is missing in
/// another.
async fn sample(shared: Rc<Shared>) {
    loop {
        if let Ok(page) = control::metrics(&shared.plan.admin).await {
            shared.sample_count.set(shared.sample_count.get() + 1);
            for series in GAUGES.iter().flat_map(|name| page.matching(name, &[])) {
                let mut sampled = shared.sampled.borrow_mut();
                let (least, most) = sampled.entry(series.name.clone()).or_insert((series.value, series.value));
                (*least, *most) = (least.min(series.value), most.max(series.value));
            }
        }
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
}

/// The gauges once they are at 0, or as they are when they do not come down in time.
async fn gauges_at_rest(plan: &Mixed) -> Result<BTreeMap<String, f64>, String> {
    let ask = async || {
        let page = control::metrics(&plan.admin).await?;
        let sums = GAUGES.iter().filter_map(|name| Some(((*name).to_owned(), page.sum(name, &[])?)));
        Ok(sums.collect::<BTreeMap<String, f64>>())
    };
    let at_rest = |gauges: &BTreeMap<String, f64>| gauges.values().all(|value| *value == 0.0);
    Ok(control::until(GAUGES_WITHIN, ask, at_rest).await?.0)
}

impl Report for MixedReport {
    fn rows(&self) -> Vec<(String, String)> {
        let gauges: Vec<String> = self.gauges.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let mut rows = vec![row("calls", format!("{} in {:.1} s", self.call_count, self.watched.seconds))];
        rows.extend(self.kinds.iter().map(|(name, count)| row(&format!("  {name}"), count.to_string())));
        rows.push(row("repeated on stale connections", self.stale_count.to_string()));
        let (warm, after) = (bytes(self.rss_warm_bytes), bytes(self.rss_after_bytes));
        let growth = self.growth_bytes as f64 / 1024.0;
        rows.push(row("memory", format!("after a tenth {warm}, at the end {after}, grown by {growth:.0} KiB")));
        rows.push(row("gauges at the end", gauges.join(", ")));
        let sampled = self.sampled.iter().map(|(name, (least, most))| format!("{name} {least} to {most}"));
        let sampled = sampled.collect::<Vec<_>>().join(", ");
        rows.push(row("gauges meanwhile", format!("{sampled}, read {} times", self.sample_count)));
        rows.extend(watched_rows(&self.watched, Some(("call", self.call_count))));
        rows
    }

    fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> =
            self.unexpected.iter().map(|(ending, count)| format!("{count} × unexpected: {ending}")).collect();
        if u64::try_from(self.growth_bytes).is_ok_and(|growth| growth > self.growth_bytes_max) {
            faults.push(format!("memory grew by {} KiB", self.growth_bytes / 1024));
        }
        for (name, (least, most)) in &self.sampled {
            if *least < 0.0 || *most > PLAUSIBLE_MAX {
                faults.push(format!("{name} was between {least} and {most} while calls ran"));
            }
        }
        if !self.gauges.contains_key("llmgw_endpoint_inflight") {
            faults.push("the metrics page has no llmgw_endpoint_inflight".to_owned());
        }
        for (name, value) in self.gauges.iter().filter(|(_, value)| **value != 0.0) {
            faults.push(format!("{name} is {value} with nothing open"));
        }
        faults
    }
}
