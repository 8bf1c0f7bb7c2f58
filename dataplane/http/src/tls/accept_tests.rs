//! Clients in memory, good ones and others.

use std::sync::Arc;

use llmgw_runtime::io::{Io as _, read as io_read, write_all};
use llmgw_runtime::{Either, race};
use proptest::prelude::*;
use rustls::version::{TLS12, TLS13};

use super::tests::{Certified, NAME, Wire, certified, read, text};
use super::{Accepted, NotAccepted, Taken, Tls, TlsConfig, accept};
use crate::scripted::{Scripted, Step, run};

fn one_of(is_new: bool) -> Certified {
    certified(NAME, if is_new { &TLS13 } else { &TLS12 }, |_| {})
}

async fn accepted(certified: &Certified, client: Arc<TlsConfig>, pieces: &[usize]) -> (Tls<Wire>, Taken, Wire) {
    let wire = Wire::client(client, pieces);
    match accept(wire.clone(), &certified.server).await {
        Ok(Accepted { io, taken }) => (io, taken, wire),
        Err(NotAccepted::Failed(error)) => panic!("{error}"),
        Err(_) => panic!("the client left"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_the_records_gives_the_same_bytes_both_ways(
        pieces in proptest::collection::vec(1_usize..20_000, 1..6),
        len in 1_usize..100_000,
        room in 16_usize..70_000,
        is_new in any::<bool>(),
    ) {
        run(async {
            let certified = one_of(is_new);
            let (tls, _, wire) = accepted(&certified, certified.trusted(), &pieces).await;
            let said = text(len);
            wire.say(&said);
            let (heard, _) = read(&tls, len, room).await;
            assert!(heard == said, "{} of {} bytes, or others", heard.len(), said.len());
            write_all(&tls, &said).await.expect("written");
            assert!(wire.got() == said, "{} of {} bytes, or others", wire.got().len(), said.len());
            wire.at_peer(|client| { client.tls.send_close_notify(); client.has_ended = true; });
            assert_eq!(read(&tls, 1, room).await.1.expect("an end in order"), 0);
        });
    }
}

#[test]
fn a_client_that_comes_again_takes_its_session_up() {
    for is_new in [true, false] {
        run(async {
            let certified = one_of(is_new);
            let client = certified.trusted();
            for expected in [Taken::Full, Taken::Resumed, Taken::Resumed] {
                let (tls, taken, wire) = accepted(&certified, client.clone(), &[]).await;
                assert_eq!(taken, expected, "TLS 1.3: {is_new}");
                write_all(&tls, b"hello").await.expect("written");
                assert_eq!(wire.got(), b"hello");
            }
            assert_eq!(accepted(&certified, certified.trusted(), &[]).await.1, Taken::Full, "another client");
        });
    }
}

#[test]
fn an_end_in_order_is_said_and_one_that_is_not_is_not() {
    for says_goodbye in [true, false] {
        run(async {
            let certified = one_of(true);
            let (tls, _, wire) = accepted(&certified, certified.trusted(), &[]).await;
            write_all(&tls, b"all").await.expect("written");
            if says_goodbye {
                // A socket with room takes it at once.
                wire.0.borrow_mut().is_writer_paused = true;
                tls.say_goodbye();
            }
            tls.close_now();
            let has_heard = wire.0.borrow_mut().tls.process_new_packets().expect("TLS").peer_has_closed();
            assert_eq!((has_heard, wire.0.borrow().is_closed), (says_goodbye, true));
        });
    }
}

#[test]
fn plain_http_is_told_from_tls_and_the_connection_stays_open_for_an_answer() {
    run(async {
        let certified = one_of(true);
        let scripted = Scripted::new([Step::Bytes(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec())]);
        let Err(NotAccepted::Plain(io)) = accept(scripted.clone(), &certified.server).await else {
            panic!("that is no TLS");
        };
        assert!(!scripted.is_closed());
        drop(io);
    });
}

#[test]
fn what_is_neither_is_closed() {
    for rubbish in [&b"\x16\x03\x01\xff\xff rubbish"[..], b"\x80\x2e\x01", &[22; 4000], b"\0"] {
        run(async {
            let certified = one_of(true);
            let scripted = Scripted::new([Step::Bytes(rubbish.to_vec()), Step::Eof]);
            let outcome = accept(scripted.clone(), &certified.server).await;
            assert!(matches!(outcome, Err(NotAccepted::Failed(_) | NotAccepted::Left)), "{rubbish:?}");
            assert!(scripted.is_closed(), "{rubbish:?}");
        });
    }
}

#[test]
fn a_client_that_leaves_or_is_given_up_in_the_midst_of_it_is_closed() {
    for (cut, waits) in [(0, false), (1, false), (60, false), (usize::MAX, false), (60, true)] {
        run(async {
            let certified = one_of(true);
            let wire = Wire::client(certified.trusted(), &[]);
            wire.at_peer(|client| {
                client.out.truncate(cut);
                client.has_ended = !waits;
                // It hears nothing of what is answered.
                client.is_deaf = true;
            });
            if waits {
                let given_up = race(accept(wire.clone(), &certified.server), std::future::ready(())).await;
                assert!(matches!(given_up, Either::Right(())));
            } else {
                let outcome = accept(wire.clone(), &certified.server).await;
                assert!(matches!(outcome, Err(NotAccepted::Left)), "cut after {cut}");
            }
            assert!(wire.0.borrow().is_closed, "cut after {cut}");
        });
    }
}

#[test]
fn requests_that_come_with_the_last_of_the_handshake_are_there_for_the_first_read() {
    run(async {
        let certified = one_of(true);
        let wire = Wire::client(certified.trusted(), &[]);
        // A client may write before its handshake is done; what it wrote goes out with the end of it.
        wire.at_peer(|client| std::io::Write::write_all(&mut client.tls.writer(), b"early").expect("room"));
        let Ok(Accepted { io, .. }) = accept(wire.clone(), &certified.server).await else { panic!("refused") };
        let mut buf = Vec::new();
        assert_eq!(io_read(&io, &mut buf, 100).await.expect("read"), 5);
        assert_eq!(buf, b"early");
    });
}
