//! The page and the README's block, written from what was found. Pure.

use std::fmt::Write as _;

use super::bars;
use super::figures::{Comparison, DIRECT, Figure};
use super::gateways::OPEN;
use super::own;
use super::stats::NO_DIFFERENCE;
use super::steps::Step;
use super::table::{Table, median, notes, number, starts, step_table};

/// Around the block in the README.
const BEGIN: &str = "<!-- overhead: written by `cargo x bench overhead --publish` -->";
const END: &str = "<!-- overhead: end -->";

/// The columns of the small table: head, step, figure, digits.
const SMALL: &[(&str, &str, Figure, usize)] = &[
    ("CPU µs a call", "ns", Figure::Cpu, 1),
    ("an event, no delay", "s0", Figure::Cpu, 2),
    ("an event, 20 ms", "s20", Figure::Cpu, 1),
    ("an event, 50 ms", "s50", Figure::Cpu, 1),
    ("a call of 1 MB", "b1m", Figure::Cpu, 0),
    ("added at 500/s, p50 µs", "open500", Figure::AddedP50, 0),
    ("engine to client p99 µs, 1000 streams", "s50", Figure::OneWayP99, 0),
    ("MiB, 1000 streams", "s50", Figure::Rss, 0),
];

/// `docs/measurements/overhead.md`.
#[must_use]
pub fn whole_page(found: &Comparison) -> String {
    let mut page = format!("# What a gateway costs\n\n{}\n\n", how(found));
    page.push_str("![CPU time of each gateway](overhead.svg)\n\n## Against the bars\n\n");
    page.push_str(&bars::table(found).markdown());
    page.push_str(
        "\nA median over the rounds, in brackets the least and the most; ratios are taken round by round. Under\n",
    );
    page.push_str("15 % apart is no difference on a machine that others share.\n");
    let costs = own::table(found);
    if !costs.rows.is_empty() {
        let _ = write!(page, "\n## What keys, limits and records of use cost\n\n{}", costs.markdown());
    }
    for line in own::records(found) {
        let _ = write!(page, "\n- {}\n", folded(&line).replace('\n', "\n  "));
    }
    for step in found.steps.iter().filter_map(|name| Step::find(name)) {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## `{}`: {}\n\n{}", step.name, step.what, step_table(found, step).markdown());
        for note in notes(found, step) {
            let _ = write!(page, "\n- {}\n", folded(&note).replace('\n', "\n  "));
        }
    }
    let _ = write!(page, "\n## Start and memory\n\n{}", starts(found).markdown());
    page.push_str(
        "\n`core` is the share of its CPU the gateway used, `waited` the share of the time it was ready and something\n\
         else ran there: a row that waited says more of the machine. One way is from the engine's write to the\n\
         client's read. Kernel work of the loopback device is charged to who sends.\n",
    );
    for fault in &found.faults {
        let _ = write!(page, "\n{}\n", folded(fault));
    }
    page
}

/// The lines between the README's marks, with them.
#[must_use]
pub fn readme_block(found: &Comparison) -> String {
    let mut block = format!("{BEGIN}\n\n{}\n\n{}", how(found), small(found).markdown());
    let better = better(found);
    if !better.is_empty() {
        let _ = write!(block, "\n{}\n", folded(&format!("Better than llmgw here: {}.", better.join("; "))));
    }
    block.push_str(
        "\nEvery step, the spreads and the bars: [docs/measurements/overhead.md](docs/measurements/overhead.md).\n\n\
         ![CPU time of each gateway](docs/measurements/overhead.svg)\n\n",
    );
    block.push_str(END);
    block
}

/// The text with its block replaced.
///
/// Errors: it has no marks, or one of them.
pub fn replace_block(text: &str, block: &str) -> Result<String, String> {
    let (begin, end) = (text.find(BEGIN), text.find(END));
    match begin.zip(end).filter(|(begin, end)| begin < end) {
        Some((begin, end)) => Ok(format!("{}{block}{}", &text[..begin], &text[end + END.len()..])),
        None => Err(format!("there is no block between {BEGIN:?} and {END:?}")),
    }
}

