//! A descriptor on this core's driver, and when it is ready.
//!
//! On the ring it has a place there; on epoll monoio says when it can be read from or written to. The calls themselves
//! do not block and are the same on both. Made for sockets, listeners and bells; closed when it is dropped.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use monoio::net::UnixStream;

use crate::local::{RingFd, RingPlace};

type Wait = RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>;

/// A non-blocking descriptor.
pub(crate) enum Source {
    Ring(RingFd),
    Epoll(EpollFd),
}

/// A descriptor that monoio watches. Only `readable` and `writable` of the stream are used, which hold for any
/// descriptor that can be polled.
pub(crate) struct EpollFd {
    stream: Rc<UnixStream>,
    reading: Wait,
    writing: Wait,
}

impl Source {
    /// Ties a non-blocking descriptor to the driver of this thread.
    ///
    /// Errors: it cannot be watched.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        match RingFd::new(fd) {
            Ok(ring) => Ok(Self::Ring(ring)),
            Err(fd) => {
                let stream = Rc::new(UnixStream::from_std(std::os::unix::net::UnixStream::from(fd))?);
                Ok(Self::Epoll(EpollFd { stream, reading: RefCell::default(), writing: RefCell::default() }))
            }
        }
    }

    pub(crate) fn raw(&self) -> RawFd {
        match self {
            Self::Ring(fd) => fd.raw(),
            Self::Epoll(fd) => fd.stream.as_raw_fd(),
        }
    }

    /// Where it is on the ring; none on epoll.
    pub(crate) fn place(&self) -> Option<RingPlace> {
        match self {
            Self::Ring(fd) => Some(fd.place()),
            Self::Epoll(_) => None,
        }
    }

    /// Ready once after the descriptor became readable. A call that would block is to be tried again then.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Ring(fd) => fd.poll_readable(cx),
            Self::Epoll(fd) => poll_wait(&fd.reading, cx, || {
                let stream = fd.stream.clone();
                // An error is found again by the call that is tried then.
                async move { drop(stream.readable(false).await) }
            }),
        }
    }

    /// Ready once after the descriptor became writable.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Ring(fd) => fd.poll_writable(cx),
            Self::Epoll(fd) => poll_wait(&fd.writing, cx, || {
                let stream = fd.stream.clone();
                async move { drop(stream.writable(false).await) }
            }),
        }
    }

    /// Waits until a call that does not block has come to something.
    pub(crate) async fn until_readable<T>(&self, mut call: impl FnMut(RawFd) -> io::Result<T>) -> io::Result<T> {
        poll_fn(|cx| {
            loop {
                match call(self.raw()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.poll_readable(cx)),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    done => return Poll::Ready(done),
                }
            }
        })
        .await
    }
}

fn poll_wait<F: Future<Output = ()> + 'static>(
    wait: &Wait,
    cx: &mut Context<'_>,
    start: impl FnOnce() -> F,
) -> Poll<()> {
    let mut wait = wait.borrow_mut();
    let pending = wait.get_or_insert_with(|| Box::pin(start()));
    ready!(pending.as_mut().poll(cx));
    *wait = None;
    Poll::Ready(())
}
