//! Who may depend on whom: the table that `cargo x tidy` holds the workspace to.
//!
//! A line here is a design decision, made before the dependency is. Read by `tidy::walls` alone. A package of the
//! workspace that is not in the table fails, so a new room begins with a line here.

/// What one package may be linked with, among the packages of the workspace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub package: &'static str,
    pub may_use: Uses,
}

/// The other ends of a room's edges.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Uses {
    /// These packages and no other.
    Only(&'static [&'static str]),
    /// Any: the room joins the others together.
    Everything,
}

use Uses::{Everything, Only};

/// The rooms, in the order in which they lean on each other.
pub(crate) const ROOMS: &[Room] = &[
    // What more than one plane needs. The leaves do not know each other.
    Room { package: "llmgw-kit", may_use: Only(&[]) },
    Room { package: "llmgw-types", may_use: Only(&["llmgw-kit"]) },
    Room { package: "llmgw-config", may_use: Only(&["llmgw-kit", "llmgw-types"]) },
    Room { package: "llmgw-obs", may_use: Only(&["llmgw-kit", "llmgw-types"]) },
    Room { package: "llmgw-openai", may_use: Only(&["llmgw-kit", "llmgw-types"]) },
    Room { package: "llmgw-engines", may_use: Only(&["llmgw-kit", "llmgw-types"]) },
    // The data plane: decisions apart from I/O, one room that chooses the runtime.
    Room { package: "llmgw-runtime", may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-obs"]) },
    Room { package: "llmgw-http", may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-obs", "llmgw-runtime"]) },
    Room { package: "llmgw-router", may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-obs"]) },
    Room {
        package: "llmgw-gateway",
        may_use: Only(&[
            "llmgw-kit",
            "llmgw-types",
            "llmgw-obs",
            "llmgw-openai",
            "llmgw-runtime",
            "llmgw-http",
            "llmgw-router",
        ]),
    },
    // Beside the path: what requests used, on its way to the store. It knows no store and no core.
    Room { package: "llmgw-journal", may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-obs"]) },
    Room {
        package: "llmgw-side",
        may_use: Only(&[
            "llmgw-kit",
            "llmgw-types",
            "llmgw-obs",
            "llmgw-journal",
            "llmgw-config",
            "llmgw-engines",
            "llmgw-runtime",
            "llmgw-http",
            "llmgw-router",
        ]),
    },
    // The control plane: who is asking, decided without I/O, and the one room that knows a database.
    Room { package: "llmgw-tenancy", may_use: Only(&["llmgw-kit", "llmgw-types"]) },
    Room { package: "llmgw-store", may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-tenancy"]) },
    Room {
        package: "llmgw-control",
        may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-config", "llmgw-tenancy", "llmgw-store"]),
    },
    // What operators hold: speaks to a server over its admin address, and knows nothing of its insides.
    Room { package: "llmgw-ctl", may_use: Only(&["llmgw-kit"]) },
    // Where the planes meet, for every program that serves.
    Room {
        package: "llmgw-join",
        may_use: Only(&[
            "llmgw-kit",
            "llmgw-types",
            "llmgw-config",
            "llmgw-router",
            "llmgw-journal",
            "llmgw-side",
            "llmgw-tenancy",
            "llmgw-store",
            "llmgw-control",
        ]),
    },
    // What measures it: knows the wire, never the decisions, so that it cannot repeat their mistakes.
    Room { package: "llmgw-engine-sim", may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-openai"]) },
    Room { package: "llmgw-load", may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-openai"]) },
    Room {
        package: "llmgw-micro",
        may_use: Only(&[
            "llmgw-kit",
            "llmgw-types",
            "llmgw-obs",
            "llmgw-config",
            "llmgw-openai",
            "llmgw-runtime",
            "llmgw-http",
            "llmgw-router",
            "llmgw-journal",
            "llmgw-side",
            "llmgw-store",
            "llmgw-join",
            "llmgw-engine-sim",
        ]),
    },
    // The conventional gateway that ours is measured against: the same decisions behind another front.
    Room {
        package: "llmgw-stock",
        may_use: Only(&[
            "llmgw-kit",
            "llmgw-types",
            "llmgw-config",
            "llmgw-obs",
            "llmgw-openai",
            "llmgw-runtime",
            "llmgw-http",
            "llmgw-router",
            "llmgw-gateway",
            "llmgw-journal",
            "llmgw-side",
            "llmgw-store",
            "llmgw-control",
            "llmgw-join",
        ]),
    },
    // What joins the rooms, and what nothing may lean on.
    Room { package: "llmgw", may_use: Everything },
    Room { package: "llmgw-test-kit", may_use: Everything },
    Room {
        package: "llmgw-isolation",
        may_use: Only(&["llmgw-kit", "llmgw-types", "llmgw-router", "llmgw-engine-sim"]),
    },
    Room { package: "llmgw-behaviour", may_use: Only(&["llmgw-test-kit"]) },
    Room {
        package: "llmgw-sim",
        may_use: Only(&[
            "llmgw-kit",
            "llmgw-types",
            "llmgw-obs",
            "llmgw-router",
            "llmgw-tenancy",
            "llmgw-journal",
            "llmgw-engine-sim",
        ]),
    },
    Room { package: "x", may_use: Only(&[]) },
];

/// Packages that no room may be linked with, tests aside for the kit. A tip may lean on a tip above it.
pub(crate) const TIPS: &[&str] =
    &["llmgw-stock", "llmgw", "llmgw-test-kit", "llmgw-behaviour", "llmgw-isolation", "llmgw-sim", "x"];

/// Any room's tests may use these beside what the room itself may: whole programs, a simulated engine, and what is
/// asked of engines.
pub(crate) const TEST_ROOMS: &[&str] = &["llmgw-test-kit", "llmgw-engine-sim", "llmgw-load"];

/// A crate from outside that only some rooms may name in their manifests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wrapper {
    pub crates: &'static [&'static str],
    pub allowed_in: &'static [&'static str],
    pub because: &'static str,
}

/// Crates behind a wall. Counted as a room's own whatever the edge is for, tests and build scripts included.
pub(crate) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        crates: &["monoio", "io-uring"],
        allowed_in: &["llmgw-runtime", "llmgw-http", "llmgw-gateway"],
        because: "only the cores know their runtime",
    },
    Wrapper { crates: &["glommio"], allowed_in: &["llmgw-journal"], because: "docs/decisions/0004-glommio.md" },
    Wrapper {
        crates: &["clap"],
        allowed_in: &["llmgw", "llmgw-ctl", "llmgw-load", "llmgw-stock"],
        because: "a flag belongs to a command line",
    },
    Wrapper {
        crates: &["tokio"],
        allowed_in: &["llmgw-side", "llmgw-engine-sim", "llmgw-load", "llmgw-stock", "llmgw-test-kit", "llmgw"],
        because: "the conventional runtime is for what is not on a core",
    },
    Wrapper {
        crates: &["hyper", "hyper-util", "http-body-util"],
        allowed_in: &["llmgw-side", "llmgw-stock"],
        because: "only the admin page and the conventional gateway speak HTTP by a library",
    },
    Wrapper {
        crates: &["rustls", "tokio-rustls", "rustls-native-certs"],
        allowed_in: &["llmgw-http", "llmgw-side", "llmgw-stock", "llmgw-load", "llmgw-test-kit", "llmgw"],
        because: "TLS is one library with one provider, ring",
    },
    Wrapper {
        crates: &["rusqlite", "libsqlite3-sys"],
        // The server's own trials break its file, as its tests alone.
        allowed_in: &["llmgw-store", "llmgw"],
        because: "only the store knows SQL, so that another database is another file in it",
    },
    Wrapper {
        crates: &["httparse"],
        allowed_in: &["llmgw-http", "llmgw-engine-sim", "llmgw-load", "llmgw-side", "llmgw-test-kit"],
        because: "the head of a message is read in one room a program",
    },
];

/// A room that must not be linked with these crates, even through another crate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ban {
    pub rooms: &'static [&'static str],
    pub crates: &'static [&'static str],
    pub because: &'static str,
}

