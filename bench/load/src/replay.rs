//! A trace replayed: each request when it was due, faster or slower by a factor, whatever became of the earlier ones.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::Pool;
use crate::events::Events;
use crate::pacer::Pacer;
use crate::progress::Progress;
use crate::prompt::post;
use crate::report::{Report, row, spread, watched_rows};
use crate::tally::{Quantiles, Times};
use crate::target::Target;
use crate::trace::Entry;
use crate::usage::monotonic_ns;
use crate::watch::{Watch, Watched};
use crate::wire::Part;

/// What to run.
#[derive(Debug, Clone)]
pub struct Replay {
    pub target: Target,
    pub model: String,
    pub entries: Vec<Entry>,
    /// 2.0 is twice as fast as it was.
    pub speed: f64,
    /// Size of the made-up prompts.
    pub bytes_per_token: f64,
    /// No answer is longer.
    pub output_tokens_max: u64,
    pub pid: Option<u32>,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayReport {
    pub call_count: u64,
    pub speed: f64,
    pub prompt_bytes: u64,
    pub event_count: u64,
    /// Prompt tokens that engines had cached, as usages told; 0 where none was asked for.
    pub cached_tokens: u64,
    pub open_peak_count: u64,
    pub bad: BTreeMap<String, u64>,
    /// From due to the first event.
    pub first_event: Quantiles,
    pub gap: Quantiles,
    /// From due to complete.
    pub latency: Quantiles,
    /// From due to sent: the generator's own delay.
    pub late: Quantiles,
    pub watched: Watched,
}

/// Times of streamed calls, shared by those that run at once.
#[derive(Debug, Default)]
pub(crate) struct Streamed {
    pub(crate) first_event: RefCell<Times>,
    pub(crate) gap: RefCell<Times>,
    pub(crate) latency: RefCell<Times>,
    pub(crate) bad: RefCell<BTreeMap<String, u64>>,
    pub(crate) event_count: Cell<u64>,
    cached_tokens: Cell<u64>,
    open_count: Cell<u64>,
    open_peak_count: Cell<u64>,
}

impl Streamed {
    /// Makes one streamed call and counts it; answers the time of its first event after it was due.
    pub(crate) async fn call(&self, pool: &Pool, request: &[u8], due_ns: u64) -> Option<u64> {
        self.open_count.set(self.open_count.get() + 1);
        self.open_peak_count.set(self.open_peak_count.get().max(self.open_count.get()));
        let mut events = Events::default();
        let (mut first_ns, mut last_ns) = (None, None);
        let ended = pool
            .call(request, &mut |part, now| {
                let Part::Body(bytes) = part else { return };
                events.push(bytes, |event| {
                    self.event_count.set(self.event_count.get() + 1);
                    self.cached_tokens.set(self.cached_tokens.get() + event.cached_tokens.unwrap_or(0));
                    first_ns.get_or_insert(now.saturating_sub(due_ns));
                    if let Some(last) = last_ns.replace(now) {
                        self.gap.borrow_mut().record(now.saturating_sub(last));
                    }
                });
            })
            .await;
        self.open_count.set(self.open_count.get() - 1);
        let fault = match ended {
            Err(failure) => Some(failure.name().to_owned()),
            Ok(done) if done.status != 200 => Some(format!("status {}", done.status)),
            Ok(_) if events.is_faulty => Some("error_event".to_owned()),
            Ok(_) if !events.is_done => Some("no_done".to_owned()),
            Ok(_) => None,
        };
        if let Some(fault) = fault {
            *self.bad.borrow_mut().entry(fault).or_default() += 1;
            return None;
        }
        self.latency.borrow_mut().record(monotonic_ns().saturating_sub(due_ns));
        if let Some(ns) = first_ns {
            self.first_event.borrow_mut().record(ns);
        }
        first_ns
    }

    pub(crate) fn state(&self) -> String {
        format!("{} open, {} events", self.open_count.get(), self.event_count.get())
    }

    pub(crate) fn open_peak_count(&self) -> u64 {
        self.open_peak_count.get()
    }
}

/// Runs it over a pool of connections; must be called inside a local task set.
///
/// Errors: the kernel has no timer for us.
pub async fn run(plan: Replay, pool: &Rc<Pool>, progress: Progress) -> io::Result<ReplayReport> {
    let times: Vec<Duration> = plan.entries.iter().map(|entry| entry.at).collect();
    let requests = plan.entries.iter().zip(0..).map(|(entry, number)| plan.request(entry, number));
    let calls = Calls { times: &times, speed: plan.speed, requests, pid: plan.pid };
    play(calls, pool, progress).await
}

/// Requests and when each is due.
pub(crate) struct Calls<'a, R> {
    pub(crate) times: &'a [Duration],
    pub(crate) speed: f64,
    /// Each is made before it is due, after the one before it was sent: a prompt of megabytes takes its time.
    pub(crate) requests: R,
    pub(crate) pid: Option<u32>,
}

