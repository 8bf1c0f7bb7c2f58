//! Session affinity without state: bounded-load consistent hashing over a pool.
//!
//! A session's key hashes to a place on the pool's ring; its engine is the first one from there on that may take
//! requests and is not fuller than the bound allows. So every core, and every gateway with the same engines, finds the
//! same engine without asking, and an engine that comes or goes moves only the sessions next to it.
//!
//! A core makes its rings when it takes a table and only reads them from then on. Where a session went that its own
//! engine had no room for is remembered by [`crate::session_table`].

use llmgw_types::snapshot::{ArchivedPool, ArchivedRouteTable};

/// Points on a pool's ring, all members together; the fewer members, the more points each has, within the next two.
const RING_POINTS: usize = 8192;
const POINTS_MIN: usize = 8;
const POINTS_MAX: usize = 160;
/// A session key counts by so many of its bytes.
const KEY_BYTES_MAX: usize = 512;

/// A stable hash of a session key or a name: the same in every process of any version.
///
/// FNV-1a with a finisher, over the first 512 bytes. Not for secrets and not against collisions made on purpose: two
/// keys that collide share an engine, no more.
pub fn key_hash(key: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in key.iter().take(KEY_BYTES_MAX) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mix(hash)
}

/// A session of one model: the same key means another session, with other engines, in another model.
pub fn in_model(session: u64, model: &str) -> u64 {
    mix(session ^ key_hash(model.as_bytes()))
}

/// Spreads every bit over all others (the finisher of splitmix64).
const fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// A pool's members at their places on the circle of 32-bit numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ring {
    /// Place in the upper half, member in the lower; ascending.
    points: Box<[u64]>,
}

impl Ring {
    /// The ring of a pool: each member by its endpoint's name, with points in proportion to its weight.
    ///
    /// Cost: a sort of some thousand numbers.
    pub fn of(table: &ArchivedRouteTable, pool: &ArchivedPool) -> Self {
        let members = pool.members.iter().zip(0u32..).filter_map(|(row, member)| {
            let endpoint = table.endpoints.get(row.endpoint.to_native() as usize)?;
            Some((member, endpoint.name.as_str(), endpoint.weight.to_native().max(1)))
        });
        Self::of_members(members.collect())
    }

