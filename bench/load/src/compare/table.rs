//! The tables: a row for each gateway in each step, as plain text and as Markdown, from the same cells. Pure.

use std::fmt::Write as _;

use super::bars;
use super::figures::{Comparison, DIRECT, Figure};
use super::own;
use super::stats::Spread;
use super::steps::Step;

/// Head and rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

const NONE: &str = "–";

/// Everything, for a terminal.
#[must_use]
pub fn text(found: &Comparison) -> String {
    let mut text = String::new();
    for step in found.steps.iter().filter_map(|name| Step::find(name)) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{}: {}", step.name, step.what);
        text.push_str(&step_table(found, step).plain());
        for note in notes(found, step) {
            let _ = writeln!(text, "  {note}");
        }
    }
    let _ = writeln!(text, "\nstart and memory when idle");
    text.push_str(&starts(found).plain());
    let costs = own::table(found);
    if !costs.rows.is_empty() {
        let _ = writeln!(text, "\nwhat keys, limits and records of use cost");
        text.push_str(&costs.plain());
    }
    for line in own::records(found) {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "\nthe bars");
    text.push_str(&bars::table(found).plain());
    for fault in &found.faults {
        let _ = writeln!(text, "FAILED: {fault}");
    }
    text
}

/// The gateways of a step.
pub(crate) fn step_table(found: &Comparison, step: &Step) -> Table {
    let base = found.base().unwrap_or("");
    let (unit, rate, rate_figure) = if step.is_stream() {
        ("CPU µs/event", "events/s", Figure::Events)
    } else {
        ("CPU µs/call", "calls/s", Figure::Rate)
    };
    let times: [(&str, Figure); 4] = if step.is_stream() {
        [
            ("one way p50 µs", Figure::OneWayP50),
            ("one way p99 µs", Figure::OneWayP99),
            ("first event p99 µs", Figure::FirstEventP99),
            ("whole p50 µs", Figure::P50),
        ]
    } else {
        [
            ("p50 µs", Figure::P50),
            ("p99 µs", Figure::P99),
            ("added p50 µs", Figure::AddedP50),
            ("added p99 µs", Figure::AddedP99),
        ]
    };
    let mut head: Vec<String> = ["gateway", unit].map(str::to_owned).to_vec();
    head.push(format!("× {base}"));
    head.push(rate.to_owned());
    head.extend(times.iter().map(|(name, _)| (*name).to_owned()));
    head.extend(["MiB", "core", "waited", "failed"].map(str::to_owned));
    let row = |gateway: &String| {
        let cell = |figure, digits| shown(found.spread(gateway, step.name, figure), digits);
        let mut row = vec![gateway.clone(), cell(Figure::Cpu, 2)];
        row.push(shown(found.ratio(gateway, base, step.name, Figure::Cpu), 2));
        row.push(median(found.spread(gateway, step.name, rate_figure), 0));
        for (_, figure) in times {
            let is_own = gateway != DIRECT || !matches!(figure, Figure::AddedP50 | Figure::AddedP99);
            row.push(if is_own { cell(figure, 0) } else { NONE.to_owned() });
        }
        row.push(median(found.spread(gateway, step.name, Figure::Rss), 1));
        row.push(median(found.spread(gateway, step.name, Figure::GatewayUtil), 2));
        row.push(median(found.spread(gateway, step.name, Figure::GatewayWait), 2));
        let failures = found.failures(gateway, step.name);
        let named: Vec<String> = failures.iter().map(|(name, count)| format!("{count} {name}")).collect();
        row.push(if named.is_empty() { "none".to_owned() } else { named.join(", ") });
        row
    };
    let has_run = |gateway: &&String| found.spread(gateway, step.name, Figure::Rate).is_some();
    Table { head, rows: found.gateways.iter().filter(has_run).map(row).collect() }
}

