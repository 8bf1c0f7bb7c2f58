//! One folder per engine: what it is called, where it answers, what its metrics are named.
