//! Seeded randomness: one generator per owner, handed as an argument to whoever draws.
//!
//! For choices, never for secrets. The same seed gives the same draws, which is what makes a simulation repeatable.

/// A small fast generator (splitmix64): full period, passes the usual test batteries, 8 bytes of state.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A generator that draws the sequence of `seed`.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator with a seed from the system's randomness.
    pub fn from_system() -> Self {
        use std::hash::{BuildHasher, Hasher};
        // `RandomState` is keyed from the system; hashing nothing with it gives 64 unpredictable bits without a
        // dependency.
        Self(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// The seed of a generator that draws what this one draws from here on.
    pub const fn state(&self) -> u64 {
        self.0
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, each as likely as the others to within 2⁻³²; 0 when `bound` is 0.
    pub const fn below(&mut self, bound: u32) -> u32 {
        (((self.next_u64() >> 32) * bound as u64) >> 32) as u32
    }

    /// A number in `0.0..1.0`.
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    #[test]
    fn the_same_seed_draws_the_same_numbers() {
        let (mut a, mut b) = (Chance::seeded(7), Chance::seeded(7));
        let drawn: Vec<u64> = (0..8).map(|_| a.next_u64()).collect();
        assert_eq!(drawn, (0..8).map(|_| b.next_u64()).collect::<Vec<_>>());
        assert_ne!(drawn[0], Chance::seeded(8).next_u64());
    }

    #[test]
    fn a_generator_goes_on_from_the_state_of_another() {
        let mut a = Chance::seeded(3);
        a.next_u64();
        let mut b = Chance::seeded(a.state());
        assert_eq!(a.next_u64(), b.next_u64());
    }

    #[test]
    fn draws_below_a_bound_are_spread_evenly() {
        let mut chance = Chance::seeded(1);
        let mut seen = [0u32; 8];
        for _ in 0..80_000 {
            seen[chance.below(8) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(chance.below(0), 0);
    }
}
