//! What the suites share: processes, fixtures, raw sockets.
