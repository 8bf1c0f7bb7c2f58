//! A gateway with a certificate of the test's own, before one simulated engine.

use std::path::PathBuf;

use llmgw_test_kit::gateway::Builder;
use llmgw_test_kit::raw::{Connection, Reply, Trust};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway};
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::streams::rig::{CHAT, builder, llmgw};

pub(super) const NAME: &str = "api.test";

/// A certificate and its key, in a folder of their own.
pub(super) struct Pair {
    folder: TempDir,
}

impl Pair {
    pub(super) fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    pub(super) fn with(name: &str, change: fn(&mut CertificateParams)) -> Self {
        let pair = Self { folder: tempfile::tempdir().expect("a folder") };
        pair.renew(name, change);
        pair
    }

    /// Puts another certificate in the place of this one, with another key.
    pub(super) fn renew(&self, name: &str, change: fn(&mut CertificateParams)) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        change(&mut params);
        let cert = params.self_signed(&key).expect("signed").pem();
        std::fs::write(self.cert(), cert).expect("written");
        std::fs::write(self.key(), key.serialize_pem()).expect("written");
    }

    pub(super) fn cert(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// A client that trusts what is in the files at this moment.
    pub(super) fn trusted(&self) -> Trust {
        Trust::only(&[&self.cert()])
    }

    /// As a value of `tls`.
    pub(super) fn flow(&self) -> String {
        format!("{{ cert: \"{}\", key: \"{}\" }}", self.cert().display(), self.key().display())
    }
}

pub(super) struct Rig {
    pub(super) gateway: Gateway,
    pub(super) engine: Engine,
    pub(super) pair: Pair,
}

impl Rig {
    pub(super) fn start() -> Self {
        Self::with("", |builder| builder)
    }

    /// With keys of `router.timeouts`, and changes.
    pub(super) fn with(timeouts: &str, change: impl FnOnce(Builder) -> Builder) -> Self {
        Self::over(Engine::local(), timeouts, change)
    }

    /// The same before this engine.
    pub(super) fn over(engine: Engine, timeouts: &str, change: impl FnOnce(Builder) -> Builder) -> Self {
        let pair = Pair::new(NAME);
        let gateway = change(builder(timeouts).top(&format!("tls: {}", pair.flow())).engine(&engine)).start(llmgw());
        Self { gateway, engine, pair }
    }

    /// A connection of a client that comes for the first time.
    #[track_caller]
    pub(super) fn open(&self) -> Connection {
        self.open_as(&self.pair.trusted())
    }

    #[track_caller]
    pub(super) fn open_as(&self, trust: &Trust) -> Connection {
        Connection::open_tls(self.gateway.addr(), trust, NAME).expect("a handshake")
    }

    /// Handshakes that ended so.
    #[track_caller]
    pub(super) fn handshakes(&self, outcome: &str) -> u64 {
        let count = self.gateway.metrics().sum("llmgw_tls_handshakes_total", &[("outcome", outcome)]);
        count.unwrap_or(0.0) as u64
    }
}

/// Sends a chat on a connection that stays, and reads the whole reply.
#[track_caller]
pub(super) fn ask(connection: &mut Connection, chat: &Chat) -> Reply {
    connection.send(&Request::new("POST", CHAT).json(&chat.json()).bytes()).expect("sent");
    connection.reply().expect("a reply")
}
