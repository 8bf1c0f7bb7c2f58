//! What the kernel saw some threads do: ring operations by name and system calls by number, from a tracing instance of
//! our own.
//!
//! Called by the ring scenario. Needs root and tracefs. Nothing is sampled: every event of the threads is recorded and
//! counted, and events the kernel had to drop are counted too. The instance is removed when the recording is dropped.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Error;

const TRACEFS: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "llmgw-ring-";
/// Room for some seconds of events of one CPU at full load; the reader looks every few milliseconds.
const BUFFER_KIB_PER_CPU: &str = "8192";
const READ_EVERY: Duration = Duration::from_millis(5);

/// Events by what they tell; kernels before 6.3 have the first under another name.
const OPERATION: [&str; 2] = ["io_uring/io_uring_submit_req", "io_uring/io_uring_submit_sqe"];
const HANDED_OVER: &str = "io_uring/io_uring_queue_async_work";
const SYSTEM_CALL: &str = "raw_syscalls/sys_enter";

/// What one thread did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Operations put into the ring.
    pub(super) operations: BTreeMap<String, u64>,
    /// Those of them the kernel gave to a worker thread, since they could not be done without blocking.
    pub(super) handed_over: BTreeMap<String, u64>,
    /// System calls by number and first argument; the argument is kept only where the caller asked for it.
    pub(super) calls: BTreeMap<(i64, Option<u64>), u64>,
}

/// What was recorded, by thread id.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) threads: BTreeMap<u32, Counts>,
    /// Events the kernel dropped, since nobody had read the older ones yet.
    pub(super) lost_count: u64,
    /// Lines that say something this file does not know how to read.
    pub(super) unread_count: u64,
}

/// A recording that runs until it is finished or dropped.
#[derive(Debug)]
pub(super) struct Recording {
    dir: PathBuf,
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<io::Result<Recorded>>>,
}

impl Recording {
    /// Begins to record these threads. Of the system calls in `with_argument` the first argument is told, too.
    ///
    /// Errors: [`Error::Unavailable`] without root or tracefs, or when the kernel has no such events.
    pub(super) fn start(thread_ids: &[u32], with_argument: &'static [i64]) -> Result<Self, Error> {
        let instances = Path::new(TRACEFS).join("instances");
        remove_abandoned(&instances);
        let dir = instances.join(format!("{INSTANCE}{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| {
            let mount = "mount -t tracefs nodev /sys/kernel/tracing";
            Error::Unavailable(format!("needs root and tracefs ({mount}): cannot make {}: {error}", dir.display()))
        })?;
        // From here on the instance goes with the value.
        let mut recording = Self { dir, is_over: Arc::default(), reader: None };
        let unavailable = |error: io::Error| Error::Unavailable(format!("the kernel's tracing refuses: {error}"));
        let files = recording.set_up(thread_ids).map_err(unavailable)?;
        let is_over = Arc::clone(&recording.is_over);
        recording.reader = Some(std::thread::spawn(move || read(files, with_argument, &is_over)));
        Ok(recording)
    }

    fn set_up(&self, thread_ids: &[u32]) -> io::Result<Vec<File>> {
        self.write("buffer_size_kb", BUFFER_KIB_PER_CPU)?;
        let filter: Vec<String> = thread_ids.iter().map(|id| format!("common_pid=={id}")).collect();
        let filter = filter.join("||");
        let is_there = |event: &&str| self.dir.join("events").join(event).is_dir();
        let operation = OPERATION.iter().copied().find(is_there).unwrap_or(OPERATION[0]);
        for event in [operation, HANDED_OVER, SYSTEM_CALL] {
            self.write(&format!("events/{event}/filter"), &filter)?;
            self.write(&format!("events/{event}/enable"), "1")?;
        }
        let open = |cpu: PathBuf| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(cpu);
        self.cpus()?.into_iter().map(|cpu| open(cpu.join("trace_pipe"))).collect()
    }

    /// Stops, and tells what was seen.
    ///
    /// Errors: the kernel's files could not be read.
    pub(super) fn finish(mut self) -> Result<Recorded, Error> {
        let failed = |error: io::Error| Error::Failed(format!("reading the kernel's tracing: {error}"));
        self.write("tracing_on", "0").map_err(failed)?;
        let mut recorded = self.join().unwrap_or_else(|| Ok(Recorded::default())).map_err(failed)?;
        let mut dropped_count = 0;
        for cpu in self.cpus().map_err(failed)? {
            dropped_count += dropped(&fs::read_to_string(cpu.join("stats")).map_err(failed)?);
        }
        recorded.lost_count = recorded.lost_count.max(dropped_count);
        Ok(recorded)
    }

    fn join(&mut self) -> Option<io::Result<Recorded>> {
        self.is_over.store(true, Ordering::Relaxed);
        let joined = self.reader.take()?.join();
        Some(joined.unwrap_or_else(|_| Err(io::Error::other("the reader panicked"))))
    }

