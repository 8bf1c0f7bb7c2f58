//! The half of the data plane that is not on a core: readiness, names, snapshots, the metrics page.
