//! The walls between the packages, checked against what cargo resolved. Called by `tidy`; pure over the metadata.

use std::collections::BTreeSet;

use super::Finding;
use crate::edges::{BANS, Ban, DIRECT_BANS, LICENCES, ROOMS, TEST_ROOMS, TIPS, Uses, WRAPPERS};
use crate::metadata::{Link, LinkKind, Metadata, Package};

/// Every edge that the table does not know, and every licence that it does not name.
pub(crate) fn check(metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in metadata.ours() {
        let Some(room) = ROOMS.iter().find(|room| room.package == package.name) else {
            findings.push(Finding::of(&package.name, "is not in the table of deploy/x/src/edges.rs"));
            continue;
        };
        for link in &package.links {
            let is_ours = metadata.find(&link.name, &link.version).is_some_and(|other| other.is_ours);
            if is_ours && !may_use(package, link, room.may_use) {
                findings.push(Finding::of(&package.name, format!("may not depend on {}", link.name)));
            }
        }
        findings.extend(wrappers(package));
        findings.extend(DIRECT_BANS.iter().flat_map(|ban| banned(package, ban, &names(package))));
        let reached = reached(metadata, package);
        findings.extend(BANS.iter().flat_map(|ban| banned(package, ban, &reached)));
    }
    findings.extend(metadata.packages.iter().filter(|package| !package.is_ours).filter_map(licence));
    findings
}

fn may_use(package: &Package, link: &Link, uses: Uses) -> bool {
    let name = link.name.as_str();
    if link.kind == LinkKind::Dev && TEST_ROOMS.contains(&name) {
        return true;
    }
    match uses {
        Uses::Only(list) => list.contains(&name),
        // What joins everything may still not lean on the other tips, but for the program's tests on the kit.
        Uses::Everything => !TIPS.contains(&name) && package.name != name,
    }
}

fn wrappers(package: &Package) -> Vec<Finding> {
    let own = names(package);
    let hit = WRAPPERS.iter().flat_map(|wall| wall.crates.iter().map(move |name| (wall, *name)));
    hit.filter(|(wall, name)| own.contains(*name) && !wall.allowed_in.contains(&package.name.as_str()))
        .map(|(wall, name)| Finding::of(&package.name, format!("may not depend on {name}: {}", wall.because)))
        .collect()
}

fn banned(package: &Package, ban: &Ban, reached: &BTreeSet<&str>) -> Vec<Finding> {
    if !ban.rooms.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let hit = ban.crates.iter().filter(|name| reached.contains(*name));
    hit.map(|name| Finding::of(&package.name, format!("reaches {name}: {}", ban.because))).collect()
}

/// What the package's manifest names, whatever for.
fn names(package: &Package) -> BTreeSet<&str> {
    package.links.iter().map(|link| link.name.as_str()).collect()
}

/// What is part of the product through the package, at any distance; tests and build scripts are not.
fn reached<'a>(metadata: &'a Metadata, package: &'a Package) -> BTreeSet<&'a str> {
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut open = vec![package];
    while let Some(package) = open.pop() {
        for link in package.links.iter().filter(|link| link.kind == LinkKind::Normal) {
            if seen.insert((&link.name, &link.version)) {
                open.extend(metadata.find(&link.name, &link.version));
            }
        }
    }
    seen.into_iter().map(|(name, _)| name).collect()
}

fn licence(package: &Package) -> Option<Finding> {
    let place = format!("{} {}", package.name, package.version);
    let Some(licence) = &package.licence else { return Some(Finding::of(&place, "names no licence")) };
    let is_allowed = is_allowed(licence);
    (!is_allowed).then(|| Finding::of(&place, format!("licence {licence:?} is not in deploy/x/src/edges.rs")))
}

/// Reads `A OR B`, `A AND B` and the older `A/B`; a bracket counts as all of what is in it.
fn is_allowed(licence: &str) -> bool {
    let plain = licence.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|name| LICENCES.contains(&name.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, is_ours: bool, links: &[(&str, LinkKind)]) -> Package {
        let link = |(name, kind): &(&str, LinkKind)| Link { name: (*name).into(), version: "1".into(), kind: *kind };
        Package {
            name: name.into(),
            version: "1".into(),
            licence: Some("MIT".into()),
            is_ours,
            links: links.iter().map(link).collect(),
            ..Package::default()
        }
    }

    fn check_packages(packages: Vec<Package>, expected: &[&str]) {
        let findings = check(&Metadata { packages, ..Metadata::default() });
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_edge_that_the_table_does_not_know_is_found() {
        use LinkKind::{Dev, Normal};
        let kit = || package("llmgw-kit", true, &[]);
        let test_kit = || package("llmgw-test-kit", true, &[]);
        check_packages(vec![kit(), package("llmgw-types", true, &[("llmgw-kit", Normal)])], &[]);
        check_packages(vec![kit(), package("x", true, &[("llmgw-kit", Normal)])], &["x: may not depend on llmgw-kit"]);
        check_packages(vec![package("llmgw-kit", true, &[("llmgw-test-kit", Dev)]), test_kit()], &[]);
        check_packages(
            vec![package("llmgw-kit", true, &[("llmgw-test-kit", Normal)]), test_kit()],
            &["llmgw-kit: may not depend on llmgw-test-kit"],
        );
        check_packages(
            vec![package("llmgw-spare", true, &[])],
            &["llmgw-spare: is not in the table of deploy/x/src/edges.rs"],
        );
    }

    #[test]
    fn a_crate_behind_a_wall_is_found_in_front_of_it_and_through_others() {
        use LinkKind::{Build, Normal};
        check_packages(
            vec![package("llmgw-config", true, &[("clap", Build)])],
            &["llmgw-config: may not depend on clap: a flag belongs to a command line"],
        );
        let between = package("between", false, &[("mio", Normal)]);
        check_packages(
            vec![package("llmgw-router", true, &[("between", Normal)]), between, package("mio", false, &[])],
            &["llmgw-router: reaches mio: decisions and the wire do no I/O and start no task"],
        );
        check_packages(
            vec![package("llmgw-router", true, &[("libc", Normal)])],
            &["llmgw-router: reaches libc: the router is arithmetic on its arguments"],
        );
    }

    #[test]
    fn a_licence_needs_one_allowed_choice_in_each_part() {
        for (licence, expected) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0 OR GPL-3.0", true),
            ("GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT AND GPL-2.0", false),
        ] {
            assert_eq!(is_allowed(licence), expected, "{licence}");
        }
    }
}
