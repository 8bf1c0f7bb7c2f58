//! `cargo x fuzz`: builds the fuzz targets with coverage feedback and runs one, or each in turn, for a while.
//!
//! The targets live in `fuzz/`, a workspace of its own, so that the product does not know the fuzzer. Coverage comes
//! from compiler flags that the pinned toolchain has; no other tool is needed but a C++ compiler for the fuzzer itself.

use std::path::PathBuf;
use std::process::Command;

use crate::args::{Args, Outcome};
use crate::metadata::Metadata;
use crate::shell::{self, Steps, cargo, root};

/// What a target gets when nothing is said.
const SECONDS: u64 = 60;

const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks";

/// The chore.
pub(crate) fn run(mut args: Args) -> Outcome {
    let seconds = args.value("--seconds")?.unwrap_or(SECONDS);
    let wanted = args.word();
    args.finish()?;
    let manifest = root().join("fuzz/Cargo.toml");
    if !manifest.is_file() {
        return Err("there are no fuzz targets: fuzz/Cargo.toml is missing".into());
    }
    let manifest = manifest.to_string_lossy();
    let targets = Metadata::read_at(&["--manifest-path", &manifest])?.binaries();
    let chosen: Vec<String> =
        targets.iter().filter(|name| wanted.as_ref().is_none_or(|w| w == *name)).cloned().collect();
    if chosen.is_empty() {
        return Err(format!("unknown target {:?}; there are {}", wanted.unwrap_or_default(), targets.join(", ")));
    }
    let triple = host()?;
    // With a target named, the flags are for the fuzzed code and not for build scripts.
    let mut build = cargo(&["build", "--release", "--bins", "--manifest-path", &manifest, "--target", &triple]);
    shell::run(build.env("RUSTFLAGS", COVERAGE))?;
    let mut steps = Steps::default();
    for name in &chosen {
        steps.step(name, || fuzz(name, &triple, seconds));
    }
    steps.finish()
}

fn fuzz(name: &str, triple: &str, seconds: u64) -> Outcome {
    let corpus: PathBuf = root().join("target/fuzz").join(name);
    std::fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let program = root().join("fuzz/target").join(triple).join("release").join(name);
    let mut command = Command::new(program);
    command.current_dir(&corpus).arg(&corpus);
    // Whole messages to begin with: what a parser wants at the very start is rarely found by chance.
    let seeds = root().join("fuzz/seeds").join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let dictionary = root().join("fuzz/wire.dict");
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    command.args([
        format!("-max_total_time={seconds}"),
        "-timeout=10".into(),
        "-max_len=4096".into(),
        "-print_final_stats=1".into(),
        "-verbosity=0".into(),
    ]);
    shell::run(&mut command)
}

fn host() -> Result<String, String> {
    let bytes = shell::read(Command::new("rustc").current_dir(root()).args(["--print", "host-tuple"]))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}
