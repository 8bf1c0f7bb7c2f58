//! A variant of the proxy as a process of its own: started, asked for its CPU time, ended.

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A variant: its name, the program, the mode it is started in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) mode: &'static str,
}

const fn variant(name: &'static str, program: &'static str, mode: &'static str) -> Variant {
    Variant { name, program, mode }
}

/// The first one is what the others are compared with.
pub(crate) const VARIANTS: [Variant; 8] = [
    variant("llmgw's own", "bare-own", ""),
    variant("monoio, flags as configured", "bare-monoio", "configured"),
    variant("monoio, default flags", "bare-monoio", "default"),
    variant("monoio, legacy driver (epoll)", "bare-monoio", "legacy"),
    variant("tokio, current thread", "bare-tokio", ""),
    variant("hyper on tokio, current thread", "bare-hyper", ""),
    variant("glommio", "bare-glommio", ""),
    variant("monoio-http codecs, flags as configured", "bare-monoio-http", ""),
];

/// A running proxy. Dropping it ends it.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) addr: SocketAddr,
}

impl Proxy {
    /// Starts a variant on `cpu` in front of the engine's port.
    ///
    /// Errors: it does not start, or does not say where it listens.
    pub(crate) fn start(programs: &Path, variant: Variant, engine_port: u16, cpu: usize) -> io::Result<Self> {
        let mut command = Command::new(programs.join(variant.program));
        command.args([engine_port.to_string(), cpu.to_string(), variant.mode.to_owned()]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        if let Some(said) = child.stdout.take() {
            BufReader::new(said).read_line(&mut line)?;
        }
        let port =
            line.trim().parse::<u16>().map_err(|_| io::Error::other(format!("{} said no port", variant.name)))?;
        Ok(Self { child, addr: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) })
    }

    /// CPU time of all its threads so far, those of the kernel's ring workers included.
    pub(crate) fn cpu_ns(&self) -> io::Result<u64> {
        let mut sum = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
            sum += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sum)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
