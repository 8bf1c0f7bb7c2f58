//! Bounds: on sizes, on time, on what is counted, on what a start accepts.

mod admin;
mod contract;
mod series;
mod sizes;
mod slow;
mod startup;
