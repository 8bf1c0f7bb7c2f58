//! When requests wait, in which order they go on, and what engines are told of it.

mod capacity;
mod change;
mod ends;
mod flood;
mod gate;
mod heartbeat;
mod order;
mod priority;
mod refusals;
mod rig;
