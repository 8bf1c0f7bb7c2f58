//! Pickers: how one is chosen.

mod max_score;
mod p2c;
mod round_robin;
mod softmax;

pub use max_score::MaxScore;
pub use p2c::PowerOfTwo;
pub use round_robin::RoundRobin;
pub use softmax::Softmax;
