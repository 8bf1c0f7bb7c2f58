//! The rounds: each gateway started, loaded step by step and ended, in an order that turns with every round.

use std::io;
use std::time::Duration;

use super::figures::{Comparison, DIRECT, Kept, Record, Start};
use super::gateways::{self, GATEWAYS, Gateway, OPEN};
use super::keyring;
use super::machine::{self, Machine};
use super::place::{Place, Running, free_port};
use super::steps::{Pace, SETTLE, STEPS, Step};
use crate::drive;
use crate::progress::Progress;
use crate::target::Target;
use crate::usage::usage_of_tree;

/// After the start, before idle memory is read and load begins.
const QUIET: Duration = Duration::from_millis(500);
/// Steps of the engine alone: those whose latencies others are compared with, and the most the load can give.
const DIRECT_STEPS: &[&str] = &["ns", "open500", "s20", "s50"];

/// What to run.
#[derive(Debug, Clone)]
pub struct Compare {
    /// Beside llmgw and, where it was built, stock; unknown names and missing programs are said and left out.
    pub peers: Vec<String>,
    pub steps: Vec<&'static Step>,
    pub round_count: usize,
    pub pace: Pace,
    /// How the product was built, for the reader.
    pub profile: String,
}

/// Runs it on this thread.
///
/// Errors: nothing could be measured. A gateway that does not start is a fault in what was found.
pub fn run(plan: &Compare, place: &Place, progress: Progress) -> io::Result<Comparison> {
    let mut found = begin(plan, place);
    let gateways: Vec<&Gateway> =
        GATEWAYS.iter().filter(|one| found.gateways.iter().any(|name| name == one.name)).collect();
    let took = estimate(plan, &gateways);
    let peers = found.gateways.join(", ");
    progress.say(&format!("{} rounds of {peers}: about {:.0} s", plan.round_count, took.as_secs_f64()));
    for round in 0..plan.round_count {
        progress.say(&format!("round {} of {}", round + 1, plan.round_count));
        direct(plan, place, &mut found, round, progress)?;
        for turn in 0..gateways.len() {
            let Some(gateway) = gateways.get((turn + round) % gateways.len()) else { continue };
            if let Err(error) = one(plan, place, gateway, &mut found, round, progress) {
                progress.say(&format!("{}: {error}", gateway.name));
                found.faults.push(format!("{} in round {}: {error}", gateway.name, round + 1));
            }
        }
    }
    Ok(found)
}

fn begin(plan: &Compare, place: &Place) -> Comparison {
    let mut found = Comparison {
        date: machine::today(),
        machine: Machine::read(),
        gateway_cpu: place.gateway_cpu,
        load_cpu: place.load_cpu,
        profile: plan.profile.clone(),
        binary_bytes: std::fs::metadata(&place.programs.llmgw).map_or(0, |data| data.len()),
        round_count: plan.round_count,
        is_keyed: true,
        is_quick: plan.pace == Pace::Quick,
        gateways: vec![DIRECT.to_owned()],
        steps: plan.steps.iter().map(|step| step.name.to_owned()).collect(),
        ..Comparison::default()
    };
    let is_asked = |name: &str| name == "llmgw" || plan.peers.iter().any(|peer| peer == name);
    for gateway in GATEWAYS.iter().filter(|gateway| is_asked(gateway.name)) {
        match (gateway.version)(place) {
            Some(version) => {
                found.gateways.push(gateway.name.to_owned());
                found.versions.insert(gateway.name.to_owned(), version);
            }
            None if gateway.name == "stock" => {}
            None => found.faults.push(format!("{} is not installed (bench/peers/install): left out", gateway.name)),
        }
    }
    let unknown = plan.peers.iter().filter(|name| gateways::find(name).is_none());
    found.faults.extend(unknown.map(|name| format!("no gateway is called {name}: left out")));
    found
}

