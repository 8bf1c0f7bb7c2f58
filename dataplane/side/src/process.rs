//! What the system knows of this process, for the page. Reads `/proc`, which costs a system call or two and no disk.

use std::fs;

/// Memory in RAM, in bytes; none where the system does not say.
pub(crate) fn resident_memory_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Open descriptors; none where the system does not say.
pub(crate) fn open_fds() -> Option<i64> {
    // Since Linux 6.2 the folder's size is the number; before, its entries are counted, the one for counting too.
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    let count = if size > 0 { size } else { (fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1) };
    i64::try_from(count).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_this_process() {
        assert!(resident_memory_bytes().is_some_and(|bytes| bytes > 100_000));
        let before = open_fds().expect("a number");
        let held: Vec<_> = (0..64).map(|_| fs::File::open("/proc/self/status").expect("a file")).collect();
        assert!(open_fds().expect("a number") >= before + 32, "other tests may close some");
        drop(held);
    }
}
