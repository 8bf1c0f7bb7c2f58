//! Cancelling: clients leave, and the engine's own recording says when it learned of it.
//!
//! Four groups: streamed and whole answers, cut in the middle and cut before the first byte. Half of each group leaves
//! with a FIN, half with a RST. Needs simulated engines, whose recording it reads.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::{Connection, Failure};
use crate::control::{self, Recorded};
use crate::progress::Progress;
use crate::prompt::{Chat, Delivery};
use crate::report::{Report, row, spread, time};
use crate::tally::{Quantiles, Times};
use crate::target::Target;
use crate::usage::monotonic_ns;

/// What to run.
#[derive(Debug, Clone)]
pub struct Cancel {
    pub via: Target,
    /// The engines behind it.
    pub engines: Vec<Target>,
    pub model: String,
    /// Calls in each of the four groups.
    pub call_count: usize,
    /// When calls are cut in the middle; those before the first byte are cut after half of it.
    pub cut_after: Duration,
    /// The longest a close may take to reach the engine.
    pub delay_us_max: f64,
    /// A close that the engine has not seen by then counts as never seen.
    pub seen_within: Duration,
}

/// One group of calls.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    pub name: String,
    pub call_count: usize,
    /// Calls whose close the engine recorded.
    pub seen_count: usize,
    pub delay: Quantiles,
    pub problems: Vec<String>,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct CancelReport {
    pub groups: Vec<Group>,
    pub delay_us_max: f64,
}

#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    delivery: Delivery,
    is_before_first_byte: bool,
}

const KINDS: [Kind; 4] = [
    Kind { name: "streamed, in the middle", delivery: Delivery::Streamed, is_before_first_byte: false },
    Kind { name: "whole, in the middle", delivery: Delivery::Whole, is_before_first_byte: false },
    Kind { name: "streamed, before the first byte", delivery: Delivery::Streamed, is_before_first_byte: true },
    Kind { name: "whole, before the first byte", delivery: Delivery::Whole, is_before_first_byte: true },
];

/// Runs it; must be called inside a local task set.
///
/// Errors: an engine's control routes do not answer.
pub async fn run(plan: Cancel, progress: Progress) -> Result<CancelReport, String> {
    let mut groups = Vec::new();
    for kind in KINDS {
        progress.say(&format!("{} calls, {}", plan.call_count, kind.name));
        groups.push(group(&plan, kind).await?);
    }
    Ok(CancelReport { groups, delay_us_max: plan.delay_us_max })
}

async fn group(plan: &Cancel, kind: Kind) -> Result<Group, String> {
    let tag =
        |idx: usize| format!("cancel-{}-{:?}-{}-{idx}; ", std::process::id(), kind.delivery, kind.is_before_first_byte);
    let mut calls = JoinSet::new();
    for idx in 0..plan.call_count {
        let (target, chat) = (plan.via.clone(), chat(plan, kind, tag(idx)));
        let cut_after = if kind.is_before_first_byte { plan.cut_after / 2 } else { plan.cut_after };
        calls.spawn_local(async move { (idx, cut(&target, &chat, kind, cut_after, idx % 2 == 1).await) });
    }
    let (mut cuts, mut problems) = (Vec::new(), Vec::new());
    while let Some(joined) = calls.join_next().await {
        match joined {
            Ok((idx, Ok(cut_ns))) => cuts.push((tag(idx), cut_ns)),
            Ok((idx, Err(problem))) => problems.push(format!("call {idx}: {problem}")),
            Err(_) => problems.push("a call was lost in the generator".to_owned()),
        }
    }
    let seen = closes(plan, &cuts).await?;
    let mut delays = Times::default();
    for (tag, cut_ns) in &cuts {
        match seen.iter().find(|(found, _)| found == tag).map(|(_, closed)| *closed) {
            Some(Close::At(ns)) => delays.record(u64::try_from(ns - i128::from(*cut_ns)).unwrap_or(1)),
            Some(Close::Never) => problems.push(format!("{tag} the engine never saw the close")),
            None => problems.push(format!("{tag} never reached an engine")),
        }
    }
    let delay = delays.quantiles();
    let seen_count = usize::try_from(delay.count).unwrap_or(0);
    Ok(Group { name: kind.name.to_owned(), call_count: plan.call_count, seen_count, delay, problems })
}

fn chat(plan: &Cancel, kind: Kind, tag: String) -> Chat {
    let instruction = if kind.is_before_first_byte {
        json!({ "first_byte_delay_us": 60_000_000 })
    } else {
        json!({ "events": 3000, "delay_us": 20_000 })
    };
    Chat { model: plan.model.clone(), delivery: kind.delivery, tag, instruction: Some(instruction), ..Chat::default() }
}

/// Sends a call and leaves it; returns the moment of leaving.
async fn cut(target: &Target, chat: &Chat, kind: Kind, after: Duration, with_reset: bool) -> Result<u64, String> {
    let named = |failure: Failure| failure.name().to_owned();
    let mut connection = Connection::open(target).await.map_err(named)?;
    connection.send(&chat.bytes(target)).await.map_err(named)?;
    let mut byte_count = 0;
    let ended = tokio::time::timeout(after, connection.read(&mut |_, _| byte_count += 1)).await;
    if let Ok(ended) = ended {
        return Err(format!(
            "it ended before it was cut: {}",
            ended.map_or_else(named, |done| done.status.to_string())
        ));
    }
    let expects_bytes = kind.delivery == Delivery::Streamed && !kind.is_before_first_byte;
    if expects_bytes != (byte_count > 0) {
        let found = if byte_count > 0 { "bytes had come" } else { "no byte had come" };
        return Err(format!("{found} when it was cut"));
    }
    let now = monotonic_ns();
    if with_reset {
        connection.abort();
    } else {
        drop(connection);
    }
    Ok(now)
}

#[derive(Clone, Copy)]
enum Close {
    At(i128),
    Never,
}

/// For each tag an engine has recorded: when it saw the close, on the machine's clock.
async fn closes(plan: &Cancel, cuts: &[(String, u64)]) -> Result<Vec<(String, Close)>, String> {
    let mut found = Vec::new();
    for engine in &plan.engines {
        let ours = |recorded: &Recorded| cuts.iter().find(|(tag, _)| recorded.body_text.contains(tag.as_str()));
        let ask = async || control::requests(engine).await;
        let all_closed = |requests: &Vec<Recorded>| {
            requests
                .iter()
                .filter(|one| ours(one).is_some())
                .all(|one| one.client_closed_at_ns.or(one.ended_at_ns).is_some())
        };
        let (requests, _) = control::until(plan.seen_within, ask, all_closed).await?;
        let offset = control::clock_offset_ns(engine).await?;
        for recorded in &requests {
            if let Some((tag, _)) = ours(recorded) {
                let close = recorded.client_closed_at_ns.map_or(Close::Never, |ns| Close::At(i128::from(ns) + offset));
                found.push((tag.clone(), close));
            }
        }
    }
    Ok(found)
}

impl Report for CancelReport {
    fn rows(&self) -> Vec<(String, String)> {
        let shown =
            |group: &Group| format!("{} of {} seen; {}", group.seen_count, group.call_count, spread(&group.delay));
        self.groups.iter().map(|group| row(&group.name, shown(group))).collect()
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for group in &self.groups {
            faults.extend(group.problems.iter().map(|problem| format!("{}: {problem}", group.name)));
            if group.delay.max_us > self.delay_us_max {
                let (delay, most) = (time(group.delay.max_us), time(self.delay_us_max));
                faults.push(format!("{}: a close took {delay}, more than {most}", group.name));
            }
        }
        faults
    }
}
