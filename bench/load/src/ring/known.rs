//! Which ring operations and system calls a core may make, and the names of the calls.
//!
//! Called by the ring scenario. Changes when a core may do something else: that is a decision about the design.

/// What seeing one means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A core's daily work.
    Promised,
    /// Rare and harmless, for a reason that is known.
    Extra,
    /// Not to be seen on a core.
    Unexpected,
}

/// The ring's operations, by the kernel's names.
#[must_use]
pub(super) fn operation(name: &str) -> Standing {
    match name {
        "RECV" | "POLL_ADD" => Standing::Promised,
        // A connection ended while its receive was armed, or a peer sends faster than it is read.
        "ASYNC_CANCEL" => Standing::Promised,
        _ => Standing::Unexpected,
    }
}

/// Calls whose first argument decides: they are a core's own only on the eventfd that wakes it.
pub(super) const ON_EVENTFD: &[i64] = &[libc::SYS_read, libc::SYS_write];

/// A system call's name and standing; `is_eventfd` is about the calls of [`ON_EVENTFD`].
#[must_use]
pub(super) fn call(number: i64, is_eventfd: bool) -> (String, Standing) {
    use Standing::{Extra, Promised, Unexpected};
    let (name, standing) = match number {
        libc::SYS_io_uring_enter => ("io_uring_enter", Promised),
        // Sending, accepting and connecting do not block: they are tried at once and polled for where they would.
        libc::SYS_sendto => ("sendto", Promised),
        libc::SYS_sendmsg => ("sendmsg", Promised),
        libc::SYS_recvfrom => ("recvfrom", Promised),
        libc::SYS_accept4 => ("accept4", Promised),
        libc::SYS_connect => ("connect", Promised),
        libc::SYS_close => ("close", Promised),
        libc::SYS_getsockopt => ("getsockopt", Promised),
        libc::SYS_socket => ("socket", Promised),
        libc::SYS_setsockopt => ("setsockopt", Promised),
        libc::SYS_shutdown => ("shutdown", Promised),
        libc::SYS_read if is_eventfd => ("read of the eventfd", Promised),
        libc::SYS_write if is_eventfd => ("write to an eventfd", Promised),
        // The allocator, taking memory or giving it back.
        libc::SYS_madvise => ("madvise", Extra),
        libc::SYS_mprotect => ("mprotect", Extra),
        libc::SYS_mmap => ("mmap", Extra),
        libc::SYS_mremap => ("mremap", Extra),
        libc::SYS_munmap => ("munmap", Extra),
        libc::SYS_brk => ("brk", Extra),
        // The rest has names only so that a finding reads well.
        libc::SYS_futex => ("futex", Unexpected),
        libc::SYS_openat => ("openat", Unexpected),
        libc::SYS_read => ("read", Unexpected),
        libc::SYS_write => ("write", Unexpected),
        libc::SYS_readv => ("readv", Unexpected),
        libc::SYS_writev => ("writev", Unexpected),
        libc::SYS_getsockname => ("getsockname", Unexpected),
        libc::SYS_getpeername => ("getpeername", Unexpected),
        libc::SYS_fcntl => ("fcntl", Unexpected),
        libc::SYS_epoll_pwait => ("epoll_pwait", Unexpected),
        libc::SYS_epoll_ctl => ("epoll_ctl", Unexpected),
        libc::SYS_sched_yield => ("sched_yield", Unexpected),
        libc::SYS_nanosleep => ("nanosleep", Unexpected),
        libc::SYS_clock_nanosleep => ("clock_nanosleep", Unexpected),
        libc::SYS_clock_gettime => ("clock_gettime", Unexpected),
        libc::SYS_getrandom => ("getrandom", Unexpected),
        _ => return (format!("system call {number}"), Unexpected),
    };
    (name.to_owned(), standing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ring_the_sockets_and_the_eventfd_are_promised() {
        let check = |number, is_eventfd, name: &str, standing| {
            assert_eq!(call(number, is_eventfd), (name.to_owned(), standing));
        };
        check(libc::SYS_io_uring_enter, false, "io_uring_enter", Standing::Promised);
        check(libc::SYS_write, true, "write to an eventfd", Standing::Promised);
        check(libc::SYS_write, false, "write", Standing::Unexpected);
        check(libc::SYS_mprotect, false, "mprotect", Standing::Extra);
        check(libc::SYS_futex, false, "futex", Standing::Unexpected);
        check(libc::SYS_openat, true, "openat", Standing::Unexpected);
        check(9_999, false, "system call 9999", Standing::Unexpected);
    }

    #[test]
    fn an_operation_on_files_is_not_a_cores_work() {
        for name in ["OPENAT", "READ", "WRITEV", "FSYNC", "FUTEX_WAIT", "NOP", ""] {
            assert_eq!(operation(name), Standing::Unexpected, "{name}");
        }
        assert_eq!(operation("RECV"), Standing::Promised);
        assert_eq!(operation("ASYNC_CANCEL"), Standing::Promised);
    }
}
