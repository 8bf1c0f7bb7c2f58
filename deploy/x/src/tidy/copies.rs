//! What is copied into the tree from a crate is that crate's to the letter. Called by `tidy`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::metadata::Metadata;
use crate::tidy::Finding;

/// A folder of ours, the crate it is copied from, and the crate's own folder. A `README.md` in it is ours.
const COPIES: &[(&str, &str, &str)] = &[("dataplane/journal/liburing", "glommio", "liburing")];

/// Every file that is another than the crate's.
pub(crate) fn check(root: &Path, metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (copy, name, folder) in COPIES {
        let Some(package) = metadata.packages.iter().find(|package| package.name == *name) else {
            findings.push(Finding::of(copy, format!("is a copy from {name}, which is not used")));
            continue;
        };
        match differing(&root.join(copy), &package.source.join(folder)) {
            Ok(paths) => findings.extend(paths.iter().map(|path| {
                Finding::of(
                    &format!("{copy}/{}", path.display()),
                    format!("is not what {name} {} has", package.version),
                )
            })),
            Err(error) => findings.push(Finding::of(copy, error.to_string())),
        }
    }
    findings
}

/// Files below `copy` that are not the same below `source`.
fn differing(copy: &Path, source: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(copy.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else if path != Path::new("README.md")
                && fs::read(copy.join(&path))? != fs::read(source.join(&path)).unwrap_or_default()
            {
                found.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_or_is_not_there_is_named() {
        let root = crate::shell::root();
        let here = root.join("deploy/x/src/tidy");
        assert_eq!(differing(&here, &here).expect("read"), Vec::<PathBuf>::new());
        let other = differing(&here, &root.join("deploy/x/src")).expect("read");
        assert!(other.contains(&PathBuf::from("copies.rs")), "{other:?}");
    }
}
