//! The driver within TLS: against a small server that keeps its connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use llmgw_load::drive::{Arrivals, Drive, run};
use llmgw_load::progress::Progress;
use llmgw_load::prompt::Chat;
use llmgw_load::target::{Target, Trust};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Where it listens, and who trusts it. Its threads end with the process.
fn server() -> (SocketAddr, Trust) {
    let made = rcgen::generate_simple_self_signed(vec![Ipv4Addr::LOCALHOST.to_string()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key))
        .expect("a server");
    let (config, listener) = (Arc::new(config), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let addr = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let config = config.clone();
            // Whoever is in the middle of it sees what breaks.
            std::thread::spawn(move || serve(socket, config));
        }
    });
    (addr, Trust::only(made.cert.der()).expect("an authority"))
}

fn serve(socket: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let session = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut client = BufReader::new(StreamOwned::new(session, socket));
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if client.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
        }
        client.read_exact(&mut vec![0; length])?;
        // In pieces, each a record of its own.
        for piece in [&b"HTTP/1.1 200 OK\r\ncontent-le"[..], b"ngth: 5\r\n\r\nhe", b"llo"] {
            client.get_mut().write_all(piece)?;
            client.get_mut().flush()?;
        }
    }
}

#[test]
fn whole_answers_are_counted_over_kept_connections_however_large_the_question_is() {
    let (addr, trust) = server();
    let target = Target::parse(&format!("http://{addr}")).expect("a URL").within_tls(trust);
    for prompt_bytes in [100, 1_000_000] {
        let plan = Drive {
            target: target.clone(),
            requests: vec![Chat { prompt_bytes, ..Chat::default() }.bytes(&target)],
            arrivals: Arrivals::Closed { connection_count: 4, ramp: Duration::ZERO },
            expected_event_count: None,
            warm_up: Duration::ZERO,
            time: Duration::from_millis(700),
            pid: None,
            mock_pid: None,
        };
        let found = run(&plan, Progress::Silent).expect("it ran");
        assert!(found.call_count > 0 && found.failures.is_empty(), "{found:?}");
    }
}

#[test]
fn a_certificate_that_is_not_trusted_is_a_failure() {
    let ((addr, _), (_, other)) = (server(), server());
    let target = Target::parse(&format!("http://{addr}")).expect("a URL").within_tls(other);
    let plan = Drive {
        target: target.clone(),
        requests: vec![Chat::default().bytes(&target)],
        arrivals: Arrivals::Once { call_count: 2, ramp: Duration::ZERO },
        expected_event_count: None,
        warm_up: Duration::ZERO,
        time: Duration::from_secs(10),
        pid: None,
        mock_pid: None,
    };
    let found = run(&plan, Progress::Silent).expect("it ran");
    assert_eq!((found.call_count, found.failure_count()), (0, 2), "{found:?}");
}
