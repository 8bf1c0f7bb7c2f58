//! What a process uses, read from `/proc`: CPU time, memory, descriptors. Also the clock and the descriptor limit.
//!
//! Called by every loop and by the suites. Linux only. Never guesses: a process that is gone reads as `None`.

use std::fs;
use std::time::Duration;

use serde::Serialize;

/// `CLOCK_MONOTONIC` in nanoseconds: comparable between processes of one machine.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The wall clock in nanoseconds since 1970: for times that another process wrote down.
#[must_use]
pub fn unix_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Raises the soft limit of open descriptors to the hard one and returns it; `None` means without limit.
pub fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current }
}

/// One reading of a process, or the sum over several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// User and system time since the start; the kernel counts it in ticks (usually 10 ms).
    pub cpu: Duration,
    /// Time its threads were ready to run and had no CPU.
    pub cpu_wait: Duration,
    /// Resident memory.
    pub rss_bytes: u64,
    /// The most that was ever resident, as the kernel remembers it; summed over processes it is an upper bound.
    pub rss_peak_bytes: u64,
    /// Open descriptors.
    pub fd_count: u64,
    /// Threads.
    pub thread_count: u64,
}

/// Reads one process.
#[must_use]
pub fn usage_of(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let fd_count = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |dir| dir.flatten().count()) as u64;
    let ticks = rustix::param::clock_ticks_per_second();
    Some(Usage {
        cpu: cpu_of(&stat, ticks)?,
        cpu_wait: cpu_wait(pid),
        rss_bytes: kib_line(&status, "VmRSS:") * 1024,
        rss_peak_bytes: kib_line(&status, "VmHWM:") * 1024,
        fd_count,
        thread_count: kib_line(&status, "Threads:"),
    })
}

/// Reads a process and all its living descendants; `None` when the process itself is gone.
#[must_use]
pub fn usage_of_tree(pid: u32) -> Option<Usage> {
    let mut sum = usage_of(pid)?;
    for child in descendants(pid) {
        if let Some(one) = usage_of(child) {
            sum.cpu += one.cpu;
            sum.cpu_wait += one.cpu_wait;
            sum.rss_bytes += one.rss_bytes;
            sum.rss_peak_bytes += one.rss_peak_bytes;
            sum.fd_count += one.fd_count;
            sum.thread_count += one.thread_count;
        }
    }
    Some(sum)
}

/// Resident memory of a process in bytes, cheap enough to sample many times a second; 0 when it is gone.
#[must_use]
pub fn rss_bytes(pid: u32) -> u64 {
    let Ok(statm) = fs::read_to_string(format!("/proc/{pid}/statm")) else { return 0 };
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// CPU time of this process.
#[must_use]
pub fn own_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Time the living threads of a process have waited for a CPU; zero where the kernel does not count it.
#[must_use]
pub fn cpu_wait(pid: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let waits = tasks.flatten().filter_map(|task| {
        let line = fs::read_to_string(task.path().join("schedstat")).ok()?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(waits.sum())
}

/// CPU time of a process, finer than the kernel's ticks where it counts by thread; `None` when the process is gone.
///
/// Threads that have ended count by ticks alone.
#[must_use]
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = cpu_of(&stat, rustix::param::clock_ticks_per_second())?;
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Some(ticks) };
    let runs = tasks.flatten().filter_map(|task| {
        let line = fs::read_to_string(task.path().join("schedstat")).ok()?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    Some(ticks.max(Duration::from_nanos(runs.sum())))
}

/// A process and all its living descendants.
#[must_use]
pub fn tree(pid: u32) -> Vec<u32> {
    std::iter::once(pid).chain(descendants(pid)).collect()
}

fn descendants(root: u32) -> Vec<u32> {
    let Ok(dir) = fs::read_dir("/proc") else { return Vec::new() };
    let pairs: Vec<(u32, u32)> = dir
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| Some((pid, parent_of(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(pairs.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// The fields after the name, which is in brackets and may hold anything, brackets too.
fn after_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace())
}

fn parent_of(stat: &str) -> Option<u32> {
    after_name(stat)?.nth(1)?.parse().ok()
}

fn cpu_of(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let mut fields = after_name(stat)?.skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_nanos((user + system) * (1_000_000_000 / ticks_per_second.max(1))))
}

fn kib_line(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("");
    line.split_ascii_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) b) (c) S 3 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(parent_of(stat), Some(3));
        assert_eq!(cpu_of(stat, 100), Some(Duration::from_secs(2)));
        assert_eq!(cpu_of("7 (cut) S 3", 100), None);
    }

    #[test]
    fn this_process_reads_as_alive_and_a_gone_one_as_none() {
        let own = usage_of_tree(std::process::id()).expect("own reading");
        assert!(own.rss_bytes > 0 && own.rss_peak_bytes >= own.rss_bytes / 2 && own.fd_count > 2);
        assert!(own.thread_count >= 1);
        assert!(rss_bytes(std::process::id()) > 0);
        assert_eq!(usage_of(u32::MAX), None);
        assert_eq!(rss_bytes(u32::MAX), 0);
    }

    #[test]
    fn cpu_time_is_at_least_what_the_ticks_say() {
        let ticks = usage_of(std::process::id()).expect("own reading").cpu;
        assert!(cpu_time(std::process::id()).expect("own reading") >= ticks);
        assert_eq!(cpu_time(u32::MAX), None);
    }

    #[test]
    fn a_child_of_a_child_is_in_the_tree() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let out = shell.stdout.take().expect("stdout is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("the grandchild's pid");
        let grandchild: u32 = line.trim().parse().expect("a pid");
        assert!(descendants(std::process::id()).contains(&grandchild));
        for pid in [grandchild, shell.id()] {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("not zero");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
        }
        shell.wait().expect("the shell ends");
    }

    #[test]
    fn the_clock_does_not_step_back() {
        let (first, second) = (monotonic_ns(), monotonic_ns());
        assert!(first > 0 && second >= first);
    }
}
