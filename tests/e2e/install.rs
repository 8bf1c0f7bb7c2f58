//! What the suite needs from outside, installed once by the scripts beside it. Called by `clients` and `engines`.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use llmgw_test_kit::process::{Launch, Source};

/// A package index may be slow; an installation that takes longer is stuck.
const WITHIN: Duration = Duration::from_secs(300);

/// The suite's folder of scripts.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e")
}

/// Where environments and models are kept between runs.
pub(crate) fn cache() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/e2e");
    std::env::var_os("LLMGW_E2E_DIR").map_or_else(default, PathBuf::from)
}

type Python = LazyLock<Result<PathBuf, String>>;

/// The Python that has the official `openai` client.
#[track_caller]
pub(crate) fn openai() -> &'static Path {
    static PYTHON: Python = LazyLock::new(|| run(bash("clients/install.sh").arg("openai")).map(PathBuf::from));
    there(&PYTHON)
}

/// The Python that has the official `anthropic` client.
#[track_caller]
pub(crate) fn anthropic() -> &'static Path {
    static PYTHON: Python = LazyLock::new(|| run(bash("clients/install.sh").arg("anthropic")).map(PathBuf::from));
    there(&PYTHON)
}

#[track_caller]
fn there(python: &'static Python) -> &'static Path {
    python.as_deref().unwrap_or_else(|error| panic!("the official client cannot be installed: {error}"))
}

/// Makes sure that llama.cpp and its model are there.
#[track_caller]
pub(crate) fn llama_cpp() {
    static INSTALLED: LazyLock<Result<String, String>> =
        LazyLock::new(|| run(bash("engines/start-llama-cpp.sh").env("INSTALL_ONLY", "1")));
    if let Err(error) = &*INSTALLED {
        panic!("llama.cpp cannot be installed: {error}");
    }
}

/// One of the suite's shell scripts, to be started.
pub(crate) fn bash(script: &str) -> Launch {
    Launch::new("bash").arg(scripts().join(script)).env("LLMGW_E2E_DIR", cache())
}

/// Runs to the end and returns the last line of standard output.
fn run(launch: Launch) -> Result<String, String> {
    let mut process = launch.start().map_err(|error| error.to_string())?;
    let status = process.wait(WITHIN).map_err(|error| error.to_string())?;
    let lines = process.lines();
    if !status.success() {
        let tail: Vec<&str> = lines.iter().rev().take(8).rev().map(|line| line.text.as_str()).collect();
        return Err(format!("{status}\n{}", tail.join("\n")));
    }
    let last = lines.iter().rev().find(|line| line.source == Source::Stdout);
    Ok(last.map(|line| line.text.clone()).unwrap_or_default())
}
