//! Keys for a comparison: made once, in a store of which every gateway that asks for keys gets a copy of its own.
//!
//! They are made by the product's own API and held to limits of every kind at every level, so high that none refuses:
//! what is measured is that they are asked. Every gateway is sent a key with each request, whether or not it looks.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::steps::MODEL;
use crate::fleet::GatewayProcess;
use crate::metrics::Metrics;
use crate::wire::{Part, Step, Wire};

/// As many as the largest step has connections.
const KEY_COUNT: usize = 5000;
/// They are spread over so many projects of one team.
const PROJECT_COUNT: usize = 50;
/// The highest value a limit may have.
const HIGH: u64 = 1 << 53;
/// How long one answer of an admin address may take.
const WITHIN: Duration = Duration::from_secs(20);
const STORE: &str = "llmgw.db";

/// See the module.
#[derive(Debug)]
pub(crate) struct Keyring {
    /// A folder with the store's file, and that of its newest copy.
    dir: PathBuf,
    pub(crate) keys: Vec<String>,
}

impl Keyring {
    /// Starts the product once in front of an engine and makes the keys in it.
    ///
    /// Errors: it does not start, or refuses one of them.
    pub(crate) fn make(llmgw: &Path, engine: SocketAddr, dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let store = dir.join(STORE);
        let config = format!(
            "listen: \"127.0.0.1:0\"\nadmin_listen: \"127.0.0.1:0\"\ncores: 1\n{}\
             endpoints: [{{ url: \"http://{engine}\", model: \"{MODEL}\" }}]\n",
            lines(&store)
        );
        let mut gateway = GatewayProcess::start(llmgw, &config)?;
        let mut desk = AdminDesk::at(gateway.admin_addr)?;
        desk.ask("POST", "/organizations", &json!({ "name": "bench" }))?;
        desk.ask("POST", "/teams", &json!({ "organization": "bench", "name": "load" }))?;
        desk.hold("org", "bench")?;
        desk.hold("team", "bench%2Fload")?;
        for project in 0..PROJECT_COUNT {
            desk.ask("POST", "/projects", &json!({ "team": "bench/load", "name": project_name(project) }))?;
            desk.hold("project", &format!("bench%2Fload%2F{}", project_name(project)))?;
        }
        let key = |desk: &mut AdminDesk, number: usize| -> io::Result<String> {
            let (name, project) = (format!("key-{number}"), project_name(number % PROJECT_COUNT));
            let project = format!("bench/load/{project}");
            let made = desk.ask("POST", "/keys", &json!({ "name": name, "project": project }))?;
            desk.hold("key", &name)?;
            made["key"].as_str().map(str::to_owned).ok_or_else(|| io::Error::other("a key without its text"))
        };
        let keys = (0..KEY_COUNT).map(|number| key(&mut desk, number)).collect::<io::Result<Vec<_>>>()?;
        drop(desk);
        gateway.process.stop()?;
        Ok(Self { dir, keys })
    }

    /// Lines of a configuration that asks for these keys, in a fresh copy of the store. The copy before it is gone.
    pub(crate) fn lines(&self) -> io::Result<String> {
        let copy = self.dir.join("copy");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        fs::create_dir(&copy)?;
        // Beside its file a store may have a log of what is not in it yet.
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), copy.join(entry.file_name()))?;
            }
        }
        Ok(lines(&copy.join(STORE)))
    }
}

fn lines(store: &Path) -> String {
    format!("auth: keys\nstore: {{ path: \"{}\" }}\n", store.display())
}

fn project_name(number: usize) -> String {
    format!("project-{number}")
}

/// A connection to an admin address.
struct AdminDesk {
    addr: SocketAddr,
    socket: TcpStream,
}

impl AdminDesk {
    fn at(addr: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&addr, WITHIN)?;
        socket.set_read_timeout(Some(WITHIN))?;
        socket.set_nodelay(true)?;
        Ok(Self { addr, socket })
    }

    /// Holds a level to limits of every kind.
    fn hold(&mut self, level: &str, scope: &str) -> io::Result<()> {
        let limits = json!({
            "rpm": HIGH, "tpm": HIGH, "parallel": HIGH, "budget_micros": HIGH, "budget_period": "month",
        });
        self.ask("PUT", &format!("/limits/{level}/{scope}"), &limits).map(drop)
    }

    /// Asks the admin API.
    ///
    /// Errors: it is not done; the message holds what was said.
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let (status, said) = self.call(method, &format!("/api/v1{path}"), &body.to_string())?;
        if status != 200 {
            return Err(io::Error::other(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&said))));
        }
        serde_json::from_slice(&said).map_err(io::Error::other)
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.addr,
            body.len()
        );
        self.socket.write_all(format!("{head}{body}").as_bytes())?;
        let (mut wire, mut said, mut buffer) = (Wire::default(), Vec::new(), vec![0; 64 * 1024]);
        loop {
            let read = self.socket.read(&mut buffer)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut on = |part: Part<'_>| {
                if let Part::Body(bytes) = part {
                    said.extend_from_slice(bytes);
                }
            };
            match wire.push(buffer.get(..read).unwrap_or_default(), &mut on) {
                Ok(Step::Done) => return Ok((wire.status(), said)),
                Ok(Step::More) => {}
                Err(fault) => return Err(io::Error::other(format!("an answer that is no HTTP: {fault:?}"))),
            }
        }
    }
}

/// The metrics page of a gateway of ours whose admin address has that port.
///
/// Errors: it does not tell.
pub(crate) fn metrics(admin_port: u16) -> io::Result<Metrics> {
    let (_, page) = AdminDesk::at((Ipv4Addr::LOCALHOST, admin_port).into())?.call("GET", "/metrics", "")?;
    Ok(Metrics::parse(&String::from_utf8_lossy(&page)))
}
