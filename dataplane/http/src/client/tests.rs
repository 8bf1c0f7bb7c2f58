use std::cell::RefCell;
use std::collections::VecDeque;

use llmgw_runtime::{Either, race};
use proptest::prelude::*;

use super::*;
use crate::body::Framing;
use crate::chunk_buf::ChunkBuf;
use crate::error::{BodyError, Malformed};
use crate::scripted::{Scripted, Step, run};
use crate::spare;

/// Hands out prepared connections in turn, then refuses.
#[derive(Default)]
struct Peers(RefCell<VecDeque<Scripted>>);

impl Connector for Peers {
    type Io = Scripted;

    fn connect(&self, _: &Target<'_>) -> impl Future<Output = io::Result<Scripted>> {
        let next = self.0.borrow_mut().pop_front();
        std::future::ready(next.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()))
    }
}

/// An engine's connections, a pool, and the clock.
struct Bench {
    pool: Pool<Scripted>,
    peers: Peers,
    target: Target<'static>,
    now: Mono,
}

fn bytes(text: &str) -> Step {
    Step::Bytes(text.as_bytes().to_vec())
}

fn bench(peers: &[&Scripted]) -> Bench {
    let target = Target {
        key: 7,
        address: Address::Tcp(([127, 0, 0, 1], 1).into()),
        idle_limit: Duration::from_secs(4),
        idle_max: 2,
    };
    let peers = Peers(RefCell::new(peers.iter().map(|peer| (*peer).clone()).collect()));
    Bench { pool: Pool::default(), peers, target, now: Mono(0) }
}

impl Bench {
    async fn ask_with(
        &self,
        body: &[&[u8]],
        answer_to: AnswerTo,
        head: &mut ResponseHead,
    ) -> Result<Upstream<Scripted>, ExchangeError> {
        let outgoing = Outgoing {
            target: &self.target,
            head: RequestDraft::new(self.pool.buffer(), b"POST", b"/v1", b"e"),
            body,
            answer_to,
            connect_timeout: Duration::from_millis(30),
            first_byte_timeout: Duration::from_millis(30),
        };
        exchange(&self.pool, &self.peers, outgoing, head, self.now).await
    }

    async fn ask(&self, body: &'static str) -> Result<(Upstream<Scripted>, ResponseHead), ExchangeError> {
        let mut head = ResponseHead::default();
        let upstream = self.ask_with(&[body.as_bytes()], AnswerTo::Other, &mut head).await?;
        Ok((upstream, head))
    }

    /// Asks, reads the body, gives the connection back; the answer's status and body.
    async fn call(&self, body: &'static str) -> Result<(u16, String), ExchangeError> {
        let (mut upstream, head) = self.ask(body).await?;
        let body = drain(&mut upstream).await.expect("a whole body");
        upstream.release(self.now);
        Ok((head.status(), body))
    }

    fn counts(&self) -> [u64; 5] {
        let counts = self.pool.counts();
        [&counts.opened, &counts.reused, &counts.stale, &counts.retired, &counts.silent_retries].map(|cell| cell.get())
    }
}

async fn drain(upstream: &mut Upstream<Scripted>) -> Result<String, BodyError> {
    let (mut body, mut buf) = (Vec::new(), ChunkBuf::new());
    loop {
        let piece = upstream.next_piece(buf).await?;
        body.extend_from_slice(piece.buf.payload());
        if piece.is_last {
            return Ok(String::from_utf8(body).unwrap());
        }
        buf = piece.buf;
    }
}

const SENT: &str = "POST /v1 HTTP/1.1\r\nHost: e\r\nContent-Length: 2\r\n\r\nhi";
const OK_A: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
const OK_B: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\nX-T: 1\r\n\r\n";

fn ok(body: &str) -> Result<(u16, String), ExchangeError> {
    Ok((200, body.to_owned()))
}

