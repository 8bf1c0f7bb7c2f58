//! What can be seen in one file, line by line: length, width, headers, words that do not belong. Called by `tidy` for
//! each file; pure.

use super::Finding;
use super::tree::is_fixture;

/// Lines a Rust file may have. A longer one has a second reason to change.
const LINES_MAX: usize = 600;

/// Columns a line may have, in characters.
const WIDTH_MAX: usize = 120;

/// Files that are one thing and longer than [`LINES_MAX`], each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// A word that does not belong in the tree. Written in two halves, so that this file passes itself.
struct Word {
    halves: (&'static str, &'static str),
    /// Only in Rust; elsewhere the word may be prose.
    rust_only: bool,
    what: &'static str,
}

const WORDS: &[Word] = &[
    Word { halves: ("todo", "!("), rust_only: true, what: "finish it, or leave it out" },
    Word { halves: ("unimplemented", "!("), rust_only: true, what: "finish it, or leave it out" },
    Word { halves: ("dbg", "!("), rust_only: true, what: "a trace of debugging" },
    Word { halves: ("#[ign", "ore"), rust_only: true, what: "assert what holds today, and say what is wrong" },
    Word { halves: ("FIX", "ME"), rust_only: false, what: "mend it, or write down what falls short in docs/" },
    Word { halves: ("XX", "X"), rust_only: false, what: "mend it, or write down what falls short in docs/" },
    Word { halves: ("/wo", "rk/"), rust_only: false, what: "a path of somebody's machine" },
    Word { halves: ("/ro", "ot/"), rust_only: false, what: "a path of somebody's machine" },
    Word { halves: ("/ho", "me/"), rust_only: false, what: "a path of somebody's machine" },
    Word { halves: ("the br", "ief"), rust_only: false, what: "the tree speaks of the product alone" },
    Word { halves: ("issu", "e #"), rust_only: false, what: "the tree speaks of the product alone" },
    Word { halves: ("house", ".md"), rust_only: false, what: "a page that is not in the tree" },
    Word { halves: ("plan", ".md"), rust_only: false, what: "a page that is not in the tree" },
    Word { halves: ("field-", "faults"), rust_only: false, what: "a page that is not in the tree" },
];

/// Every finding in one file.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    if is_fixture(path) {
        return Vec::new();
    }
    let is_rust = path.ends_with(".rs");
    let mut findings = Vec::new();
    if is_rust {
        findings.extend(length(path, text));
        findings.extend(header(path, text));
    }
    let mut is_fenced = false;
    for (number, line) in text.lines().enumerate() {
        is_fenced ^= line.trim_start().starts_with("```");
        if is_narrow(path, line, is_fenced) && columns(line, is_rust) > WIDTH_MAX {
            findings.push(Finding::at(path, number + 1, format!("wider than {WIDTH_MAX} columns")));
        }
        for word in WORDS.iter().filter(|word| is_rust || !word.rust_only) {
            let (left, right) = word.halves;
            let found = line.match_indices(left).any(|(at, _)| line[at + left.len()..].starts_with(right));
            if found {
                findings.push(Finding::at(path, number + 1, format!("`{left}{right}`: {}", word.what)));
            }
        }
        if line.ends_with([' ', '\t']) {
            findings.push(Finding::at(path, number + 1, "blanks at the end"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::of(path, "no newline at the end"));
    }
    findings
}

/// The width of a line. In code a string is text that is compared or shown as it is: what stands between a line's first
/// and last quote does not count, since cutting it up would make it harder to read.
fn columns(line: &str, is_rust: bool) -> usize {
    let all = line.chars().count();
    if !is_rust || line.trim_start().starts_with("//") {
        return all;
    }
    let quotes: Vec<usize> = line.match_indices('"').map(|(at, _)| at).collect();
    match (quotes.first(), quotes.last()) {
        (Some(&first), Some(&last)) if first < last => all - line[first + 1..last].chars().count(),
        _ => all,
    }
}

/// Tables, links and fenced text in pages are as wide as they are, and so are manifests: a dependency is one line.
fn is_narrow(path: &str, line: &str, is_fenced: bool) -> bool {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("md") if path.starts_with("docs/reference/") => false, // Rendered from the code.
        Some("md") => !is_fenced && !line.starts_with('|') && !line.contains("]("),
        Some("toml" | "yaml" | "yml") => false,
        _ => true,
    }
}

fn length(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    let is_allowed = LONG_FILES.iter().any(|(long, reason)| *long == path && !reason.is_empty());
    let what = format!("{lines} lines, more than {LINES_MAX}: look for its second reason to change");
    (lines > LINES_MAX && !is_allowed).then(|| Finding::of(path, what))
}

/// A file of a room says first what it is for. What a `tests.rs` is for is said by its name.
fn header(path: &str, text: &str) -> Option<Finding> {
    if path.ends_with("/tests.rs") {
        return None;
    }
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
    let has_header = first.is_some_and(|line| line.starts_with("//! ") && line.len() > 12);
    (!has_header).then(|| Finding::of(path, "does not begin with `//!` and what the file is for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str, expected: &[&str]) {
        let found: Vec<String> = check(path, text).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{path}: {found:?}");
        for (finding, part) in found.iter().zip(expected) {
            assert!(finding.contains(part), "{finding:?} does not speak of {part:?}");
        }
    }

    #[test]
    fn each_rule_finds_what_it_is_for_and_no_more() {
        let head = "//! What this is for.\n";
        check_text("a/src/b.rs", head, &[]);
        check_text("a/src/b.rs", "use std::fmt;\n", &["does not begin"]);
        check_text("a/src/b/tests.rs", "use std::fmt;\n", &[]);
        check_text("a/src/b.rs", &format!("{head}{}\n", "é".repeat(120)), &[]);
        check_text("a/src/b.rs", &format!("{head}{}\n", "e".repeat(121)), &["2: wider"]);
        check_text("a/src/b.rs", &format!("{head}{}", "\n".repeat(600)), &["601 lines"]);
        check_text("a/src/b.rs", &format!("{head}{}", "\n".repeat(599)), &[]);
        check_text("a/src/b.rs", &format!("{head}let a = 1; \n"), &["2: blanks"]);
        check_text("a/src/b.rs", &format!("{head}// end"), &["no newline"]);
        check_text("page.md", &format!("|{}|\n", "-".repeat(200)), &[]);
        check_text("page.md", &format!("```\n{}\n```\n{}\n", "-".repeat(200), "-".repeat(200)), &["4: wider"]);
    }

    #[test]
    fn each_word_is_found_where_it_does_not_belong() {
        for word in WORDS {
            let line = format!("{}{}\n", word.halves.0, word.halves.1);
            check_text("a/src/b.rs", &format!("//! What this is for.\n{line}"), &[word.what]);
            check_text("page.md", &line, if word.rust_only { &[] } else { std::slice::from_ref(&word.what) });
            check_text("tests/fixtures/page.md", &line, &[]);
        }
    }
}
