//! What `cargo metadata` says, reduced to what the chores ask. Called by lint, test, bench and the walls of tidy.

use std::path::PathBuf;

use serde_json::Value;

use crate::shell::{cargo, read};

/// The workspace as cargo sees it.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    pub packages: Vec<Package>,
    pub target_directory: PathBuf,
}

/// One package, of the workspace or from outside.
#[derive(Debug, Default, Clone)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
    pub licence: Option<String>,
    /// The folder of its manifest; empty for packages from outside.
    pub folder: PathBuf,
    /// The same, wherever the package is from.
    pub source: PathBuf,
    pub is_ours: bool,
    /// Packages it is linked with: resolved names with versions.
    pub links: Vec<Link>,
    pub targets: Vec<Target>,
}

/// An edge of the resolved graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub name: String,
    pub version: String,
    pub kind: LinkKind,
}

/// What an edge is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// Part of the product.
    Normal,
    /// For tests alone.
    Dev,
    /// For a build script.
    Build,
}

/// A thing that cargo builds from a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub name: String,
    pub kind: String,
    /// Whether plain `cargo test` runs it.
    pub is_tested: bool,
}

impl Metadata {
    /// Asks cargo, about the resolved graph with the features that the workspace turns on.
    pub(crate) fn read() -> Result<Self, String> {
        Self::read_at(&[])
    }

    /// Asks cargo about another workspace, which `words` name.
    pub(crate) fn read_at(words: &[&str]) -> Result<Self, String> {
        let bytes = read(cargo(&["metadata", "--format-version", "1"]).args(words))?;
        let tree = serde_json::from_slice(&bytes).map_err(|error| format!("cargo metadata: {error}"))?;
        Ok(Self::parse(&tree))
    }

    /// Packages of the workspace, in its order.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.is_ours)
    }

    /// The package with this name and version.
    pub(crate) fn find(&self, name: &str, version: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name && package.version == version)
    }

    /// Test targets that plain `cargo test` leaves out.
    pub(crate) fn suites_on_request(&self) -> Vec<String> {
        let targets = self.ours().flat_map(|package| &package.targets);
        targets.filter(|target| target.kind == "test" && !target.is_tested).map(|target| target.name.clone()).collect()
    }

    /// Programs that the workspace builds.
    pub(crate) fn binaries(&self) -> Vec<String> {
        let targets = self.ours().flat_map(|package| &package.targets);
        targets.filter(|target| target.kind == "bin").map(|target| target.name.clone()).collect()
    }

    fn parse(tree: &Value) -> Self {
        let members: Vec<&str> = list(&tree["workspace_members"]).filter_map(Value::as_str).collect();
        let ids: Vec<(&str, String, String)> = list(&tree["packages"])
            .map(|package| (text(&package["id"]), owned(&package["name"]), owned(&package["version"])))
            .collect();
        let packages = list(&tree["packages"]).map(|package| {
            let id = text(&package["id"]);
            let is_ours = members.contains(&id);
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            let node = list(&tree["resolve"]["nodes"]).find(|node| text(&node["id"]) == id);
            Package {
                name: owned(&package["name"]),
                version: owned(&package["version"]),
                licence: package["license"].as_str().map(str::to_owned),
                source: manifest.parent().map(PathBuf::from).unwrap_or_default(),
                folder: manifest.parent().filter(|_| is_ours).map(PathBuf::from).unwrap_or_default(),
                is_ours,
                links: node.map(|node| links(node, &ids)).unwrap_or_default(),
                targets: list(&package["targets"]).map(target).collect(),
            }
        });
        Self { packages: packages.collect(), target_directory: PathBuf::from(text(&tree["target_directory"])) }
    }
}

fn links(node: &Value, ids: &[(&str, String, String)]) -> Vec<Link> {
    let mut links = Vec::new();
    for dep in list(&node["deps"]) {
        let id = text(&dep["pkg"]);
        let Some((_, name, version)) = ids.iter().find(|(known, _, _)| *known == id) else { continue };
        for use_of in list(&dep["dep_kinds"]) {
            let kind = match use_of["kind"].as_str() {
                Some("dev") => LinkKind::Dev,
                Some("build") => LinkKind::Build,
                _ => LinkKind::Normal,
            };
            links.push(Link { name: name.clone(), version: version.clone(), kind });
        }
    }
    links
}

fn target(target: &Value) -> Target {
    Target {
        name: owned(&target["name"]),
        kind: list(&target["kind"]).filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        is_tested: target["test"].as_bool().unwrap_or(false),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn owned(value: &Value) -> String {
    text(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_carry_their_kind_and_suites_their_switch() {
        let tree = serde_json::json!({
            "workspace_members": ["a 1"],
            "target_directory": "/t",
            "packages": [
                { "id": "a 1", "name": "a", "version": "1.0.0", "license": "MIT", "manifest_path": "/p/a/Cargo.toml",
                  "targets": [
                    { "name": "e2e", "kind": ["test"], "test": false },
                    { "name": "unit", "kind": ["test"], "test": true },
                    { "name": "a", "kind": ["bin"], "test": true }] },
                { "id": "b 2", "name": "b", "version": "2.0.0", "manifest_path": "/r/b/Cargo.toml", "targets": [] },
            ],
            "resolve": { "nodes": [
                { "id": "a 1", "deps": [{ "pkg": "b 2", "dep_kinds": [{ "kind": null }, { "kind": "dev" }] }] },
                { "id": "b 2", "deps": [] },
            ] },
        });
        let metadata = Metadata::parse(&tree);
        let a = metadata.ours().next().expect("one package is ours");
        assert_eq!(metadata.ours().count(), 1);
        assert_eq!(a.folder, PathBuf::from("/p/a"));
        assert_eq!(a.links.iter().map(|link| link.kind).collect::<Vec<_>>(), [LinkKind::Normal, LinkKind::Dev]);
        assert_eq!(metadata.suites_on_request(), ["e2e"]);
        assert_eq!(metadata.binaries(), ["a"]);
        assert!(metadata.find("b", "2.0.0").is_some_and(|b| !b.is_ours && b.licence.is_none()));
    }
}
