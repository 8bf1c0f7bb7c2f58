//! How the process's allocator treats large blocks. Called once by the binary, before its threads start.

/// Blocks from this size on are mapped from the system one by one, and given back the moment they are freed.
pub const LARGE_BLOCK_BYTES: usize = 1024 * 1024;

/// Makes large blocks (request bodies, above all) cost what they hold and no more.
///
/// glibc does so only until the first of them is freed: then it raises its limit to that size, and bodies that grow leave
/// holes behind that stay in RAM, almost as much again as the bodies themselves. A limit that is set stays. Elsewhere this
/// does nothing.
pub fn give_back_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets one number of the allocator, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES as libc::c_int);
    }
}
