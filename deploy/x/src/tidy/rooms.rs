//! No empty rooms: a package is born with what fills it. Called by `tidy`; pure over the list of files.

use super::Finding;
use super::tree::File;
use crate::metadata::Metadata;
use crate::shell::root;

/// Lines of code that a package has at least; less is a door with nothing behind it.
const CODE_LINES_MIN: usize = 10;

/// Packages without content, and files that hold no code at all.
pub(crate) fn check(files: &[File], metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        if code_lines(&file.text) == 0 {
            findings.push(Finding::of(&file.path, "holds no code"));
        }
    }
    for package in metadata.ours() {
        let Ok(folder) = package.folder.strip_prefix(root()) else { continue };
        let folder = folder.to_string_lossy();
        if folder.is_empty() {
            continue; // The root's files are the program's, in deploy/llmgw.
        }
        let own = files.iter().filter(|file| file.path.starts_with(&format!("{folder}/src/")));
        let lines: usize = own.map(|file| code_lines(&file.text)).sum();
        if lines < CODE_LINES_MIN {
            findings.push(Finding::of(&folder, format!("an empty room: {lines} lines of code")));
        }
    }
    findings
}

fn code_lines(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Package;

    #[test]
    fn a_room_of_comments_alone_is_empty() {
        let folder = root().join("empty");
        let package = Package { name: "empty".into(), folder, is_ours: true, ..Package::default() };
        let metadata = Metadata { packages: vec![package], ..Metadata::default() };
        let file = |text: &str| File { path: "empty/src/lib.rs".into(), text: text.into() };
        let found = check(&[file("//! A room.\n")], &metadata);
        assert_eq!(found.len(), 2, "{found:?}");
        let found = check(&[file(&"let a = 1;\n".repeat(CODE_LINES_MIN))], &metadata);
        assert!(found.is_empty(), "{found:?}");
    }
}
