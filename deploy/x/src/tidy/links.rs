//! Links in pages that lead nowhere. Called by `tidy` for each file; looks only at whether files exist.
//!
//! Addresses of other places are left alone: nothing here reaches for the network.

use std::path::Path;

use super::Finding;

/// Relative links of a page whose file or heading is missing.
pub(crate) fn check(root: &Path, path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".md") || super::tree::is_fixture(path) {
        return Vec::new();
    }
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    for (number, line) in prose(text) {
        for target in targets(line).filter(|target| !is_elsewhere(target)) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let page = if file.is_empty() { root.join(path) } else { root.join(folder).join(file) };
            if !page.exists() {
                findings.push(Finding::at(path, number, format!("{target:?} leads nowhere")));
            } else if !heading.is_empty() && !has_heading(&page, heading) {
                findings.push(Finding::at(path, number, format!("{target:?}: no such heading")));
            }
        }
    }
    findings
}

/// The lines outside fenced text, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((number + 1, line))
    })
}

/// What stands between `](` and `)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, open)| {
        let rest = &line[at + open.len()..];
        rest.find(')').map(|end| &rest[..end])
    })
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

fn has_heading(page: &Path, wanted: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(page) else { return false };
    prose(&text).any(|(_, line)| line.starts_with('#') && anchor(line) == wanted)
}

/// A heading as links name it: lower case, blanks as dashes, other marks dropped.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_page(text: &str, expected: &[&str]) {
        let findings = check(&crate::shell::root(), "docs/page.md", text);
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (finding, part) in found.iter().zip(expected) {
            assert!(finding.contains(part), "{finding:?} does not speak of {part:?}");
        }
    }

    #[test]
    fn only_links_of_the_tree_that_lead_nowhere_are_found() {
        check_page("[a](../Cargo.toml) and [b](https://example.org/none)\n", &[]);
        check_page("[a](../Cargo.toml) and [b](nowhere.md)\n", &["1: \"nowhere.md\" leads nowhere"]);
        check_page("```\n[b](nowhere.md)\n```\n", &[]);
        check_page("`\n\n[b](../nowhere/)\n", &["3: "]);
    }

    #[test]
    fn headings_are_named_as_links_name_them() {
        assert_eq!(anchor("## What `x` is, and why"), "what-x-is-and-why");
        assert_eq!(anchor("# 4.2 The load board"), "42-the-load-board");
    }
}
