//! `cargo x bench`: the load generator, optimised, with the rest of the command line handed to it.
//! `cargo x bench micro`: the parts of the data plane, one by one.
//! `cargo x bench overhead`: the gateway beside others; what is compared is built first.
//! `cargo x bench quality`: where prompts go, through the built gateway to simulated engines.
//! `cargo x bench runtimes`: the bare proxy on one runtime after another, from a workspace of its own, so that the
//! product's build never knows them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{Args, Outcome};
use crate::figures::{self, BINARY};
use crate::metadata::Metadata;
use crate::shell::{self, cargo};

/// Measures the parts.
pub(crate) const MICRO: &str = "llmgw-micro";

/// The program of the conventional design, where the workspace has one.
const STOCK: &str = "llmgw-stock";

/// Where `--save` puts the figures of the parts, beside the page for people.
const MICRO_JSON: &str = "docs/measurements/micro.json";
const MICRO_PAGE: &str = "docs/measurements/micro.md";

/// The bare proxy's variants, each built by itself, and the program that runs them in turn.
const VARIANTS: &[&str] = &["bare-own", "bare-monoio", "bare-tokio", "bare-hyper", "bare-glommio", "bare-monoio-http"];
const RACE: &str = "runtime-race";
const RACE_JSON: &str = "docs/measurements/runtimes.json";
const RACE_PAGE: &str = "docs/measurements/runtimes.md";

/// Builds the programs and starts the load generator; without words it says what it can do.
pub(crate) fn run(mut args: Args) -> Outcome {
    if args.takes("micro") {
        return micro(args);
    }
    // Asked for its help, the load generator has it.
    if !args.is_help_wanted() && args.takes("overhead") {
        return overhead(args);
    }
    if !args.is_help_wanted() && args.takes("quality") {
        return quality(args);
    }
    if args.takes("runtimes") {
        return runtimes(args);
    }
    start(&figures::build()?, BINARY, args.into_rest())
}

/// The parts that are named, or all; `--save` writes the figures into docs/measurements.
fn micro(mut args: Args) -> Outcome {
    let is_saved = args.flag("--save");
    let mut words = args.into_rest();
    if is_saved {
        words.extend(["--json", MICRO_JSON, "--page", MICRO_PAGE].map(str::to_owned));
    }
    start(&figures::build()?, MICRO, words)
}

/// Builds the variants and runs them in turn; one that cannot be built is said and left out.
fn runtimes(mut args: Args) -> Outcome {
    let is_saved = args.flag("--save");
    let mut words = args.into_rest();
    if is_saved {
        words.extend(["--json", RACE_JSON, "--page", RACE_PAGE].map(str::to_owned));
    }
    let workspace = shell::root().join("bench/runtimes");
    let manifest = workspace.join("Cargo.toml").to_string_lossy().into_owned();
    // Into a folder of its own, whatever the environment says of the product's.
    let target = workspace.join("target");
    let build = |package: &str| {
        let words = ["build", "--release", "--manifest-path", &manifest, "--package", package];
        shell::run(cargo(&words).arg("--target-dir").arg(&target))
    };
    for variant in VARIANTS {
        if let Err(message) = build(variant) {
            println!("left out: {variant}: {message}");
        }
    }
    build(RACE)?;
    let programs = target.join("release");
    let mut race = Command::new(programs.join(RACE));
    shell::run(race.current_dir(shell::root()).arg(&programs).args(words))
}

fn start(programs: &Path, name: &str, words: Vec<String>) -> Outcome {
    shell::run(Command::new(programs.join(name)).current_dir(shell::root()).args(words))
}

/// Counts do not depend on how the gateway is built; the profile that everything is built with does.
fn quality(args: Args) -> Outcome {
    let target = Metadata::read()?.target_directory;
    shell::run(&mut cargo(&["build", "--profile", "ci", "--package", BINARY]))?;
    shell::run(&mut cargo(&["build", "--profile", "ci", "--package", "llmgw", "--bins"]))?;
    let programs = target.join("ci");
    let mut command = Command::new(programs.join(BINARY));
    command.current_dir(shell::root()).args(["quality", "--llmgw"]).arg(programs.join("llmgw"));
    command.arg("--peers-dir").arg(peers(&target));
    shell::run(command.args(args.into_rest()))
}

/// Where peers were installed.
fn peers(target: &Path) -> PathBuf {
    std::env::var_os("LLMGW_PEERS").map_or_else(|| target.join("peers"), PathBuf::from)
}

/// The gateways in turn: what is released is what is measured, but for quick runs, which tune.
fn overhead(mut args: Args) -> Outcome {
    let is_quick = args.flag("--quick");
    let profile = args.value::<String>("--profile")?;
    let profile = profile.unwrap_or_else(|| if is_quick { "ci" } else { "dist" }.to_owned());
    let metadata = Metadata::read()?;
    let target = metadata.target_directory.clone();
    shell::run(&mut cargo(&["build", "--profile", "ci", "--package", BINARY]))?;
    let has_stock = metadata.binaries().iter().any(|name| name == STOCK);
    let mut words = vec!["build", "--profile", &profile, "--package", "llmgw"];
    if has_stock {
        words.extend(["--package", STOCK]);
    }
    shell::run(cargo(&words).args(["--bins"]))?;
    let programs: PathBuf = target.join(if profile == "dev" { "debug" } else { &profile });
    let mut command = Command::new(target.join("ci").join(BINARY));
    command.current_dir(shell::root()).args(["compare", "--profile", &profile, "--llmgw"]).arg(programs.join("llmgw"));
    if has_stock {
        command.arg("--stock").arg(programs.join(STOCK));
    }
    if is_quick {
        command.arg("--quick");
    }
    command.arg("--peers-dir").arg(peers(&target));
    shell::run(command.args(args.into_rest()))
}
