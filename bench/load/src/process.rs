//! A process under watch: started with its output captured, waited for by what it says, gone when the guard is dropped.
//!
//! Called by the scenarios, which start engines and a gateway, and by the suites. Ends only the process it started, by
//! its id: SIGTERM first, SIGKILL after a grace. Never inherits the terminal.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use rustix::process::Signal;

use crate::usage::{Usage, usage_of};

/// The most lines kept of one process; later ones are counted only.
const LINES_MAX: usize = 200_000;
const GRACE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);

/// Where a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Stdout,
    Stderr,
}

/// One captured line, without its line end.
#[derive(Debug, Clone)]
pub struct Line {
    pub source: Source,
    pub text: String,
}

/// How to start a process.
#[derive(Debug, Clone)]
pub struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
    output: Option<PathBuf>,
    grace: Duration,
}

impl Launch {
    #[must_use]
    pub fn new(program: impl AsRef<Path>) -> Self {
        let program = program.as_ref().to_owned();
        Self { program, args: Vec::new(), env: Vec::new(), dir: None, output: None, grace: GRACE }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Writes both outputs into a file in place of capturing them: nothing here then wakes for a line.
    #[must_use]
    pub fn output_to(mut self, path: impl AsRef<Path>) -> Self {
        self.output = Some(path.as_ref().to_owned());
        self
    }

    /// How long the process may take to end after SIGTERM; default 3 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Starts it.
    ///
    /// Errors: the program is missing or may not run; the message names it.
    pub fn start(self) -> io::Result<Process> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        if let Some(path) = &self.output {
            let file = std::fs::File::create(path)?;
            command.stdout(file.try_clone()?).stderr(file);
        }
        let shown = self.program.display().to_string();
        let mut child =
            command.spawn().map_err(|error| io::Error::new(error.kind(), format!("cannot start {shown}: {error}")))?;
        let log = Arc::new(Log::default());
        let mut readers = Vec::new();
        if let Some(out) = child.stdout.take() {
            readers.push(capture(out, Source::Stdout, &log));
        }
        if let Some(err) = child.stderr.take() {
            readers.push(capture(err, Source::Stderr, &log));
        }
        Ok(Process { shown, child, log, readers, grace: self.grace, ended: None })
    }
}

/// A running (or ended) process. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    shown: String,
    child: Child,
    log: Arc<Log>,
    readers: Vec<thread::JoinHandle<()>>,
    grace: Duration,
    ended: Option<ExitStatus>,
}

impl Process {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU, memory and descriptors at this moment; `None` once it has ended.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        usage_of(self.pid())
    }

    /// Everything it has written so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.log.guard().lines.clone()
    }

    /// How many of the lines written so far satisfy.
    #[must_use]
    pub fn count_lines(&self, satisfies: impl Fn(&Line) -> bool) -> usize {
        self.log.guard().lines.iter().filter(|line| satisfies(line)).count()
    }

    /// Waits until a line (already written or to come) answers the question, and returns the answer.
    ///
    /// Errors: the process ended, or the time passed; the message carries the last lines it wrote.
    pub fn wait_for_line<T>(
        &mut self,
        what: &str,
        within: Duration,
        mut answer: impl FnMut(&Line) -> Option<T>,
    ) -> io::Result<T> {
        let deadline = Instant::now() + within;
        let mut seen = 0;
        loop {
            // Asked before the lines are read: what an ended process wrote last is still looked at.
            let ended = self.exit_status()?;
            {
                let mut state = self.log.guard();
                while let Some(line) = state.lines.get(seen) {
                    seen += 1;
                    if let Some(found) = answer(line) {
                        return Ok(found);
                    }
                }
                if ended.is_none() {
                    let (waited, _) =
                        self.log.changed.wait_timeout(state, POLL * 4).unwrap_or_else(PoisonError::into_inner);
                    state = waited;
                }
                if state.lines.len() > seen {
                    continue;
                }
            }
            if let Some(status) = ended {
                return Err(self.complaint(&format!("ended ({status}) before {what}")));
            }
            if Instant::now() >= deadline {
                return Err(self.complaint(&format!("no {what} within {within:?}")));
            }
        }
    }

    /// The exit status when it has ended on its own or was stopped; all its output has been captured by then.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            self.ended = Some(status);
            for reader in self.readers.drain(..) {
                // A grandchild may still hold the pipe: its reader is left to itself.
                let until = Instant::now() + Duration::from_millis(500);
                while !reader.is_finished() && Instant::now() < until {
                    thread::sleep(POLL);
                }
            }
        }
        Ok(self.ended)
    }

    /// Waits for the end.
    ///
    /// Errors: still running after `within`.
    pub fn wait(&mut self, within: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.exit_status()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(self.complaint(&format!("still running after {within:?}")));
            }
            thread::sleep(POLL);
        }
    }

    /// Sends a signal; nothing happens when the process has ended.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.exit_status()?.is_some() {
            return Ok(());
        }
        // Not reaped yet, so the id is still ours.
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed())
            .ok_or_else(|| io::Error::other("a process without an id"))?;
        rustix::process::kill_process(pid, signal).map_err(io::Error::from)
    }

    /// SIGTERM, and SIGKILL when the grace has passed.
    pub fn stop(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        if let Ok(status) = self.wait(self.grace) {
            return Ok(status);
        }
        self.kill()
    }

    /// SIGKILL at once.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL)?;
        self.wait(Duration::from_secs(5))
    }

    fn complaint(&self, what: &str) -> io::Error {
        let state = self.log.guard();
        let tail: Vec<&str> = state.lines.iter().rev().take(20).rev().map(|line| line.text.as_str()).collect();
        io::Error::other(format!("{}: {what}; it wrote last:\n{}", self.shown, tail.join("\n")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the process is in any case no child of another.
        let _ = self.stop();
    }
}

#[derive(Debug, Default)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    lines: Vec<Line>,
    dropped_count: u64,
}

