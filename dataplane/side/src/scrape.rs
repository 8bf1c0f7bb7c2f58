//! What an engine says of itself: its metrics page, read again and again, onto the load board.
//!
//! One loop an endpoint (`poll`), started by `roster` beside the endpoint's probes. `learn` makes a sample of what a
//! page says, `told` knows where engines say how many requests they run at once, `watch` decides what is said about
//! pages that are no good. Never says whether an endpoint may get requests: an engine whose page is missing or broken
//! is judged by our own requests in flight.

mod learn;
mod poll;
mod told;
mod watch;

pub(crate) use self::poll::{SCRAPES_MAX, Scraper, Shared};

#[cfg(test)]
mod tests;
