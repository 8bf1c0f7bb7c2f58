//! The planted mistakes: those of the router's own code, and those of whoever calls it.

use llmgw_router::admission::Fault;

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
];
