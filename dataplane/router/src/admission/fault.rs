//! Mistakes that the simulator plants, to show that it would see them. Nothing in the product plants one, and
//! [`Cells::planted`](super::Cells::planted) is a constant there, so that none of this is in its code.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A pass looks at the load before it counts itself.
    PassChecksFirst,
    /// A grant looks at the load before it counts itself.
    GrantChecksFirst,
    /// A pass reads who waits before it sums.
    WaitersReadFirst,
    /// A sum begins with the owner's cell.
    OwnersCellFirst,
    /// A release looks at who waits before it lowers.
    LooksBeforeLowering,
    /// A release owes nobody a nudge.
    NudgeLost,
    /// A place is given up twice.
    ReleasedTwice,
    /// The owner looks at the load before it says that somebody waits.
    SumsBeforeSaying,
    /// The lowest band goes first.
    LowestBandFirst,
    /// Costs do not count in the turns of tenants.
    TurnsForgotten,
    /// The oldest of the lowest band is displaced.
    OldestDisplaced,
    /// Deadlines pass unnoticed at the owner.
    DeadlineIgnored,
    /// A request refused for a full lane owes nobody a nudge.
    FullLaneOwesNothing,
    /// Requests at an endpoint that left their pool stay counted there.
    NotRecounted,
    /// They count again at their end.
    CountedTwice,
}
