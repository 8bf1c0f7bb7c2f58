//! The doorbell of a core: an eventfd that is polled in the ring, rung only when the core says that it sleeps.
//!
//! Wakers do not cross threads in this runtime; this is the one way to wake a core.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::doze::Doze;
use crate::source::Source;

/// Rung by any thread, slept on by one. In which order: [`crate::doze`].
pub struct Bell {
    fd: OwnedFd,
    doze: Doze<AtomicBool>,
    rung: AtomicU64,
}

impl Bell {
    /// Makes a bell. Errors: no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain system call; the descriptor it returns is ours alone.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, doze: Doze::awake(AtomicBool::new(false)), rung: AtomicU64::new(0) })
    }

    /// Wakes the receiver if it sleeps. Call after the message is in its lane.
    ///
    /// Cost: a fence and a load; a system call only for a sleeping receiver.
    pub fn ring_if_asleep(&self) {
        if self.doze.must_wake() {
            self.rung.fetch_add(1, Ordering::Relaxed);
            let one = 1u64.to_ne_bytes();
            // SAFETY: the buffer outlives the call, the descriptor is open. A full counter (2^64 - 2 rings unread)
            // would only mean that the receiver is already being woken.
            unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// How often a sleeping receiver was woken.
    pub fn rung_count(&self) -> u64 {
        self.rung.load(Ordering::Relaxed)
    }

    /// Whether its receiver may sleep; see [`Doze::may_sleep`].
    pub(crate) fn may_sleep(&self, look: impl FnMut() -> bool) -> bool {
        self.doze.may_sleep(look)
    }
}

/// The receiving end, on the core that sleeps.
pub(crate) struct Sleeper(Source);

impl Sleeper {
    /// Arms the bell on this core's driver.
    pub(crate) fn new(bell: &Bell) -> io::Result<Self> {
        Source::new(bell.fd.try_clone()?).map(Self)
    }

    /// Waits until the bell was rung, and takes the ring.
    pub(crate) async fn wait(&self) {
        // An error can only mean that the driver is going away; the caller looks for messages either way.
        let _ = self.0.until_readable(take_ring).await;
    }
}

fn take_ring(fd: RawFd) -> io::Result<()> {
    let mut count = [0u8; 8];
    // SAFETY: the buffer is as long as an eventfd read wants and outlives the call; the descriptor is non-blocking.
    let got = unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
impl Bell {
    pub(crate) fn asleep(&self) -> bool {
        self.doze.is_asleep()
    }
}