/// What a run takes, starts and ends included.
fn estimate(plan: &Compare, gateways: &[&Gateway]) -> Duration {
    let of = |takes_part: &dyn Fn(&str) -> bool| -> Duration {
        plan.steps.iter().filter(|step| takes_part(step.name)).map(|step| step.takes(plan.pace)).sum()
    };
    let theirs: Duration = gateways.iter().map(|one| of(&|name| one.part.has(name)) + QUIET * 2).sum();
    let rounds = u32::try_from(plan.round_count).unwrap_or(u32::MAX);
    (theirs + of(&|name| DIRECT_STEPS.contains(&name))) * rounds
}

fn direct(plan: &Compare, place: &Place, found: &mut Comparison, round: usize, progress: Progress) -> io::Result<()> {
    let Some(engine) = place.engines.first() else { return Ok(()) };
    let target = Target::parse(&format!("http://{engine}")).map_err(io::Error::other)?;
    for step in plan.steps.iter().filter(|step| DIRECT_STEPS.contains(&step.name)) {
        let outcome = window(plan, place, step, &target, (None, None), progress)?;
        keep(found, round, DIRECT, step, outcome, progress);
    }
    Ok(())
}

fn one(
    plan: &Compare,
    place: &Place,
    gateway: &Gateway,
    found: &mut Comparison,
    round: usize,
    progress: Progress,
) -> io::Result<()> {
    for (is_tls, launch) in [(false, Some(gateway.launch)), (true, gateway.within_tls)] {
        let (Some(launch), true) = (launch, plan.steps.iter().any(|step| step.is_tls == is_tls)) else { continue };
        let port = free_port()?;
        let trust = is_tls.then(|| place.certificate.trust.clone());
        let mut running = place.start(gateway.name, launch(place, port)?, port, trust)?;
        std::thread::sleep(QUIET);
        if !is_tls {
            let idle_rss_bytes = usage_of_tree(running.process.pid()).map_or(0, |usage| usage.rss_bytes);
            let start_ms = running.start_ms;
            found.starts.push(Start { round, gateway: gateway.name.to_owned(), start_ms, idle_rss_bytes });
        }
        let loads = plan.steps.iter().filter(|step| step.is_tls == is_tls && gateway.part.has(step.name));
        let ended = steps(plan, place, gateway, loads, &mut running, found, round, progress);
        found.kept.extend(kept(place, gateway.name, round));
        running.process.stop()?;
        std::thread::sleep(SETTLE);
        ended?;
    }
    Ok(())
}

/// What a gateway that runs says of its records of use; nothing of one that keeps none.
fn kept(place: &Place, gateway: &str, round: usize) -> Option<Kept> {
    let page =
        ["llmgw", "stock"].contains(&gateway).then(|| keyring::metrics(place.admin_port.get()).ok()).flatten()?;
    let count = |name: &str, labels: &[(&str, &str)]| page.sum(name, labels).map(|count| count as u64);
    let of_step = |step| count("llmgw_usage_records_total", &[("step", step)]);
    let lost = count("llmgw_usage_records_lost_total", &[]).unwrap_or(0);
    let held = |outcome| count("llmgw_limit_requests_total", &[("outcome", outcome)]).unwrap_or(0);
    Some(Kept {
        round,
        gateway: gateway.to_owned(),
        written: of_step("journal")?,
        stored: of_step("store")?,
        lost,
        leased: held("lease"),
        asked: held("owner"),
    })
}

#[expect(clippy::too_many_arguments, reason = "all of a round, for one gateway")]
fn steps<'s>(
    plan: &Compare,
    place: &Place,
    gateway: &Gateway,
    loads: impl Iterator<Item = &'s &'static Step>,
    running: &mut Running,
    found: &mut Comparison,
    round: usize,
    progress: Progress,
) -> io::Result<()> {
    let mut own_rate = None;
    for step in loads {
        if let Some(status) = running.process.exit_status()? {
            return Err(io::Error::other(format!("ended before {} ({status})", step.name)));
        }
        let pid = Some(running.process.pid());
        let outcome = window(plan, place, step, &running.target, (pid, own_rate), progress)?;
        if step.name == "ns" {
            own_rate = Some(outcome.calls_per_second());
        }
        keep(found, round, gateway.name, step, outcome, progress);
    }
    Ok(())
}

