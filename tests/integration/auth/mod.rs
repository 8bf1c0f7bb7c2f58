//! Keys on the request path: who is let in, what a key may and is held to, and what becomes of it all when the store is
//! away.

mod rig;

mod acts;
mod endings;
mod figure;
mod limits;
mod rights;
mod store;
mod turns;
mod who;
