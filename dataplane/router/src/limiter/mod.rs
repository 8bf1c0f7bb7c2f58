//! Who may use what is left of a tenant's limits: leases.
//!
//! What is used of an organisation, and of all below it, is counted on one core, its owner ([`owner`]). Home cores hold
//! slices of what is left ([`home`]) and admit from them with no message; where a slice does not do, they ask the
//! owner, who takes slices back before it says no. Reading order: [`message`] (what they say to each other), [`home`]
//! and its leases, [`owner`] and its [`books`], [`fault`].
//!
//! No clock, no task, no I/O: messages and [`Now`] come in, messages go out through a closure.
//!
//! Invariant: at every level, what was used in the window (or spent in the period) and all that is held by home cores
//! are together at most the limit, estimates that were exceeded and limits that were lowered aside. What is held counts
//! until the home core says otherwise, so no clock, delay or stall breaks a limit.

pub mod books;
pub mod fault;
pub mod home;
mod lease;
pub mod message;
pub mod owner;

pub use fault::{Fault, Faults, Sound};
pub use home::{Answer, Home, Reservation, Reserved, Truth};
pub use message::{Refused, Remaining, Standing, ToHome, ToOwner};
pub use owner::Owner;

use llmgw_kit::clock::{Mono, Wall};

use crate::quota::window::TICK_NS;

/// A fresh reading of the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// By the monotonic clock, the same on all cores.
    pub tick: u32,
    /// By the wall clock. Units: unix seconds.
    pub second: u32,
}

impl Now {
    /// The tick and second of these moments.
    pub fn of(mono: Mono, wall: Wall) -> Self {
        let cut = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Self { tick: cut(mono.0 / TICK_NS), second: cut(wall.unix_seconds()) }
    }
}

#[cfg(test)]
mod tests;
