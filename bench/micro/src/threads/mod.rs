//! The parts that need two threads or more: lanes between cores, decisions beside a core that decides too, the journal
//! of usage, the metrics page of a side runtime, records on their way into the store.

mod decide;
mod journal;
mod lanes;
mod page;
mod prefix;
mod usage;

use crate::measure::{Figure, Plan, Timing};

pub(crate) const NAMES: [&str; 9] = [
    "decide/max-score/100/beside-another",
    "lane/round-trip/asleep",
    "lane/round-trip/32-at-once",
    "lane/one-way",
    "journal/at-40000-a-second",
    "page/100",
    "prefix/behind-an-owner/16KB",
    "usage/100-at-once",
    "usage/10000-at-once",
];

/// Measures one of [`NAMES`].
///
/// Errors: no ring, no descriptor, no thread.
pub(crate) fn measure(name: &str, plan: Plan) -> Result<Vec<Figure>, String> {
    let timing = match name {
        "decide/max-score/100/beside-another" => decide::beside_another(plan),
        "lane/round-trip/asleep" => lanes::round_trip(plan, 1)?,
        "lane/round-trip/32-at-once" => lanes::round_trip(plan, 32)?,
        "lane/one-way" => lanes::one_way(plan)?,
        "journal/at-40000-a-second" => {
            let figures = journal::at_a_rate(plan)?.into_iter();
            return Ok(figures.map(|(name, timing)| figure(name, timing, None, false)).collect());
        }
        "usage/100-at-once" => return usage::into_the_store(name, plan, 100),
        "usage/10000-at-once" => return usage::into_the_store(name, plan, 10_000),
        "prefix/behind-an-owner/16KB" => prefix::behind_an_owner(plan, 16 << 10)?,
        _ => page::through_the_admin_address(plan)?,
    };
    let decides = name.starts_with("decide/");
    Ok(vec![figure(name, timing, decides.then_some(4_000.0), decides)])
}

fn figure(name: &str, timing: Timing, bar_ns: Option<f64>, must_not_allocate: bool) -> Figure {
    Figure { name: name.to_owned(), timing, bar_ns, must_not_allocate }
}
