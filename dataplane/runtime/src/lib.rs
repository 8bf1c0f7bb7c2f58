//! Cores, lanes between threads, sockets and timers: the only room that chooses a runtime.
//!
//! Everything above speaks of [`io::Io`], [`timer`], [`spawn`] and [`mailbox`], so that the driver underneath can be
//! changed without touching a request. Today it is monoio on io_uring with `COOP_TASKRUN` and `SINGLE_ISSUER`, or
//! monoio's epoll driver where io_uring is refused. Never knows what a request is.
//!
//! Three habits of the ring shape this room and those above: a pending read that is dropped loses bytes, a task must
//! not wake itself in a loop, and no waker crosses threads (threads meet in [`mailbox`] only).
#![expect(
    unsafe_code,
    reason = "sockets, eventfd and scheduler calls that std does not offer; each use says why it is sound"
)]

pub mod bell;
pub mod catch;
pub mod cores;
pub mod driver;
pub mod io;
pub mod listener;
pub mod mailbox;
pub mod memory;
pub mod owner;
pub mod plan;
pub mod race;
pub mod stream;
pub mod tcp;
pub mod timer;
pub mod unix;

pub use driver::run_local;
pub use race::{Either, race};

/// Starts a task on this core. It runs until it ends; nothing waits for it.
pub fn spawn<F>(task: F)
where
    F: Future<Output = ()> + 'static,
{
    drop(monoio::spawn(task));
}