impl Log {
    fn guard(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: Line) {
        let mut state = self.guard();
        if state.lines.len() < LINES_MAX {
            state.lines.push(line);
        } else {
            state.dropped_count += 1;
        }
        self.changed.notify_all();
    }
}

fn capture(from: impl Read + Send + 'static, source: Source, log: &Arc<Log>) -> thread::JoinHandle<()> {
    let log = Arc::clone(log);
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut bytes = Vec::new();
        while from.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
            log.push(Line { source, text });
            bytes.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Process {
        Launch::new("sh").args(["-c", script]).grace(Duration::from_millis(200)).start().expect("a shell")
    }

    #[test]
    fn a_line_of_either_output_answers() {
        let mut process = shell("echo port 17; echo also here >&2; exec sleep 30");
        let port = process.wait_for_line("a port", LONG, |line| line.text.strip_prefix("port ")?.parse::<u16>().ok());
        assert_eq!(port.expect("the port"), 17);
        let source = process.wait_for_line("the other", LONG, |line| line.text.contains("also").then_some(line.source));
        assert_eq!(source.expect("the other"), Source::Stderr);
    }

    #[test]
    fn an_end_before_the_line_is_told_with_what_was_written() {
        let mut process = shell("echo cannot bind; exit 3");
        let error = process.wait_for_line("readiness", LONG, |line| line.text.contains("ready").then_some(()));
        let message = error.expect_err("it never became ready").to_string();
        assert!(message.contains("before readiness") && message.contains("cannot bind"), "{message}");
    }

    #[test]
    fn time_passing_is_an_error() {
        let mut process = shell("exec sleep 30");
        let waited = process.wait_for_line("a word", Duration::from_millis(30), |_| Some(()));
        assert!(waited.expect_err("silent").to_string().contains("no a word within"));
    }

    #[test]
    fn what_ignores_sigterm_is_killed_after_the_grace() {
        let mut process = shell("trap '' TERM; echo up; while :; do sleep 0.05; done");
        process.wait_for_line("up", LONG, |line| (line.text == "up").then_some(())).expect("up");
        let status = process.stop().expect("it ends");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    #[test]
    fn dropping_the_guard_ends_the_process() {
        let process = shell("exec sleep 30");
        let pid = process.pid();
        assert!(usage_of(pid).is_some());
        drop(process);
        assert!(usage_of(pid).is_none());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Launch::new("/no/such/program").start().expect_err("missing");
        assert!(error.to_string().contains("/no/such/program"));
    }
}