fn window(
    plan: &Compare,
    place: &Place,
    step: &Step,
    target: &Target,
    watched: (Option<u32>, Option<f64>),
    progress: Progress,
) -> io::Result<drive::Outcome> {
    let (pid, own_rate) = watched;
    let mut load = step.drive(target, plan.pace, own_rate, &place.keyring.keys);
    load.pid = pid;
    load.mock_pid = Some(place.mock_pid());
    // The line of the step is said when it is over; while it runs the beat shows it.
    let outcome = drive::run(&load, progress)?;
    std::thread::sleep(SETTLE);
    Ok(outcome)
}

fn keep(found: &mut Comparison, round: usize, gateway: &str, step: &Step, outcome: drive::Outcome, progress: Progress) {
    let (gateway_name, step_name) = (gateway.to_owned(), step.name.to_owned());
    progress.say(&brief(gateway, step, &outcome));
    found.records.push(Record { round, gateway: gateway_name, step: step_name, outcome });
}

/// A window in one line.
fn brief(gateway: &str, step: &Step, outcome: &drive::Outcome) -> String {
    let unit = if step.is_stream() { "event" } else { "call" };
    let count = if step.is_stream() { outcome.event_count } else { outcome.call_count };
    let rate = count as f64 / outcome.seconds.max(1e-9);
    let (kind, times) =
        if outcome.one_way.count > 0 { ("one way", outcome.one_way) } else { ("latency", outcome.latency) };
    let mut line = format!("  {gateway:<16} {:<8} {rate:9.0} {unit}s/s  ", step.name);
    if let (Some(us), Some(cost)) = (outcome.cpu_us_per_unit(), outcome.gateway) {
        let (core, waited) = (cost.cpu_util * 100.0, cost.cpu_wait_util * 100.0);
        line.push_str(&format!("{us:8.2} µs/{unit}, {core:.0} % of its CPU, waited {waited:.0} %, "));
    }
    let (load, mock) = (outcome.load_util * 100.0, outcome.mock_util * 100.0);
    let (p50, p99) = (times.p50_us, times.p99_us);
    line.push_str(&format!("{kind} p50 {p50:.0} p99 {p99:.0} µs, load {load:.0} % and engine {mock:.0} %"));
    if outcome.load_is_bottleneck() && step.is_closed() {
        line.push_str(", the load is the bottleneck");
    }
    for (what, count) in &outcome.failures {
        line.push_str(&format!(", FAILED {count} × {what}"));
    }
    line
}

impl Default for Compare {
    /// Everything, ten rounds.
    fn default() -> Self {
        let peers = [OPEN, "stock", "nginx", "haproxy", "envoy", "pingora", "sglang-router", "vllm-router"];
        Self {
            peers: peers.map(str::to_owned).to_vec(),
            steps: STEPS.iter().collect(),
            round_count: 10,
            pace: Pace::Full,
            profile: "dist".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_told_before_it_is_spent() {
        let plan = Compare { round_count: 2, ..Compare::default() };
        let [nginx, router] = ["nginx", "vllm-router"].map(|name| gateways::find(name).expect("a gateway"));
        let (one, two) = (estimate(&plan, &[nginx]), estimate(&plan, &[nginx, nginx]));
        assert!(two > one && two < one * 2);
        assert!(estimate(&plan, &[router]) < one, "a router of Python takes part in some steps only");
        assert!(estimate(&Compare { pace: Pace::Quick, ..plan.clone() }, &[nginx]) < one);
        assert_eq!(estimate(&Compare { round_count: 4, ..plan }, &[nginx]), one * 2);
    }

    #[test]
    fn every_gateway_of_the_default_is_known() {
        assert!(Compare::default().peers.iter().all(|name| gateways::find(name).is_some()));
    }
}
