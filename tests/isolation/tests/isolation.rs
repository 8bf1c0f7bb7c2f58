//! The bars: with a flood of the lowest band the highest keeps its time to first token, and the engine its goodput.
//!
//! Virtual time and fixed seeds: the same figures on every machine. With `LLMGW_FULL_TRIALS=1` a flood of 5,000 too.

#![expect(clippy::print_stdout, reason = "the figures are what it is run for")]

use llmgw_isolation::{Case, EngineKind, Figures, Memory, Speed, run};

/// What p99 may grow to over idle, by how the engine takes its queue.
const FIFO_BAR: f64 = 1.5;
const PRIORITY_BAR: f64 = 1.2;
/// The same where few requests are measured.
const PRIORITY_BAR_OF_FEW: f64 = 1.3;
/// Part of the goodput that the places left free may cost.
const LOSS_BAR: f64 = 0.05;
const ENGINES: [(EngineKind, f64); 2] = [(EngineKind::Fifo, FIFO_BAR), (EngineKind::Priority, PRIORITY_BAR)];

/// One place of 32 is left free; an interactive request comes every 30 seconds.
const ONE_FREE: Case = Case { share: 0.97, every: 30.0, platinum: 1000, ..BASE };
/// Two places are left free, as by default; one comes every three seconds.
const TWO_FREE: Case = Case { share: 0.95, every: 3.0, platinum: 1000, ..BASE };

const BASE: Case = Case {
    engine: EngineKind::Fifo,
    memory: Memory::Slots,
    speed: Speed::USUAL,
    ramp: 40.0,
    bronze: 500,
    admission: true,
    takes_out: false,
    share: 0.95,
    high_ceiling: 1.0,
    kv_by_band: false,
    platinum: 400,
    every: 3.0,
    seed: 1,
};

fn is_full() -> bool {
    std::env::var_os("LLMGW_FULL_TRIALS").is_some_and(|value| value == "1")
}

fn say(what: &str, figures: &Figures) {
    println!(
        "{what:<52} TTFT p50 {:>9.1} p99 {:>9.1} ms, goodput {:>6.1} tokens/s; passed {} waited {} refused {}",
        figures.ttft(0.5),
        figures.ttft(0.99),
        figures.goodput,
        figures.passed,
        figures.waited,
        figures.refused
    );
}

struct Outcome {
    /// p99 over that of the same requests alone, with admission and without.
    on: f64,
    off: f64,
    loss: f64,
}

fn compare(what: &str, case: Case) -> Outcome {
    let idle = run(Case { bronze: 0, ..case });
    let on = run(case);
    let off = run(Case { admission: false, ..case });
    let what = format!("{what}, {:?}, share {}", case.engine, case.share);
    say(&format!("{what}: alone"), &idle);
    say(&format!("{what}: beside {} bronze", case.bronze), &on);
    say(&format!("{what}: admission off"), &off);
    let outcome = Outcome {
        on: on.ttft(0.99) / idle.ttft(0.99),
        off: off.ttft(0.99) / idle.ttft(0.99),
        loss: 1.0 - on.goodput / off.goodput,
    };
    let Outcome { on, off, loss } = outcome;
    println!("{what}: p99 x {on:.2} of alone (off: x {off:.0}), goodput loss {:.1} %", loss * 100.0);
    outcome
}

/// Both narrow bars at once, where they are: one place free, an interactive request every 30 seconds on average, and
/// so many of them that p99 is no matter of a few. Minutes, so at full length only. No other frequency leaves more
/// room: of those that come more often some find the place taken, those that come less often are quicker alone.
#[test]
fn an_engine_that_orders_by_priority_keeps_both_narrow_bars_while_interactive_requests_are_rare() {
    if !is_full() {
        return;
    }
    let case = Case { engine: EngineKind::Priority, platinum: 3000, ..ONE_FREE };
    let all = |bronze| {
        let figures = (1..=4).map(|seed| run(Case { seed, bronze, ..case }));
        figures.reduce(Figures::and).expect("four of them")
    };
    let (idle, on, off) = (all(0), all(case.bronze), run(Case { admission: false, platinum: 50, ..case }));
    say("both bars, four seeds: alone", &idle);
    say("both bars, four seeds: beside 500 bronze", &on);
    let (times, loss) = (on.ttft(0.99) / idle.ttft(0.99), 1.0 - on.goodput / off.goodput);
    println!("both bars, four seeds: p99 x {times:.3} of alone, goodput loss {:.2} %", loss * 100.0);
    assert!(times <= PRIORITY_BAR && loss <= LOSS_BAR, "x {times}, {loss}");
}

