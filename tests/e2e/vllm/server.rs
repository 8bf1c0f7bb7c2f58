//! Real vLLM servers, and the processes behind each. Called by the tests of `vllm` and `priority_vllm`.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use llmgw_test_kit::process::{Launch, Process, Signal};
use llmgw_test_kit::raw;

use crate::install;

/// A minute on an idle machine, a quarter of an hour on one that is overbooked.
const START: Duration = Duration::from_secs(1800);
const GRACE: Duration = Duration::from_secs(20);

/// A running vLLM. Dropping it ends it, and those of its processes that outlived it.
#[derive(Debug)]
pub(crate) struct Vllm {
    pub(crate) addr: SocketAddr,
    process: Process,
    family: Vec<Relative>,
}

/// A process that the server started, and when, so that another one with its number is not taken for it.
#[derive(Debug)]
struct Relative {
    pid: u32,
    born: String,
}

impl Vllm {
    /// Starts some at once, each on a free port and with these flags of `vllm serve`, and waits until all answer.
    #[track_caller]
    pub(crate) fn start<const COUNT: usize>(flags: &[&str]) -> [Self; COUNT] {
        let mut all = [(); COUNT].map(|()| {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
            let addr = free.unwrap_or_else(|error| panic!("no free port: {error}"));
            let launch = install::bash("engines/start-vllm-cpu.sh").arg(addr.port().to_string()).args(flags);
            let process = launch.grace(GRACE).start().unwrap_or_else(|error| panic!("{error}"));
            Self { addr, process, family: Vec::new() }
        });
        for engine in &mut all {
            raw::wait_for_ok(engine.addr, "/health", START);
            engine.family = below(engine.process.pid());
        }
        all
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Ends the process that computes with SIGKILL; the one that serves HTTP lives on.
    #[track_caller]
    pub(super) fn kill_engine_process(&self) {
        let core = self.family.iter().find(|one| title(one.pid).starts_with("VLLM::EngineCore"));
        let core = core.unwrap_or_else(|| panic!("no engine process among {:?}", self.family));
        assert!(is_killed(core.pid), "kill -KILL {}", core.pid);
    }

    /// Asks the server to end, as a supervisor does.
    #[track_caller]
    pub(super) fn terminate(&mut self) {
        self.process.signal(Signal::TERM).unwrap_or_else(|error| panic!("{error}"));
    }

    pub(super) fn refuses_connections(&self) -> bool {
        TcpStream::connect_timeout(&self.addr, Duration::from_secs(1)).is_err()
    }

    /// Waits for the server's end; `false` when it is still there.
    pub(super) fn ends_within(&mut self, within: Duration) -> bool {
        self.process.wait(within).is_ok()
    }
}

impl Drop for Vllm {
    fn drop(&mut self) {
        // Also of a server that never answered.
        self.family.extend(below(self.process.pid()));
        // What does not end here is looked for below, and nothing else can be done.
        let _ = self.process.stop();
        for one in self.family.iter().filter(|one| born(one.pid).as_ref() == Some(&one.born)) {
            // It may have ended meanwhile.
            is_killed(one.pid);
        }
    }
}

/// The processes that a process started, and those that they started.
fn below(root: u32) -> Vec<Relative> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(all.iter().filter(|pid| parent_of(**pid) == Some(parent)));
        at += 1;
    }
    let started = found.split_off(1).into_iter();
    started.filter_map(|pid| Some(Relative { pid, born: born(pid)? })).collect()
}

/// When a process began, in ticks; nothing when it is gone, or only waits for its parent to hear of its end.
fn born(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18).map(str::to_owned))?
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// What a process calls itself; empty when it is gone.
fn title(pid: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned()
}

fn is_killed(pid: u32) -> bool {
    let killed = Launch::new("kill").args(["-KILL", &pid.to_string()]).start().and_then(|mut it| it.wait(GRACE));
    killed.is_ok_and(|status| status.success())
}