#[test]
fn a_small_request_is_one_write_and_its_connection_is_used_again() {
    let peer = Scripted::new([Step::Pause, bytes(OK_B)]);
    let bench = bench(&[&peer]);
    run(async {
        assert_eq!(bench.call("hi").await, ok("b"));
        assert_eq!((peer.written_text().as_str(), peer.write_count()), (SENT, 1));
        peer.push(bytes(OK_A));
        assert_eq!(bench.call("hi").await, Err(ExchangeError::Connect(io::ErrorKind::ConnectionRefused)));
    });
    assert_eq!(bench.counts(), [1, 0, 1, 0, 0], "bytes nobody asked for make a connection unusable");
    let peer = Scripted::new([Step::Pause, bytes(OK_B)]);
    let bench = self::bench(&[&peer]);
    run(async {
        assert_eq!(bench.call("hi").await, ok("b"));
        for _ in 0..3 {
            peer.answer_next_write(OK_A.as_bytes());
            assert_eq!(bench.call("hi").await, ok("a"));
        }
    });
    assert_eq!(peer.written_text(), SENT.repeat(4));
    assert_eq!(bench.counts(), [1, 3, 0, 0, 0]);
    assert_eq!(peer.faults(), Vec::<&str>::new());
}

#[test]
fn a_large_body_goes_out_as_it_is_with_its_head() {
    let peer = Scripted::new([Step::Pause, Step::Pause, Step::Pause, Step::Pause, bytes(OK_A)]);
    let bench = bench(&[&peer]);
    let body = [&[b'x'; 20_000][..], b"y"];
    run(async {
        let mut head = ResponseHead::default();
        bench.ask_with(&body, AnswerTo::Other, &mut head).await.map(drop).unwrap();
    });
    assert_eq!(peer.write_count(), 1);
    assert!(peer.written_text().ends_with("xxy"));
    assert!(peer.written_text().contains("Content-Length: 20001\r\n"));
}

#[test]
fn a_connection_that_may_not_be_kept_is_closed() {
    for (answer, why) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na", "close"),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", "old version"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", "surplus bytes"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.1", "surplus after chunks"),
    ] {
        let peers = [Scripted::new([bytes(answer)]), Scripted::new([bytes(OK_B)])];
        let bench = bench(&[&peers[0], &peers[1]]);
        run(async {
            assert_eq!(bench.call("hi").await, ok("a"), "{why}");
            assert!(peers[0].is_closed(), "{why}");
            assert_eq!(bench.call("hi").await, ok("b"), "{why}");
        });
        assert_eq!(bench.counts(), [2, 0, 0, 0, 0], "{why}");
    }
}

#[test]
fn a_connection_the_engine_closed_meanwhile_is_not_used() {
    for end in [Step::Eof, Step::Reset] {
        let peers = [Scripted::new([bytes(OK_A)]), Scripted::new([bytes(OK_B)])];
        let bench = bench(&[&peers[0], &peers[1]]);
        run(async {
            assert_eq!(bench.call("hi").await, ok("a"));
            peers[0].push(end);
            assert_eq!(bench.call("hi").await, ok("b"));
        });
        assert_eq!(peers[0].write_count(), 1);
        assert_eq!(bench.counts(), [2, 0, 1, 0, 0]);
    }
}

#[test]
fn a_reused_connection_that_closes_before_it_answers_costs_one_silent_retry() {
    for end in [Step::Eof, Step::Reset] {
        let peers = [Scripted::new([bytes(OK_A)]), Scripted::new([bytes(OK_B)])];
        let bench = bench(&[&peers[0], &peers[1]]);
        run(async {
            assert_eq!(bench.call("hi").await, ok("a"));
            // Healthy when looked at, closed by the time it is read.
            peers[0].push(Step::Pause);
            peers[0].push(end);
            assert_eq!(bench.call("hi").await, ok("b"));
        });
        assert_eq!(peers[1].written_text(), SENT);
        assert_eq!(bench.counts(), [2, 1, 0, 0, 1]);
    }
}

#[test]
fn the_request_survives_a_close_in_the_middle_of_sending_it() {
    let peers = [Scripted::new([bytes(OK_A)]), Scripted::new([bytes(OK_B)])];
    let bench = bench(&[&peers[0], &peers[1]]);
    run(async {
        assert_eq!(bench.call("hi").await, ok("a"));
        peers[0].hold_writes(true);
        peers[0].push(Step::Pause);
        peers[0].push(Step::Eof);
        assert_eq!(bench.call("hi").await, ok("b"));
    });
    assert_eq!(peers[1].written_text(), SENT);
}

