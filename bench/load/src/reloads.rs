//! Reloads at rate: how much the gateway takes is measured first, then half of it is offered while its configuration is
//! loaded again and again and long streams run.
//!
//! Every round adds and removes endpoints and changes weights, in turn by a signal and by a renamed file. A round is
//! over when the admin API names the endpoints that its text names. Called by the binary's `scenario reloads`; writes
//! the configuration file of the gateway it is handed.

mod report;
mod texts;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::texts::Texts;
use crate::client::Pool;
use crate::closed::{self, Closed, ClosedReport, Ends};
use crate::control;
use crate::fleet::GatewayProcess;
use crate::open::{self, Open, OpenReport};
use crate::process::Signal;
use crate::progress::Progress;
use crate::streams::{self, Streams, StreamsReport};
use crate::tally::{Quantiles, Times};
use crate::target::Target;
use crate::usage::monotonic_ns;

/// A text that is not in force by then is a fault.
const APPLIED_WITHIN: Duration = Duration::from_secs(10);
/// Traffic passes between two rounds.
const PAUSE: Duration = Duration::from_millis(200);
const GAUGES: &[&str] = &["llmgw_endpoint_inflight", "llmgw_requests_in_flight"];
const GAUGES_WITHIN: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug, Clone)]
pub struct Reloads {
    pub via: Target,
    pub admin: Target,
    pub model: String,
    /// The engines' root URLs; four or more, so that some can go while others stay.
    pub engine_urls: Vec<String>,
    /// Whole requests, sent in turn.
    pub requests: Vec<Vec<u8>>,
    /// Of the closed loop that measures.
    pub connection_count: usize,
    pub measured_for: Duration,
    /// Part of the measured calls a second that is offered.
    pub share: f64,
    pub reload_count: usize,
    /// One wave of streams; waves follow each other until the last reload.
    pub streams: Streams,
    /// Limit of one call.
    pub within: Duration,
    pub pid: u32,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct ReloadsReport {
    pub capacity: ClosedReport,
    pub load: OpenReport,
    pub reload_count: usize,
    /// Rounds whose text came into force, by how the gateway learned of it, with the time that took.
    pub applied: BTreeMap<&'static str, Quantiles>,
    pub applied_count: usize,
    /// Lines of the log: configurations that were loaded, and those that were not.
    pub loaded_lines: usize,
    pub refused_lines: usize,
    pub waves: usize,
    pub stream_count: usize,
    pub good_stream_count: u64,
    pub stream_faults: Vec<String>,
    pub problems: Vec<String>,
    pub gauges: BTreeMap<String, f64>,
}

/// Runs it; must be called inside a local task set.
///
/// Errors: the kernel has no timer, or the metrics page does not answer.
pub async fn run(plan: Reloads, gateway: &mut GatewayProcess, progress: Progress) -> Result<ReloadsReport, String> {
    progress.say("measuring how much the gateway takes");
    let capacity = closed::run(measure(&plan), progress).await;
    let is_over = Rc::new(Cell::new(false));
    let waves = tokio::task::spawn_local(waves(plan.streams.clone(), Rc::clone(&is_over)));
    let load = Open {
        requests: plan.requests.clone(),
        calls_per_second: (capacity.calls_per_second * plan.share).max(1.0),
        // Ended by the last round; without it, by the patience of all rounds.
        time: APPLIED_WITHIN * u32::try_from(plan.reload_count).unwrap_or(u32::MAX),
        warm_up_count: 0,
        open_max: 5000,
        pid: Some(plan.pid),
        is_over: Rc::clone(&is_over),
    };
    progress.say(&format!("offering {:.0} calls a second to {} reloads", load.calls_per_second, plan.reload_count));
    let pool = Pool::new(plan.via.clone(), plan.within);
    let load = tokio::task::spawn_local(async move { open::run(load, &pool, progress).await });
    let rounds = rounds(&plan, gateway).await;
    is_over.set(true);
    let lost = |_| "a task was lost in the generator".to_owned();
    let load = load.await.map_err(lost)?.map_err(|error| error.to_string())?;
    let waves = waves.await.map_err(lost)?;
    let lines = |part: &str| gateway.process.count_lines(|line| line.text.contains(part));
    Ok(ReloadsReport {
        capacity,
        load,
        reload_count: plan.reload_count,
        applied_count: rounds.applied_count,
        applied: rounds.times.iter().map(|(how, times)| (*how, times.quantiles())).collect(),
        loaded_lines: lines("configuration reloaded"),
        refused_lines: lines("configuration not reloaded"),
        waves: waves.len(),
        stream_count: waves.iter().map(|wave| wave.stream_count).sum(),
        good_stream_count: waves.iter().map(|wave| wave.good_count).sum(),
        stream_faults: waves.iter().flat_map(crate::report::Report::faults).collect(),
        problems: rounds.problems,
        gauges: gauges_at_rest(&plan.admin).await?,
    })
}

fn measure(plan: &Reloads) -> Closed {
    Closed {
        target: plan.via.clone(),
        requests: plan.requests.clone(),
        connection_count: plan.connection_count,
        ends: Ends::AfterTime(plan.measured_for),
        warm_up: Duration::from_secs(1),
        within: plan.within,
        pid: Some(plan.pid),
    }
}

async fn waves(plan: Streams, is_over: Rc<Cell<bool>>) -> Vec<StreamsReport> {
    let mut waves = Vec::new();
    while !is_over.get() {
        waves.push(streams::run(plan.clone(), Progress::Silent).await);
    }
    waves
}

#[derive(Default)]
struct Rounds {
    applied_count: usize,
    times: BTreeMap<&'static str, Times>,
    problems: Vec<String>,
}

async fn rounds(plan: &Reloads, gateway: &mut GatewayProcess) -> Rounds {
    let texts = Texts::new(&plan.engine_urls, &plan.model);
    let mut rounds = Rounds::default();
    for round in 0..plan.reload_count {
        tokio::time::sleep(PAUSE).await;
        let (text, names) = texts.of_round(round);
        let begun = monotonic_ns();
        let (how, done) = if round.is_multiple_of(2) {
            ("by signal", by_signal(gateway, &text))
        } else {
            ("by file", by_rename(gateway, &text))
        };
        let applied = match done {
            Ok(()) => in_force(&plan.admin, &names).await,
            Err(error) => Err(error.to_string()),
        };
        match applied {
            Ok(()) => {
                rounds.applied_count += 1;
                rounds.times.entry(how).or_default().record(monotonic_ns() - begun);
            }
            Err(problem) => rounds.problems.push(format!("round {round}, {how}: {problem}")),
        }
    }
    rounds
}

fn by_signal(gateway: &mut GatewayProcess, text: &str) -> std::io::Result<()> {
    fs::write(&gateway.config_path, text)?;
    gateway.process.signal(Signal::HUP)
}

fn by_rename(gateway: &GatewayProcess, text: &str) -> std::io::Result<()> {
    let written = gateway.config_path.with_extension("new");
    fs::write(&written, text)?;
    fs::rename(written, &gateway.config_path)
}

/// Waits until the gateway routes to these endpoints and no others.
async fn in_force(admin: &Target, names: &[String]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Answer {
        endpoints: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let ask = async || {
        let body = control::fetch(admin, "/api/v1/endpoints").await?;
        let answer: Answer = serde_json::from_str(&body).map_err(|error| format!("/api/v1/endpoints: {error}"))?;
        Ok(answer.endpoints.into_iter().map(|endpoint| endpoint.name).collect::<Vec<_>>())
    };
    match control::until(APPLIED_WITHIN, ask, |found| found == names).await? {
        (_, true) => Ok(()),
        (found, false) => Err(format!("the endpoints are {found:?} in place of {names:?}")),
    }
}

async fn gauges_at_rest(admin: &Target) -> Result<BTreeMap<String, f64>, String> {
    let ask = async || {
        let page = control::metrics(admin).await?;
        let sums = GAUGES.iter().map(|name| ((*name).to_owned(), page.sum(name, &[]).unwrap_or(f64::NAN)));
        Ok(sums.collect::<BTreeMap<String, f64>>())
    };
    let at_rest = |gauges: &BTreeMap<String, f64>| gauges.values().all(|value| *value == 0.0);
    Ok(control::until(GAUGES_WITHIN, ask, at_rest).await?.0)
}
