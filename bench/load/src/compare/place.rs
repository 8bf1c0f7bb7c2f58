//! Where gateways run: ports, engines, a folder for their files, the programs; and the life of one gateway.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use tempfile::TempDir;

use super::keyring::Keyring;
use super::machine::pin;
use super::steps::MODEL;
use crate::fleet::wait_for_addr;
use crate::process::{Launch, Process};
use crate::prompt::Chat;
use crate::target::{Target, Trust};

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
    pub(crate) certificate: Certificate,
    pub(crate) keyring: Keyring,
    /// Where the admin address is of the gateway of ours that was configured last.
    pub(crate) admin_port: Cell<u16>,
    mock: Process,
    dir: TempDir,
}

/// What gateways show to clients that speak TLS.
#[derive(Debug)]
pub(crate) struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    pub(crate) trust: Trust,
}

impl Certificate {
    /// Made for this run: an elliptic key, for the address that gateways listen on.
    fn make(dir: &Path) -> io::Result<Self> {
        let made =
            rcgen::generate_simple_self_signed(vec![Ipv4Addr::LOCALHOST.to_string()]).map_err(io::Error::other)?;
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        std::fs::write(&cert, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        let trust = Trust::only(made.cert.der()).map_err(io::Error::other)?;
        Ok(Self { cert, key, trust })
    }

    /// The certificate's file and the key's.
    pub(crate) fn files(&self) -> [String; 2] {
        [&self.cert, &self.key].map(|path| path.display().to_string())
    }
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
        let certificate = Certificate::make(dir.path())?;
        let engine = *engines.first().ok_or_else(|| io::Error::other("there is no engine"))?;
        let keyring = Keyring::make(&programs.llmgw, engine, dir.path().join("keys"))?;
        let admin_port = Cell::new(0);
        Ok(Self { programs, gateway_cpu, load_cpu, engines, certificate, keyring, admin_port, mock, dir })
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
    pub(crate) fn start(&self, name: &str, launch: Launch, port: u16, trust: Option<Trust>) -> io::Result<Running> {
        let log = self.path(&format!("{name}.log"));
        let target = Target::parse(&format!("http://127.0.0.1:{port}")).map_err(io::Error::other)?;
        let target = Target { trust, ..target };
        let begun = Instant::now();
        pin(self.gateway_cpu)?;
        let started = launch.output_to(&log).start();
        pin(self.load_cpu)?;
        let mut process = started?;
        let chat = Chat { model: MODEL.to_owned(), headers: credential(self.keyring.keys.first()), ..first_chat() };
        while !is_answered(&target, &chat) {
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

/// A short prompt.
pub(crate) fn first_chat() -> Chat {
    Chat { prompt_bytes: 100, ..Chat::default() }
}

/// The header that shows a key.
pub(crate) fn credential(key: Option<&String>) -> Vec<(String, String)> {
    key.map(|key| ("Authorization".to_owned(), format!("Bearer {key}"))).into_iter().collect()
}

/// Whether that chat has a 200.
pub(crate) fn is_answered(target: &Target, chat: &Chat) -> bool {
    let ask = || -> io::Result<bool> {
        let mut socket = TcpStream::connect_timeout(&target.addr, Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        let (request, mut status) = (chat.bytes(target), [0; 12]);
        match &target.trust {
            None => {
                socket.write_all(&request)?;
                socket.read_exact(&mut status)?;
            }
            Some(trust) => {
                let name = ServerName::IpAddress(target.addr.ip().into());
                let mut session = ClientConnection::new(trust.config(), name).map_err(io::Error::other)?;
                let mut within = rustls::Stream::new(&mut session, &mut socket);
                within.write_all(&request)?;
                within.read_exact(&mut status)?;
            }
        }
        Ok(&status == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}

/// A port nobody listens on at this moment: the peers want a number.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
