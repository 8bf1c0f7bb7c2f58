//! One measurement: engines and a gateway started, a workload replayed through it, and what the engines counted.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::figures::Run;
use super::policies::{self, By, Policy};
use super::workload::{BLOCK_TOKENS, Call, Workload};
use crate::client::Pool;
use crate::compare::{first_chat, free_port, is_answered, said};
use crate::control;
use crate::fleet::{EngineProcess, GatewayProcess};
use crate::process::Process;
use crate::progress::Progress;
use crate::prompt::Chat;
use crate::prompt::post;
use crate::replay::{self, Calls, ReplayReport};
use crate::scenario::{self, Fleet, MODEL};
use crate::target::Target;
use crate::usage::cpu_wait;

/// A call that takes longer has failed.
const WITHIN: Duration = Duration::from_secs(120);
const PEER_READY_WITHIN: Duration = Duration::from_secs(60);

/// The engines: all alike, each with its own cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Engines {
    pub count: usize,
    /// Blocks of [`BLOCK_TOKENS`] tokens in the cache of each.
    pub blocks: usize,
    pub prefill_tokens_per_second: f64,
    /// Of one request alone; each other that runs adds to its time.
    pub tokens_per_second: f64,
    pub step_us_per_seq: f64,
    /// Tokens in one event of a stream behind the first: a thousand events a second are the sockets' load, and that of
    /// the machine, not the engines'.
    pub stream_interval: u32,
}

impl Default for Engines {
    fn default() -> Self {
        Self {
            count: 8,
            blocks: 2000,
            prefill_tokens_per_second: 8000.0,
            tokens_per_second: 50.0,
            step_us_per_seq: 50.0,
            stream_interval: 512,
        }
    }
}

/// What is started, and how fast time runs.
#[derive(Debug, Clone)]
pub struct Setup {
    pub llmgw: PathBuf,
    /// Where peers were installed.
    pub peers: PathBuf,
    pub engines: Engines,
    /// 50.0 is fifty times the trace's own time, for arrivals and engines alike.
    pub speed: f64,
    pub bytes_per_token: usize,
}

impl Setup {
    /// What the programs say of themselves.
    #[must_use]
    pub fn versions(&self) -> Vec<String> {
        [said(self.llmgw.display().to_string(), &["--version"]), policies::sglang_version(&self.peers)]
            .into_iter()
            .flatten()
            .collect()
    }

    fn engine_flags(&self) -> Vec<String> {
        let Engines { blocks, prefill_tokens_per_second, tokens_per_second, step_us_per_seq, stream_interval, .. } =
            self.engines;
        let flags = [
            ("--model", MODEL.to_owned()),
            ("--blocks", blocks.to_string()),
            ("--block-size", BLOCK_TOKENS.to_string()),
            ("--max-model-len", (1 << 20).to_string()),
            ("--prefill-tokens-per-second", (prefill_tokens_per_second * self.speed).to_string()),
            ("--tokens-per-second", (tokens_per_second * self.speed).to_string()),
            ("--step-us-per-seq", (step_us_per_seq / self.speed).to_string()),
            ("--stream-interval", stream_interval.to_string()),
            ("--keep-alive-ms", "0".to_owned()),
            ("--record-requests", "1".to_owned()),
            ("--record-body-bytes", "0".to_owned()),
        ];
        flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    fn request(&self, call: &Call, policy: &Policy, target: &Target) -> Vec<u8> {
        let (text, tokens) = (call.prompt(self.bytes_per_token), call.output_tokens.max(1));
        // Nothing in it that JSON would have to escape.
        let body = format!(
            "{{\"model\":\"{MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}],\"max_tokens\":{tokens},\
             \"stream\":true,\"stream_options\":{{\"include_usage\":true}}}}"
        );
        let session = format!("session-{}", call.session);
        let headers: &[(&str, &str)] = if policy.names_sessions { &[("x-session-id", &session)] } else { &[] };
        post(target, &body, headers)
    }
}

/// The gateway, whoever made it, and the engines behind it.
enum Place {
    Ours(Fleet),
    Peer { target: Target, process: Process, engines: Vec<EngineProcess> },
}

impl Place {
    fn target(&self) -> Result<Target, String> {
        match self {
            Self::Ours(fleet) => fleet.via(),
            Self::Peer { target, .. } => Ok(target.clone()),
        }
    }

