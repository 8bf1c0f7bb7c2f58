//! Starting other programs from the project's root, loudly. Called by every chore; changes when the way of building
//! does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::args::Outcome;

/// The project's root: two folders above this package.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}

/// Whether this runs for CI, where nothing may be skipped: `CI` is set and neither empty nor `0`.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Cargo with `words`, at the root. Inside CI the lock file must be right as it is.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(words);
    if is_ci() && words.first() != Some(&"fmt") {
        command.arg("--locked");
    }
    // What cargo tells a program it runs describes the package `x`; it would make the inner build look changed.
    for (name, _) in std::env::vars_os() {
        let is_ours = name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR");
        if is_ours {
            command.env_remove(name);
        }
    }
    command
}

/// Says the command line, runs it, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let line = spoken(command);
    println!("$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` ended with {status}")),
        Err(error) => Err(format!("cannot start `{line}`: {error}")),
    }
}

/// The program's standard output; it must succeed.
pub(crate) fn read(command: &mut Command) -> Result<Vec<u8>, String> {
    let line = spoken(command);
    let output = command.output().map_err(|error| format!("cannot start `{line}`: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "`{line}` ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    Ok(output.stdout)
}

/// Whether `program` answers to `words` with success; what it says is thrown away.
pub(crate) fn is_there(program: &str, words: &[&str]) -> bool {
    Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
}

fn spoken(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut line = program.to_string_lossy().into_owned();
    for word in command.get_args() {
        line.push(' ');
        line.push_str(&word.to_string_lossy());
    }
    line
}

/// Steps one after another, each timed; the first that fails does not stop the rest, but the whole then fails.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration, Outcome)>,
}

impl Steps {
    /// Runs one step and remembers how long it took and how it ended.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Outcome) {
        println!("\n== {name}");
        let begin = Instant::now();
        let outcome = work();
        if let Err(message) = &outcome {
            println!("{name}: {message}");
        }
        self.done.push((name.to_owned(), begin.elapsed(), outcome));
    }

    /// Prints the table of times.
    ///
    /// Errors: names the steps that failed.
    pub(crate) fn finish(self) -> Outcome {
        println!("\n{:<28} {:>8}  result", "step", "seconds");
        for (name, took, outcome) in &self.done {
            let result = if outcome.is_ok() { "ok" } else { "FAILED" };
            println!("{name:<28} {:>8.1}  {result}", took.as_secs_f64());
        }
        let total: Duration = self.done.iter().map(|(_, took, _)| *took).sum();
        println!("{:<28} {:>8.1}", "total", total.as_secs_f64());
        let failed: Vec<&str> =
            self.done.iter().filter(|(_, _, outcome)| outcome.is_err()).map(|(name, _, _)| name.as_str()).collect();
        match failed.is_empty() {
            true => Ok(()),
            false => Err(format!("failed: {}", failed.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_lets_the_next_one_run_and_fails_the_whole() {
        let mut steps = Steps::default();
        let mut ran = false;
        steps.step("first", || Err("broken".into()));
        steps.step("second", || {
            ran = true;
            Ok(())
        });
        assert_eq!(steps.finish(), Err("failed: first".into()));
        assert!(ran);
    }

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("Cargo.lock").is_file());
    }
}
