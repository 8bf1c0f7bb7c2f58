//! The doorbell of a core: an eventfd read that is armed in the ring, rung only when the core says that it sleeps.
//!
//! Wakers do not cross threads in this runtime; this is the one way to wake a core.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use monoio::net::UnixStream;

/// Rung by any thread, slept on by one.
///
/// Protocol: a sender pushes its message, fences, then looks whether the receiver sleeps. The receiver says that it
/// sleeps, fences, then looks for messages once more. In one total order either the sender sees the sleeper or the
/// receiver sees the message. A false ring costs one turn; a missing one cannot happen.
pub struct Bell {
    fd: OwnedFd,
    asleep: AtomicBool,
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
        Ok(Self { fd, asleep: AtomicBool::new(false), rung: AtomicU64::new(0) })
    }

    /// Wakes the receiver if it sleeps. Call after the message is in its lane.
    ///
    /// Cost: a fence and a load; a system call only for a sleeping receiver.
    pub fn ring_if_asleep(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
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

    pub(crate) fn say_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn say_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// The receiving end, on the core that sleeps.
pub(crate) struct Sleeper {
    stream: UnixStream,
    fd: i32,
}

impl Sleeper {
    /// Arms the bell on this core's driver.
    pub(crate) fn new(bell: &Bell) -> io::Result<Self> {
        let fd = bell.fd.try_clone()?;
        let raw = fd.as_raw_fd();
        // SAFETY: the descriptor is owned and handed over. monoio can only arm a poll on descriptors it knows as one of
        // its own kinds; of the stream type nothing but `readable` is used, which holds for any pollable descriptor.
        let stream = unsafe { std::os::unix::net::UnixStream::from_raw_fd(fd.into_raw_fd()) };
        Ok(Self { stream: UnixStream::from_std(stream)?, fd: raw })
    }

    /// Waits until the bell was rung, and takes the ring.
    pub(crate) async fn wait(&self) {
        // An error can only mean that the driver is going away; the caller looks for messages either way.
        let _ = self.stream.readable(false).await;
        let mut count = [0u8; 8];
        // SAFETY: the buffer is as long as an eventfd read wants and outlives the call; the descriptor is non-blocking.
        unsafe { libc::read(self.fd, count.as_mut_ptr().cast(), count.len()) };
    }
}

#[cfg(test)]
impl Bell {
    pub(crate) fn asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }
}
