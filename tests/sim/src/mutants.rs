//! The planted mistakes: those of the router's own code, and those of whoever calls it.

use llmgw_router::admission::Fault;
use llmgw_router::limiter::Fault as LimitFault;

/// One mistake in an otherwise sound world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// In the router's code.
    Router(Fault),
    /// A running request whose client leaves keeps its place.
    NoReleaseOnAbort,
    /// A grant whose request does not wait any more is forgotten.
    LateGrantIgnored,
    /// New room is stored and nobody is told.
    RoomWithoutNudge,
    /// An endpoint that leaves is not marked, so that cores with older tables go on sending to it.
    DrainingNotShown,
    /// A client that leaves the queue is not withdrawn, and its slot stays open.
    WithdrawnAndAnswered,
    /// In the leases' code.
    Limits(LimitFault),
}

impl Mutant {
    /// The kind of world in which it can be seen.
    pub(crate) fn world(self) -> World {
        match self {
            Self::Limits(_) => World::Limits,
            _ => World::Gate,
        }
    }
}

/// What worlds are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// Pools, queues and engines.
    Gate,
    /// Tenants and their limits.
    Limits,
}

impl World {
    /// The word on the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Limits => "limits",
        }
    }
}

/// All of them, by name.
pub(crate) const ALL: &[(&str, Mutant)] = &[
    ("pass checks before it raises", Mutant::Router(Fault::PassChecksFirst)),
    ("grant checks before it raises", Mutant::Router(Fault::GrantChecksFirst)),
    ("waiters are read before the sum", Mutant::Router(Fault::WaitersReadFirst)),
    ("the owner's cell is summed first", Mutant::Router(Fault::OwnersCellFirst)),
    ("release looks before it lowers", Mutant::Router(Fault::LooksBeforeLowering)),
    ("nudge lost", Mutant::Router(Fault::NudgeLost)),
    ("double release", Mutant::Router(Fault::ReleasedTwice)),
    ("the owner sums before it says who waits", Mutant::Router(Fault::SumsBeforeSaying)),
    ("lowest band first", Mutant::Router(Fault::LowestBandFirst)),
    ("turns of tenants forgotten", Mutant::Router(Fault::TurnsForgotten)),
    ("the oldest is displaced", Mutant::Router(Fault::OldestDisplaced)),
    ("deadline ignored", Mutant::Router(Fault::DeadlineIgnored)),
    ("full lane without a nudge", Mutant::Router(Fault::FullLaneOwesNothing)),
    ("no recount on a swap", Mutant::Router(Fault::NotRecounted)),
    ("counted out twice", Mutant::Router(Fault::CountedTwice)),
    ("no release on abort", Mutant::NoReleaseOnAbort),
    ("late grant ignored", Mutant::LateGrantIgnored),
    ("new room without a nudge", Mutant::RoomWithoutNudge),
    ("grant to a draining endpoint", Mutant::DrainingNotShown),
    ("withdrawn and answered", Mutant::WithdrawnAndAnswered),
    ("settled twice", Mutant::Limits(LimitFault::SettledTwice)),
    ("return of a slice lost", Mutant::Limits(LimitFault::SliceLost)),
    ("lease after revoke", Mutant::Limits(LimitFault::LeaseAfterRevoke)),
    ("refusal without recall", Mutant::Limits(LimitFault::RefusesWithoutRecall)),
    ("lease kept after its recall", Mutant::Limits(LimitFault::KeepsAfterRecall)),
    ("window charged at the grant of the slice", Mutant::Limits(LimitFault::ChargesAtGrant)),
    ("lease lapses by the owner's clock", Mutant::Limits(LimitFault::LapsesByOwnersClock)),
    ("refund in the current tick", Mutant::Limits(LimitFault::RefundInCurrentTick)),
    ("use stamped when reported", Mutant::Limits(LimitFault::UseStampedAtReport)),
    ("a number used again", Mutant::Limits(LimitFault::NumberUsedAgain)),
    ("late verdict ignored", Mutant::Limits(LimitFault::LateVerdictIgnored)),
    ("one level forgotten", Mutant::Limits(LimitFault::OrgForgotten)),
    ("refunds kept at a recall", Mutant::Limits(LimitFault::RefundsKept)),
    ("lease over the end of a period", Mutant::Limits(LimitFault::LeaseOverPeriod)),
    ("old period counted in the new", Mutant::Limits(LimitFault::OldPeriodCounted)),
    ("a clock that steps back opens the period before", Mutant::Limits(LimitFault::ClockStepsBack)),
    ("window a tick short", Mutant::Limits(LimitFault::ShortWindow)),
    ("tokens above the reservation forgotten", Mutant::Limits(LimitFault::ExcessForgotten)),
    ("place of a cut request kept", Mutant::Limits(LimitFault::PlaceKept)),
    ("refund to a window that never counted it", Mutant::Limits(LimitFault::RefundsOfAnyWindow)),
    ("budget made anew goes on as before", Mutant::Limits(LimitFault::BudgetGoesOn)),
    ("what is held left behind as levels change", Mutant::Limits(LimitFault::HeldLeftBehind)),
];
