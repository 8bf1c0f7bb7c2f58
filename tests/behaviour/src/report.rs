//! What a run came to, as lines for a person or as one document.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::check::{Check, Fault, For, Verdict};

/// One check that was run.
pub(crate) struct Ran {
    pub(crate) check: Check,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

impl Ran {
    fn word(&self) -> &'static str {
        match self.verdict {
            Ok(_) => "pass",
            Err(Fault::Failed(_)) => "FAIL",
            Err(Fault::NotApplicable(_)) => "n/a",
        }
    }

    fn seen(&self) -> &str {
        match &self.verdict {
            Ok(seen) | Err(Fault::Failed(seen) | Fault::NotApplicable(seen)) => seen,
        }
    }

    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.verdict, Err(Fault::Failed(_)))
    }

    fn is_extra(&self) -> bool {
        self.check.is_for == For::Extra
    }

    /// The check's line.
    pub(crate) fn line(&self) -> String {
        let mark = if self.is_extra() { " (extra)" } else { "" };
        let mut line = format!(
            "{:<4}  {:<38}{mark}  {} [{} ms]",
            self.word(),
            self.check.name,
            self.seen(),
            self.took.as_millis()
        );
        if self.is_failed() {
            let _ = write!(line, "\n      should: {}", self.check.says);
        }
        line
    }

    fn json(&self) -> Value {
        json!({
            "name": self.check.name, "says": self.check.says, "extra": self.is_extra(),
            "result": self.word().to_ascii_lowercase(), "seen": self.seen(), "ms": self.took.as_millis() as u64,
        })
    }
}

fn count(ran: &[&Ran], word: &str) -> usize {
    ran.iter().filter(|ran| ran.word() == word).count()
}

/// The last lines: every proxy's checks and the extras apart.
pub(crate) fn summary(ran: &[Ran], took: Duration) -> String {
    let mut text = String::new();
    for (title, is_extra) in [("every good proxy", false), ("extra, of this gateway", true)] {
        let part: Vec<&Ran> = ran.iter().filter(|ran| ran.is_extra() == is_extra).collect();
        let (pass, fail, not) = (count(&part, "pass"), count(&part, "FAIL"), count(&part, "n/a"));
        let _ = writeln!(text, "{title:<24} {pass:>3} passed, {fail:>3} failed, {not:>3} not applicable");
    }
    let _ = write!(text, "{} checks in {:.1} s", ran.len(), took.as_secs_f64());
    text
}

/// The whole run as one document.
pub(crate) fn document(ran: &[Ran], proxy: &str, took: Duration) -> Value {
    json!({
        "proxy": proxy, "seconds": took.as_secs_f64(),
        "checks": ran.iter().map(Ran::json).collect::<Vec<_>>(),
    })
}

/// How many passed: of the checks for every proxy, and of the extras.
pub(crate) fn passed(ran: &[Ran]) -> [usize; 2] {
    [false, true].map(|is_extra| ran.iter().filter(|ran| ran.is_extra() == is_extra && ran.verdict.is_ok()).count())
}

/// Whether the run as a whole passed; extras count where they are promised.
pub(crate) fn is_good(ran: &[Ran], counts_extras: bool) -> bool {
    !ran.iter().any(|ran| ran.is_failed() && (counts_extras || !ran.is_extra()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extra_fails_only_who_promises_it() {
        let ran = |check: Check, verdict| Ran { check, verdict, took: Duration::ZERO };
        let extra = || ran(Check::new("a", "b", |_| Ok(String::new())).extra(), Err(Fault::Failed("c".into())));
        let plain = |verdict| ran(Check::new("a", "b", |_| Ok(String::new())), verdict);
        assert!(is_good(&[extra()], false) && !is_good(&[extra()], true));
        assert!(is_good(&[plain(Err(Fault::NotApplicable("c".into())))], true));
        assert!(!is_good(&[plain(Err(Fault::Failed("c".into())))], false));
        let all = [extra(), plain(Ok("d".into())), plain(Ok("e".into())), plain(Err(Fault::NotApplicable("f".into())))];
        assert_eq!(passed(&all), [2, 0]);
        assert!(extra().line().contains("should: b"));
    }
}
