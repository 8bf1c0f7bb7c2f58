//! The two methods through which HTTP sees a connection.
//!
//! Implemented by TCP and UNIX sockets ([`crate::stream`]), by TLS over them and by the scripted connection of the HTTP
//! tests.

use std::io;

pub use monoio::buf::IoBuf;

/// A handle on a byte stream with owned buffers; clones name the same connection.
///
/// Invariant: at most one read and one write are outstanding. Dropping a pending read may lose bytes, so it is only
/// done together with the connection.
pub trait Io: Clone + 'static {
    /// Reads into the spare capacity of `buf`, after what it holds, and gives the buffer back with it.
    ///
    /// Answer: bytes read; 0 when the peer has ended its side (or when there was no spare capacity).
    fn read(&self, buf: Vec<u8>) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + 'static;

    /// Writes all of `buf` and gives it back.
    fn write_all<B: IoBuf>(&self, buf: B) -> impl Future<Output = (io::Result<()>, B)> + 'static;

    /// Ends both directions at once, without waiting: the peer sees the end now, pending reads and writes return.
    fn close_now(&self);
}

/// What a buffer that is written holds, for connections that change the bytes before they go out.
pub fn bytes_of<B: IoBuf>(buf: &B) -> &[u8] {
    // SAFETY: an `IoBuf` vouches that so many bytes from its pointer on are initialised and stay where they are while
    // it is not changed; the slice borrows it for as long.
    unsafe { std::slice::from_raw_parts(buf.read_ptr(), buf.bytes_init()) }
}
