//! Which CPUs become cores and which are left to the side runtime. Pure: the CPUs are handed in.

/// How many threads an operator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Count {
    /// As many as fit.
    #[default]
    Auto,
    /// Exactly so many.
    Exactly(usize),
}

/// Boxes with so many CPUs or fewer share them between cores and side runtime.
const SHARED_UP_TO: usize = 4;

/// The CPUs of the cores, in order, and those of the side runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    /// One core is pinned to each.
    pub cores: Vec<usize>,
    /// Where the side runtime may run; the same as `cores` on small boxes.
    pub side: Vec<usize>,
}

/// Divides `cpus` (those this process may use, at least one).
///
/// With `cores: auto` every CPU that the side runtime does not keep becomes a core. `side: auto` keeps none on boxes
/// with four CPUs or fewer and one per sixteen on larger ones. Asking for more cores than there are CPUs shares them in
/// turn.
pub fn divide(cpus: &[usize], cores: Count, side: Count) -> CpuPlan {
    let kept = match side {
        Count::Exactly(count) => count.min(cpus.len().saturating_sub(1)),
        Count::Auto if cpus.len() <= SHARED_UP_TO => 0,
        Count::Auto => cpus.len().div_ceil(16),
    };
    let (front, back) = cpus.split_at(cpus.len() - kept);
    let count = match cores {
        Count::Auto => front.len(),
        Count::Exactly(count) => count.max(1),
    };
    let taken: Vec<usize> = front.iter().copied().cycle().take(count).collect();
    let side = if kept > 0 {
        back.to_vec()
    } else if count < front.len() {
        front[count..].to_vec()
    } else {
        cpus.to_vec()
    };
    CpuPlan { cores: taken, side }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cpus: usize, cores: Count, side: Count, want_cores: &[usize], want_side: &[usize]) {
        let all: Vec<usize> = (0..cpus).collect();
        let plan = divide(&all, cores, side);
        assert_eq!((plan.cores.as_slice(), plan.side.as_slice()), (want_cores, want_side));
    }

    #[test]
    fn small_boxes_share_and_large_ones_keep_cpus_for_the_side() {
        use Count::{Auto, Exactly};
        check(1, Auto, Auto, &[0], &[0]);
        check(2, Auto, Auto, &[0, 1], &[0, 1]);
        check(8, Auto, Auto, &[0, 1, 2, 3, 4, 5, 6], &[7]);
        check(8, Auto, Exactly(2), &[0, 1, 2, 3, 4, 5], &[6, 7]);
        check(2, Exactly(1), Auto, &[0], &[1]);
        check(2, Exactly(4), Auto, &[0, 1, 0, 1], &[0, 1]);
        check(2, Auto, Exactly(9), &[0], &[1]);
    }
}
