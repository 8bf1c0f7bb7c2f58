//! `cargo x tidy`: what a compiler does not hold. Called by people, by CI and by this package's own tests.
//!
//! Reading order: `tree` lists the files, `text` reads them line by line, `links` follows the pages' links, `rooms`
//! looks for empty ones, `copies` compares what is another's, `walls` holds the dependencies to `edges.rs`. Each
//! returns findings; nothing here changes a file.

mod copies;
mod links;
mod rooms;
mod text;
mod tree;
mod walls;

use std::fmt;

use crate::args::{Args, Outcome};
use crate::metadata::Metadata;
use crate::shell::root;

/// Something to mend, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file relative to the root, or the package.
    pub place: String,
    /// Counted from one; none where the whole file or package is meant.
    pub line: Option<usize>,
    pub what: String,
}

impl Finding {
    fn at(place: &str, line: usize, what: impl Into<String>) -> Self {
        Self { place: place.to_owned(), line: Some(line), what: what.into() }
    }

    fn of(place: &str, what: impl Into<String>) -> Self {
        Self { place: place.to_owned(), line: None, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.what),
            None => write!(f, "{}: {}", self.place, self.what),
        }
    }
}

/// The chore.
pub(crate) fn run(args: Args) -> Outcome {
    args.finish()?;
    check()
}

/// Looks at the whole tree and says every finding.
///
/// Errors: how many there were.
pub(crate) fn check() -> Outcome {
    let (findings, looked_at) = find()?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {looked_at} files, nothing found");
            Ok(())
        }
        1 => Err("tidy: one finding".into()),
        count => Err(format!("tidy: {count} findings")),
    }
}

fn find() -> Result<(Vec<Finding>, usize), String> {
    let files = tree::files(&root()).map_err(|error| format!("cannot read the tree: {error}"))?;
    let metadata = Metadata::read()?;
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(text::check(&file.path, &file.text));
        findings.extend(links::check(&root(), &file.path, &file.text));
    }
    findings.extend(rooms::check(&files, &metadata));
    findings.extend(copies::check(&root(), &metadata));
    findings.extend(walls::check(&metadata));
    Ok((findings, files.len()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_tidy() {
        let (findings, looked_at) = super::find().expect("the tree can be read");
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
        assert!(looked_at > 20, "only {looked_at} files were looked at");
    }
}
