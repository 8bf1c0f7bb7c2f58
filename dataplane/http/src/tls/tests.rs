//! A TLS peer in memory at the other end, an engine or a client: what it sends is cut as the test says.

use std::collections::VecDeque;
use std::io::Read as _;
use std::task::Waker;

use llmgw_runtime::io::read as io_read;
use llmgw_runtime::{Either, race};
use proptest::prelude::*;
use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::*;
use crate::scripted::run;

pub(super) const NAME: &str = "engine.test";

/// An authority, and a server's settings with a certificate of its.
pub(super) struct Certified {
    authority: CertificateDer<'static>,
    pub(super) server: Arc<ServerConfig>,
}

impl Certified {
    /// What a client goes by that trusts the authority.
    pub(super) fn trusted(&self) -> Arc<TlsConfig> {
        trusting(&self.authority)
    }
}

pub(super) fn certified(
    name: &str,
    version: &'static SupportedProtocolVersion,
    change: fn(&mut CertificateParams),
) -> Certified {
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
    ca.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = ca.self_signed(&ca_key).expect("signed").der().clone();
    let key = KeyPair::generate().expect("a key");
    let mut leaf = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    change(&mut leaf);
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).expect("signed").der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![leaf], key))
        .expect("a server");
    Certified { authority, server: Arc::new(server) }
}

fn trusting(authority: &CertificateDer<'static>) -> Arc<TlsConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).expect("an authority");
    let builder = TlsConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

pub(super) struct Peer {
    pub(super) tls: Connection,
    /// Ciphertext on its way to us.
    pub(super) out: VecDeque<u8>,
    /// How many bytes each read finds, in turn; a pause comes before each.
    pieces: Vec<usize>,
    turn: usize,
    is_paused: bool,
    pub(super) is_writer_paused: bool,
    got: Vec<u8>,
    pub(super) has_ended: bool,
    pub(super) is_closed: bool,
    pub(super) is_deaf: bool,
    reader: Option<Waker>,
}

#[derive(Clone)]
pub(super) struct Wire(pub(super) Rc<RefCell<Peer>>);

impl Wire {
    fn new(certified: &Certified, pieces: &[usize]) -> Self {
        Self::of(ServerConnection::new(certified.server.clone()).expect("a server").into(), pieces)
    }

    /// A client that has said its first words.
    pub(super) fn client(config: Arc<TlsConfig>, pieces: &[usize]) -> Self {
        let name = ServerName::try_from(NAME).expect("a name");
        let wire = Self::of(ClientConnection::new(config, name).expect("a client").into(), pieces);
        wire.at_peer(|_| ());
        wire
    }

    fn of(tls: Connection, pieces: &[usize]) -> Self {
        Self(Rc::new(RefCell::new(Peer {
            tls,
            out: VecDeque::new(),
            pieces: pieces.to_vec(),
            turn: 0,
            is_paused: false,
            is_writer_paused: false,
            got: Vec::new(),
            has_ended: false,
            is_closed: false,
            is_deaf: false,
            reader: None,
        })))
    }

    /// Does something at the other end and sends what came of it.
    pub(super) fn at_peer(&self, action: impl FnOnce(&mut Peer)) {
        let mut server = self.0.borrow_mut();
        action(&mut server);
        server.flush();
        if let Some(waker) = server.reader.take() {
            waker.wake();
        }
    }

    pub(super) fn say(&self, bytes: &[u8]) {
        self.at_peer(|server| {
            for piece in bytes.chunks(10_000) {
                server.tls.writer().write_all(piece).expect("room");
                server.flush();
            }
        });
    }

    pub(super) fn got(&self) -> Vec<u8> {
        self.0.borrow().got.clone()
    }
}

impl Peer {
    fn flush(&mut self) {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.out).expect("memory");
        }
    }

    fn hear(&mut self, mut cipher: &[u8]) {
        while !cipher.is_empty() && !self.is_deaf {
            if self.tls.read_tls(&mut cipher).expect("room") == 0 || self.tls.process_new_packets().is_err() {
                break;
            }
            let mut found = Vec::new();
            let _ = self.tls.reader().read_to_end(&mut found);
            self.got.extend(found);
        }
        self.flush();
    }
}

impl Io for Wire {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        let mut server = self.0.borrow_mut();
        server.is_paused = !server.is_paused;
        if server.is_paused && !server.out.is_empty() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if server.out.is_empty() {
            server.reader = Some(cx.waker().clone());
            return if server.has_ended || server.is_closed { Poll::Ready(Ok(0)) } else { Poll::Pending };
        }
        let piece = server.pieces.get(server.turn % server.pieces.len().max(1)).copied().unwrap_or(usize::MAX);
        server.turn += 1;
        let taken = piece.max(1).min(room).min(server.out.len());
        buf.extend(server.out.drain(..taken));
        Poll::Ready(Ok(taken))
    }

    /// Takes as much as the pieces say, and has the writer wait in between.
    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let taken = {
            let mut server = self.0.borrow_mut();
            server.is_writer_paused = !server.is_writer_paused;
            if server.is_writer_paused {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            server.turn += 1;
            let piece = server.pieces.get(server.turn % server.pieces.len().max(1)).copied().unwrap_or(usize::MAX);
            // Bounded below: a megabyte byte by byte shows nothing more.
            piece.max(500).min(all.len())
        };
        self.at_peer(|server| server.hear(&all[..taken]));
        Poll::Ready(Ok(taken))
    }

    fn close_now(&self) {
        self.at_peer(|server| server.is_closed = true);
    }
}

