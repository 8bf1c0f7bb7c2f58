//! The tables: as text for a terminal, and as the page. Pure.

use std::fmt::Write as _;

use super::figures::{Facts, Quality, Run, WAITED_MAX};
use super::policies::{POLICIES, Policy};
use super::workload::BLOCK_TOKENS;
use crate::compare::{Table, folded, number};

/// For a terminal.
#[must_use]
pub fn text(found: &Quality) -> String {
    let mut text = String::new();
    for facts in &found.workloads {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{}: {}", facts.name, told(facts));
        text.push_str(&table(found, facts).plain());
    }
    let _ = writeln!(text, "\nthe bars");
    text.push_str(&bars(found).plain());
    for fault in found.all_faults() {
        let _ = writeln!(text, "FAILED: {fault}");
    }
    text
}

/// `docs/measurements/quality.md`.
#[must_use]
pub fn whole_page(found: &Quality) -> String {
    let mut page = format!("# Where prompts go\n\n{}\n\n{}\n\n", how(found), folded(&setting(found)));
    page.push_str("![Blocks hit, by policy](quality.svg)\n\n## Against the bars\n\n");
    page.push_str(&bars(found).markdown());
    for facts in &found.workloads {
        let told = folded(&told(facts));
        let _ = write!(page, "\n## {}\n\n{told}\n\n{}", facts.name, table(found, facts).markdown());
    }
    page.push_str("\n## Policies\n\n| policy | what it is |\n|---|---|\n");
    for policy in POLICIES.iter().filter(|policy| found.runs.iter().any(|run| run.policy == policy.name)) {
        let _ = writeln!(page, "| {} | {} |", policy.name, policy.what);
    }
    page.push_str(NOTES);
    for fault in found.all_faults() {
        let _ = write!(page, "\n{}\n", folded(&fault));
    }
    page
}

const NOTES: &str = "
`hit` is blocks that the engine had of all that were asked of it, in percent, as the engines' pages count them; the
usages that clients got say the same, or the run fails. `busiest` is the prefill of the busiest engine over the mean.
Times to the first token are in the workload's own time: what the clock said, times the speed. `waited` is the share of
the time for which the load generator, the gateway or one of the engines, whichever the most, was ready to run and had
no CPU, summed over its threads: where that is more than some percent, marked (!), times say more of the machine than of
the policy, and where times to the first token are many times those of the other policies, the hits do too.
";

fn how(found: &Quality) -> String {
    let machine = &found.machine;
    folded(&format!(
        "{}, `cargo x bench quality`, on {} × {}, {} GiB, {}, Linux {}, all of it on this one machine; {} ({} build).",
        found.date,
        machine.cpu_count,
        machine.cpu,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        found.versions.join(", "),
        found.profile,
    ))
}

fn setting(found: &Quality) -> String {
    let Some(engines) = found.engines else { return String::new() };
    format!(
        "Real requests over HTTP, streamed, through the gateway to {} processes of `llmgw sim-engine`, each with a \
         cache of {} blocks of {BLOCK_TOKENS} tokens that drops what was used least lately, {} tokens of prefill a \
         second in chunks of 8,192, and batches of up to 256 answers at {} tokens a second for one alone. Arrivals and \
         engines run at the same multiple of their own speed. A block of a trace is {BLOCK_TOKENS} words, a token and \
         {} bytes each; equal ids are equal words, and the last block of a prompt is a whole one, so that engines \
         count as the trace does. The first event of a stream carries one token, the others {} each.",
        engines.count,
        number(engines.blocks as f64, 0),
        number(engines.prefill_tokens_per_second, 0),
        number(engines.tokens_per_second, 0),
        found.bytes_per_token,
        engines.stream_interval,
    )
}

fn told(facts: &Facts) -> String {
    let part = if facts.is_whole { "" } else { " (its beginning)" };
    format!(
        "{} calls{part} with {} blocks in {:.0} minutes. One cache as large as all engines' together would hit {:.1} \
         %, one without an end {:.1} %.",
        number(facts.call_count as f64, 0),
        number(facts.block_count as f64, 0),
        facts.seconds / 60.0,
        facts.pooled_percent,
        facts.endless_percent,
    )
}

fn table(found: &Quality, facts: &Facts) -> Table {
    let speeds: Vec<f64> = found.speeds();
    let runs = |policy: &Policy| -> Vec<Option<&Run>> {
        speeds.iter().map(|speed| found.run(policy.name, &facts.name, *speed)).collect()
    };
    let mut head = vec!["policy".to_owned()];
    let columns = ["hit %", "busiest", "first token p50 s", "p99 s", "waited %"];
    head.extend(columns.iter().flat_map(|name| speeds.iter().map(move |speed| format!("{name}, {speed} ×"))));
    let row = |policy: &Policy| {
        let runs = runs(policy);
        let cells = |of: &dyn Fn(&Run) -> f64, digits: usize| -> Vec<String> {
            runs.iter().map(|run| run.map_or_else(|| "–".to_owned(), |run| number(of(run), digits))).collect()
        };
        let mut row = vec![policy.name.to_owned()];
        row.extend(cells(&Run::hit_percent, 1));
        row.extend(cells(&|run| run.work_imbalance, 2));
        row.extend(cells(&|run| run.own_seconds(run.first_event.p50_us), 2));
        row.extend(cells(&|run| run.own_seconds(run.first_event.p99_us), 1));
        row.extend(runs.iter().map(|run| run.map_or_else(|| "–".to_owned(), waited)));
        row
    };
    let is_there = |policy: &&Policy| runs(policy).iter().any(Option::is_some);
    Table { head, rows: POLICIES.iter().filter(is_there).map(row).collect() }
}

/// Marked where the machine was too small.
fn waited(run: &Run) -> String {
    let mark = if run.waited_ratio > WAITED_MAX { " (!)" } else { "" };
    format!("{}{mark}", number(100.0 * run.waited_ratio, 1))
}

fn bars(found: &Quality) -> Table {
    let head = ["bar", "needed", "seen", "held"].map(str::to_owned).to_vec();
    let row = |bar: super::figures::Bar| {
        vec![bar.what, bar.needed, bar.seen, if bar.is_held { "yes" } else { "**no**" }.to_owned()]
    };
    Table { head, rows: found.bars().into_iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn every_workload_has_its_table_and_the_page_is_no_wider_than_it_may() {
        let page = whole_page(&sample());
        assert!(page.contains("\n## conversation\n") && page.contains("\n## chats-1\n"));
        assert!(
            page.contains("| block cost | 25.0 | 25.0 | 1.10 | 1.10 | 1.00 | 2.00 | 5.0 | 10.0 | 1.0 | 1.0 |"),
            "{page}"
        );
        assert!(page.contains("| conversation: blocks hit | ≥ 24.5 % | 25.0 % | yes |"), "{page}");
        let is_prose = |line: &&str| !line.starts_with('|') && !line.contains("](");
        assert!(page.lines().filter(is_prose).all(|line| line.chars().count() <= 120), "{page}");
        assert!(text(&sample()).contains("the bars"));
    }
}
