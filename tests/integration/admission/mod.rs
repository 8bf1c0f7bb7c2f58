//! When requests wait, in which order they go on, and what engines are told of it.

mod priority;
