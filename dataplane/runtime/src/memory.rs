//! How the process's allocator treats large blocks, and what it gives back. Called by the binary at its start.

/// Blocks from this size on are mapped from the system one by one, and given back the moment they are freed.
pub const LARGE_BLOCK_BYTES: usize = 1024 * 1024;
/// Free memory a thread's arena may keep for its next requests.
pub const KEPT_FREE_BYTES: usize = 16 * 1024 * 1024;

/// Makes large blocks (request bodies, above all) cost what they hold and no more, and small ones cost no system call.
///
/// glibc maps large blocks only until the first of them is freed: then it raises its limit to that size, and bodies
/// that grow leave holes behind that stay in RAM, almost as much again as the bodies themselves. A limit that is set
/// stays. Elsewhere this does nothing.
pub fn settle_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: sets two numbers of the allocator, under the allocator's own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES as libc::c_int);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_FREE_BYTES as libc::c_int);
        }
        read_overcommit_setting();
    }
}

/// Gives pages that hold nothing back to the system, wherever they lie. Elsewhere this does nothing.
///
/// Cost: a walk over all that is free, for which the threads whose arenas are walked wait: to be called before there
/// are cores.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets glibc read the system's overcommit setting now. It does so once, in the first thread whose arena gives memory
/// back, from a file: on a core that would be a blocking open in the middle of a request.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn read_overcommit_setting() {
    // A thread of its own, since the main arena gives memory back in another way.
    let give_back = std::thread::Builder::new().name("llmgw-arena".into()).spawn(|| {
        let block = LARGE_BLOCK_BYTES / 2;
        let blocks: Vec<Vec<u8>> = (0..=KEPT_FREE_BYTES / block + 2).map(|_| Vec::with_capacity(block)).collect();
        drop(std::hint::black_box(blocks));
    });
    // Without the thread the read happens later: slower once, not wrong.
    if let Ok(thread) = give_back {
        let _ = thread.join();
    }
}
