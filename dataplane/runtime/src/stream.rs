//! A connected stream socket, over the network or on the same machine.
//!
//! Nothing here connects: `tcp` and `unix` do.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::io::Io;
use crate::local::{RingPlace, receive_now};
use crate::source::Source;

/// A connection; clones name the same one. Closed when the last clone is gone.
#[derive(Clone)]
pub struct Socket {
    source: Rc<Source>,
    /// What its source says too, at hand: a stream that was silent has its source far from the cache.
    fd: RawFd,
    place: Option<RingPlace>,
}

/// Parts of one write; further ones go with the next.
const PARTS_MAX: usize = 16;
/// Bytes in several parts that are cheaper copied together than described to the kernel one by one.
const JOINED_MAX: usize = 4096;

impl Socket {
    /// Ties a connected, non-blocking socket to this core's driver.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let source = Source::new(fd)?;
        let (fd, place) = (source.raw(), source.place());
        Ok(Self { source: Rc::new(source), fd, place })
    }

    /// Ready when the connection is made, or has failed.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll_writable(cx)
    }

    pub(crate) fn raw(&self) -> i32 {
        self.fd
    }
}

impl Io for Socket {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        if let Some(place) = self.place {
            return place.poll_read(cx, buf, room);
        }
        loop {
            match receive_now(self.raw(), buf, room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.source.poll_readable(cx)),
                received => return Poll::Ready(received),
            }
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            match send_now(self.raw(), parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.source.poll_writable(cx)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn close_now(&self) {
        // SAFETY: the descriptor is open as long as `self` lives. An error (already closed by the peer) changes
        // nothing.
        unsafe { libc::shutdown(self.raw(), libc::SHUT_RDWR) };
    }
}

fn send_now(fd: i32, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let sent = match parts {
        // SAFETY: the slice is borrowed for the length of the call.
        [part] => unsafe { libc::send(fd, part.as_ptr().cast(), part.len(), FLAGS) },
        parts if parts.iter().map(|part| part.len()).sum::<usize>() <= JOINED_MAX => {
            let (mut joined, mut filled) = ([MaybeUninit::<u8>::uninit(); JOINED_MAX], 0);
            for part in parts {
                if let Some(room) = joined.get_mut(filled..filled + part.len()) {
                    room.write_copy_of_slice(part);
                    filled += part.len();
                }
            }
            // SAFETY: the first `filled` bytes were written, and are borrowed for the length of the call.
            unsafe { libc::send(fd, joined.as_ptr().cast(), filled, FLAGS) }
        }
        parts => {
            // SAFETY: a struct of numbers and pointers, for which zero is a value.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            // `IoSlice` is laid out as the system's own `iovec`; the call only reads it.
            message.msg_iov = parts.as_ptr().cast_mut().cast();
            message.msg_iovlen = parts.len().min(PARTS_MAX);
            // SAFETY: the slices are borrowed for the length of the call.
            unsafe { libc::sendmsg(fd, &message, FLAGS) }
        }
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