#[test]
fn a_fresh_connection_is_never_retried_and_a_retry_only_once() {
    let peers = [Scripted::new([Step::Eof]), Scripted::new([bytes(OK_A)])];
    let fresh = bench(&[&peers[0], &peers[1]]);
    run(async {
        assert_eq!(fresh.call("hi").await, Err(ExchangeError::ClosedBeforeHead));
    });
    assert_eq!(fresh.counts(), [1, 0, 0, 0, 0]);
    let peers = [Scripted::new([bytes(OK_A)]), Scripted::new([Step::Eof]), Scripted::new([bytes(OK_B)])];
    let once = bench(&[&peers[0], &peers[1], &peers[2]]);
    run(async {
        assert_eq!(once.call("hi").await, ok("a"));
        peers[0].push(Step::Pause);
        peers[0].push(Step::Eof);
        assert_eq!(once.call("hi").await, Err(ExchangeError::ClosedBeforeHead));
    });
    assert_eq!((once.counts(), peers[2].write_count()), ([2, 1, 0, 0, 1], 0));
}

#[test]
fn an_engine_that_began_to_answer_is_not_asked_twice() {
    let peers = [Scripted::new([bytes(OK_A)]), Scripted::new([bytes(OK_B)])];
    let bench = bench(&[&peers[0], &peers[1]]);
    run(async {
        assert_eq!(bench.call("hi").await, ok("a"));
        [Step::Pause, bytes("HTTP/1.1 2"), Step::Eof].into_iter().for_each(|step| peers[0].push(step));
        assert_eq!(bench.call("hi").await, Err(ExchangeError::ClosedInHead));
    });
    assert_eq!(peers[1].write_count(), 0);
}

#[test]
fn failures_before_the_body_have_their_names() {
    let ask = |steps: Vec<Step>| {
        let peer = Scripted::new(steps);
        let bench = bench(&[&peer]);
        let result = run(async { bench.ask("hi").await.map(|(_, head)| head.status()) });
        assert!(peer.is_closed());
        result
    };
    assert_eq!(ask(vec![]), Err(ExchangeError::FirstByteTimeout));
    assert_eq!(ask(vec![bytes("HTTP/1.1 200 OK\r\n")]), Err(ExchangeError::FirstByteTimeout));
    assert_eq!(ask(vec![bytes("HTTP/1.1 100 Continue\r\n\r\n"), Step::Eof]), Err(ExchangeError::ClosedInHead));
    assert_eq!(ask(vec![bytes("220 smtp\r\n")]), Err(ExchangeError::Malformed(Malformed("not an http answer"))));
    let interim = "HTTP/1.1 102 Wait\r\n\r\n".repeat(20);
    let too_many = Malformed("too many interim answers");
    assert_eq!(ask(vec![bytes(&interim)]), Err(ExchangeError::Malformed(too_many)));
    assert_eq!(ask(vec![bytes(&["HTTP/1.1 102 Wait\r\n\r\n", OK_A].concat())]), Ok(200));
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(matches!(ask(vec![bytes(both)]), Err(ExchangeError::Malformed(_))));
    let refused = run(async { bench(&[]).ask("hi").await.map(drop) });
    assert_eq!(refused, Err(ExchangeError::Connect(io::ErrorKind::ConnectionRefused)));
}

#[test]
fn an_early_refusal_of_a_long_body_is_heard() {
    let refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 1\r\n\r\na";
    let peer = Scripted::new([Step::Pause, bytes(refusal)]);
    peer.hold_writes(true);
    let bench = bench(&[&peer]);
    let body = [&[b'x'; 20_000][..]];
    run(async {
        let mut head = ResponseHead::default();
        let mut upstream = bench.ask_with(&body, AnswerTo::Other, &mut head).await.map_err(|e| e.to_string()).unwrap();
        assert_eq!((head.status(), drain(&mut upstream).await), (413, Ok("a".into())));
        upstream.release(bench.now);
    });
    assert!(peer.is_closed());
}

