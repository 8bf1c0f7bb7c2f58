//! What went wrong in worlds, counted by kind: a run in which a kind of trouble hardly came up shows nothing of it.

use crate::mutants::World;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Burst,
    EngineDied,
    EngineSlow,
    ScrapeLost,
    LeftQueue,
    LeftRunning,
    CoreStood,
    EndpointLeft,
    EndpointJoined,
    PoolLeft,
    PoolJoined,
    LaneFull,
    Drained,
    BandFull,
    Displaced,
    Expired,
    OwnerStuck,
    LateGrant,
    BreakerOpened,
    RetriedInPool,
    PoolGoneInQueue,
    CacheFull,
    RetriedAnew,
    Foreign,
    FromLease,
    SliceGiven,
    Recalled,
    RefusedByOwner,
    LateVerdict,
    NeverRan,
    MoreThanReserved,
    PeriodEdge,
    ShortDay,
    LongDay,
    MonthEnd,
    EdgeInTokyo,
    RunsOverEdge,
    LeaseOverEdge,
    ClockForward,
    ClockBack,
    KeyRevoked,
    KeyBack,
    LimitLowered,
    LimitRaised,
    LimitCame,
    LimitWent,
    LevelCame,
    LevelWent,
    SwappedWithLease,
    RevokedRunning,
    RefundByOther,
    RefundKept,
    RefusedHere,
    Overtaken,
    Finished,
}

pub(crate) const KINDS: [(Trouble, &str); 55] = [
    (Trouble::Burst, "burst of arrivals"),
    (Trouble::EngineDied, "engine dies with its requests"),
    (Trouble::EngineSlow, "engine slows down"),
    (Trouble::ScrapeLost, "scrape lost"),
    (Trouble::LeftQueue, "client leaves while queued"),
    (Trouble::LeftRunning, "client leaves while running"),
    (Trouble::CoreStood, "core stands still"),
    (Trouble::EndpointLeft, "endpoint leaves its pool"),
    (Trouble::EndpointJoined, "endpoint joins"),
    (Trouble::PoolLeft, "pool leaves"),
    (Trouble::PoolJoined, "pool joins"),
    (Trouble::LaneFull, "lane full for an Enqueue"),
    (Trouble::Drained, "core drains with requests queued"),
    (Trouble::BandFull, "queue full"),
    (Trouble::Displaced, "displaced by a higher band"),
    (Trouble::Expired, "deadline at the owner"),
    (Trouble::OwnerStuck, "deadline at home"),
    (Trouble::LateGrant, "grant to a closed slot"),
    (Trouble::BreakerOpened, "breaker opens"),
    (Trouble::RetriedInPool, "retry within the pool"),
    (Trouble::PoolGoneInQueue, "pools gone while queued"),
    (Trouble::CacheFull, "caches fill above their ceiling, or empty"),
    (Trouble::RetriedAnew, "retry through the gates anew"),
    (Trouble::Foreign, "others use an engine past the gateway"),
    (Trouble::FromLease, "admitted from a lease"),
    (Trouble::SliceGiven, "slice given"),
    (Trouble::Recalled, "slice asked back"),
    (Trouble::RefusedByOwner, "refused by the owner of a limit"),
    (Trouble::LateVerdict, "yes to a closed slot"),
    (Trouble::NeverRan, "engine never answered"),
    (Trouble::MoreThanReserved, "more used than reserved"),
    (Trouble::PeriodEdge, "period of a budget ends"),
    (Trouble::ShortDay, "day of 23 hours ends"),
    (Trouble::LongDay, "day of 25 hours ends"),
    (Trouble::MonthEnd, "month ends"),
    (Trouble::EdgeInTokyo, "period ends in Asia/Tokyo"),
    (Trouble::RunsOverEdge, "request runs over the end of a period"),
    (Trouble::LeaseOverEdge, "lease in hand at the end of a period"),
    (Trouble::ClockForward, "wall clock steps forward"),
    (Trouble::ClockBack, "wall clock steps back"),
    (Trouble::KeyRevoked, "key revoked"),
    (Trouble::KeyBack, "key works again"),
    (Trouble::LimitLowered, "limit lowered"),
    (Trouble::LimitRaised, "limit raised"),
    (Trouble::LimitCame, "limit comes"),
    (Trouble::LimitWent, "limit goes"),
    (Trouble::LevelCame, "level comes"),
    (Trouble::LevelWent, "level goes"),
    (Trouble::SwappedWithLease, "limits swapped with a lease in hand"),
    (Trouble::RevokedRunning, "request of a revoked key ends"),
    (Trouble::RefundByOther, "refund by limits of before"),
    (Trouble::RefundKept, "refund that no window takes"),
    (Trouble::RefusedHere, "refused by a table alone"),
    (Trouble::Overtaken, "lane overtaken by another"),
    (Trouble::Finished, "request finishes"),
];

/// Counts by kind, in the order of [`KINDS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fired([u64; KINDS.len()]);

impl Default for Fired {
    fn default() -> Self {
        Self([0; KINDS.len()])
    }
}

impl Fired {
    pub(crate) fn count(&mut self, trouble: Trouble) {
        self.0[trouble as usize] += 1;
    }

    #[cfg(test)]
    pub(crate) fn count_of(&self, trouble: Trouble) -> u64 {
        self.0[trouble as usize]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    /// Those that can come up in worlds of that kind.
    pub(crate) fn of(&self, kind: World) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let first = Trouble::FromLease as usize;
        let shared = [Trouble::CoreStood, Trouble::LeftQueue, Trouble::LeftRunning, Trouble::LaneFull];
        let all = KINDS.iter().zip(self.0).enumerate();
        let is_of = move |at: usize, trouble: Trouble| match kind {
            World::Gate => at < first,
            World::Limits => at >= first || shared.contains(&trouble),
        };
        all.filter(move |(at, ((trouble, _), _))| is_of(*at, *trouble)).map(|(_, ((_, name), count))| (*name, count))
    }

    /// That of them which came up the least.
    pub(crate) fn rarest_of(&self, kind: World) -> (&'static str, u64) {
        self.of(kind).min_by_key(|(_, count)| *count).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        KINDS.iter().zip(self.0).map(|((_, name), count)| (*name, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_under_their_own_names() {
        assert!(KINDS.iter().enumerate().all(|(at, (kind, _))| *kind as usize == at));
        let mut fired = Fired::default();
        fired.count(Trouble::LaneFull);
        let mut sum = fired.clone();
        sum.add(&fired);
        assert_eq!(sum.iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [("lane full for an Enqueue", 2)]);
    }
}
