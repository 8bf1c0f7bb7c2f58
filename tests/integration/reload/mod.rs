//! The configuration changed while the gateway runs, and endpoints drained: what changes, what stays, who is told.

mod ctl;
mod endpoints;
mod file;
mod load;
pub(crate) mod rig;
