//! Small buffers of this core that are free for their next use.
//!
//! Heads, bodies and pieces of answers live in them for a moment each, so that a connection holds none while it waits
//! and a request asks the allocator for none. One stock a thread, bounded; larger buffers are not kept.

use std::cell::RefCell;
use std::ops::Deref;

use crate::limits::{IDLE_BUF_BYTES, SPARE_BUFS_MAX};

/// Room of a buffer: what one read may bring, and a little for what is put around it.
pub const SPARE_BYTES: usize = IDLE_BUF_BYTES + 32;

/// Larger ones are not kept.
pub(crate) const KEPT_BYTES_MAX: usize = 4 * SPARE_BYTES;

thread_local! {
    static STOCK: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with room for at least [`SPARE_BYTES`].
pub fn take() -> Vec<u8> {
    let used = STOCK.with(|stock| stock.borrow_mut().pop());
    used.unwrap_or_else(|| Vec::with_capacity(SPARE_BYTES))
}

/// Takes a buffer back, whatever it holds.
pub fn give(mut buffer: Vec<u8>) {
    if !(SPARE_BYTES..=KEPT_BYTES_MAX).contains(&buffer.capacity()) {
        return;
    }
    STOCK.with(|stock| {
        let mut stock = stock.borrow_mut();
        if stock.len() < SPARE_BUFS_MAX {
            buffer.clear();
            stock.push(buffer);
        }
    });
}

/// Buffers that are free.
#[cfg(test)]
pub(crate) fn free_count() -> usize {
    STOCK.with_borrow(Vec::len)
}

/// A body that was received. Its memory goes to the next one on this core.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// What lies in front is not part of it.
    start: usize,
}

impl Buffer {
    pub(crate) fn from_start(bytes: Vec<u8>, start: usize) -> Self {
        Self { bytes, start }
    }

    /// Bytes of memory it keeps.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, start: 0 }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_was_given_is_taken_again_empty_and_odd_sizes_are_not_kept() {
        let mut buffer = take();
        buffer.extend_from_slice(b"used");
        let place = buffer.as_ptr();
        give(buffer);
        give(Vec::with_capacity(16));
        give(Vec::with_capacity(1 << 20));
        let again = take();
        assert!(again.is_empty() && again.as_ptr() == place && again.capacity() >= SPARE_BYTES);
        assert!(take().capacity() >= SPARE_BYTES);
    }
}
