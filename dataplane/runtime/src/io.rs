//! The methods through which HTTP sees a connection.
//!
//! Implemented by TCP and UNIX sockets ([`crate::stream`]), by TLS over them and by the scripted connection of the HTTP
//! tests. What is pending stays with the connection: a wait may be given up at any time, and no byte is lost.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

/// A handle on a byte stream; clones name the same connection.
///
/// Invariant: at most one task waits to read, and one to write. Whoever asked last is woken.
pub trait Io: Clone + 'static {
    /// Adds what has come to `buf`, at most `room` bytes; makes room where `buf` has none.
    ///
    /// Answer: bytes added; 0 when the peer has ended its side. While pending, the end of the peer is noticed too.
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>>;

    /// Takes bytes to be sent, from the front of `parts`, as many as go now.
    ///
    /// Answer: bytes taken; some, where `parts` are not empty.
    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Ready when what was taken is sent, for connections that keep some of it.
    fn poll_flush(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Tells the peer, where the transport has a word for it, that no more will be sent: to be said before an end in
    /// order. Waits for nothing.
    fn say_goodbye(&self) {}

    /// Ends both directions at once, without waiting: the peer sees the end now, pending reads and writes return.
    fn close_now(&self);
}

/// Sends all of `bytes`.
pub async fn write_all<I: Io>(io: &I, bytes: &[u8]) -> io::Result<()> {
    write_parts(io, &mut [IoSlice::new(bytes)]).await
}

/// Sends all parts, in order, in one call where the connection takes them at once.
pub async fn write_parts<I: Io>(io: &I, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    let mut parts = parts;
    poll_fn(|cx| poll_write_parts(io, cx, &mut parts)).await
}

/// As [`write_parts`], for those who wait for something else too; `parts` is what is left.
pub fn poll_write_parts<I: Io>(io: &I, cx: &mut Context<'_>, parts: &mut &mut [IoSlice<'_>]) -> Poll<io::Result<()>> {
    loop {
        // Also drops empty ones.
        IoSlice::advance_slices(parts, 0);
        if parts.is_empty() {
            return io.poll_flush(cx);
        }
        match ready!(io.poll_write(cx, parts)) {
            Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Ok(taken) => IoSlice::advance_slices(parts, taken),
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Reads what comes next into `buf`, at most `room` bytes.
pub async fn read<I: Io>(io: &I, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    poll_fn(|cx| io.poll_read(cx, buf, room)).await
}
