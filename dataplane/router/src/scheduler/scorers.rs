//! Scorers: how good a candidate is.

mod inflight;
mod kv;
mod load;
mod pool_priority;
mod queue;
mod session;

pub use inflight::Inflight;
pub use kv::Kv;
pub use load::Load;
pub use pool_priority::PoolPriority;
pub use queue::Queue;
pub use session::Session;

/// Gives candidates without a score (those that are not a number) the mean of the others', so that a sample that is
/// missing or old counts neither for nor against its engine. A penalty of others is not shared.
fn fill_unknown(scores: &mut [f32]) {
    let (mut sum, mut known) = (0.0, 0u32);
    for score in scores.iter().filter(|score| !score.is_nan()) {
        sum += score.clamp(0.0, 1.0);
        known += 1;
    }
    if known as usize == scores.len() {
        return;
    }
    let mean = if known > 0 { sum / known as f32 } else { 1.0 };
    scores.iter_mut().filter(|score| score.is_nan()).for_each(|score| *score = mean);
}

/// Turns loads into scores: none is 1, the most is 0; what is not a number stays so.
fn invert(loads: &mut [f32]) {
    let most = loads.iter().copied().filter(|load| !load.is_nan()).fold(0.0, f32::max);
    for load in loads.iter_mut() {
        *load = if most > 0.0 { 1.0 - *load / most } else { *load * 0.0 + 1.0 };
    }
}
