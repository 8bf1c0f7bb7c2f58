//! Clients that speak TLS: what they get, who is let in, and certificates that change while the gateway runs.

mod certificates;
mod entering;
mod rig;
mod served;