const RUNTIMES: &[&str] =
    &["tokio", "monoio", "glommio", "mio", "async-std", "smol", "hyper", "io-uring", "socket2", "rustls", "reqwest"];

/// What may not be reached at all.
pub(crate) const BANS: &[Ban] = &[
    Ban {
        rooms: &["llmgw-kit", "llmgw-types", "llmgw-openai", "llmgw-router"],
        crates: RUNTIMES,
        because: "decisions and the wire do no I/O and start no task",
    },
    Ban {
        rooms: &["llmgw-runtime", "llmgw-http", "llmgw-gateway"],
        crates: &["tokio", "hyper", "reqwest", "async-std", "smol"],
        because: "a core runs one runtime",
    },
    Ban {
        rooms: &["llmgw-runtime", "llmgw-http", "llmgw-router", "llmgw-gateway", "llmgw-journal", "llmgw-side"],
        crates: &["rusqlite", "libsqlite3-sys"],
        because: "the data plane goes on while the database is away",
    },
];

/// Crates that a room's own manifest must not name, though something it uses may.
pub(crate) const DIRECT_BANS: &[Ban] = &[Ban {
    rooms: &["llmgw-router"],
    crates: &["libc", "tempfile", "core_affinity", "serde_json"],
    because: "the router is arithmetic on its arguments",
}];

/// Licences that a crate from outside may carry; a crate that offers several needs one of them.
pub(crate) const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "Unicode-3.0",
    "MIT-0",
    "CC0-1.0",
    "BSL-1.0",
    // File by file and of use unchanged: `bitmaps`, which glommio brings.
    "MPL-2.0+",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_leans_only_downwards() {
        for (at, room) in ROOMS.iter().enumerate() {
            let Only(uses) = room.may_use else { continue };
            for other in uses {
                let below = ROOMS.iter().take(at).any(|earlier| earlier.package == *other);
                assert!(below, "{} may use {other}, which does not stand above it in the table", room.package);
                // A suite that is a program of its own stands on the kit.
                assert!(!TIPS.contains(other) || TIPS.contains(&room.package), "{} may use {other}", room.package);
            }
        }
    }
}
