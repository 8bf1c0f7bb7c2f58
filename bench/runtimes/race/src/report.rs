//! The table, as text, as JSON and as a page: CPU an operation, and the ratio to the first variant within each round.

use std::fmt::Write as _;

use serde_json::json;

use crate::load::{LOADS, Round};
use crate::process::Variant;

/// Everything that was measured: `rounds[load][variant][round]`.
pub(crate) struct Found<'a> {
    pub(crate) variants: &'a [Variant],
    pub(crate) rounds: &'a [Vec<Vec<Round>>],
}

/// A median with the lowest and the highest.
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    // A round in which a crowded machine let nothing through has no figure.
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let at = |idx: usize| values.get(idx).copied().unwrap_or(f64::NAN);
    let (middle, last) = (values.len() / 2, values.len().saturating_sub(1));
    let median = if values.len() % 2 == 0 { (at(middle.saturating_sub(1)) + at(middle)) / 2.0 } else { at(middle) };
    Spread { median, low: at(0), high: at(last) }
}

/// One variant under one load.
struct Row<'a> {
    variant: &'a Variant,
    cpu_us: Spread,
    ratio: Spread,
    per_second: Spread,
}

impl Found<'_> {
    fn rows(&self, load: usize) -> Vec<Row<'_>> {
        let Some(of_load) = self.rounds.get(load) else { return Vec::new() };
        let Some(first) = of_load.first() else { return Vec::new() };
        let row = |(variant, rounds): (_, &Vec<Round>)| Row {
            variant,
            cpu_us: spread(rounds.iter().map(|round| round.cpu_us_each)),
            ratio: spread(rounds.iter().zip(first).map(|(round, first)| round.cpu_us_each / first.cpu_us_each)),
            per_second: spread(rounds.iter().map(|round| round.per_second)),
        };
        self.variants.iter().zip(of_load).map(row).collect()
    }

    /// For a terminal, and the body of the page.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for (at, load) in LOADS.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "\n## {}\n\n| variant | CPU µs, one {} | lowest to highest | ratio to the first | its spread | \
                 {}s a second |\n|---|---|---|---|---|---|\n",
                load.name,
                load.counts.unit(),
                load.counts.unit()
            );
            for Row { variant, cpu_us, ratio, per_second } in self.rows(at) {
                let _ = writeln!(
                    text,
                    "| {} | {:.2} | {:.2} to {:.2} | {:.2} | {:.2} to {:.2} | {:.0} |",
                    variant.name,
                    cpu_us.median,
                    cpu_us.low,
                    cpu_us.high,
                    ratio.median,
                    ratio.low,
                    ratio.high,
                    per_second.median
                );
            }
        }
        text
    }

    pub(crate) fn page(&self, rounds: usize) -> String {
        format!(
            "# The bare proxy on one runtime after another

`cargo x bench runtimes --save`: {rounds} rounds, the variants in turn within each.
{},
{};
{}.

One small HTTP/1.1 reverse proxy over a two-method I/O trait (hyper and monoio-http with their own), on a CPU of its
own; load and engine share the other. CPU time of the proxy's threads, kernel included, a request or an event: median
over the rounds. Ratios are taken within a round; a round that let nothing through has no figure. What lies less than
15 % apart is no difference here, and more where the rates say that others had much of the machine.
{}",
            machine(),
            rustc(),
            versions(),
            self.table()
        )
    }

    pub(crate) fn json(&self) -> String {
        let of_load = |(at, load): (usize, &crate::load::Load)| {
            let rows: Vec<_> = self
                .rows(at)
                .iter()
                .zip(&self.rounds[at])
                .map(|(row, rounds)| {
                    json!({
                        "variant": row.variant.name,
                        "cpu_us_median": row.cpu_us.median,
                        "ratio_median": row.ratio.median,
                        "cpu_us": rounds.iter().map(|round| round.cpu_us_each).collect::<Vec<_>>(),
                        "per_second": rounds.iter().map(|round| round.per_second).collect::<Vec<_>>(),
                    })
                })
                .collect();
            json!({ "load": load.name, "unit": load.counts.unit(), "variants": rows })
        };
        let loads: Vec<_> = LOADS.iter().enumerate().map(of_load).collect();
        serde_json::to_string_pretty(&json!({ "machine": machine(), "loads": loads })).unwrap_or_default() + "\n"
    }
}

/// What the variants were built with.
fn versions() -> String {
    let lock = include_str!("../../Cargo.lock");
    let version = |name: &&str| {
        let entry = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?.1;
        Some(format!("{name} {}", entry.split_once('"')?.0))
    };
    let names = ["monoio", "monoio-http", "tokio", "hyper", "glommio"];
    names.iter().filter_map(version).collect::<Vec<_>>().join(", ")
}

/// The compiler that the folder chooses, which is the one that built this.
fn rustc() -> String {
    let said = std::process::Command::new("rustc").arg("--version").output();
    said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| cpuinfo.lines().find_map(|line| line.strip_prefix(name)?.split_once(": ")).map(|it| it.1);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{cpus} × {}, Linux {}", field("model name").unwrap_or("unknown CPU"), kernel.trim())
}