#[test]
fn an_interim_answer_does_not_stop_a_long_body() {
    let peer = Scripted::new([Step::Pause, bytes("HTTP/1.1 1"), Step::Pause, bytes("00 Continue\r\n\r\n")]);
    peer.hold_writes(true);
    let bench = bench(&[&peer]);
    let body = [&[b'x'; 20_000][..]];
    run(async {
        let mut head = ResponseHead::default();
        let release = async {
            timeout(Duration::from_millis(3), std::future::pending::<()>()).await.unwrap_err();
            peer.hold_writes(false);
            peer.answer_next_write(OK_A.as_bytes());
            std::future::pending::<()>().await;
        };
        let asked = bench.ask_with(&body, AnswerTo::Other, &mut head);
        let Either::Left(Ok(mut upstream)) = race(asked, release).await else { panic!("no answer") };
        assert_eq!((head.status(), drain(&mut upstream).await), (200, Ok("a".into())));
        upstream.release(bench.now);
    });
    assert_eq!((peer.write_count(), bench.pool.idle_count(), peer.faults()), (1, 1, vec![]));
}

#[test]
fn a_body_that_ends_too_soon_is_told_from_one_that_ends() {
    let read = |head: &str, end: Step| {
        let peer = Scripted::new([bytes(head), Step::Pause, end]);
        let bench = bench(&[&peer]);
        run(async {
            let (mut upstream, _) = bench.ask("hi").await.map_err(|error| error.to_string()).unwrap();
            let body = drain(&mut upstream).await;
            upstream.release(bench.now);
            body
        })
    };
    assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nab", Step::Eof), Ok("ab".into()));
    assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", Step::Eof), Err(BodyError::Truncated));
    assert_eq!(
        read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", Step::Eof),
        Err(BodyError::Truncated)
    );
    let reset = Err(BodyError::Io(io::ErrorKind::ConnectionReset));
    assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nab", Step::Reset), reset);
    assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", Step::Reset), reset);
    let broken = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", Step::Pause);
    assert_eq!(broken, Err(BodyError::Malformed(Malformed("chunk size missing or not a hexadecimal number"))));
}

#[test]
fn what_came_well_before_a_fault_of_its_framing_is_still_given_out() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let peer = Scripted::new([bytes(&format!("{head}2\r\nab\r\n3\r\ncde\r\nzz\r\n")), Step::Pause]);
    let bench = bench(&[&peer]);
    run(async {
        let (mut upstream, _) = bench.ask("hi").await.map_err(|error| error.to_string()).unwrap();
        let piece = upstream.next_piece(ChunkBuf::new()).await.unwrap();
        assert_eq!((piece.buf.payload(), piece.is_last), (&b"abcde"[..], false));
        for _ in 0..2 {
            let fault = upstream.next_piece(ChunkBuf::new()).await.err();
            assert!(matches!(fault, Some(BodyError::Malformed(_))), "{fault:?}");
        }
        upstream.release(bench.now);
        assert_eq!(bench.pool.idle_count(), 0);
    });
}

#[test]
fn an_answer_without_a_body_leaves_the_connection_usable() {
    let head_only = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    let peer = Scripted::new([bytes(head_only)]);
    let bench = bench(&[&peer]);
    run(async {
        let mut head = ResponseHead::default();
        let mut upstream = bench.ask_with(&[], AnswerTo::Head, &mut head).await.map_err(|e| e.to_string()).unwrap();
        assert_eq!((head.framing(), drain(&mut upstream).await), (Framing::None, Ok(String::new())));
        upstream.release(bench.now);
    });
    assert_eq!(bench.pool.idle_count(), 1);
}

#[test]
fn dropping_an_exchange_closes_its_connection_at_once() {
    let peer = Scripted::new([bytes("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na")]);
    let bench = bench(&[&peer]);
    run(async {
        let (upstream, _) = bench.ask("hi").await.map_err(|error| error.to_string()).unwrap();
        assert!(!peer.is_closed());
        drop(upstream);
    });
    assert!(peer.is_closed());
    assert_eq!(peer.faults(), Vec::<&str>::new());
}

