//! Cores, lanes between threads, sockets and timers: the only room that chooses a runtime.
