//! The machine a comparison ran on, and whose CPU this thread runs on.

use std::fs;
use std::io;

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

/// What a reader has to know of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpu_count: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) system: String,
}

impl Machine {
    pub(crate) fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let of = |key: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_once(':')).map_or("?", |(_, value)| value.trim()).to_owned()
        };
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib: u64 = meminfo.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        Self {
            cpu: format!("{} (family {}, model {})", of("model name"), of("cpu family"), of("model\t")),
            cpu_count: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            memory_gib: (kib + (1 << 19)) >> 20,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            system: pretty.unwrap_or("?").trim_matches('"').to_owned(),
        }
    }
}

/// Today, as `2026-11-29`, in UTC.
pub(crate) fn today() -> String {
    let days = i64::try_from(crate::usage::unix_ns() / 86_400_000_000_000).unwrap_or(0);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of a number of days since 1970, by the count of days from a March in year 0.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// CPUs this process may use, in order.
pub fn usable_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Keeps this thread, and the processes it starts from now on, to one CPU.
///
/// Errors: the system does not allow it.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// A weight for this session's share of the CPUs, as long as it lives: -20 is the most, 0 what everybody has.
///
/// Schedulers that group processes by session look at nothing else.
#[derive(Debug)]
pub struct Priority(());

const AUTOGROUP: &str = "/proc/self/autogroup";

impl Priority {
    /// Takes it.
    ///
    /// Errors: the kernel does not group by session, or only an administrator may.
    pub fn take(nice: i8) -> io::Result<Self> {
        fs::write(AUTOGROUP, nice.to_string())?;
        Ok(Self(()))
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        // The kernel takes no second change at once from those who are no administrators; it then stays.
        let _ = fs::write(AUTOGROUP, "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        let cases = [(0, (1970, 1, 1)), (11_016, (2000, 2, 29)), (20_786, (2026, 11, 29)), (19_782, (2024, 2, 29))];
        for (days, date) in cases {
            assert_eq!(civil(days), date, "{days}");
        }
    }

    #[test]
    fn this_machine_is_told() {
        let machine = Machine::read();
        assert!(machine.cpu_count > 0 && !machine.kernel.is_empty(), "{machine:?}");
        assert!(!usable_cpus().is_empty());
    }
}
