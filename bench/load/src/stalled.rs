//! Memory behind clients that stop reading: each asks for a long stream, reads its beginning and then nothing more.
//!
//! A gateway that passes back-pressure on holds a bounded buffer for each; one that does not fills its memory with the
//! stream. Many clients at once make the share of one visible above the page noise.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::client::{Connection, Pool};
use crate::progress::Progress;
use crate::prompt::{Chat, Delivery};
use crate::report::{Report, bytes, row};
use crate::target::Target;
use crate::usage::rss_bytes;

/// Kernel buffer of a stalled client; small, so that the stream stops early.
const RECEIVE_BUFFER_BYTES: u32 = 16 * 1024;
/// Read before the client stops.
const READ_BYTES: u64 = 32 * 1024;
/// Memory counts as settled when it grows less than this in [`SETTLED_FOR`].
const SETTLED_BYTES: u64 = 64 * 1024;
const SETTLED_FOR: Duration = Duration::from_secs(1);
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// What to run.
#[derive(Debug, Clone)]
pub struct Stalled {
    pub via: Target,
    pub model: String,
    pub client_count: usize,
    pub stream_mib: u32,
    /// The process whose memory counts.
    pub pid: u32,
    /// The most it may hold for each client.
    pub held_bytes_max: u64,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct StalledReport {
    pub client_count: usize,
    pub stream_mib: u32,
    pub rss_before_bytes: u64,
    pub rss_stalled_bytes: u64,
    pub held_bytes_per_client: u64,
    pub held_bytes_max: u64,
    pub is_settled: bool,
    /// An ordinary call while the others are stalled was answered.
    pub is_serving_others: bool,
    pub problems: Vec<String>,
}

/// Runs it; must be called inside a local task set.
pub async fn run(plan: Stalled, progress: Progress) -> StalledReport {
    let mut problems = Vec::new();
    // The same number of short streams first: what they leave behind belongs to any traffic, not to stalled clients.
    for _ in 0..2 {
        let mut warm = Vec::new();
        for _ in 0..plan.client_count {
            match begin(&plan, 1).await {
                Ok(connection) => warm.push(connection),
                Err(problem) => problems.push(format!("warm-up: {problem}")),
            }
        }
    }
    settle(plan.pid).await;
    let rss_before_bytes = rss_bytes(plan.pid);
    progress.say(&format!("{} clients begin streams of {} MiB and stop reading", plan.client_count, plan.stream_mib));
    let mut clients = Vec::new();
    for idx in 0..plan.client_count {
        match begin(&plan, plan.stream_mib).await {
            Ok(connection) => clients.push(connection),
            Err(problem) => problems.push(format!("client {idx}: {problem}")),
        }
    }
    let is_settled = settle(plan.pid).await;
    let rss_stalled_bytes = rss_bytes(plan.pid);
    let is_serving_others = ordinary_call(&plan).await;
    let held = rss_stalled_bytes.saturating_sub(rss_before_bytes);
    StalledReport {
        client_count: plan.client_count,
        stream_mib: plan.stream_mib,
        rss_before_bytes,
        rss_stalled_bytes,
        held_bytes_per_client: held / (clients.len().max(1) as u64),
        held_bytes_max: plan.held_bytes_max,
        is_settled,
        is_serving_others,
        problems,
    }
}

async fn begin(plan: &Stalled, mib: u32) -> Result<Connection, String> {
    let chat = Chat {
        model: plan.model.clone(),
        delivery: Delivery::Streamed,
        instruction: Some(json!({ "body_mib": mib })),
        ..Chat::default()
    };
    let begun = async {
        let mut connection = Connection::open_with(&plan.via, Some(RECEIVE_BUFFER_BYTES)).await?;
        connection.send(&chat.bytes(&plan.via)).await?;
        connection.read_some(READ_BYTES).await?;
        Ok(connection)
    };
    let within = Duration::from_secs(20);
    match tokio::time::timeout(within, begun).await {
        Ok(begun) => begun.map_err(|failure: crate::client::Failure| failure.name().to_owned()),
        Err(_) => Err("no beginning of the stream".to_owned()),
    }
}

async fn ordinary_call(plan: &Stalled) -> bool {
    let chat = Chat { model: plan.model.clone(), max_tokens: Some(4), ..Chat::default() };
    let pool = Pool::new(plan.via.clone(), Duration::from_secs(10));
    pool.call(&chat.bytes(&plan.via), &mut |_, _| ()).await.is_ok_and(|done| done.status == 200)
}

/// Waits until memory no longer grows; false when it does not stop.
async fn settle(pid: u32) -> bool {
    let deadline = Instant::now() + SETTLE_MAX;
    let (mut last, mut since) = (rss_bytes(pid), Instant::now());
    while Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let rss = rss_bytes(pid);
        if rss > last + SETTLED_BYTES {
            (last, since) = (rss, Instant::now());
        } else if since.elapsed() >= SETTLED_FOR {
            return true;
        }
    }
    false
}

impl Report for StalledReport {
    fn rows(&self) -> Vec<(String, String)> {
        vec![
            row("stalled clients", format!("{}, {} MiB each", self.client_count, self.stream_mib)),
            row("memory before", bytes(self.rss_before_bytes)),
            row("memory while stalled", bytes(self.rss_stalled_bytes)),
            row(
                "held per client",
                format!("{} (at most {})", bytes(self.held_bytes_per_client), bytes(self.held_bytes_max)),
            ),
            row("an ordinary call meanwhile", if self.is_serving_others { "answered" } else { "NOT answered" }),
        ]
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.problems.clone();
        if self.rss_before_bytes == 0 {
            faults.push("the process under test is not there".to_owned());
        }
        if !self.is_settled {
            faults.push("memory went on growing".to_owned());
        }
        if self.held_bytes_per_client > self.held_bytes_max {
            faults.push(format!("a stalled client holds {}", bytes(self.held_bytes_per_client)));
        }
        if !self.is_serving_others {
            faults.push("an ordinary call was not answered while others were stalled".to_owned());
        }
        faults
    }
}
