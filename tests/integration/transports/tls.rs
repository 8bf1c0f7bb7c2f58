//! Engines behind TLS: served when they can be trusted, refused with the reason when not.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llmgw_test_kit::gateway::MODEL;
use llmgw_test_kit::{Engine, Gateway, chat, raw, wait_for};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;

use super::relay;
use crate::pair::{CHAT, WITHIN, error_of, llmgw};
use crate::streams::rig::{builder, finish_expecting};

/// A certificate for a name, and a file with the authority that signed it.
pub(super) struct Certified {
    pub(super) server: Arc<ServerConfig>,
    pub(super) folder: TempDir,
}

impl Certified {
    pub(super) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

pub(super) fn certified(name: &str, change: fn(&mut CertificateParams)) -> Certified {
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let folder = tempfile::tempdir().expect("a folder");
    ca.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
    let pem = ca.self_signed(&ca_key).expect("signed").pem();
    let key = KeyPair::generate().expect("a key");
    let mut leaf = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    change(&mut leaf);
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).expect("signed").der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![leaf], key))
        .expect("a server");
    let certified = Certified { server: Arc::new(server), folder };
    std::fs::write(certified.ca(), pem).expect("a file");
    certified
}

pub(super) fn endpoint(addr: SocketAddr, ca: &Path) -> String {
    let ca = ca.display();
    format!("{{ name: engine-0, url: \"https://{addr}\", model: {MODEL}, engine: sim, tls: {{ ca: \"{ca}\" }} }}")
}

/// What the log says of the endpoint, as often as it says it.
fn said(gateway: &mut Gateway) -> Vec<String> {
    let lines = gateway.process().lines().into_iter().map(|line| line.text);
    lines.filter(|line| line.contains("endpoint not ready")).collect()
}

#[test]
fn an_engine_that_cannot_be_trusted_gets_nothing_and_the_log_says_once_why() {
    let other = certified("127.0.0.1", |_| {});
    let expired: fn(&mut CertificateParams) = |leaf| leaf.not_after = date_time_ymd(2020, 1, 1);
    for (name, change, ca, expected) in [
        ("127.0.0.1", (|_| {}) as fn(&mut CertificateParams), Some(other.ca()), "signed by no authority"),
        ("engine.test", |_| {}, None, "expected 127.0.0.1, found engine.test"),
        ("127.0.0.1", expired, None, "its certificate has expired"),
    ] {
        let (engine, certified) = (Engine::local(), certified(name, change));
        let addr = relay::tls(certified.server.clone(), engine.addr());
        let ca = ca.unwrap_or_else(|| certified.ca());
        let mut gateway = builder("").endpoint(&endpoint(addr, &ca)).not_ready().start(llmgw());
        wait_for("the reason in the log", WITHIN, || !said(&mut gateway).is_empty());
        let reply = raw::post(gateway.addr(), CHAT, &chat("x").json());
        assert_eq!((reply.status, error_of(&reply).1), (503, "no_endpoint".into()));
        // Several probes later it is still said once.
        assert_eq!(engine.calls().len(), 0, "nothing reaches the engine");
        let lines = said(&mut gateway);
        assert!(lines.len() == 1 && lines[0].contains(expected), "{expected}: {lines:?}");
        finish_expecting(gateway, &["endpoint not ready"]);
    }
}

#[test]
fn an_engine_whose_certificate_turns_bad_is_a_502_that_names_the_reason_and_no_address() {
    let (engine, good) = (Engine::local(), certified("127.0.0.1", |_| {}));
    let other = certified("127.0.0.1", |_| {});
    // Probes come first and are shown the good one; then another authority's.
    let turning = relay::turning(vec![good.server.clone(), other.server.clone()], engine.addr());
    let gateway = builder("").endpoint(&endpoint(turning.addr, &good.ca())).start(llmgw());
    turning.turn();
    let reply = raw::post(gateway.addr(), CHAT, &chat("x").json());
    assert_eq!((reply.status, error_of(&reply).1), (502, "engine_tls".into()), "{}", reply.text());
    let text = reply.text();
    assert!(text.contains("engine-0") && text.contains("signed by no authority"), "{text}");
    assert!(!text.contains("127.0.0.1") && !text.contains(&turning.addr.port().to_string()), "{text}");
    finish_expecting(gateway, &["endpoint not ready"]);
}
