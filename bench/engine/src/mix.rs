//! Mixing numbers: the engine's own hashing of tokens, blocks and words.
//!
//! Called by the model and the word maker. Shares nothing with the router's hashing, so that one can be checked by the
//! other.

/// Spreads a number over all 64 bits (the finaliser of splitmix64).
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Folds one more number into a running hash; the order matters.
pub(crate) fn fold(hash: u64, value: u64) -> u64 {
    mix(hash.rotate_left(23) ^ value)
}

/// Hash of a few bytes.
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = fold(seed, bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = fold(hash, u64::from_le_bytes(word));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_bytes_matters_to_a_hash() {
        assert_ne!(hash_bytes(0, b"abcdefgh12345678"), hash_bytes(0, b"12345678abcdefgh"));
        assert_ne!(hash_bytes(0, b"a"), hash_bytes(0, b"a\0"));
        assert_ne!(hash_bytes(0, b"a"), hash_bytes(1, b"a"));
    }
}
