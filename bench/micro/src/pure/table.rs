//! Route tables: written by the side runtime, checked once, taken by each core.

use std::hint::black_box;
use std::sync::Arc;

use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_router::session::Ring;
use llmgw_runtime::mailbox::Latest;
use llmgw_types::Snapshot;
use rkyv::rancor::Error;

use crate::world;

/// Writes and checks a table of `count` endpoints.
pub(super) fn write(count: u32) -> impl FnMut() {
    let table = world::table(count, "p2c");
    move || drop(black_box(Snapshot::of(black_box(&table))))
}

/// Takes a table of `count` endpoints that came from elsewhere: a copy into an aligned buffer, then the check.
///
/// # Panics
/// When the table of this program cannot be written.
#[expect(clippy::expect_used, reason = "the table is a constant of this program")]
pub(super) fn check(count: u32) -> impl FnMut() {
    let bytes = rkyv::to_bytes::<Error>(&world::table(count, "p2c")).expect("a table that can be written");
    move || drop(black_box(Snapshot::check(black_box(&bytes).clone())))
}

/// What a publication costs a core: the newest is put and taken, profiles and rings are made.
///
/// # Panics
/// When the table of this program does not fit together.
#[expect(clippy::expect_used, reason = "the table is a constant of this program")]
pub(super) fn swap(count: u32) -> impl FnMut() {
    let newest = Arc::new(Snapshot::of(&world::table(count, "p2c")).expect("a table that fits together"));
    let place = Latest::default();
    move || {
        place.put(newest.clone());
        let Some(taken) = place.take() else { return };
        let table = taken.table();
        let profiles: Vec<RoutingProfile> = table.profiles.iter().map(RoutingProfile::of).collect();
        black_box((profiles, Ring::all(table)));
    }
}
