//! Log lines of a process under test, judged: a test fails when one warns without having been announced.

use llmgw_load::process::Process;
use serde_json::Value;

/// Warnings and errors among the lines of a process, but for those that contain one of the expected texts.
#[must_use]
pub fn unexpected_warnings(process: &Process, expected: &[&str]) -> Vec<String> {
    let lines = process.lines();
    let loud = lines.iter().map(|line| line.text.as_str()).filter(|text| is_loud(text));
    loud.filter(|text| !expected.iter().any(|part| text.contains(part))).map(str::to_owned).collect()
}

/// Panics with the lines when there is an unexpected warning or error.
#[track_caller]
pub fn assert_quiet(process: &Process, expected: &[&str]) {
    let found = unexpected_warnings(process, expected);
    assert!(found.is_empty(), "unexpected in the log:\n{}", found.join("\n"));
}

/// A JSON log line of level WARN or ERROR, or a panic's message.
fn is_loud(text: &str) -> bool {
    if text.starts_with("thread '") && text.contains("panicked at") {
        return true;
    }
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return false };
    let level = fields.get("level").and_then(Value::as_str).unwrap_or("");
    level.eq_ignore_ascii_case("warn") || level.eq_ignore_ascii_case("error")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use llmgw_load::process::Launch;

    use super::*;

    fn said(line: &str) -> Process {
        let mut process = Launch::new("printf").args(["%s\n", line]).start().expect("printf");
        process.wait(Duration::from_secs(5)).expect("it ends");
        process
    }

    fn check(line: &str, expected: &[&str], loud_count: usize) {
        assert_eq!(unexpected_warnings(&said(line), expected).len(), loud_count, "{line}");
    }

    #[test]
    fn warnings_errors_and_panics_are_loud_unless_announced() {
        let warning = r#"{"timestamp":"t","level":"WARN","fields":{"message":"engine does not answer"}}"#;
        check(warning, &[], 1);
        check(warning, &["does not answer"], 0);
        check(r#"{"level":"ERROR","message":"x"}"#, &["y"], 1);
        check(r#"{"level":"INFO","message":"no \"level\":\"WARN\" here"}"#, &[], 0);
        check("thread 'core-0' panicked at src/x.rs:1:1:", &[], 1);
        check("not JSON, WARN in it", &[], 0);
    }

    #[test]
    #[should_panic(expected = "unexpected in the log")]
    fn a_warning_fails_the_test() {
        assert_quiet(&said(r#"{"level":"warn","message":"x"}"#), &[]);
    }
}