async fn connected(certified: &Certified, pieces: &[usize]) -> (Tls<Wire>, Wire) {
    let wire = Wire::new(certified, pieces);
    let tls = connect(wire.clone(), &trusting(&certified.authority), NAME).await.expect("a connection");
    (tls, wire)
}

/// Reads until `len` bytes are there, or the end; buffers have `room` each.
pub(super) async fn read(tls: &Tls<Wire>, len: usize, room: usize) -> (Vec<u8>, io::Result<usize>) {
    let mut all = Vec::new();
    while all.len() < len {
        let result = io_read(tls, &mut all, room).await;
        if !matches!(result, Ok(1..)) {
            return (all, result);
        }
    }
    (all, Ok(len))
}

pub(super) fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_the_ciphertext_gives_the_same_bytes(
        pieces in proptest::collection::vec(1_usize..20_000, 1..6),
        len in 1_usize..100_000,
        room in 16_usize..70_000,
        is_new in any::<bool>(),
    ) {
        run(async {
            let certified = certified(NAME, if is_new { &TLS13 } else { &TLS12 }, |_| {});
            let (tls, wire) = connected(&certified, &pieces).await;
            let said = text(len);
            wire.say(&said);
            wire.at_peer(|server| { server.tls.send_close_notify(); server.has_ended = true; });
            let (heard, _) = read(&tls, len, room).await;
            assert!(heard == said, "{} of {} bytes, or others", heard.len(), said.len());
            assert_eq!(read(&tls, 1, room).await.1.expect("an end in order"), 0);
        });
    }
}

#[test]
fn what_is_written_arrives_whole_while_a_read_waits() {
    run(async {
        let (tls, wire) = connected(&certified(NAME, &TLS13, |_| {}), &[5]).await;
        let mut buf = Vec::new();
        assert!(matches!(race(io_read(&tls, &mut buf, 4096), std::future::ready(())).await, Either::Right(())));
        let said = text(1 << 20);
        write_all(&tls, &said).await.expect("written");
        assert!(wire.got() == said, "{} bytes arrived", wire.got().len());
        wire.say(b"answer");
        assert_eq!(io_read(&tls, &mut buf, 4096).await.expect("read"), 6);
        assert_eq!(buf, b"answer");
        write_all(&tls, b"").await.expect("nothing to write");
    });
}

#[test]
fn a_peer_that_changes_its_keys_is_followed() {
    run(async {
        let (tls, wire) = connected(&certified(NAME, &TLS13, |_| {}), &[]).await;
        for round in 0..3 {
            wire.at_peer(|server| server.tls.refresh_traffic_keys().expect("TLS 1.3"));
            wire.say(b"new keys");
            assert_eq!(read(&tls, 8, 100).await.0, b"new keys", "round {round}");
            write_all(&tls, b"heard ").await.expect("written");
        }
        assert_eq!(wire.got(), b"heard heard heard ");
    });
}

#[test]
fn an_end_without_goodbye_is_told_from_one_in_order() {
    for (says_goodbye, expected) in [(true, Ok(0)), (false, Err(io::ErrorKind::UnexpectedEof))] {
        run(async {
            let (tls, wire) = connected(&certified(NAME, &TLS13, |_| {}), &[]).await;
            wire.say(b"part");
            wire.at_peer(|server| {
                if says_goodbye {
                    server.tls.send_close_notify();
                }
                server.has_ended = true;
            });
            let (heard, end) = read(&tls, 100, 100).await;
            assert_eq!((heard.as_slice(), end.map_err(|error| error.kind())), (&b"part"[..], expected));
        });
    }
}

#[test]
fn what_came_before_broken_bytes_is_given_out() {
    run(async {
        let (tls, wire) = connected(&certified(NAME, &TLS13, |_| {}), &[]).await;
        wire.say(b"good");
        wire.at_peer(|server| server.out.extend(b"HTTP/1.1 400 what is this\r\n\r\n"));
        let (heard, end) = read(&tls, 100, 100).await;
        assert_eq!(heard, b"good");
        assert_eq!(end.expect_err("broken").kind(), io::ErrorKind::InvalidData);
    });
}

#[test]
fn an_engine_that_cannot_be_trusted_is_refused_with_the_reason_and_closed() {
    let other = certified(NAME, &TLS13, |_| {}).authority;
    let expired: fn(&mut CertificateParams) = |leaf| leaf.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let early: fn(&mut CertificateParams) = |leaf| leaf.not_before = rcgen::date_time_ymd(2090, 1, 1);
    for (name, change, authority, expected) in [
        (NAME, (|_| {}) as fn(&mut CertificateParams), Some(&other), TlsFault::UnknownAuthority),
        ("other.test", |_| {}, None, TlsFault::WrongName),
        (NAME, expired, None, TlsFault::Expired),
        (NAME, early, None, TlsFault::NotYetValid),
    ] {
        run(async {
            let certified = certified(name, &TLS13, change);
            let wire = Wire::new(&certified, &[]);
            let trust = trusting(authority.unwrap_or(&certified.authority));
            let error = connect(wire.clone(), &trust, NAME).await.err().expect("refused");
            assert_eq!(TlsFault::within(&error), Some(expected), "{error}");
            assert!(wire.0.borrow().is_closed, "{expected:?}");
        });
    }
}

#[test]
fn an_engine_that_does_not_speak_tls_is_said_to() {
    run(async {
        let certified = certified(NAME, &TLS13, |_| {});
        let scripted = crate::scripted::Scripted::default();
        scripted.answer_next_write(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let error = connect(scripted.clone(), &trusting(&certified.authority), NAME).await.err().expect("refused");
        assert_eq!(TlsFault::within(&error), Some(TlsFault::Handshake), "{error}");
        assert!(scripted.is_closed());
    });
}