    fn engines(&self) -> &[EngineProcess] {
        match self {
            Self::Ours(fleet) => &fleet.engines,
            Self::Peer { engines, .. } => engines,
        }
    }

    /// At once: nobody is left to be drained, and what it counted was read.
    fn end(mut self) -> io::Result<()> {
        let process = match &mut self {
            Self::Ours(fleet) => &mut fleet.gateway.process,
            Self::Peer { process, .. } => process,
        };
        process.kill().map(drop)
    }

    fn pid(&self) -> u32 {
        match self {
            Self::Ours(fleet) => fleet.pid(),
            Self::Peer { process, .. } => process.pid(),
        }
    }
}

/// Starts it all, replays, and ends it all; must be called inside a local task set.
///
/// Errors: something does not start, or an engine's page cannot be read. `None`: the policy's program is not installed.
pub async fn measure(
    setup: &Setup,
    policy: &Policy,
    workload: &Workload,
    progress: Progress,
) -> Result<Option<Run>, String> {
    if !policy.is_ours() && policies::sglang_version(&setup.peers).is_none() {
        return Ok(None);
    }
    let place = start(setup, policy).await?;
    let target = place.target()?;
    let before = counted(place.engines()).await?;
    let waits = |place: &Place| -> Vec<Duration> {
        place.engines().iter().map(|engine| cpu_wait(engine.process.pid())).collect()
    };
    let waited_before = waits(&place);
    let times: Vec<Duration> = workload.calls.iter().map(|call| call.at).collect();
    let requests = workload.calls.iter().map(|call| setup.request(call, policy, &target));
    let calls = Calls { times: &times, speed: setup.speed, requests, pid: Some(place.pid()) };
    let pool = Pool::new(target.clone(), WITHIN);
    let report = replay::play(calls, &pool, progress).await.map_err(|error| error.to_string())?;
    let waited = waits(&place).iter().zip(&waited_before).map(|(after, before)| after.saturating_sub(*before)).max();
    let after = counted(place.engines()).await?;
    place.end().map_err(|error| error.to_string())?;
    let engines = after.iter().zip(&before).map(|(after, before)| after.since(*before)).collect();
    Ok(Some(summed(setup, policy, workload, report, engines, waited.unwrap_or_default())))
}

/// As [`measure`], on a runtime of its own: for a suite.
///
/// Errors: as `measure`'s, and a program that is not installed.
pub fn measure_alone(setup: &Setup, policy: &Policy, workload: &Workload) -> Result<Run, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let measured = measure(setup, policy, workload, Progress::Silent);
    let run = tokio::task::LocalSet::new().block_on(&runtime, measured)?;
    run.ok_or_else(|| format!("{} is not installed", policy.name))
}

