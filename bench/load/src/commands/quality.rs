//! The `quality` command.

use std::path::{Path, PathBuf};
use std::time::Duration;

use llmgw_load::compare::Priority;
use llmgw_load::progress::Progress;
use llmgw_load::quality::{self, Chats, Engines, Facts, POLICIES, Policy, Quality, Setup, Workload};

use super::{Ended, Run, Shown};
use crate::args::Args;

/// Traces by their names here, and their files.
const TRACES: &[(&str, &str)] =
    &[("conversation", "mooncake_conversation_whole.jsonl"), ("synthetic", "mooncake_synthetic_whole.jsonl")];
const WORKLOADS: &str = "conversation,synthetic,chats-1,chats-2,chats-3";

fn failed(error: impl std::fmt::Display) -> Ended {
    Ended::Failed(error.to_string())
}

pub(super) async fn quality(args: &Args) -> Run {
    let progress = if args.is_on("--quiet") { Progress::Silent } else { Progress::Shown };
    let is_published = args.is_on("--publish");
    let dir = args.text("--out")?.map(PathBuf::from);
    let dir = dir.unwrap_or_else(|| PathBuf::from(if is_published { "docs/measurements" } else { "target/quality" }));
    let found = match args.text("--from")? {
        Some(path) => {
            args.finish()?;
            read(Path::new(&path))?
        }
        None => measured(args, progress, &dir).await?,
    };
    written(&found, &dir).map_err(failed)?;
    let table = format!("{}\nwritten to {}\n", quality::text(&found), dir.display());
    Ok(Shown { table, is_good: found.is_good() })
}

async fn measured(args: &Args, progress: Progress, dir: &Path) -> Result<Quality, Ended> {
    let list = |name: &str, all: &str| -> Result<Vec<String>, String> {
        let text = args.text(name)?;
        Ok(text.as_deref().unwrap_or(all).split(',').map(str::to_owned).collect())
    };
    let names: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
    let policies = list("--policies", &names.join(","))?;
    let policies = policies.iter().map(|name| {
        Policy::find(name).ok_or_else(|| Ended::Usage(format!("no policy {name:?}; there are {}", names.join(", "))))
    });
    let policies = policies.collect::<Result<Vec<_>, _>>()?;
    let traces = PathBuf::from(args.text("--traces")?.unwrap_or_else(|| "bench/data".to_owned()));
    let first = args.number_or_none::<u64>("--minutes")?.map_or(Duration::MAX, |min| Duration::from_secs(min * 60));
    let workloads = list("--workloads", WORKLOADS)?.into_iter().map(|name| workload(&name, &traces));
    let workloads = workloads.map(|made| Ok(made?.first(first))).collect::<Result<Vec<_>, Ended>>()?;
    let speeds = list("--speeds", "50,100")?.into_iter().map(|text| {
        let speed = text.parse::<f64>().ok().filter(|speed| *speed > 0.0);
        speed.ok_or_else(|| Ended::Usage(format!("--speeds: {text:?} is no speed")))
    });
    let speeds = speeds.collect::<Result<Vec<_>, _>>()?;
    let mut setup = Setup {
        llmgw: args.needed("--llmgw")?.into(),
        peers: args.text("--peers-dir")?.map_or_else(|| PathBuf::from("target/peers"), PathBuf::from),
        engines: engines(args)?,
        speed: 1.0,
        bytes_per_token: args.number("--bytes-per-token", 4)?,
    };
    let profile = args.text("--profile")?.unwrap_or_else(|| "ci".to_owned());
    let onto = args.text("--onto")?;
    let priority = args.number_or_none("--priority")?;
    args.finish()?;
    let mut found = Quality::new(&profile, setup.engines, setup.bytes_per_token, setup.versions());
    if let Some(path) = onto {
        found.take_runs(read(Path::new(&path))?);
    }
    let _priority = priority.map(Priority::take).transpose().map_err(|error| failed(format!("--priority: {error}")))?;
    for workload in &workloads {
        let facts = Facts::of(workload, &setup.engines);
        for (speed, policy) in speeds.iter().flat_map(|speed| policies.iter().map(move |policy| (*speed, *policy))) {
            setup.speed = speed;
            progress.say(&format!("{}, {} at {speed} ×", workload.name, policy.name));
            match quality::measure(&setup, policy, workload, progress).await {
                Ok(Some(run)) => found.add(&facts, run),
                Ok(None) => progress.say(&format!("{} is not installed: left out", policy.name)),
                Err(what) => found.fault(format!("{}, {} at {speed} ×: {what}", workload.name, policy.name)),
            }
            // A run that is cut short keeps what it has.
            written(&found, dir).map_err(failed)?;
        }
    }
    Ok(found)
}

fn engines(args: &Args) -> Result<Engines, Ended> {
    let Engines { count, blocks, prefill_tokens_per_second, .. } = Engines::default();
    Ok(Engines {
        count: args.number("--engines", count)?,
        blocks: args.number("--blocks", blocks)?,
        prefill_tokens_per_second: args.number("--prefill", prefill_tokens_per_second)?,
        ..Engines::default()
    })
}

fn workload(name: &str, traces: &Path) -> Result<Workload, Ended> {
    if let Some(seed) = name.strip_prefix("chats-").and_then(|seed| seed.parse().ok()) {
        return Ok(Chats { seed, ..Chats::default() }.workload());
    }
    let Some((_, file)) = TRACES.iter().find(|(known, _)| *known == name) else {
        return Err(Ended::Usage(format!("no workload {name:?}; there are conversation, synthetic, and chats-SEED")));
    };
    let path = traces.join(file);
    let text = std::fs::read_to_string(&path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
    Workload::of_trace(name, &text).map_err(|what| failed(format!("{}, {what}", path.display())))
}

fn read(path: &Path) -> Result<Quality, Ended> {
    let text = std::fs::read_to_string(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| failed(format!("{}: {error}", path.display())))
}

fn written(found: &Quality, dir: &Path) -> Result<(), String> {
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let json = serde_json::to_string(found).map_err(|error| error.to_string())?;
    write("quality.json", json + "\n")?;
    write("quality.svg", quality::svg(found))?;
    write("quality.md", quality::whole_page(found))
}
