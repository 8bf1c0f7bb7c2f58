//! The plot: CPU time of each gateway, a panel for each step, with the spread over the rounds. Pure; plain SVG.

use std::fmt::Write as _;

use super::figures::{Comparison, DIRECT, Figure};
use super::stats::Spread;
use super::steps::Step;
use super::table::number;

const PANEL_WIDTH: usize = 470;
const LABEL_WIDTH: usize = 120;
const BAR_WIDTH: f64 = 255.0;
const ROW: usize = 20;
const COLUMNS: usize = 2;
const PANEL_STEPS: &[&str] = &["ns", "open500", "s0", "s20", "s50", "b100k", "b1m", "p150"];

/// An SVG of its own width and height, readable on light and dark pages.
#[must_use]
pub fn svg(found: &Comparison) -> String {
    let gateways: Vec<&String> = found.gateways.iter().filter(|name| *name != DIRECT).collect();
    let steps = PANEL_STEPS.iter().filter_map(|name| Step::find(name));
    let steps: Vec<&Step> = steps.filter(|step| found.steps.iter().any(|name| name == step.name)).collect();
    let panel_height = gateways.len() * ROW + 50;
    let (width, height) = (PANEL_WIDTH * COLUMNS + 20, steps.len().div_ceil(COLUMNS) * panel_height + 40);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    text(
        &mut svg,
        12,
        20,
        "start",
        "CPU time of one pinned worker, µs; less is better. Line: least to most over the rounds",
    );
    for (idx, step) in steps.iter().enumerate() {
        let (x, y) = (10 + idx % COLUMNS * PANEL_WIDTH, 34 + idx / COLUMNS * panel_height);
        panel(&mut svg, found, step, &gateways, x, y);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, found: &Comparison, step: &Step, gateways: &[&String], x: usize, y: usize) {
    let unit = if step.is_stream() { "an event" } else { "a call" };
    text(svg, x, y + 18, "start", &format!("{} — µs {unit}: {}", step.name, step.what));
    let spreads: Vec<(&String, Option<Spread>)> =
        gateways.iter().map(|name| (*name, found.spread(name, step.name, Figure::Cpu))).collect();
    let most = spreads.iter().filter_map(|(_, spread)| spread.map(|spread| spread.max)).fold(1e-9, f64::max);
    let scale = |value: f64| LABEL_WIDTH as f64 + value / most * BAR_WIDTH;
    for (row, (name, spread)) in spreads.iter().enumerate() {
        let top = y + 26 + row * ROW;
        text(svg, x + LABEL_WIDTH - 6, top + 13, "end", name);
        let Some(spread) = spread else {
            text(svg, x + LABEL_WIDTH + 4, top + 13, "start", "not measured");
            continue;
        };
        let (left, middle) = (x + LABEL_WIDTH, top + 8);
        let fill = if name.as_str() == "llmgw" { "#d9480f" } else { "#74a3c7" };
        let length = scale(spread.median) - LABEL_WIDTH as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{}\" width=\"{length:.1}\" height=\"{}\" fill=\"{fill}\"/>",
            top + 1,
            ROW - 6
        );
        let (from, to) = (x as f64 + scale(spread.min), x as f64 + scale(spread.max));
        let _ = writeln!(
            svg,
            "<path d=\"M{from:.1} {middle}H{to:.1}M{from:.1} {}v6M{to:.1} {}v6\" stroke=\"#333333\" fill=\"none\"/>",
            middle - 3,
            middle - 3
        );
        let digits = if spread.median < 100.0 { 1 } else { 0 };
        text(svg, to as usize + 6, top + 13, "start", &number(spread.median, digits));
    }
}

pub(crate) fn text(svg: &mut String, x: usize, y: usize, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"#222222\">{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn every_gateway_has_a_bar_in_every_panel_that_ran() {
        let svg = svg(&sample());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches(">llmgw</text>").count(), 2);
        assert_eq!(svg.matches("#d9480f").count(), 2);
        assert!(!svg.contains(">direct<") && !svg.contains("b1m"));
        // The longest bar is as long as its row allows, less the spread.
        assert!(svg.contains(&format!("width=\"{:.1}\"", 11.0 / 12.0 * BAR_WIDTH)), "{svg}");
    }
}
