//! Cores, lanes between threads, sockets and timers: the only room that chooses a runtime.
//!
//! Everything above speaks of [`io::Io`], [`timer`], [`spawn`] and [`mailbox`], so that the driver underneath can be
//! changed without touching a request. Today it is a runtime of our own on io_uring, or monoio's on epoll where
//! io_uring is refused. Never knows what a request is.
//!
//! Two habits shape this room and those above: no waker crosses threads (threads meet in [`mailbox`] only), and a wait
//! for a time is polled whenever its task is.
#![expect(
    unsafe_code,
    reason = "sockets, eventfd and scheduler calls that std does not offer; each use says why it is sound"
)]

pub mod bell;
pub mod catch;
pub mod cores;
pub mod doze;
pub mod driver;
pub mod io;
pub mod late;
pub mod listener;
mod local;
pub mod mailbox;
pub mod memory;
pub mod owner;
pub mod plan;
pub mod race;
mod source;
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
    if local::is_here() {
        local::with(|local| local.spawn(task));
    } else {
        drop(monoio::spawn(task));
    }
}
