//! The plot: blocks hit by policy, a panel for each workload, beside what one pooled cache would hit. Pure; plain SVG.

use std::fmt::Write as _;

use super::figures::{Facts, Quality};
use super::policies::{BLOCK_COST, POLICIES, Policy};
use crate::compare::{number, svg_text};

const PANEL_WIDTH: usize = 470;
const LABEL_WIDTH: usize = 150;
const BAR_WIDTH: f64 = 240.0;
const ROW: usize = 20;
const COLUMNS: usize = 2;

/// An SVG of its own width and height, readable on light and dark pages.
#[must_use]
pub fn svg(found: &Quality) -> String {
    let is_there = |policy: &&Policy| found.runs.iter().any(|run| run.policy == policy.name);
    let policies: Vec<&Policy> = POLICIES.iter().filter(is_there).collect();
    let panel_height = policies.len() * ROW + 50;
    let rows = found.workloads.len().div_ceil(COLUMNS);
    let (width, height) = (PANEL_WIDTH * COLUMNS + 20, rows * panel_height + 40);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    let title = "Blocks that engines had cached, %; more is better. Dashed: one cache as large as all of them together";
    svg_text(&mut svg, 12, 20, "start", title);
    for (idx, facts) in found.workloads.iter().enumerate() {
        let (x, y) = (10 + idx % COLUMNS * PANEL_WIDTH, 34 + idx / COLUMNS * panel_height);
        panel(&mut svg, found, facts, &policies, x, y);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, found: &Quality, facts: &Facts, policies: &[&Policy], x: usize, y: usize) {
    svg_text(svg, x, y + 18, "start", &facts.name);
    let scale = |percent: f64| percent / facts.pooled_percent.max(1.0) * BAR_WIDTH;
    for (row, policy) in policies.iter().enumerate() {
        let top = y + 26 + row * ROW;
        svg_text(svg, x + LABEL_WIDTH - 6, top + 13, "end", policy.name);
        // The mean of the speeds, which agree.
        let runs = found.runs.iter().filter(|run| run.policy == policy.name && run.workload == facts.name);
        let hits: Vec<f64> = runs.map(|run| run.hit_percent()).collect();
        if hits.is_empty() {
            svg_text(svg, x + LABEL_WIDTH + 4, top + 13, "start", "not measured");
            continue;
        }
        let hit = hits.iter().sum::<f64>() / hits.len() as f64;
        let fill = if policy.name == BLOCK_COST { "#d9480f" } else { "#74a3c7" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"{fill}\"/>",
            x + LABEL_WIDTH,
            top + 1,
            scale(hit),
            ROW - 6
        );
        svg_text(svg, x + LABEL_WIDTH + scale(hit) as usize + 6, top + 13, "start", &number(hit, 1));
    }
    let (at, from, to) = (x + LABEL_WIDTH + BAR_WIDTH as usize, y + 24, y + 26 + policies.len() * ROW);
    let _ = writeln!(svg, "<path d=\"M{at} {from}V{to}\" stroke=\"#333333\" stroke-dasharray=\"4 3\" fill=\"none\"/>");
    svg_text(svg, at, y + 18, "middle", &number(facts.pooled_percent, 1));
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn every_policy_has_a_bar_in_every_panel() {
        let svg = svg(&sample());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!((svg.matches("#d9480f").count(), svg.matches("#74a3c7").count()), (2, 2));
        assert!(svg.contains(&format!("width=\"{:.1}\"", 25.0 / 26.3 * BAR_WIDTH)), "{svg}");
    }
}
