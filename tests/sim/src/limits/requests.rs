//! Requests of a world of tenants: the harness's own books, which the code under test never sees.

use llmgw_router::limiter::Reservation;
use llmgw_router::quota::Amounts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Running(Reservation),
    Over,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) home: usize,
    pub(super) chain: u32,
    pub(super) ask: Amounts,
    pub(super) state: State,
    pub(super) number: u64,
    /// Its client left while it waited.
    pub(super) is_gone: bool,
}
