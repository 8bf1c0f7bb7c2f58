//! The `mock` and `compare` commands.

use std::io::Write;
use std::path::{Path, PathBuf};

use llmgw_load::compare::{self, Compare, Comparison, Pace, Place, Programs, Step};
use llmgw_load::mock::Mock;
use llmgw_load::progress::Progress;

use super::{Ended, Run, Shown};
use crate::args::Args;

fn failed(error: impl std::fmt::Display) -> Ended {
    Ended::Failed(error.to_string())
}

/// Serves until it is ended.
pub(super) fn mock(args: &Args) -> Run {
    let port_count = args.number("--ports", 1)?;
    args.finish()?;
    // Nobody is left to end it when the one who started it is gone.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    let mock = Mock::bind(port_count).map_err(failed)?;
    for (idx, address) in mock.addresses().map_err(failed)?.iter().enumerate() {
        writeln!(std::io::stdout(), "engine {idx} listening on {address}").map_err(failed)?;
    }
    mock.serve().map_err(failed)?;
    Ok(Shown { table: String::new(), is_good: true })
}

/// What becomes of the figures.
struct Output {
    dir: PathBuf,
    /// Whose block is rewritten.
    readme: Option<PathBuf>,
}

pub(super) fn compare(args: &Args) -> Run {
    let progress = if args.is_on("--quiet") { Progress::Silent } else { Progress::Shown };
    let is_published = args.is_on("--publish");
    let dir = args.text("--out")?.map(PathBuf::from);
    let output = Output {
        dir: dir.unwrap_or_else(|| PathBuf::from(if is_published { "docs/measurements" } else { "target/overhead" })),
        readme: is_published.then(|| PathBuf::from("README.md")),
    };
    let found = match args.text("--from")? {
        Some(path) => {
            args.finish()?;
            read(Path::new(&path))?
        }
        None => measured(args, progress)?,
    };
    written(&found, &output).map_err(failed)?;
    let table = format!("{}\nwritten to {}\n", compare::text(&found), output.dir.display());
    Ok(Shown { table, is_good: true })
}

fn measured(args: &Args, progress: Progress) -> Result<Comparison, Ended> {
    let default = Compare::default();
    let is_quick = args.is_on("--quick");
    let peers = args.text("--peers")?.map(|text| text.split(',').map(str::to_owned).collect());
    let steps = match args.text("--steps")? {
        None => default.steps,
        Some(text) => text.split(',').map(step).collect::<Result<_, _>>()?,
    };
    let plan = Compare {
        peers: peers.unwrap_or(default.peers),
        steps,
        round_count: args.number("--rounds", if is_quick { 2 } else { default.round_count })?,
        pace: if is_quick { Pace::Quick } else { Pace::Full },
        profile: args.text("--profile")?.unwrap_or(default.profile),
    };
    let programs = Programs {
        llmgw: args.needed("--llmgw")?.into(),
        stock: args.text("--stock")?.map(PathBuf::from),
        peers: args.text("--peers-dir")?.map_or_else(|| PathBuf::from("target/peers"), PathBuf::from),
        load: std::env::current_exe().map_err(failed)?,
    };
    let cpus = compare::usable_cpus();
    let first = cpus.first().copied().unwrap_or(0);
    let second = cpus.get(1).copied().unwrap_or(first);
    let (gateway_cpu, load_cpu) = (args.number("--gateway-cpu", first)?, args.number("--load-cpu", second)?);
    let priority = args.number_or_none("--priority")?;
    args.finish()?;
    if gateway_cpu == load_cpu {
        progress.say("gateway and load share one CPU: their figures blur each other");
    }
    let _priority =
        priority.map(compare::Priority::take).transpose().map_err(|error| failed(format!("--priority: {error}")))?;
    let _turn = turn(progress).map_err(failed)?;
    let place = Place::new(programs, gateway_cpu, load_cpu).map_err(failed)?;
    compare::run(&plan, &place, progress).map_err(failed)
}

/// Waits until no other comparison runs on this machine: two at once would measure each other.
fn turn(progress: Progress) -> std::io::Result<std::fs::File> {
    let file = std::fs::File::create(std::env::temp_dir().join("llmgw-compare.lock"))?;
    if file.try_lock().is_err() {
        progress.say("another comparison is running: waiting for its end");
        file.lock()?;
    }
    Ok(file)
}

fn step(name: &str) -> Result<&'static Step, Ended> {
    Step::find(name).ok_or_else(|| {
        let all: Vec<&str> = compare::STEPS.iter().map(|step| step.name).collect();
        Ended::Usage(format!("no step {name:?}; there are {}", all.join(", ")))
    })
}

fn read(path: &Path) -> Result<Comparison, Ended> {
    let text = std::fs::read_to_string(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| failed(format!("{}: {error}", path.display())))
}

fn written(found: &Comparison, output: &Output) -> Result<(), String> {
    let write = |path: PathBuf, text: String| {
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(&output.dir).map_err(|error| format!("{}: {error}", output.dir.display()))?;
    let json = serde_json::to_string(found).map_err(|error| error.to_string())?;
    write(output.dir.join("overhead.json"), json + "\n")?;
    write(output.dir.join("overhead.svg"), compare::svg(found))?;
    write(output.dir.join("overhead.md"), compare::whole_page(found))?;
    let Some(readme) = &output.readme else { return Ok(()) };
    let before = std::fs::read_to_string(readme).map_err(|error| format!("{}: {error}", readme.display()))?;
    write(readme.clone(), compare::replace_block(&before, &compare::readme_block(found))?)
}
