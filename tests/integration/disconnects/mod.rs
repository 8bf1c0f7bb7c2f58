//! Clients that leave, engines that leave and come back, and the gateway leaving itself.

mod clients;
mod engines;
mod resets;
mod shutdown;
