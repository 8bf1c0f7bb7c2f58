//! Where gateways run: ports, engines, a folder for their files, the programs; and the life of one gateway.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::machine::pin;
use super::steps::MODEL;
use crate::fleet::wait_for_addr;
use crate::process::{Launch, Process};
use crate::prompt::Chat;
use crate::target::Target;

const READY_WITHIN: Duration = Duration::from_secs(30);
const ENGINE_COUNT: usize = 3;

/// The programs under test, and the folder the peers were installed in.
#[derive(Debug, Clone)]
pub struct Programs {
    pub llmgw: PathBuf,
    /// The conventional design, where it was built.
    pub stock: Option<PathBuf>,
    pub peers: PathBuf,
    /// This program, which is the engine, too.
    pub load: PathBuf,
}

/// A place for one gateway at a time.
#[derive(Debug)]
pub struct Place {
    pub(crate) programs: Programs,
    pub(crate) gateway_cpu: usize,
    pub(crate) load_cpu: usize,
    pub(crate) engines: Vec<SocketAddr>,
    mock: Process,
    dir: TempDir,
}

/// A gateway that answers.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Process,
    pub(crate) target: Target,
    /// From the start of the program to its first good answer.
    pub(crate) start_ms: f64,
}

impl Place {
    /// Pins this thread to the load's CPU and starts the engine there.
    ///
    /// Errors: pinning is not allowed, or the engine does not start.
    pub fn new(programs: Programs, gateway_cpu: usize, load_cpu: usize) -> io::Result<Self> {
        pin(load_cpu)?;
        let dir = tempfile::Builder::new().prefix("llmgw-compare-").tempdir()?;
        // A proxy's worker may run as somebody else.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        let mut mock = Launch::new(&programs.load).args(["mock", "--ports", &ENGINE_COUNT.to_string()]).start()?;
        let engines = (0..ENGINE_COUNT)
            .map(|idx| wait_for_addr(&mut mock, &format!("engine {idx} listening on")))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self { programs, gateway_cpu, load_cpu, engines, mock, dir })
    }

    pub(crate) fn mock_pid(&self) -> u32 {
        self.mock.pid()
    }

    /// Writes a file into the folder and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a program on the gateway's CPU and waits until a chat call is answered.
    ///
    /// Errors: it ends or stays silent; the message holds what it wrote last.
    pub(crate) fn start(&self, name: &str, launch: Launch, port: u16) -> io::Result<Running> {
        let log = self.path(&format!("{name}.log"));
        let target = Target::parse(&format!("http://127.0.0.1:{port}")).map_err(io::Error::other)?;
        let begun = Instant::now();
        pin(self.gateway_cpu)?;
        let started = launch.output_to(&log).start();
        pin(self.load_cpu)?;
        let mut process = started?;
        while !is_answered(&target, MODEL) {
            let ended = process.exit_status()?;
            if ended.is_some() || begun.elapsed() > READY_WITHIN {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(8).collect();
                let tail: String = tail.into_iter().rev().map(|line| format!("\n  {line}")).collect();
                return Err(io::Error::other(format!("{name} does not answer ({ended:?}); it wrote last:{tail}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Running { process, target, start_ms: begun.elapsed().as_secs_f64() * 1e3 })
    }
}

/// Whether a chat call has a 200.
pub(crate) fn is_answered(target: &Target, model: &str) -> bool {
    let ask = || -> io::Result<bool> {
        let mut socket = TcpStream::connect_timeout(&target.addr, Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        let chat = Chat { model: model.to_owned(), prompt_bytes: 100, ..Chat::default() };
        socket.write_all(&chat.bytes(target))?;
        let mut status = [0; 12];
        socket.read_exact(&mut status)?;
        Ok(&status == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}

/// A port nobody listens on at this moment: the peers want a number.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
