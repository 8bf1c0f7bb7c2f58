//! Scorers: how good a candidate is.

mod cost;
mod inflight;
mod kv;
mod load;
mod pool_priority;
mod prefix;
mod queue;
mod session;

pub use cost::Cost;
pub use inflight::Inflight;
pub use kv::Kv;
pub use load::Load;
pub use pool_priority::PoolPriority;
pub use prefix::Prefix;
pub use queue::Queue;
pub use session::Session;

/// Gives candidates without a score (those that are not a number) the mean of the others', so that a sample that is
/// missing or old counts neither for nor against its engine. A penalty of others is not shared.
fn fill_unknown(scores: &mut [f32]) {
    // Counting is quicker than adding up, and nearly always there is nothing to fill.
    let unknown: usize = scores.iter().map(|score| usize::from(score.is_nan())).sum();
    if unknown == 0 {
        return;
    }
    let known = scores.len() - unknown;
    let sum: f32 = scores.iter().filter(|score| !score.is_nan()).map(|score| score.clamp(0.0, 1.0)).sum();
    let mean = if known > 0 { sum / known as f32 } else { 1.0 };
    scores.iter_mut().filter(|score| score.is_nan()).for_each(|score| *score = mean);
}

/// Turns loads into scores: none is 1, the most is 0; what is not a number stays so.
fn invert(loads: &mut [f32]) {
    let most = most(loads);
    for load in loads.iter_mut() {
        *load = if most > 0.0 { 1.0 - *load / most } else { *load * 0.0 + 1.0 };
    }
}

/// The largest of the loads, 0 where there is none; what is not a number is passed over. In eight lanes, since one
/// comparison after the other would wait for the one before.
fn most(loads: &[f32]) -> f32 {
    // A comparison with what is not a number is false.
    let larger = |most: f32, load: f32| if load > most { load } else { most };
    let (eights, rest) = loads.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for eight in eights {
        lanes.iter_mut().zip(eight).for_each(|(lane, &load)| *lane = larger(*lane, load));
    }
    lanes.iter().chain(rest).copied().fold(0.0, larger)
}