    fn cpus(&self) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(self.dir.join("per_cpu"))?.map(|entry| Ok(entry?.path())).collect()
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
        fs::write(self.dir.join(file), text).map_err(named)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The reader holds files of the instance, which cannot be removed before they are closed. Where removing fails
        // the next run tries again.
        let _ = self.join();
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Removes what runs that were killed have left.
fn remove_abandoned(instances: &Path) {
    let Ok(dir) = fs::read_dir(instances) else { return };
    for entry in dir.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(INSTANCE)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Reads every CPU's pipe until the run is over and all of them are empty.
fn read(files: Vec<File>, with_argument: &[i64], is_over: &AtomicBool) -> io::Result<Recorded> {
    let mut recorded = Recorded::default();
    let mut buffer = vec![0; 64 * 1024];
    // A line may be cut by the end of a read.
    let mut pipes: Vec<(File, Vec<u8>)> = files.into_iter().map(|file| (file, Vec::new())).collect();
    loop {
        let was_over = is_over.load(Ordering::Relaxed);
        for (file, rest) in &mut pipes {
            loop {
                match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => rest.extend_from_slice(buffer.get(..read).unwrap_or(&[])),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                }
                let whole_bytes = memchr::memrchr(b'\n', rest).map_or(0, |at| at + 1);
                let whole = rest.get(..whole_bytes).unwrap_or(&[]);
                String::from_utf8_lossy(whole).lines().for_each(|line| recorded.take(line, with_argument));
                rest.drain(..whole_bytes);
            }
        }
        if was_over {
            return Ok(recorded);
        }
        std::thread::sleep(READ_EVERY);
    }
}

impl Recorded {
    /// Counts one line of a pipe: `  core-0-17  [001] .....  5.25: sys_enter: NR 426 (7, 1, 0, 0, 0, 0)`.
    fn take(&mut self, line: &str, with_argument: &[i64]) {
        if let Some(lost) = line.split_once("[LOST ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok())
        {
            self.lost_count += lost;
        } else if self.take_event(line, with_argument).is_none() {
            self.unread_count += 1;
        }
    }

    fn take_event(&mut self, line: &str, with_argument: &[i64]) -> Option<()> {
        let (task, rest) = line.split_once(" [")?;
        let thread_id: u32 = task.trim_end().rsplit('-').next()?.parse().ok()?;
        let (event, fields) = rest.split_once(": ")?.1.split_once(": ")?;
        let counts = self.threads.entry(thread_id).or_default();
        if event == "sys_enter" {
            let (number, arguments) = fields.strip_prefix("NR ")?.split_once(" (")?;
            let number: i64 = number.parse().ok()?;
            let argument = with_argument.contains(&number).then(|| arguments.split(',').next());
            let argument = argument.flatten().and_then(|hex| u64::from_str_radix(hex, 16).ok());
            *counts.calls.entry((number, argument)).or_default() += 1;
            return Some(());
        }
        let operation = fields.split_once("opcode ")?.1.split(',').next()?;
        let is_handed_over = HANDED_OVER.ends_with(event);
        let by_name = if is_handed_over { &mut counts.handed_over } else { &mut counts.operations };
        match by_name.get_mut(operation) {
            Some(count) => *count += 1,
            None => drop(by_name.insert(operation.to_owned(), 1)),
        }
        Some(())
    }
}

/// Events that a CPU's `stats` say are gone.
fn dropped(stats: &str) -> u64 {
    let names = ["overrun", "commit overrun", "dropped events"];
    let lines = stats.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(name, _)| names.contains(name)).filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(lines: &[&str]) -> Recorded {
        let mut recorded = Recorded::default();
        lines.iter().for_each(|line| recorded.take(line, &[1]));
        recorded
    }

    #[test]
    fn events_are_counted_by_thread_and_name() {
        let submit = "io_uring_submit_req: ring 0000000017, req 00ab, user_data 0x1f, opcode";
        let recorded = take(&[
            &format!("          core-0-17      [001] .....  3500.096058: {submit} RECV, flags 0x8, sq_thread 0"),
            &format!("           <...>-17      [000] d..1.  3500.096059: {submit} RECV, flags 0x8, sq_thread 0"),
            &format!("          core-1-18      [000] .....  3500.096060: {submit} SEND, flags 0x8, sq_thread 0"),
            "          core-1-18      [000] .....  3500.1: io_uring_queue_async_work: ring 01, request 02, \
             user_data 0x0, opcode CLOSE, flags 0x1, normal queue, work 03",
            "          core-1-18      [000] .....  3500.2: sys_enter: NR 426 (7, 1, 0, 0, 0, 0)",
            "          core-1-18      [000] .....  3500.3: sys_enter: NR 1 (1f, 7ffd, 8, 0, 0, 0)",
        ]);
        let one = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
        let first = Counts { operations: one("RECV", 2), ..Counts::default() };
        let calls = BTreeMap::from([((426, None), 1), ((1, Some(0x1f)), 1)]);
        let second = Counts { operations: one("SEND", 1), handed_over: one("CLOSE", 1), calls };
        assert_eq!(recorded.threads, BTreeMap::from([(17, first), (18, second)]));
        assert_eq!((recorded.lost_count, recorded.unread_count), (0, 0));
    }

    #[test]
    fn what_is_lost_or_not_understood_is_told() {
        let recorded = take(&["CPU:1 [LOST 42 EVENTS]", "something else", "x-1 [0] a: sys_enter: NR ? (1)", ""]);
        assert_eq!((recorded.lost_count, recorded.unread_count), (42, 3));
        let stats = "entries: 9\noverrun: 3\ncommit overrun: 1\nbytes: 7\ndropped events: 2\nread events: 5\n";
        assert_eq!(dropped(stats), 6);
    }
}
