//! Who owns a key: the one core that may change a tenant's, a model's, a session's or an endpoint's state.

use llmgw_types::CoreId;

/// The owner of a key by its hash. The number of cores never changes in a process, so owners never move.
///
/// # Panics
/// When there is no core.
pub fn owner_of(hash: u64, core_count: u32) -> CoreId {
    assert!(core_count > 0, "a key is owned by one of the cores");
    // Multiply-shift spreads the high bits; unlike a remainder it needs no division.
    CoreId(((u128::from(hash) * u128::from(core_count)) >> 64) as u32)
}

/// The owner of what is known by a small number, such as a slot of the load board.
///
/// # Panics
/// When there is no core.
pub fn owner_of_number(number: u32, core_count: u32) -> CoreId {
    // Owners are found by the high bits, of which small numbers have none.
    owner_of(u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15), core_count)
}

#[cfg(test)]
mod tests {
    use super::{owner_of, owner_of_number};

    #[test]
    fn keys_are_spread_over_all_cores_and_each_has_one_owner() {
        let mut owned = [0u32; 6];
        let mut chance = llmgw_kit::chance::Chance::seeded(3);
        for _ in 0..60_000 {
            let hash = chance.next_u64();
            let owner = owner_of(hash, 6);
            assert_eq!(owner, owner_of(hash, 6));
            owned[owner.idx()] += 1;
        }
        assert!(owned.iter().all(|&n| (9_000..11_000).contains(&n)), "{owned:?}");
        let mut owned = [0u32; 6];
        (0..600).for_each(|number| owned[owner_of_number(number, 6).idx()] += 1);
        assert!(owned.iter().all(|&n| (90..110).contains(&n)), "{owned:?}");
    }
}