async fn start(setup: &Setup, policy: &Policy) -> Result<Place, String> {
    let started = |error: io::Error| error.to_string();
    let engine = |_| EngineProcess::start(&setup.llmgw, setup.engine_flags());
    let engines = (0..setup.engines.count).map(engine).collect::<io::Result<Vec<_>>>().map_err(started)?;
    let urls: Vec<String> = engines.iter().map(EngineProcess::url).collect();
    match policy.by {
        By::Profile(profile) => {
            let yaml = policies::server_yaml(profile, policy.cores, &urls, setup.speed);
            let gateway = GatewayProcess::start(&setup.llmgw, &yaml).map_err(started)?;
            let fleet = Fleet { gateway, engines };
            scenario::wait_until_ready(&fleet).await?;
            Ok(Place::Ours(fleet))
        }
        By::Sglang { is_sized } => {
            let tree_bytes = is_sized.then_some(setup.engines.blocks * BLOCK_TOKENS * setup.bytes_per_token);
            let port = free_port().map_err(started)?;
            let launch = policies::sglang(&setup.peers, &urls, port, setup.speed, tree_bytes).map_err(started)?;
            let target = Target::parse(&format!("http://127.0.0.1:{port}"))?;
            let mut process = launch.start().map_err(started)?;
            let begun = Instant::now();
            let chat = Chat { model: MODEL.to_owned(), ..first_chat() };
            while !is_answered(&target, &chat) {
                let ended = process.exit_status().map_err(started)?;
                if ended.is_some() || begun.elapsed() > PEER_READY_WITHIN {
                    let lines = process.lines();
                    let last: Vec<&str> = lines.iter().rev().take(8).rev().map(|line| line.text.as_str()).collect();
                    return Err(format!("{} does not answer ({ended:?}):\n{}", policy.name, last.join("\n")));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(Place::Peer { target, process, engines })
        }
    }
}

/// Tokens as an engine counts them since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counted {
    asked: f64,
    hit: f64,
}

impl Counted {
    fn since(self, before: Self) -> Self {
        Self { asked: self.asked - before.asked, hit: self.hit - before.hit }
    }
}

async fn counted(engines: &[EngineProcess]) -> Result<Vec<Counted>, String> {
    let mut all = Vec::with_capacity(engines.len());
    for engine in engines {
        let page = control::metrics(&Target::parse(&engine.url())?).await?;
        let sum = |name: &str| page.sum(name, &[]).ok_or_else(|| format!("{}: no {name}", engine.addr));
        all.push(Counted { asked: sum("vllm:prefix_cache_queries_total")?, hit: sum("vllm:prefix_cache_hits_total")? });
    }
    Ok(all)
}

fn summed(
    setup: &Setup,
    policy: &Policy,
    workload: &Workload,
    report: ReplayReport,
    engines: Vec<Counted>,
    waited: Duration,
) -> Run {
    let watched = report.watched;
    let share = |part: Duration| part.as_secs_f64() / watched.seconds;
    let gateway_wait = watched.process.map_or(0.0, |process| process.cpu_wait_util);
    Run {
        policy: policy.name.to_owned(),
        workload: workload.name.clone(),
        speed: setup.speed,
        call_count: report.call_count,
        bad: report.bad,
        blocks_asked: workload.block_count(),
        blocks_hit: (engines.iter().map(|engine| engine.hit).sum::<f64>() / BLOCK_TOKENS as f64).round() as u64,
        blocks_hit_by_usage: report.cached_tokens / BLOCK_TOKENS as u64,
        work_imbalance: over_mean(engines.iter().map(|engine| engine.asked - engine.hit)),
        prompt_imbalance: over_mean(engines.iter().map(|engine| engine.asked)),
        first_event: report.first_event,
        late: report.late,
        seconds: watched.seconds,
        gateway_cpu_util: watched.process.map_or(0.0, |process| process.cpu_util),
        waited_ratio: watched.load_wait_ratio.max(gateway_wait).max(share(waited)),
    }
}

/// The most over the mean.
fn over_mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let (count, sum) = values.clone().fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    values.fold(0.0, f64::max) * count / f64::max(sum, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::{BLOCK_COST, Chats};

    #[test]
    fn a_request_has_its_blocks_and_names_its_session_where_the_policy_says_so() {
        let setup = Setup {
            llmgw: PathBuf::new(),
            peers: PathBuf::new(),
            engines: Engines::default(),
            speed: 50.0,
            bytes_per_token: 4,
        };
        let target = Target::parse("http://127.0.0.1:9").expect("a URL");
        let call = &Chats::default().workload().calls[0];
        for (name, is_named) in [(BLOCK_COST, false), ("session", true)] {
            let policy = Policy::find(name).expect("a policy");
            let text = String::from_utf8(setup.request(call, policy, &target)).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            assert_eq!(head.contains(&format!("x-session-id: session-{}\r\n", call.session)), is_named);
            let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
            let content = body["messages"][0]["content"].as_str().expect("text");
            assert_eq!(content.len(), call.blocks.len() * 2048);
            assert_eq!(body["stream_options"]["include_usage"], true);
        }
    }

    #[test]
    fn the_busiest_is_told_over_the_mean() {
        assert_eq!(over_mean([1.0, 1.0, 4.0].into_iter()), 2.0);
        assert_eq!(over_mean([3.0, 3.0].into_iter()), 1.0);
        assert_eq!(over_mean(std::iter::empty()), 0.0);
    }
}
