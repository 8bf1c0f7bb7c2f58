//! The allocator of this program: the system's, with a count of each thread's own calls.

#![expect(
    unsafe_code,
    reason = "an allocator that counts can only be written so; it hands everything on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of this thread so far; one that grows or shrinks a buffer counts as one.
pub(crate) fn count() -> u64 {
    COUNT.get()
}

fn one_more() {
    COUNT.set(COUNT.get() + 1);
}

// SAFETY: every call is the system allocator's, with the caller's own arguments; the count is a cell of the calling
// thread that needs no set-up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        one_more();
        // SAFETY: as the caller promised; `pointer` came from this allocator, so from the system's.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised; `pointer` came from this allocator, so from the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}
