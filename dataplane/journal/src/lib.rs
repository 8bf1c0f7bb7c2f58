//! The journal of usage: records of what requests used, on the disk a moment after they ended, in the store soon after.
//!
//! Reading order: `journal` (the threads and how they end), `writer` (records to segments) with `rings` and `waiting`
//! before it and `open` behind it, `reader` (segments to the store), `tail` (what the two know of each other), `owner`
//! (whose segments lie in a folder), `segment`, `entry` and `crc` (what is on the disk; pure), `files`, `hands` and
//! `ring_files` (what is asked of a disk, and its two ways), `metrics`.
//! Started by the binary where there is a store. Nobody waits for it: a core's record goes into a ring and is gone from
//! it a few milliseconds later. Knows no store, only an [`Outlet`]; the simulator runs the same writer and reader over
//! a disk of its own.

mod crc;
mod entry;
pub mod files;
mod hands;
mod journal;
pub mod metrics;
mod open;
mod owner;
mod reader;
#[cfg(feature = "glommio")]
mod ring_files;
mod rings;
pub mod segment;
mod tail;
mod waiting;
mod writer;

pub use entry::{Entry, Named};
pub use hands::block_on;
pub use journal::{Driver, Journal, Setup};
pub use metrics::Cells;
pub use reader::{BATCH_MAX, Did, Outlet, Reader};
pub use rings::{Names, NewestNames};
pub use tail::{Segment, Tail};
pub use writer::{Options, Writer};
