//! HTTP/1.1 in both directions, strict and bounded.
