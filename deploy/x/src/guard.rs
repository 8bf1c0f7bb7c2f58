//! `cargo x guard`: what a change may not make dearer, counted and never timed, so that a busy machine cannot fail it.
//!
//! Instructions of the pure parts (under valgrind), system calls and ring operations a request (by the kernel's
//! tracing), held to `bench/micro/guard.txt`. A third count, allocations of a warm core, is the test `allocations`.
//! Called by people and by CI. Where a machine cannot count, that is said and left out, but in CI a tool that can be
//! installed must be there.

mod stored;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;

use crate::args::{Args, Outcome};
use crate::bench::MICRO;
use crate::figures::{self, BINARY};
use crate::shell::{self, Steps, is_ci};
use stored::{Held, Stored};

/// Where the figures stand.
const FIGURES: &str = "bench/micro/guard.txt";

/// Parts whose instructions are counted, with how often each is done: as often as makes its set-up disappear.
const PARTS: &[(&str, u64)] = &[
    ("decide/max-score/5", 2_000),
    ("decide/max-score/100", 200),
    ("decide/p2c/100", 400),
    ("scan/1KB", 1_000),
    ("scan/16KB", 200),
    ("tap/event", 2_000),
    ("tap/16-events-at-once", 200),
    ("head/parse-request", 1_000),
    ("head/parse-response", 1_000),
    ("head/write-request", 1_000),
    ("keys/digest", 5_000),
    ("keys/look-up/1000", 50_000),
    ("limits/from-lease", 5_000),
    ("limits/by-owner", 2_000),
    // Turns of 200 records.
    ("journal/frame", 20_000),
    ("journal/read", 20_000),
];

/// Loads whose system calls and ring operations are counted: one client, one request after the other, so that none
/// saves another's work.
const LOADS: &[(&str, &str)] = &[("whole", "2000"), ("streams", "40")];

/// Rounds of a load.
const ROUNDS_MAX: usize = 3;

/// What the load generator ends with when this machine or user may not count.
const UNAVAILABLE: i32 = 77;

/// The chore; `--bless` writes down what is counted in place of judging it, `--programs DIR` takes programs that are
/// built already.
pub(crate) fn run(mut args: Args) -> Outcome {
    let is_blessing = args.flag("--bless");
    let programs: Option<PathBuf> = args.value("--programs")?;
    args.finish()?;
    match programs {
        Some(programs) => check(&programs, is_blessing),
        None => check(&figures::build()?, is_blessing),
    }
}

/// Counts all, and judges or writes it down.
pub(crate) fn check(programs: &Path, is_blessing: bool) -> Outcome {
    let path = shell::root().join(FIGURES);
    let mut stored = Stored::read(&path)?;
    let mut steps = Steps::default();
    steps.step("instructions", || instructions(programs, &mut stored, is_blessing));
    steps.step("kernel work", || kernel_work(programs, &mut stored, is_blessing));
    if is_blessing {
        stored.write(&path)?;
    }
    steps.finish()
}

/// Counts the parts' instructions, each done a few times and many times: the difference has no set-up in it, and is the
/// same for any two counts, to the instruction.
fn instructions(programs: &Path, stored: &mut Stored, is_blessing: bool) -> Outcome {
    if !shell::is_there("valgrind", &["--version"]) {
        return left_out("valgrind is not installed (a package of that name): no instructions are counted");
    }
    let micro = programs.join(MICRO);
    let mut held = Held::new(is_blessing);
    for &(part, count) in PARTS {
        let (few, vectors) = collected(&micro, part, count / 10)?;
        let (many, _) = collected(&micro, part, count)?;
        let each = many.saturating_sub(few) as f64 / (count - count / 10) as f64;
        held.hold(stored, &format!("instructions {vectors} {part}"), each);
    }
    held.finish()
}

/// Instructions of a whole run, and on which vector instructions the program ran.
fn collected(micro: &Path, part: &str, count: u64) -> Result<(u64, String), String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(micro);
    // How glibc copies is its choice by CPU; these two make a copy's instructions hang on its length alone.
    command.args(["repeat", part, &count.to_string()]).env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS,-FSRM");
    let output = command.output().map_err(|error| format!("cannot start valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let found = said.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, number)| number.trim());
    match (output.status.success(), found.and_then(|number| number.parse().ok())) {
        (true, Some(number)) => Ok((number, String::from_utf8_lossy(&output.stdout).trim().to_owned())),
        _ => Err(format!("valgrind did not count {part}: {}", said.trim())),
    }
}

/// Counts what one core asks of the kernel for a request.
///
/// How a stream's pieces fall into reads is chance and can only save work, and a busy machine can disturb a round: one
/// round that holds is enough, and the dearest is what is written down.
fn kernel_work(programs: &Path, stored: &mut Stored, is_blessing: bool) -> Outcome {
    let mut held = Held::new(is_blessing);
    for &(kind, calls) in LOADS {
        let report = shell::root().join(format!("target/guard-{kind}.json"));
        let mut found: BTreeMap<String, f64> = BTreeMap::new();
        let mut fault = String::new();
        for _ in 0..ROUNDS_MAX {
            let status = count_kernel_work(programs, kind, calls, &report)?;
            if status.code() == Some(UNAVAILABLE) {
                println!("left out: this machine or user may not trace the kernel (it needs root and tracefs)");
                return Ok(());
            }
            if !status.success() {
                fault = format!("no round of {kind} was good, the last ended with {status}");
                continue;
            }
            let mut holds = true;
            for (name, each) in per_request(kind, &report)? {
                holds &= stored.allows(&name, each);
                let kept = found.entry(name).or_insert(each);
                *kept = if is_blessing { kept.max(each) } else { kept.min(each) };
            }
            if holds && !is_blessing {
                break;
            }
        }
        if found.is_empty() {
            return Err(fault);
        }
        found.iter().for_each(|(name, each)| held.hold(stored, name, *each));
    }
    held.finish()
}

fn count_kernel_work(programs: &Path, kind: &str, calls: &str, report: &Path) -> Result<ExitStatus, String> {
    let mut command = Command::new(programs.join(BINARY));
    command.current_dir(shell::root()).args(["scenario", "ring", "--quiet", "--engines", "1", "--connections", "1"]);
    command.args(["--only", kind, "--calls", calls, "--llmgw"]).arg(programs.join("llmgw"));
    // Every request on one core: with two, the kernel chooses which one gets the connection.
    command.arg("--json").arg(report).env("LLMGW__CORES", "1");
    command.status().map_err(|error| format!("cannot start {BINARY}: {error}"))
}

/// Ring operations and system calls a request, in all.
fn per_request(kind: &str, report: &Path) -> Result<[(String, f64); 2], String> {
    let text = std::fs::read_to_string(report).map_err(|error| format!("{}: {error}", report.display()))?;
    let tree: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", report.display()))?;
    let sum = |list: &str| -> f64 {
        let lines = tree["result"][list].as_array().into_iter().flatten();
        lines.filter_map(|line| line["per_request"].as_f64()).sum()
    };
    let name = |what: &str| format!("kernel {kind} {what}");
    Ok([(name("ring-operations"), sum("operations")), (name("system-calls"), sum("calls"))])
}

fn left_out(why: &str) -> Outcome {
    if is_ci() {
        return Err(why.to_owned());
    }
    println!("left out: {why}");
    Ok(())
}
