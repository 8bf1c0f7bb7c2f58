//! The allocator of this test program: the system's, with a count of what one marked thread asks for.
//!
//! [`mark_this_thread`] is called on the core's thread. Other threads (client, engine, the test itself) allocate
//! uncounted. With [`SITES`] set in the environment each counted call is also put down with the places in our code that
//! led to it; that is slow and for people. What is held is counted of every thread apart.

#![expect(
    unsafe_code,
    reason = "an allocator that counts can only be written so; it hands everything on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Set to anything: the test shows who allocates, in place of judging how often.
pub(crate) const SITES: &str = "LLMGW_ALLOCATION_SITES";

/// Frames of a site that are shown.
const FRAMES_SHOWN: usize = 4;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static NOTES_SITES: AtomicBool = AtomicBool::new(false);
static NOTED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// From here on this thread's allocations count.
pub(crate) fn mark_this_thread() {
    IS_COUNTED.set(true);
}

/// Allocations of the marked thread so far; one that grows or shrinks a buffer counts as one.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Bytes that this thread asked for, less those that it gave back.
pub(crate) fn held() -> i64 {
    HELD.get()
}

fn hold(more: usize, less: usize) {
    HELD.set(HELD.get() + more as i64 - less as i64);
}

/// Whether sites are asked for.
pub(crate) fn wants_sites() -> bool {
    std::env::var_os(SITES).is_some()
}

/// The sites of what `work` makes the marked thread allocate, most frequent first, as text.
pub(crate) fn sites(work: impl FnOnce()) -> Vec<(u64, String)> {
    let noted = || NOTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    noted().clear();
    NOTES_SITES.store(true, Ordering::SeqCst);
    work();
    NOTES_SITES.store(false, Ordering::SeqCst);
    let mut sites: Vec<_> = noted().iter().map(|(site, count)| (*count, site.clone())).collect();
    sites.sort_by(|one, other| other.cmp(one));
    sites
}

fn counted(bytes: usize) {
    if !IS_COUNTED.get() {
        return;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    if NOTES_SITES.load(Ordering::Relaxed) {
        // What taking it down allocates is not the core's.
        IS_COUNTED.set(false);
        let site = site(bytes);
        if let Ok(mut noted) = NOTED.lock() {
            *noted.entry(site).or_default() += 1;
        }
        IS_COUNTED.set(true);
    }
}

/// The innermost places outside the standard library and this file.
fn site(bytes: usize) -> String {
    let trace = Backtrace::force_capture().to_string();
    let mut shown = Vec::new();
    let mut name = "";
    for line in trace.lines().map(str::trim) {
        let Some(at) = line.strip_prefix("at ") else {
            name = line.split_once(": ").map_or(line, |(_, name)| name);
            continue;
        };
        let is_ours = !at.contains("/rustc/") && !at.contains("/library/") && !at.contains("allocations/counter.rs");
        if is_ours && shown.len() < FRAMES_SHOWN {
            let short = at.rfind("/src/").and_then(|end| at[..end].rfind('/').map(|start| &at[start + 1..]));
            shown.push(format!("{} ({name})", short.unwrap_or(at)));
        }
    }
    format!("{bytes} bytes: {}", shown.join(" < "))
}

// SAFETY: every call is the system allocator's, with the caller's own arguments; counting touches a cell of the calling
// thread that needs no set-up and an atomic, and allocates only while the thread is not counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        hold(layout.size(), 0);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        hold(layout.size(), 0);
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        counted(new_size);
        hold(new_size, layout.size());
        // SAFETY: as the caller promised; `pointer` came from this allocator, so from the system's.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(0, layout.size());
        // SAFETY: as the caller promised; `pointer` came from this allocator, so from the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}