#[test]
fn a_stream_that_waits_for_its_engine_holds_no_buffer() {
    let peer = Scripted::new([bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")]);
    let bench = bench(&[&peer]);
    run(async {
        let (mut upstream, mut head) = bench.ask("hi").await.map_err(|error| error.to_string()).unwrap();
        head.release();
        let mut buf = ChunkBuf::new();
        buf.extend(b"passed on already");
        let before = spare::free_count();
        let while_it_waits = race(upstream.next_piece(buf), async { spare::free_count() }).await;
        assert!(matches!(while_it_waits, Either::Right(count) if count == before + 1), "its buffer is free");
    });
}

#[test]
fn a_wait_for_a_piece_may_be_given_up_and_taken_up() {
    let peer = Scripted::new([bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")]);
    let bench = bench(&[&peer]);
    run(async {
        let (mut upstream, _) = bench.ask("hi").await.map_err(|error| error.to_string()).unwrap();
        for _ in 0..3 {
            assert!(timeout(Duration::from_millis(1), upstream.next_piece(ChunkBuf::new())).await.is_err());
        }
        peer.push(bytes("2\r\nab\r\n0\r\n\r\n"));
        assert_eq!(drain(&mut upstream).await, Ok("ab".into()));
        upstream.release(bench.now);
    });
    assert_eq!((bench.pool.idle_count(), peer.faults()), (1, vec![]));
}

#[test]
fn idle_connections_are_few_and_young() {
    let peers: Vec<Scripted> = (0..4).map(|_| Scripted::new([bytes(OK_A)])).collect();
    let mut bench = bench(&peers.iter().collect::<Vec<_>>());
    run(async {
        let mut open = Vec::new();
        for _ in 0..3 {
            let (mut upstream, _) = bench.ask("hi").await.map_err(|error| error.to_string()).unwrap();
            drain(&mut upstream).await.unwrap();
            open.push(upstream);
        }
        open.into_iter().for_each(|upstream| upstream.release(bench.now));
        assert_eq!((bench.pool.idle_count(), peers[0].is_closed(), peers[1].is_closed()), (2, true, false));
        bench.now = Mono(3_999_999_999);
        bench.pool.sweep(bench.now);
        assert_eq!(bench.pool.idle_count(), 2);
        bench.now = Mono(4_000_000_000);
        assert_eq!(bench.call("hi").await, ok("a"), "old ones are not used");
        assert_eq!((bench.pool.idle_count(), peers[2].is_closed()), (1, true));
        peers[3].push(Step::Eof);
        bench.pool.sweep(bench.now);
        assert_eq!(bench.pool.idle_count(), 0);
    });
    assert_eq!(bench.counts(), [4, 0, 1, 3, 0]);
}

#[test]
fn a_connection_serves_only_the_address_it_leads_to() {
    let (old, new) = (Scripted::new([bytes(OK_A)]), Scripted::new([bytes(OK_A)]));
    let mut bench = bench(&[&old, &new]);
    run(async {
        assert_eq!(bench.call("hi").await, ok("a"));
        // The endpoint has moved.
        bench.target.address = Address::Tcp(([127, 0, 0, 2], 1).into());
        assert_eq!(bench.call("hi").await, ok("a"));
    });
    assert_eq!((bench.counts()[0], bench.pool.idle_count()), (2, 2));
    bench.pool.forget(7);
    assert!(old.is_closed() && new.is_closed());
}

#[test]
fn an_endpoint_that_is_gone_leaves_no_connection() {
    let peer = Scripted::new([bytes(OK_A)]);
    let bench = bench(&[&peer]);
    run(async {
        assert_eq!(bench.call("hi").await, ok("a"));
    });
    bench.pool.forget(8);
    assert!(!peer.is_closed());
    bench.pool.forget(7);
    assert!(peer.is_closed());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_of_an_answer_gives_the_same_body(
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        which in 0usize..3,
    ) {
        let (raw, body, is_kept) = [
            ("HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n3\r\nyou\r\n0\r\nT: v\r\n\r\n", "helloyou", 1),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 1),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nxyz", "hello", 0),
        ][which];
        let peer = Scripted::split(raw.as_bytes(), &cuts);
        let bench = bench(&[&peer]);
        run(async {
            assert_eq!(bench.call("hi").await, ok(body));
        });
        // Surplus bytes may come after the release; then a look at the idle connection finds them.
        bench.pool.sweep(bench.now);
        bench.pool.sweep(bench.now);
        prop_assert_eq!(bench.pool.idle_count(), is_kept);
        prop_assert_eq!(peer.faults(), Vec::<&str>::new());
    }
}
