//! A timer finer than the runtime's millisecond: an open loop must send when a request is due, not up to 1 ms later.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;

use crate::usage::monotonic_ns;

/// One kernel timer.
#[derive(Debug)]
pub(crate) struct Pacer {
    timer: AsyncFd<OwnedFd>,
}

impl Pacer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its unsafe successor is for descriptors that can change hands; ours is owned for good"
        )]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer })
    }

    /// Returns at the given monotonic time, at once when it has passed.
    pub(crate) async fn until(&self, due_ns: u64) -> io::Result<()> {
        if monotonic_ns() >= due_ns {
            // The other tasks of the thread get their turn in any case.
            tokio::task::yield_now().await;
            return Ok(());
        }
        let at = Timespec {
            tv_sec: i64::try_from(due_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(due_ns % 1_000_000_000).unwrap_or(0),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        while monotonic_ns() < due_ns {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0; 8];
            match rustix::io::read(&self.timer, &mut expirations) {
                Ok(_) => break,
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_returns_early_and_does_not_wait_for_what_has_passed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let pacer = Pacer::new().expect("a timer");
            for ahead_ns in [0, 50_000, 700_000, 2_000_000] {
                let due = monotonic_ns() + ahead_ns;
                pacer.until(due).await.expect("waited");
                assert!(monotonic_ns() >= due);
            }
            pacer.until(1).await.expect("long past");
        });
    }
}
