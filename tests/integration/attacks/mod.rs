//! Peers that mean harm or know no better: what they try costs them, not the gateway and not each other.

mod end_marker;
mod refused_option;
mod unread;
