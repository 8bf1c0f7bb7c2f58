//! One request's life on a core.