/// Sends each when it is due.
pub(crate) async fn play(
    plan: Calls<'_, impl Iterator<Item = Vec<u8>>>,
    pool: &Rc<Pool>,
    progress: Progress,
) -> io::Result<ReplayReport> {
    let shared = Rc::new(Streamed::default());
    let late = Rc::new(RefCell::new(Times::default()));
    let pacer = Pacer::new()?;
    let line = progress.show("replay", {
        let shared = Rc::clone(&shared);
        move || shared.state()
    });
    let watch = Watch::start(plan.pid);
    let start = monotonic_ns() + 1_000_000;
    let mut prompt_bytes = 0;
    let mut calls = JoinSet::new();
    for (request, at) in plan.requests.zip(plan.times) {
        prompt_bytes += request.len() as u64;
        let due = start + due_ns(*at, plan.speed);
        pacer.until(due).await?;
        while calls.try_join_next().is_some() {}
        let (shared, pool, late) = (Rc::clone(&shared), Rc::clone(pool), Rc::clone(&late));
        calls.spawn_local(async move {
            late.borrow_mut().record(monotonic_ns().saturating_sub(due));
            shared.call(&pool, &request, due).await;
        });
    }
    while calls.join_next().await.is_some() {}
    drop(line);
    let watched = watch.finish();
    let late = late.borrow().quantiles();
    Ok(ReplayReport {
        call_count: plan.times.len() as u64,
        speed: plan.speed,
        prompt_bytes,
        event_count: shared.event_count.get(),
        cached_tokens: shared.cached_tokens.get(),
        open_peak_count: shared.open_peak_count(),
        bad: shared.bad.borrow().clone(),
        first_event: shared.first_event.borrow().quantiles(),
        gap: shared.gap.borrow().quantiles(),
        latency: shared.latency.borrow().quantiles(),
        late,
        watched,
    })
}

fn due_ns(at: Duration, speed: f64) -> u64 {
    (at.as_nanos() as f64 / speed.max(1e-6)) as u64
}

impl Replay {
    fn request(&self, entry: &Entry, number: u64) -> Vec<u8> {
        let body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": entry.prompt(number, self.bytes_per_token) }],
            "max_tokens": entry.output_tokens.clamp(1, self.output_tokens_max.max(1)),
            "stream": true,
        });
        post(&self.target, &body.to_string(), &[])
    }
}

impl Report for ReplayReport {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            row("calls", format!("{} at {} × the trace's speed", self.call_count, self.speed)),
            row("most open", self.open_peak_count.to_string()),
            row("prompts", format!("{:.1} MiB", self.prompt_bytes as f64 / f64::from(1 << 20))),
            row("events", self.event_count.to_string()),
            row("time to first event, from due", spread(&self.first_event)),
            row("gap between events", spread(&self.gap)),
            row("whole, from due", spread(&self.latency)),
            row("sent late by", spread(&self.late)),
        ];
        rows.extend(watched_rows(&self.watched, Some(("call", self.call_count))));
        rows
    }

    fn faults(&self) -> Vec<String> {
        self.bad.iter().map(|(name, count)| format!("{count} calls ended with {name}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::started;

    #[test]
    fn a_due_time_shrinks_with_the_speed() {
        assert_eq!(due_ns(Duration::from_secs(10), 2.0), 5_000_000_000);
        assert_eq!(due_ns(Duration::from_secs(1), 0.5), 2_000_000_000);
    }

    #[test]
    fn an_answer_that_is_no_stream_is_a_fault_of_its_call() {
        let addr = started(1)[0];
        let target = Target::parse(&format!("http://{addr}")).expect("a URL");
        let entry =
            |ms| Entry { at: Duration::from_millis(ms), input_tokens: 20, output_tokens: 5, blocks: Vec::new() };
        let plan = Replay {
            target: target.clone(),
            model: "m".to_owned(),
            entries: (0..4).map(entry).collect(),
            speed: 10.0,
            bytes_per_token: 4.0,
            output_tokens_max: 100,
            pid: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let found = tokio::task::LocalSet::new().block_on(&runtime, async {
            let pool = Pool::new(target, Duration::from_secs(10));
            run(plan, &pool, Progress::Silent).await.expect("it ran")
        });
        // The mock streams only what its mark asks for, and these prompts have none.
        assert_eq!((found.call_count, found.bad.get("no_done")), (4, Some(&4)));
    }
}
