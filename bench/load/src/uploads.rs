//! Memory under many large bodies at once: every client sends all of its body but the end, and holds it there.
//!
//! When all are there, the gateway holds as much as it ever will; then the ends are sent and every call must be
//! answered.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Connection, Done, Failure};
use crate::progress::Progress;
use crate::prompt;
use crate::report::{Report, bytes, row, tally_faults, watched_rows};
use crate::tally::Tally;
use crate::target::Target;
use crate::watch::{Watch, Watched};

/// Kept back until all bodies are there.
const TAIL_BYTES: usize = 1024;

/// What to run.
#[derive(Debug, Clone)]
pub struct Uploads {
    pub via: Target,
    pub model: String,
    pub body_count: usize,
    pub body_bytes: usize,
    pub pid: u32,
    /// The most memory, as a multiple of all bodies together.
    pub ratio_max: f64,
    /// Limit of one call.
    pub within: Duration,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct UploadsReport {
    pub body_count: usize,
    pub body_bytes: usize,
    pub endings: String,
    /// The most memory, over all bodies together.
    pub ratio: f64,
    pub ratio_max: f64,
    pub watched: Watched,
    #[serde(skip)]
    pub tally: Tally,
}

/// Runs it; must be called inside a local task set.
pub async fn run(plan: Uploads, progress: Progress) -> UploadsReport {
    let text = prompt::words(plan.body_bytes, 1);
    let body = json!({ "model": plan.model, "max_tokens": 1, "messages": [{ "role": "user", "content": text }] });
    let request: Rc<[u8]> = prompt::post(&plan.via, &body.to_string(), &[]).into();
    drop((text, body));
    let all_there = Rc::new(Barrier::new(plan.body_count));
    progress.say(&format!("{} bodies of {}", plan.body_count, bytes(plan.body_bytes as u64)));
    let watch = Watch::start(Some(plan.pid));
    let mut calls = JoinSet::new();
    for _ in 0..plan.body_count {
        let (via, within) = (plan.via.clone(), plan.within);
        let (request, all_there) = (Rc::clone(&request), Rc::clone(&all_there));
        calls.spawn_local(async move { upload(&via, &request, &all_there, within).await });
    }
    let mut tally = Tally::default();
    while let Some(joined) = calls.join_next().await {
        tally.count(joined.unwrap_or(Err(Failure::Short)), 1);
    }
    let watched = watch.finish();
    let all_bytes = (plan.body_count * plan.body_bytes) as f64;
    let ratio = watched.process.map_or(0.0, |process| process.rss_max_bytes as f64 / all_bytes);
    UploadsReport {
        body_count: plan.body_count,
        body_bytes: plan.body_bytes,
        endings: tally.endings(),
        ratio,
        ratio_max: plan.ratio_max,
        watched,
        tally,
    }
}

async fn upload(via: &Target, request: &[u8], all_there: &Barrier, within: Duration) -> Result<Done, Failure> {
    let (most, tail) = request.split_at(request.len().saturating_sub(TAIL_BYTES));
    let opened = timeout(within, async {
        let mut connection = Connection::open(via).await?;
        connection.send(most).await?;
        Ok(connection)
    });
    let opened = opened.await.unwrap_or(Err(Failure::TimedOut));
    // Those that failed wait here, too: the others must not wait for them for ever.
    all_there.wait().await;
    let mut connection = opened?;
    let answered = timeout(within, async {
        connection.send(tail).await?;
        connection.read(&mut |_, _| ()).await
    });
    answered.await.unwrap_or(Err(Failure::TimedOut))
}

impl Report for UploadsReport {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            row("bodies", format!("{} of {}", self.body_count, bytes(self.body_bytes as u64))),
            row("endings", self.endings.clone()),
            row("memory over all bodies", format!("{:.3} (at most {:.2})", self.ratio, self.ratio_max)),
        ];
        rows.extend(watched_rows(&self.watched, None));
        rows
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = tally_faults(&self.tally);
        if self.watched.process.is_none() {
            faults.push("the process under test is not there".to_owned());
        }
        if self.ratio > self.ratio_max {
            faults.push(format!("memory was {:.3} × the bodies, more than {:.2}", self.ratio, self.ratio_max));
        }
        faults
    }
}
