//! Pickers: how one is chosen.

mod max_score;
mod p2c;

pub use max_score::MaxScore;
pub use p2c::PowerOfTwo;
