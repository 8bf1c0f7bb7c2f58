//! Both halves on the real driver: a small proxy between threads with plain sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use llmgw_http::chunk_buf::ChunkBuf;
use llmgw_http::client::{Address, EngineConnector, EngineIo, Outgoing, Upstream, exchange};
use llmgw_http::draft::RequestDraft;
use llmgw_http::head::{AnswerTo, RequestHead, ResponseHead};
use llmgw_http::limits::ServerLimits;
use llmgw_http::pool::{Pool, Target};
use llmgw_http::server::{BodyLength, Next, ServerConn};
use llmgw_kit::clock::Mono;
use llmgw_runtime::driver::{Driver, DriverChoice, block_on, choose};
use llmgw_runtime::tcp::{Tcp, connect};
use llmgw_runtime::{Either, race};

/// The driver that is best here, and the one that works everywhere.
fn drivers() -> [Driver; 2] {
    [choose(DriverChoice::Auto).unwrap().0, Driver::Epoll]
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    peer.set_nodelay(true).unwrap();
    peer
}

/// Reads up to the end of `end`; what was read, or nothing at the end of the stream.
fn read_until(peer: &mut TcpStream, end: &[u8]) -> Option<Vec<u8>> {
    let (mut text, mut byte) = (Vec::new(), [0u8; 1]);
    while !text.ends_with(end) {
        if peer.read(&mut byte).unwrap() == 0 {
            return None;
        }
        text.push(byte[0]);
    }
    Some(text)
}

fn target(addr: SocketAddr) -> Target<'static> {
    Target { key: 1, address: Address::Tcp(addr), idle_limit: Duration::from_secs(60), idle_max: 8 }
}

async fn ask(pool: &Pool<EngineIo>, target: &Target<'_>) -> Result<Upstream<EngineIo>, String> {
    let outgoing = Outgoing {
        target,
        head: RequestDraft::new(pool.buffer(), b"GET", b"/", b"e"),
        body: &[],
        answer_to: AnswerTo::Other,
        connect_timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(20),
    };
    let mut head = ResponseHead::default();
    exchange(pool, &EngineConnector, outgoing, &mut head, Mono(0)).await.map_err(|error| error.to_string())
}

/// Passes every request on and streams the answers back, until the client ends.
async fn proxy(client: Tcp, engine: SocketAddr, pool: Pool<EngineIo>) -> bool {
    let mut conn = ServerConn::new(client, Rc::new(ServerLimits::default()));
    let (mut head, target) = (RequestHead::default(), target(engine));
    while conn.reader.next(&mut head).await == Ok(Next::Request) {
        let relay = async {
            let mut upstream = ask(&pool, &target).await.unwrap();
            let draft = conn.writer.draft(200);
            conn.writer.start(draft, BodyLength::Unknown).await.unwrap();
            let mut buf = ChunkBuf::new();
            loop {
                let piece = upstream.next_piece(buf).await.unwrap();
                if piece.is_last {
                    conn.writer.finish_with(piece.buf).await.0.unwrap();
                    return upstream.release(Mono(0));
                }
                buf = conn.writer.chunk(piece.buf).await.1;
            }
        };
        if let Either::Left(()) = race(conn.reader.gone(), relay).await {
            return true;
        }
    }
    false
}

/// An engine that answers `answers` requests on each connection with a chunked stream, then closes it.
fn engine(listener: TcpListener, connections: usize, answers: usize) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for _ in 0..connections {
            let mut peer = accept(&listener);
            for _ in 0..answers {
                if read_until(&mut peer, b"\r\n\r\n").is_none() {
                    break;
                }
                peer.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
                for _ in 0..3 {
                    peer.write_all(b"5\r\nhello\r\n").unwrap();
                }
                peer.write_all(b"0\r\nX-T: 1\r\n\r\n").unwrap();
            }
        }
    })
}

#[test]
fn streams_pass_from_an_engine_to_a_client_on_kept_connections() {
    drivers().into_iter().for_each(relay_streams);
}

fn relay_streams(driver: Driver) {
    let (engine_listener, engine_addr) = listener();
    let (client_listener, client_addr) = listener();
    let engine = engine(engine_listener, 1, 50);
    let client = std::thread::spawn(move || {
        let mut peer = accept(&client_listener);
        for _ in 0..50 {
            peer.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let text = read_until(&mut peer, b"0\r\n\r\n").unwrap();
            assert_eq!(String::from_utf8(text).unwrap().matches("hello").count(), 3);
        }
    });
    let pool = Pool::default();
    let seen = pool.clone();
    block_on(driver, async move {
        proxy(connect(client_addr).await.unwrap(), engine_addr, pool).await;
        client.join().unwrap();
        assert_eq!((seen.counts().opened.get(), seen.counts().reused.get()), (1, 49));
        drop(seen);
    })
    .unwrap();
    engine.join().unwrap();
}

#[test]
fn an_engine_that_closes_after_every_answer_never_fails_a_call() {
    drivers().into_iter().for_each(close_after_each);
}

fn close_after_each(driver: Driver) {
    let (engine_listener, engine_addr) = listener();
    let engine = engine(engine_listener, 100, 1);
    block_on(driver, async move {
        let (pool, target) = (Pool::default(), target(engine_addr));
        for _ in 0..100 {
            let mut upstream = ask(&pool, &target).await.unwrap();
            let mut buf = ChunkBuf::new();
            loop {
                let piece = upstream.next_piece(buf).await.unwrap();
                if piece.is_last {
                    break;
                }
                buf = piece.buf;
            }
            upstream.release(Mono(0));
        }
        let counts = pool.counts();
        assert_eq!(counts.opened.get(), 100);
        assert_eq!(counts.reused.get(), counts.silent_retries.get(), "a reuse that failed was repeated");
    })
    .unwrap();
    engine.join().unwrap();
}

#[test]
fn a_client_that_leaves_ends_the_engines_connection() {
    drivers().into_iter().for_each(leave);
}

fn leave(driver: Driver) {
    let (engine_listener, engine_addr) = listener();
    let (client_listener, client_addr) = listener();
    let (asked, was_asked) = std::sync::mpsc::channel();
    let engine = std::thread::spawn(move || {
        let mut peer = accept(&engine_listener);
        read_until(&mut peer, b"\r\n\r\n").unwrap();
        asked.send(()).unwrap();
        peer.read(&mut [0; 1]).unwrap()
    });
    let client = std::thread::spawn(move || {
        let mut peer = accept(&client_listener);
        peer.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        was_asked.recv().unwrap();
    });
    let is_gone =
        block_on(driver, async move { proxy(connect(client_addr).await.unwrap(), engine_addr, Pool::default()).await });
    assert!(is_gone.unwrap());
    client.join().unwrap();
    assert_eq!(engine.join().unwrap(), 0, "the engine sees the end of its connection");
}
