//! The buffers that the kernel puts received bytes into.
//!
//! One block of memory per core, cut into equal buffers. The kernel takes one when bytes have come, not when somebody
//! waits for them: an idle connection holds none. Lent out by completions, given back within the same turn.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// One buffer. Units: bytes. What comes together in more than this is put together again when it is read.
pub(super) const BUFFER_BYTES: usize = 4096;
/// The only group of buffers there is.
pub(super) const GROUP: u16 = 0;

const PAGE: usize = 4096;

/// Buffers shared with the kernel. Kept for ever: the kernel may write to them as long as the ring is there.
pub(super) struct Buffers {
    ring: *mut BufRingEntry,
    bytes: *mut u8,
    count: u16,
    tail: u16,
}

impl Buffers {
    /// Makes `count` buffers (a power of two) and shares them.
    ///
    /// Errors: the kernel refuses (before Linux 5.19).
    pub(super) fn share(uring: &IoUring, count: u16) -> io::Result<Self> {
        assert!(count.is_power_of_two(), "a ring of buffers has a power of two of them");
        let ring = pages(usize::from(count) * size_of::<BufRingEntry>()).cast::<BufRingEntry>();
        let bytes = pages(usize::from(count) * BUFFER_BYTES);
        // SAFETY: page-aligned, zeroed, as long as `count` entries, and never freed.
        unsafe { uring.submitter().register_buf_ring(ring as u64, count, GROUP)? };
        let mut this = Self { ring, bytes, count, tail: 0 };
        (0..count).for_each(|id| this.give_back(id));
        Ok(this)
    }

    /// The first `len` bytes of a buffer that a completion lent.
    pub(super) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(id < self.count && len <= BUFFER_BYTES, "the kernel lends what it was given");
        // SAFETY: within the block, and initialised (zeroed, then written by the kernel). The kernel does not write to a
        // lent buffer until `give_back`, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.bytes.add(usize::from(id) * BUFFER_BYTES), len) }
    }

    /// Gives a lent buffer back. Cost: five stores.
    pub(super) fn give_back(&mut self, id: u16) {
        assert!(id < self.count, "the kernel lends what it was given");
        // SAFETY: the place is within the ring of `count` entries, and ours until the tail says otherwise. The tail lies
        // within the first entry, in a field that entries do not use, and is written by this thread alone.
        unsafe {
            let entry = &mut *self.ring.add(usize::from(self.tail & (self.count - 1)));
            entry.set_addr(self.bytes.add(usize::from(id) * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.ring).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

/// Zeroed whole pages.
fn pages(bytes: usize) -> *mut u8 {
    let Ok(layout) = Layout::from_size_align(bytes.max(PAGE).next_multiple_of(PAGE), PAGE) else {
        unreachable!("a few MiB are a valid size");
    };
    // SAFETY: the size is not zero.
    let pages = unsafe { alloc_zeroed(layout) };
    if pages.is_null() {
        handle_alloc_error(layout);
    }
    pages
}
