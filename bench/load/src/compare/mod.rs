//! Gateways compared: each in turn on the same load and the same pinning, over interleaved rounds, against the bars.
//!
//! Called by the binary's `compare` command (`cargo x bench overhead`). Knows the gateways only as programs with a
//! port; what it says of them it measured in this run.

mod bars;
mod figures;
mod gateways;
mod keyring;
mod machine;
mod own;
mod page;
mod place;
mod plot;
mod rounds;
mod stats;
mod steps;
mod table;

pub use figures::Comparison;
pub(crate) use gateways::{python_package, python_router, said};
pub(crate) use machine::{Machine, today};
pub use machine::{Priority, usable_cpus};
pub(crate) use page::folded;
pub use page::{readme_block, replace_block, whole_page};
pub use place::{Place, Programs};
pub(crate) use place::{first_chat, free_port, is_answered};
pub use plot::svg;
pub(crate) use plot::text as svg_text;
pub use rounds::{Compare, run};
pub use steps::{Pace, STEPS, Step};
pub use table::text;
pub(crate) use table::{Table, number};