    fn of_members(members: Vec<(u32, &str, u32)>) -> Self {
        let each = (RING_POINTS / members.len().max(1)).clamp(POINTS_MIN, POINTS_MAX);
        let heaviest = members.iter().map(|(_, _, weight)| *weight).max().unwrap_or(1);
        let mut points = Vec::with_capacity(members.len() * each);
        for (member, name, weight) in members {
            let share = (each as u64 * u64::from(weight)).div_ceil(u64::from(heaviest));
            let hash = key_hash(name.as_bytes());
            for nth in 0..share {
                let place = mix(hash.wrapping_add(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 32;
                points.push((place << 32) | u64::from(member));
            }
        }
        points.sort_unstable();
        Self { points: points.into_boxed_slice() }
    }

    /// The rings of all pools of a table, by row; empty where there is nothing to choose or sessions are not kept
    /// together.
    pub fn all(table: &ArchivedRouteTable) -> Vec<Self> {
        let keeps_sessions = |pool: &ArchivedPool| {
            let model = table.models.get(pool.model.to_native() as usize);
            pool.members.len() > 1 && model.is_some_and(|model| model.placement.session.is_some())
        };
        let ring = |pool| if keeps_sessions(pool) { Self::of(table, pool) } else { Self::default() };
        table.pools.iter().map(ring).collect()
    }

    /// The first member at or after the key's place for which `takes` holds.
    ///
    /// Cost: a binary search, and a step for each point whose member does not take it.
    pub fn find(&self, key: u64, mut takes: impl FnMut(u32) -> bool) -> Option<u32> {
        let from = self.points.partition_point(|point| *point < (key >> 32) << 32);
        let (before, after) = self.points.split_at_checked(from)?;
        let mut last = None;
        for point in after.iter().chain(before) {
            let member = (*point & u64::from(u32::MAX)) as u32;
            // Neighbouring points are often the same member's: asked once.
            if last != Some(member) && takes(member) {
                return Some(member);
            }
            last = Some(member);
        }
        None
    }
}

/// What a member may hold in any case: a session's next request often comes before its last one is counted down.
const REQUESTS_FREE: f64 = 2.0;

/// How much a member may hold: its part of the pool's requests, this one included, times the factor, rounded up; two in
/// any case.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Requests in flight in the pool.
    pub requests: i64,
    /// Weights of the members that count, together.
    pub weight: f32,
    /// 1 or more.
    pub factor: f32,
}

impl Bound {
    /// Whether a member of that weight with so many requests may get one more.
    pub fn admits(&self, requests: i64, weight: f32) -> bool {
        let part = f64::from(weight) / f64::from(self.weight).max(f64::MIN_POSITIVE);
        let most = (f64::from(self.factor.max(1.0)) * (self.requests.max(0) + 1) as f64 * part).ceil();
        ((requests.max(0) + 1) as f64) <= most.max(REQUESTS_FREE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(names: &[String], weight: impl Fn(usize) -> u32) -> Ring {
        Ring::of_members((0u32..).zip(names).map(|(at, name)| (at, name.as_str(), weight(at as usize))).collect())
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("engine-{at}")).collect()
    }

    fn keys(count: usize) -> Vec<u64> {
        (0..count).map(|at| key_hash(format!("session {at}").as_bytes())).collect()
    }

    #[test]
    fn a_key_means_the_same_in_every_process() {
        // Written down once: gateways of different versions agree on these.
        assert_eq!(key_hash(b""), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(key_hash(b"session 1"), key_hash(b"session 1"));
        assert_ne!(key_hash(b"session 1"), key_hash(b"session 2"));
        let long = [b'x'; KEY_BYTES_MAX + 100];
        assert_eq!(key_hash(&long), key_hash(&long[..KEY_BYTES_MAX]));
    }

    #[test]
    fn sessions_are_spread_by_weight() {
        let names = names(4);
        let ring = ring(&names, |at| if at == 0 { 200 } else { 100 });
        let mut seen = [0u32; 4];
        for key in keys(20_000) {
            seen[ring.find(key, |_| true).unwrap() as usize] += 1;
        }
        // 8,000 and three times 4,000, within what 160 and 80 points give.
        assert!((6_400..=9_600).contains(&seen[0]), "{seen:?}");
        assert!(seen[1..].iter().all(|n| (2_800..=5_200).contains(n)), "{seen:?}");
    }

    #[test]
    fn an_engine_that_leaves_moves_its_own_sessions_only() {
        let all = names(5);
        let (before, after) = (ring(&all, |_| 100), ring(&all[..4], |_| 100));
        for key in keys(5_000) {
            let old = before.find(key, |_| true).unwrap();
            let new = after.find(key, |_| true).unwrap();
            assert!(old == new || old == 4);
            assert_eq!(before.find(key, |member| member != 4), Some(new), "out and gone come to the same");
        }
    }

    #[test]
    fn every_member_is_asked_before_the_ring_gives_up() {
        let ring = ring(&names(7), |_| 100);
        for key in keys(50) {
            let mut asked = std::collections::HashSet::new();
            assert_eq!(
                ring.find(key, |member| {
                    asked.insert(member);
                    false
                }),
                None
            );
            assert_eq!(asked.len(), 7);
        }
        assert_eq!(Ring::default().find(1, |_| true), None);
    }

    #[test]
    fn no_member_holds_more_than_its_part_times_the_factor() {
        let names = names(6);
        let ring = ring(&names, |_| 100);
        let mut loads = [0i64; 6];
        // One session asks for everything: the worst there is.
        for placed in 0..6_000 {
            let bound = Bound { requests: placed, weight: 600.0, factor: 1.25 };
            let member = ring.find(7, |member| bound.admits(loads[member as usize], 100.0)).expect("there is room");
            loads[member as usize] += 1;
            let most = ((1.25 * (placed + 1) as f64 / 6.0).ceil() as i64).max(2);
            assert!(loads.iter().all(|load| *load <= most), "{loads:?}");
        }
    }
}
