//! Routing quality: what of the prompts engines find in their caches, by who chooses the engine. Traces and made-up
//! chats go as real requests through a gateway to simulated engines whose caches are too small for them.
//!
//! Called by the binary's `quality` command (`cargo x bench quality`), and in small by the suites. Counts what the
//! engines counted; knows gateways only as programs with a port. Time runs faster than in the traces, by the same
//! factor for arrivals and engines.

mod chats;
mod figures;
mod measure;
mod page;
mod plot;
mod policies;
mod workload;

pub use chats::Chats;
pub use figures::{Facts, Quality, Run};
pub use measure::{Engines, Setup, measure, measure_alone};
pub use page::{text, whole_page};
pub use plot::svg;
pub use policies::{BLOCK_COST, POLICIES, Policy, ROUND_ROBIN};
pub use workload::{BLOCK_TOKENS, Call, Lru, Workload};