fn how(found: &Comparison) -> String {
    let machine = &found.machine;
    let ours = if found.is_keyed {
        "with keys, limits of every kind at every level, records of use, routing, metrics and log; llmgw-open is the \
         same without the first three, stock the conventional form of it; every request to everybody shows a key"
    } else {
        "with routing, usage counting, metrics and log as they are by default"
    };
    let length = if found.is_quick { " of shortened windows" } else { "" };
    folded(&format!(
        "{}, `cargo x bench overhead`, median of {} interleaved rounds{length} on {} × {}, {} GiB, {}, Linux {}. Each \
         gateway has one worker pinned to CPU {}, load and engine share CPU {}; llmgw ({} build) {ours}.",
        found.date,
        found.round_count,
        machine.cpu_count,
        machine.cpu,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        found.gateway_cpu,
        found.load_cpu,
        found.profile,
    ))
}

fn small(found: &Comparison) -> Table {
    let columns: Vec<_> = SMALL.iter().filter(|(_, step, ..)| found.steps.iter().any(|name| name == step)).collect();
    let head = std::iter::once("gateway").chain(columns.iter().map(|(name, ..)| *name)).map(str::to_owned).collect();
    let row = |gateway: &String| {
        let cells =
            columns.iter().map(|(_, step, figure, digits)| median(found.spread(gateway, step, *figure), *digits));
        std::iter::once(gateway.clone()).chain(cells).collect()
    };
    Table { head, rows: found.gateways.iter().filter(|name| *name != DIRECT).map(row).collect() }
}

/// Where another gateway is ahead by more than what the machine blurs.
fn better(found: &Comparison) -> Vec<String> {
    let mut better = Vec::new();
    for (name, step, figure, digits) in SMALL {
        for gateway in found.gateways.iter().filter(|name| !matches!(name.as_str(), "llmgw" | OPEN | DIRECT)) {
            let ratio = found.ratio("llmgw", gateway, step, *figure);
            let Some(ratio) = ratio.filter(|ratio| ratio.median > 1.0 + NO_DIFFERENCE) else { continue };
            let (theirs, own) = (found.spread(gateway, step, *figure), found.spread("llmgw", step, *figure));
            // Where the medians say the opposite, the rounds do not agree on anything.
            if theirs.zip(own).is_some_and(|(theirs, own)| theirs.median >= own.median) {
                continue;
            }
            let (theirs, own) = (median(theirs, *digits), median(own, *digits));
            better.push(format!("{gateway}, {name} ({theirs}, llmgw {own}: {} ×)", number(ratio.median, 2)));
        }
    }
    better
}

/// Lines of at most 118 columns.
pub(crate) fn folded(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 118 {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn the_block_replaces_what_stood_between_the_marks() {
        let found = sample();
        let block = readme_block(&found);
        let before = format!("# A\n\n{BEGIN}\nold\n{END}\n\nmore\n");
        let after = replace_block(&before, &block).expect("marks");
        assert!(after.starts_with("# A\n\n<!--") && after.ends_with("-->\n\nmore\n") && !after.contains("old"));
        assert_eq!(replace_block(&after, &block), Ok(after.clone()));
        assert!(replace_block("# A\n", &block).is_err());
    }

    #[test]
    fn where_a_peer_is_better_it_is_said_and_small_differences_are_not() {
        let mut found = sample();
        assert_eq!(better(&found), Vec::<String>::new());
        for record in found.records.iter_mut().filter(|record| record.gateway == "nginx" && record.step == "ns") {
            if let Some(cost) = &mut record.outcome.gateway {
                cost.cpu_seconds /= 2.0;
            }
        }
        assert_eq!(better(&found), ["nginx, CPU µs a call (5.0, llmgw 11.0: 2.20 ×)"]);
        assert!(readme_block(&found).contains("Better than llmgw here: nginx"));
    }

    #[test]
    fn the_page_has_every_step_and_no_line_of_prose_is_wide() {
        let page = whole_page(&sample());
        assert!(page.contains("## `ns`:") && page.contains("## `s50`:") && page.contains("## Against the bars"));
        let is_prose = |line: &&str| !line.starts_with('|') && !line.contains("](");
        assert!(page.lines().filter(is_prose).all(|line| line.chars().count() <= 120), "{page}");
    }
}
