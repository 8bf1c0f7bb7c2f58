//! What a person reads and what a script reads: one table, one JSON object, from the same numbers.
//!
//! Every command's result implements [`Report`]. A result lists its own faults, so that no run with failures looks
//! well.

use std::fmt::Write as _;

use serde::Serialize;

use crate::tally::{Quantiles, Tally};
use crate::watch::Watched;

/// A result that can be shown.
pub trait Report: Serialize {
    /// Name and value of each line of the table.
    fn rows(&self) -> Vec<(String, String)>;

    /// Everything that went wrong or missed its bar; empty for a good run.
    fn faults(&self) -> Vec<String>;
}

/// The table, with the faults below it.
#[must_use]
pub fn table(title: &str, report: &impl Report) -> String {
    let rows = report.rows();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{title}\n");
    for (name, value) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<width$}  {value}");
    }
    let faults = report.faults();
    for fault in &faults {
        let _ = writeln!(text, "  FAILED: {fault}");
    }
    if faults.is_empty() {
        text.push_str("  good\n");
    }
    text
}

/// `{"command": …, "good": …, "faults": […], "result": {…}}`.
///
/// Errors: none of our results holds what JSON cannot; the message is the serializer's.
pub fn json(command: &str, report: &impl Report) -> Result<String, String> {
    let faults = report.faults();
    let value =
        serde_json::json!({ "command": command, "good": faults.is_empty(), "faults": faults, "result": report });
    serde_json::to_string_pretty(&value).map_err(|error| error.to_string())
}

pub(crate) fn row(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// `p50 1.20 ms   p90 …`, in the unit that suits the numbers.
pub(crate) fn spread(quantiles: &Quantiles) -> String {
    let Quantiles { count, p50_us, p90_us, p99_us, p999_us, max_us, .. } = *quantiles;
    if count == 0 {
        return "none".to_owned();
    }
    let [p50, p90, p99, p999, max] = [p50_us, p90_us, p99_us, p999_us, max_us].map(time);
    format!("p50 {p50}   p90 {p90}   p99 {p99}   p99.9 {p999}   max {max}   ({count})")
}

/// A time given in microseconds.
pub(crate) fn time(us: f64) -> String {
    if us.abs() < 1000.0 {
        format!("{us:.0} µs")
    } else if us.abs() < 1_000_000.0 {
        format!("{:.2} ms", us / 1000.0)
    } else {
        format!("{:.2} s", us / 1_000_000.0)
    }
}

pub(crate) fn bytes(count: u64) -> String {
    let count = count as f64;
    if count < 1024.0 * 1024.0 {
        format!("{:.1} KiB", count / 1024.0)
    } else {
        format!("{:.1} MiB", count / 1_048_576.0)
    }
}

pub(crate) fn watched_rows(watched: &Watched, per: Option<(&str, u64)>) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if let Some(process) = watched.process {
        let mut cpu = format!("{:.2} s, {:.2} threads", process.cpu_seconds, process.cpu_util);
        if process.cpu_wait_util >= 0.01 {
            let _ = write!(cpu, " (and {:.2} waiting for a CPU)", process.cpu_wait_util);
        }
        if let Some((what, count)) = per.filter(|(_, count)| *count > 0) {
            let _ = write!(cpu, ", {:.2} µs per {what}", process.cpu_seconds * 1e6 / count as f64);
        }
        rows.push(row("process CPU", cpu));
        let [before, most, after] =
            [process.rss_before_bytes, process.rss_max_bytes, process.rss_after_bytes].map(bytes);
        rows.push(row("process memory", format!("before {before}, most {most}, after {after}")));
        rows.push(row("open files", format!("before {}, after {}", process.fd_before_count, process.fd_after_count)));
    }
    let verdict = match (watched.load_is_bottleneck, watched.machine_is_overloaded) {
        (_, true) => " — THE MACHINE WAS OVERLOADED",
        (true, false) => " — THE GENERATOR WAS THE BOTTLENECK",
        (false, false) => "",
    };
    let (busy, waiting) = (watched.load_util * 100.0, watched.load_wait_ratio * 100.0);
    rows.push(row("generator CPU", format!("{busy:.0} % of its thread, {waiting:.1} % waiting for a CPU{verdict}")));
    rows
}

/// The faults every loop shares: calls without a complete 200, and no call at all.
pub(crate) fn tally_faults(tally: &Tally) -> Vec<String> {
    let mut faults = Vec::new();
    if tally.bad_count() > 0 {
        faults.push(format!("{} calls without a complete 200: {}", tally.bad_count(), tally.endings()));
    }
    if tally.ok_count == 0 {
        faults.push("no call succeeded".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Sample(Vec<String>);

    impl Report for Sample {
        fn rows(&self) -> Vec<(String, String)> {
            vec![row("a", "1"), row("longer", time(2500.0))]
        }

        fn faults(&self) -> Vec<String> {
            self.0.clone()
        }
    }

    #[test]
    fn a_fault_shows_in_the_table_and_in_the_json() {
        assert_eq!(table("t", &Sample(vec![])), "t\n  a       1\n  longer  2.50 ms\n  good\n");
        assert!(table("t", &Sample(vec!["x".into()])).ends_with("  FAILED: x\n"));
        let value: serde_json::Value =
            serde_json::from_str(&json("c", &Sample(vec!["x".into()])).expect("JSON")).expect("JSON");
        assert_eq!((&value["good"], &value["faults"][0]), (&false.into(), &"x".into()));
    }
}
