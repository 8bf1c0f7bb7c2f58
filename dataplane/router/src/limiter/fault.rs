//! Mistakes that the simulator plants in the leases, to show that it would see them. The product's [`Sound`] plants
//! none, and is a constant, so that none of this is in its code.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A request that has ended is settled twice.
    SettledTwice,
    /// What a core gives back of its slice is lost.
    SliceLost,
    /// A lease goes on after the limits of its chain changed or went.
    LeaseAfterRevoke,
    /// The owner refuses without asking for slices back.
    RefusesWithoutRecall,
    /// A home core answers a recall and keeps its lease.
    KeepsAfterRecall,
    /// A slice is charged to the window when it is given.
    ChargesAtGrant,
    /// The owner takes a lease as lapsed by its own clock.
    LapsesByOwnersClock,
    /// What was not used is given back to the tick in which the request ended.
    RefundInCurrentTick,
    /// What was used from a lease is stamped when it is reported.
    UseStampedAtReport,
    /// A yes that nobody waits for is forgotten.
    LateVerdictIgnored,
    /// The organisation's level is not counted.
    OrgForgotten,
    /// A recall is answered without what was owed of ended requests.
    RefundsKept,
    /// A lease goes on past the end of a budget's period.
    LeaseOverPeriod,
    /// What was admitted in a period that is over counts in the next.
    OldPeriodCounted,
    /// A wall clock that steps back opens the period before.
    ClockStepsBack,
    /// A window is a tick short.
    ShortWindow,
    /// Tokens above what was reserved are not counted.
    ExcessForgotten,
    /// A request that was cut keeps its place among those at once.
    PlaceKept,
    /// What was not used is given back to windows that never counted it.
    RefundsOfAnyWindow,
    /// A budget that is made anew goes on where the one before it was.
    BudgetGoesOn,
    /// What is held is not counted at a level that comes into its chain.
    HeldLeftBehind,
    /// A question gets the number of one whose answer may not have been taken yet.
    NumberUsedAgain,
}

/// Where mistakes are planted.
pub trait Faults {
    /// Whether that one is.
    fn planted(&self, fault: Fault) -> bool;
}

/// None.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Faults for Sound {
    #[inline(always)]
    fn planted(&self, _fault: Fault) -> bool {
        false
    }
}
