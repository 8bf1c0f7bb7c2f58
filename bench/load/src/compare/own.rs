//! What keys, limits and records of use cost: the product with all of it beside the product without, in the same
//! rounds; and whether every record was kept. Pure.

use super::figures::{Comparison, Figure, Kept};
use super::gateways::OPEN;
use super::steps::Step;
use super::table::{Table, number, shown};

const OURS: &str = "llmgw";

/// One row a step; none where one of the two did not run.
pub(crate) fn table(found: &Comparison) -> Table {
    let head = ["step", "unit", "llmgw-open µs", "llmgw µs", "llmgw × llmgw-open"].map(str::to_owned).to_vec();
    let row = |step: &Step| {
        let ratio = found.ratio(OURS, OPEN, step.name, Figure::Cpu)?;
        let unit = if step.is_stream() { "event" } else { "call" };
        let cpu = |gateway| shown(found.spread(gateway, step.name, Figure::Cpu), 2);
        Some(vec![step.name.to_owned(), unit.to_owned(), cpu(OPEN), cpu(OURS), shown(Some(ratio), 2)])
    };
    Table { head, rows: found.steps.iter().filter_map(|name| row(Step::find(name)?)).collect() }
}

/// What became of the records of each gateway that keeps them.
pub(crate) fn records(found: &Comparison) -> Vec<String> {
    let line = |gateway: &String| {
        let sum = |count: fn(&Kept) -> u64| -> u64 {
            found.kept.iter().filter(|kept| kept.gateway == *gateway).map(count).sum()
        };
        let (written, lost) = (sum(|kept| kept.written), sum(|kept| kept.lost));
        let (leased, asked) = (sum(|kept| kept.leased), sum(|kept| kept.asked));
        let shown = |count: u64| number(count as f64, 0);
        let limits = if leased + asked > 0 {
            format!("; {} requests held to limits by a lease in hand, {} by their owner", shown(leased), shown(asked))
        } else {
            String::new()
        };
        (written + lost > 0).then(|| {
            let [written, stored, lost] = [written, sum(|kept| kept.stored), lost].map(shown);
            format!(
                "{gateway}: {written} records of use written to the journal, {stored} of them in the store when the \
                 last window was over, {lost} lost{limits}"
            )
        })
    };
    found.gateways.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn steps_that_both_have_run_have_a_row_and_records_are_summed() {
        let mut found = sample();
        assert!(table(&found).rows.is_empty() && records(&found).is_empty());
        for record in found.records.iter_mut().filter(|record| record.gateway == "nginx") {
            record.gateway = OPEN.to_owned();
        }
        let rows = table(&found).rows;
        assert_eq!(rows[0], ["ns", "call", "10.00 (10.00–10.00)", "11.00 (10.00–12.00)", "1.10 (1.00–1.20)"]);
        assert_eq!((rows.len(), rows[1][1].as_str()), (2, "event"));
        for round in 0..2 {
            let gateway = OURS.to_owned();
            found.kept.push(Kept { round, gateway, written: 1500, stored: 1000, lost: 1, leased: 990, asked: 10 });
        }
        let lines = records(&found);
        assert!(lines.len() == 1 && lines[0].contains("3,000") && lines[0].contains("2 lost"), "{lines:?}");
        assert!(lines[0].ends_with("1,980 requests held to limits by a lease in hand, 20 by their owner"), "{lines:?}");
    }
}