/// What has to be known to read a step's table.
pub(crate) fn notes(found: &Comparison, step: &Step) -> Vec<String> {
    let mut notes = Vec::new();
    for gateway in found.gateways.iter().filter(|name| *name != DIRECT) {
        let bound = found.load_bound_count(gateway, step.name);
        let load = found.spread(gateway, step.name, Figure::LoadUtil).map_or(0.0, |spread| spread.median);
        if step.is_closed() && bound > 0 {
            notes.push(format!(
                "{gateway}: the load and the engine were the bottleneck in {bound} rounds ({:.0} % of their core): \
                 read its CPU time, not its rate",
                load * 100.0
            ));
        }
    }
    let disturbed: usize = found.gateways.iter().map(|name| found.disturbed_count(name, step.name)).sum();
    if disturbed > 0 {
        let gateways = found.gateways.iter().filter(|name| *name != DIRECT).count();
        let all = found.round_count * gateways;
        notes.push(format!(
            "other work shared the gateway's CPU in {disturbed} of {all} windows: times are too long, CPU time a little"
        ));
    }
    notes
}

/// Start and idle memory.
pub(crate) fn starts(found: &Comparison) -> Table {
    let head = ["gateway", "version", "start to first answer, ms", "idle MiB"].map(str::to_owned).to_vec();
    let row = |gateway: &String| {
        let version = found.versions.get(gateway).cloned().unwrap_or_else(|| NONE.to_owned());
        vec![gateway.clone(), version, shown(found.start_ms(gateway), 0), median(found.idle_rss_mib(gateway), 1)]
    };
    Table { head, rows: found.gateways.iter().filter(|name| *name != DIRECT).map(row).collect() }
}

/// `11.0 (10.0–12.0)`; the ends are left out of one round.
pub(crate) fn shown(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        None => NONE.to_owned(),
        Some(one) if one.count == 1 => number(one.median, digits),
        Some(Spread { median, min, max, .. }) => {
            format!("{} ({}–{})", number(median, digits), number(min, digits), number(max, digits))
        }
    }
}

pub(crate) fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| NONE.to_owned(), |spread| number(spread.median, digits))
}

/// With commas between thousands.
pub(crate) fn number(value: f64, digits: usize) -> String {
    let plain = format!("{:.digits$}", value.abs());
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), ""), |(whole, rest)| (whole, rest));
    let mut grouped = String::new();
    for (idx, digit) in whole.chars().enumerate() {
        if idx > 0 && (whole.len() - idx).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if digits > 0 {
        grouped = format!("{grouped}.{fraction}");
    }
    if value < 0.0 { format!("-{grouped}") } else { grouped }
}

impl Table {
    /// Columns of equal width.
    pub(crate) fn plain(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width =
            |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for row in all() {
            let mut line = String::from(" ");
            for (idx, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = if idx == 0 { write!(line, " {cell:<width$}") } else { write!(line, "  {cell:>width$}") };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// For a page.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&self.head);
        text.push_str(&format!("|---|{}\n", "--:|".repeat(self.head.len().saturating_sub(1))));
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn numbers_have_their_thousands_apart() {
        let cases = [(0.0, 0, "0"), (999.4, 0, "999"), (1234.56, 1, "1,234.6"), (-1_234_567.0, 0, "-1,234,567")];
        for (value, digits, expected) in cases {
            assert_eq!(number(value, digits), expected);
        }
    }

    #[test]
    fn a_step_shows_medians_spreads_and_ratios_of_each_gateway() {
        let found = sample();
        let table = step_table(&found, Step::find("ns").expect("a step"));
        assert_eq!(table.rows.len(), 3);
        let own = &table.rows[1];
        assert_eq!(own[..4], ["llmgw", "11.00 (10.00–12.00)", "1.10 (1.00–1.20)", "1,000"]);
        assert_eq!(own[6], "110 (100–120)");
        assert_eq!(own.last().map(String::as_str), Some("none"));
        assert_eq!((table.rows[0][1].as_str(), table.rows[0][6].as_str()), (NONE, NONE));
        let text = text(&found);
        assert!(text.contains("s50: 1000 streams") && text.contains("the bars"), "{text}");
    }

    #[test]
    fn columns_are_aligned_and_markdown_has_its_rule() {
        let table = Table {
            head: vec!["a".into(), "bb".into()],
            rows: vec![vec!["long".into(), "1".into()], vec!["x".into(), "µµµ".into()]],
        };
        assert_eq!(table.plain(), "  a      bb\n  long    1\n  x     µµµ\n");
        assert_eq!(table.markdown(), "| a | bb |\n|---|--:|\n| long | 1 |\n| x | µµµ |\n");
    }
}
