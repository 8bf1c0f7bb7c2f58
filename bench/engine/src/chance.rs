//! Mixing and drawing numbers: every figure the engine makes up comes from here, so a seed repeats a whole run.
//!
//! Called by the model, the faults and the word maker. Never reads a clock or the system's randomness.

/// Spreads a number over all 64 bits (the finaliser of splitmix64).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Folds one more number into a running hash; the order matters.
pub fn fold(hash: u64, value: u64) -> u64 {
    mix(hash.rotate_left(23) ^ value)
}

/// Hash of a few bytes.
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = fold(seed, bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = fold(hash, u64::from_le_bytes(word));
    }
    hash
}

/// A small seeded generator.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn seeded(seed: u64) -> Dice {
        Dice(mix(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in 0.0..1.0.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers() {
        let (mut a, mut b, mut c) = (Dice::seeded(7), Dice::seeded(7), Dice::seeded(8));
        let draw = |dice: &mut Dice| (0..32).map(|_| dice.next()).collect::<Vec<_>>();
        assert_eq!(draw(&mut a), draw(&mut b));
        assert_ne!(draw(&mut b), draw(&mut c));
    }

    #[test]
    fn the_order_of_bytes_matters_to_a_hash() {
        assert_ne!(hash_bytes(0, b"abcdefgh12345678"), hash_bytes(0, b"12345678abcdefgh"));
        assert_ne!(hash_bytes(0, b"a"), hash_bytes(0, b"a\0"));
        assert_ne!(hash_bytes(0, b"a"), hash_bytes(1, b"a"));
    }
}
