//! Keys on the request path: who is let in, what a key may, and what becomes of it all when the store is away.

mod rig;

mod rights;
mod store;
mod who;
