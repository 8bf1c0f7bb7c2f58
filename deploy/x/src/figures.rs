//! `cargo x test figures`: the promises under load. Each is a run of the load generator against engines
//! and a gateway that it starts itself; the run fails when a bar is missed. Called by `suites`; wants the machine for
//! itself.

use std::process::Command;

use crate::args::Outcome;
use crate::metadata::Metadata;
use crate::shell::{self, Steps, cargo};
use crate::suites::Length;

/// The load generator's name.
pub(crate) const BINARY: &str = "llmgw-load";

/// One promise: what it is called, and the scenario that shows it.
struct Promise {
    name: &'static str,
    words: &'static [&'static str],
    /// Put in the place of the words when the trials run scaled down.
    scaled: &'static [&'static str],
}

const PROMISES: &[Promise] = &[
    Promise {
        name: "1000 streams at once",
        words: &["streams", "--streams", "1000", "--events", "500", "--delay", "30ms", "--together", "10s"],
        scaled: &["streams", "--streams", "200", "--events", "200", "--delay", "20ms", "--together", "1s"],
    },
    Promise {
        name: "what the gateway adds",
        words: &["overhead", "--rounds", "10", "--added-p99-max", "2ms"],
        scaled: &["overhead", "--rounds", "3", "--added-p99-max", "2ms"],
    },
    Promise { name: "clients that leave", words: &["cancel"], scaled: &["cancel", "--cut-after", "300ms"] },
    Promise {
        name: "clients that stop reading",
        words: &["stalled"],
        scaled: &["stalled", "--clients", "8", "--stream-mib", "50"],
    },
    Promise {
        name: "100 bodies of 30 MB",
        words: &["uploads"],
        scaled: &["uploads", "--bodies", "20", "--body-mb", "10"],
    },
    Promise {
        name: "stopping under 2000 calls a second",
        words: &["drain"],
        scaled: &["drain", "--rate", "500", "--before", "1s", "--settle", "2s", "--notices-after", "1s"],
    },
    Promise {
        name: "50 reloads at half the capacity",
        words: &["reloads"],
        scaled: &["reloads", "--reloads", "8", "--streams", "20", "--measured-for", "1s"],
    },
    Promise { name: "100000 mixed requests", words: &["mixed"], scaled: &["mixed", "--calls", "5000"] },
];

/// Builds every program of the workspace the way the tests do, so that what they built is not built again.
///
/// Returns the folder of the programs.
pub(crate) fn build() -> Result<std::path::PathBuf, String> {
    let metadata = Metadata::read()?;
    if !metadata.binaries().iter().any(|name| name == BINARY) {
        return Err(format!("there is no program called {BINARY} in the workspace"));
    }
    // Tests are named too: without them cargo would choose other features for shared crates, and build those twice.
    shell::run(&mut cargo(&["build", "--profile", "ci", "--workspace", "--bins", "--tests"]))?;
    Ok(metadata.target_directory.join("ci"))
}

/// Runs every promise, each timed.
pub(crate) fn run(length: Length) -> Outcome {
    let programs = build()?;
    let mut steps = Steps::default();
    for promise in PROMISES {
        let words = if length == Length::Full { promise.words } else { promise.scaled };
        steps.step(promise.name, || {
            let mut command = Command::new(programs.join(BINARY));
            command.current_dir(shell::root()).args(["scenario", words[0], "--quiet", "--llmgw"]);
            shell::run(command.arg(programs.join("llmgw")).args(&words[1..]))
        });
    }
    steps.finish()
}
