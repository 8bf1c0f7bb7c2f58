//! Figures for people and programs: a line, a JSON file, a page.

use std::fmt::Write as _;

use serde_json::json;

use crate::measure::{Clock, Figure, Plan};

pub(crate) fn heading() -> String {
    format!("{:<38} {:>12} {:>25} {:>12} {:>12}", "part", "median", "lowest to highest", "allocations", "bar")
}

pub(crate) fn line(figure: &Figure) -> String {
    let timing = &figure.timing;
    let spread = format!("{} to {}", time(timing.low_ns), time(timing.high_ns));
    let (allocations, bar) = (allocations(figure), bar(figure));
    format!("{:<38} {:>12} {spread:>25} {allocations:>12} {bar:>12}", figure.name, time(timing.median_ns))
}

pub(crate) fn json(figures: &[Figure], plan: Plan) -> String {
    let rows = figures.iter().map(|figure| {
        json!({
            "name": figure.name,
            "clock": if figure.timing.clock == Clock::Wall { "wall" } else { "cpu" },
            "median_ns": figure.timing.median_ns,
            "low_ns": figure.timing.low_ns,
            "high_ns": figure.timing.high_ns,
            "allocations": (figure.timing.clock == Clock::Cpu).then_some(figure.timing.allocations),
            "bar_ns": figure.bar_ns,
        })
    });
    let rows: Vec<_> = rows.collect();
    let value = json!({ "machine": machine().replace('\n', " "), "rounds": plan.rounds, "parts": rows });
    serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
}

pub(crate) fn page(figures: &[Figure], plan: Plan) -> String {
    let mut page = format!(
        "# What the parts cost, one by one\n\n`cargo x bench micro --save`: {} rounds of 20 ms or more a part.\n\
         {}.\n\n\
         One operation, median over the rounds, with the quickest and the slowest round. CPU time of the thread that\n\
         does it, but for the lanes and the page, where two threads work together and time that passes is shown;\n\
         the journal's threads do nothing else.\n\
         Allocations are that thread's, an operation. Bars are the project's own; a time is never a test.\n\n\
         | part | median | lowest to highest | allocations | bar |\n|---|---|---|---|---|\n",
        plan.rounds,
        machine()
    );
    for figure in figures {
        let timing = &figure.timing;
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} to {} | {} | {} |",
            figure.name,
            time(timing.median_ns),
            time(timing.low_ns),
            time(timing.high_ns),
            allocations(figure),
            bar(figure)
        );
    }
    page
}

/// Three digits, with the unit that fits.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns => (ns / 1e6, "ms"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

fn allocations(figure: &Figure) -> String {
    match (figure.timing.clock, figure.timing.allocations) {
        (Clock::Wall | Clock::Threads, _) => "-".to_owned(),
        (Clock::Cpu, 0.0) => "0".to_owned(),
        (Clock::Cpu, some) => format!("{some:.2}"),
    }
}

fn bar(figure: &Figure) -> String {
    figure.bar_ns.map_or_else(|| "-".to_owned(), |bar| format!("≤ {}", time(bar)))
}

/// The CPU's name, how many there are, the system, and what the program was built from.
fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| cpuinfo.lines().find_map(|line| line.strip_prefix(name)?.split_once(": ")).map(|it| it.1);
    let model = field("model name").unwrap_or("unknown CPU");
    let kind = field("model\t").map_or_else(String::new, |number| format!(" (model {number})"));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let version = env!("CARGO_PKG_VERSION");
    format!("{cpus} × {model}{kind}, Linux {};\nllmgw {version} (ci build), {}", kernel.trim(), rustc())
}

/// The compiler that the project's folder chooses, which is the one that built this.
fn rustc() -> String {
    let said = std::process::Command::new("rustc").arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if said.is_empty() { "unknown rustc".to_owned() } else { said }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (ns, shown) in [(0.0, "0.00 ns"), (3.1419, "3.14 ns"), (45.67, "45.7 ns"), (998.0, "998 ns")] {
            assert_eq!(time(ns), shown);
        }
        for (ns, shown) in [(1_234.0, "1.23 µs"), (56_789.0, "56.8 µs"), (2_000_000.0, "2.00 ms")] {
            assert_eq!(time(ns), shown);
        }
    }
}
