//! What decisions come to, through the dispatcher: who may get a request, who does, how requests spread.

mod judging;
mod prefixes;
mod sessions;
mod spread;
mod who;
mod world;
