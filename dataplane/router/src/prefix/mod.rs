//! Where prompts are likely cached: an estimate of each engine's prefix cache, from what was sent to it.
//!
//! [`fingerprint`] turns a prompt into chained hashes of its blocks; [`approx`] remembers which engine got a block and
//! when ([`slots`] is its cells); [`ledger`] counts what each engine got and was given to do, and what it holds;
//! [`matching`] is what one request finds; [`guard`] says whether it is to be followed; [`cost`] what a request costs
//! an engine; [`shares`] who was given more than the others; [`prefilling`] that a request is still to be prefilled;
//! [`ratio`] and [`capacity`] learn from answers.
//!
//! Everything here is an estimate that costs a hit when it is wrong, never an error. Memory has a bound from the start,
//! and nothing is evicted by a timer.

pub mod approx;
pub mod capacity;
pub mod cost;
pub mod fingerprint;
pub mod guard;
pub mod ledger;
pub mod matching;
pub mod prefilling;
pub mod ratio;
pub mod shares;
pub mod slots;

pub use approx::StampTable;
pub use fingerprint::{Fingerprint, Salt, Seed};
pub use guard::{Decision, Thresholds};
pub use ledger::Ledger;
pub use matching::Matches;
pub use prefilling::Prefilling;
pub use shares::Shares;