/// Time and goodput at once on both kinds of engine, by a thousand requests, of which p99 is the tenth from the end: an
/// engine that orders by priority keeps its narrower bar by twelve thousand, above, and by these a wider one.
#[test]
fn a_flood_of_the_lowest_band_leaves_the_highest_its_time_to_first_token_and_the_engine_its_goodput() {
    for (engine, bar) in [(EngineKind::Fifo, FIFO_BAR), (EngineKind::Priority, PRIORITY_BAR_OF_FEW)] {
        let Outcome { on, off, loss } = compare("one free", Case { engine, ..ONE_FREE });
        assert!(on <= bar, "{engine:?}: x {on} is over {bar}");
        assert!(loss <= LOSS_BAR, "{engine:?}: {loss} of the goodput is lost");
        assert!(off > FIFO_BAR, "{engine:?}: without admission it must fail, and came to x {off}");
    }
}

/// The default share: two places of 32 are more than 5 % of them, so its cost has a bar of its own.
#[test]
fn with_two_places_free_interactive_requests_may_come_more_often() {
    for (engine, bar) in ENGINES {
        let Outcome { on, off, loss } = compare("two free", Case { engine, ..TWO_FREE });
        assert!(on <= bar, "{engine:?}: x {on} is over {bar}");
        assert!(loss <= 2.0 / 32.0, "{engine:?}: {loss} of the goodput is lost");
        assert!(off > bar, "{engine:?}: without admission it must fail, and came to x {off}");
    }
}

/// What the cache bounds: reported, and better than without admission.
#[test]
fn where_the_cache_is_what_is_full_the_highest_band_still_goes_before_the_lowest() {
    for (kv_by_band, high_ceiling) in [(false, 1.0), (true, 1.0), (false, 1000.0)] {
        for (engine, _) in ENGINES {
            let case = Case { engine, memory: Memory::Kv, kv_by_band, high_ceiling, every: 5.0, ..BASE };
            let what = format!("cache of 24, by band {kv_by_band}, ceiling {high_ceiling}");
            let Outcome { on, off, .. } = compare(&what, case);
            if engine == EngineKind::Fifo {
                assert!(on * 4.0 < off, "x {on} with admission, x {off} without");
            }
        }
    }
}

/// What the bars rest on: reported beside them, with no bar of its own.
#[test]
fn slower_prefill_and_a_flood_in_step_cost_more() {
    let slow = Speed { prefill_tokens_per_second: 20_000.0, ..Speed::USUAL };
    compare("prefill 20,000/s", Case { speed: slow, platinum: 400, ..TWO_FREE });
    compare("all at once, all as long", Case { ramp: 0.5, platinum: 400, ..TWO_FREE });
}

/// What would hold both bars at any pace, measured beside what is done: no place is left free, and the newest request
/// of the flood goes when a better one comes.
#[test]
fn ending_the_newest_of_the_flood_would_cost_less_than_places_left_free() {
    for (engine, _) in ENGINES {
        // Rare ones take minutes to come together.
        let paces: &[f64] = if is_full() { &[30.0, 3.0] } else { &[3.0] };
        for &every in paces {
            let case = Case { engine, takes_out: true, share: 1.0, every, platinum: 1000, ..BASE };
            let Outcome { on, loss, .. } = compare(&format!("taken out, one in {every} s"), case);
            assert!(on <= FIFO_BAR && loss <= LOSS_BAR, "{engine:?}: x {on}, {loss}");
        }
    }
}

#[test]
fn a_flood_of_five_thousand_changes_nothing_for_the_highest_band() {
    if !is_full() {
        return;
    }
    for (engine, bar) in ENGINES {
        // They come at the same pace as the five hundred, or all of the first batch would end in the same step.
        let case = Case { engine, bronze: 5000, ramp: 10.0 * BASE.ramp, platinum: 1000, ..TWO_FREE };
        let Outcome { on, .. } = compare("five thousand", case);
        assert!(on <= bar, "{engine:?}: x {on} is over {bar}");
    }
}
