//! Renders `docs/reference/config.md` from the descriptions beside the keys in `server.rs`.
//!
//! Called by the documentation chore and by the test that fails when the page is stale. Holds no description of its
//! own.

use crate::availability::{self, Rule};
use crate::read::{Key, Read, Section};
use crate::server::ServerTree;

const INTRODUCTION: &str = "\
# Configuration

Every key of `server.yaml`, with its kind, its default and its meaning. This page is written from the code: change the
descriptions in `shared/config/src/server.rs`, then run `LLMGW_BLESS=1 cargo test -p llmgw-config`.

`llmgw init URL…` writes a first file, `llmgw server --config server.yaml --check --probe` explains one.

- A key that is not known is an error; so is a value of another kind. All errors are shown at once, with line and
  column.
- An empty text, or nothing after the colon, is the same as leaving the key out.
- **duration**: a number with `ms`, `s`, `m`, `h` or `d`, also together: `1h30m`. **size**: a number of bytes, or with
  `KiB`, `MiB`, `GiB` (1024) or `KB`, `MB`, `GB` (1000).
- Any key can be set by an environment variable: `LLMGW__ROUTER__RETRIES=3` is `router.retries`, and
  `LLMGW__ENDPOINTS__0__URL` the first endpoint's URL. A value that begins with `[` or `{` is read as YAML.
- Secrets are named by `…_env` (a variable) or `…_file` (a file), never written into the file.
- \"Not yet\": the feature is not in this version. \"Off or default only\" keys are refused when they would turn
  something on; the others are checked and not used. `--check` names those that are set.
";

/// The whole page, as Markdown.
pub fn page() -> String {
    let mut page = Page { text: INTRODUCTION.to_owned(), rendered: Vec::new() };
    if let Some(section) = ServerTree::section() {
        page.render("", section);
    }
    page.text
}

struct Page {
    text: String,
    /// Sections that are there already, with their path: the same section may stand in several places.
    rendered: Vec<(&'static str, String)>,
}

impl Page {
    fn render(&mut self, path: &str, section: Section) {
        let title = if path.is_empty() { "The file".to_owned() } else { format!("`{path}`") };
        self.rendered.push((section.name, path.to_owned()));
        self.text += &format!("\n## {title}\n\n{}\n\n", joined(&section.about));
        self.text += "| key | kind | default | meaning |\n|---|---|---|---|\n";
        let mut inner = Vec::new();
        for key in section.keys {
            let here = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
            self.text += &self.row(&here, &key);
            if let Some(section) = key.section {
                inner.push((here + ending(&key.shape), section));
            }
        }
        for (path, section) in inner {
            if !self.rendered.iter().any(|(name, _)| *name == section.name) {
                self.render(&path, section);
            }
        }
    }

    fn row(&self, path: &str, key: &Key) -> String {
        let default = match key.default {
            Some("{}" | "[]" | "''") => "empty".to_owned(),
            Some(text) if text.len() > 60 => "see below".to_owned(),
            Some(text) => format!("`{}`", text.trim_matches('\'')),
            None if key.is_required => "required".to_owned(),
            None => "absent".to_owned(),
        };
        let mut meaning = joined(&key.text);
        if let Some((_, place)) =
            key.section.as_ref().and_then(|s| self.rendered.iter().find(|(name, _)| *name == s.name))
        {
            meaning += &format!(" Keys as in `{place}`.");
        }
        match availability::rule(path) {
            Some(Rule::Off) => meaning += " *Not yet: off or default only.*",
            Some(Rule::NoEffect) => meaning += " *Not yet.*",
            Some(Rule::NeverAnyEffect) | None => {}
        }
        if let Some(text) = key.default.filter(|text| text.len() > 60) {
            meaning += &format!(" Default: `{text}`.");
        }
        format!("| `{}` | {} | {default} | {} |\n", key.name, key.shape, meaning.replace('|', "\\|"))
    }
}

/// How the path goes on inside a list or under names.
fn ending(shape: &str) -> &'static str {
    match shape {
        "list of sections" => "[]",
        "sections by name" => ".*",
        _ => "",
    }
}

fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Reader, read_default};

    fn each_key(section: &Section, check: &mut impl FnMut(&Section, &Key)) {
        for key in &section.keys {
            check(section, key);
            if let Some(inner) = &key.section {
                each_key(inner, check);
            }
        }
    }

    #[test]
    fn the_reference_page_says_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");
        let page = page();
        if std::env::var_os("LLMGW_BLESS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference")).expect("folder");
            std::fs::write(path, &page).expect("page");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == page,
            "docs/reference/config.md is stale; run LLMGW_BLESS=1 cargo test -p llmgw-config and commit the page"
        );
    }

    #[test]
    fn every_key_is_described_and_every_default_can_be_read() {
        let section = ServerTree::section().expect("the file is a section");
        let mut count = 0;
        each_key(&section, &mut |section, key| {
            count += 1;
            assert!(!joined(&key.text).is_empty(), "{}.{} has no description", section.name, key.name);
        });
        assert!(count > 100, "only {count} keys were found");
        let tree: ServerTree = read_default("{}").expect("all defaults can be read");
        assert_eq!(tree.router.admission.bands.len(), 4);
        let mut reader = Reader::default();
        let node =
            crate::yaml::parse("endpoints: [{ url: x, model: y }]\nmodels: [{ name: y, admission: {}, prefix: {} }]");
        ServerTree::read(&node.expect("YAML"), &mut reader);
        assert!(reader.problems.is_empty(), "{:?}", reader.problems);
    }
}
