//! Gateways compared: each in turn on the same load and the same pinning, over interleaved rounds, against the bars.
//!
//! Called by the binary's `compare` command (`cargo x bench overhead`). Knows the gateways only as programs with a
//! port; what it says of them it measured in this run.

mod bars;
mod figures;
mod gateways;
mod machine;
mod page;
mod place;
mod plot;
mod rounds;
mod stats;
mod steps;
mod table;

pub use figures::Comparison;
pub use machine::{Priority, usable_cpus};
pub use page::{readme_block, replace_block, whole_page};
pub use place::{Place, Programs};
pub use plot::svg;
pub use rounds::{Compare, run};
pub use steps::{Pace, STEPS, Step};
pub use table::text;
