//! Decisions and the sums they read.

use std::hint::black_box;

use llmgw_types::BoardSlot;

use crate::world::{self, World};

/// A decision and its end, among `count` endpoints, on a board of `cores` cores of which one decides.
pub(super) fn alone(count: u32, picker: &'static str, cores: u32) -> impl FnMut() {
    let mut world = World::of(count, picker, cores);
    move || drop(black_box(world.decide()))
}

/// What is in flight to one endpoint, requests and tokens, over `cores` cores.
pub(super) fn sum(cores: u32) -> impl FnMut() {
    let board = world::board(64, cores);
    let mut at = 0;
    move || {
        at = (at + 1) % 64;
        let slot = black_box(BoardSlot(at));
        black_box((board.in_flight(slot), board.tokens_in_flight(slot)));
    }
}
