//! The client-facing wire: request scan, edits, server-sent events, usage, errors.
