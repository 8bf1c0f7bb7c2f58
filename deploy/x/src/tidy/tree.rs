//! The files of the project: text under the root that is ours. Called by `tidy` once a run.

use std::io;
use std::path::Path;

/// One file, by its path from the root with `/` between the parts.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub path: String,
    pub text: String,
}

/// Folders that hold nothing of ours: what is built, what git keeps, what other languages install.
const NOT_OURS: &[&str] = &["target", ".git", "node_modules", "__pycache__", ".venv"];

/// Text in these ends is read; everything else is data.
const TEXT: &[&str] = &["rs", "toml", "md", "py", "mjs", "sh", "yaml", "yml", "run"];

/// Every text file below `root`, sorted by path. Files that are not UTF-8 are data whatever their name.
pub(crate) fn files(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() && is_text(&name, &path) {
            let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
            files.push(File { path, text });
        }
    }
    Ok(())
}

fn is_text(name: &str, path: &str) -> bool {
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    TEXT.contains(&end) || path == ".ci/run"
}

/// Whether the file is a recording of somebody else's words, kept byte by byte.
pub(crate) fn is_fixture(path: &str) -> bool {
    path.split('/').any(|part| part == "fixtures")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_not_looked_at() {
        let files = files(&crate::shell::root()).expect("the tree can be read");
        assert!(files.iter().any(|file| file.path == "Cargo.toml"));
        assert!(files.iter().any(|file| file.path == "deploy/x/src/tidy/tree.rs"));
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }
}
