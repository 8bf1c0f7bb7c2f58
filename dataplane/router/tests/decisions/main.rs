//! What decisions come to, through the dispatcher: who may get a request, who does, how requests spread.

mod judging;
mod sessions;
mod spread;
mod who;
mod world;
