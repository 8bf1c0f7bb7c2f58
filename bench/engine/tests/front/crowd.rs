//! Many streams at once on the engine's one thread.

use llmgw_engine_sim::EngineConfig;
use llmgw_engine_sim::record::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, chat, config, start};

const STREAMS: usize = 2_000;

/// Reads from `stream` until `end` has come; gives everything.
async fn read_until(stream: &mut TcpStream, mut seen: Vec<u8>, end: &[u8]) -> Vec<u8> {
    while !seen.windows(end.len()).any(|window| window == end) {
        assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "{}", String::from_utf8_lossy(&seen));
    }
    seen
}

fn request(faults: &str) -> Vec<u8> {
    let body = chat(true);
    let length = body.len();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    format!("{head}X-Sim: {faults}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// All streams are open together, held by a stall, and then all end well.
#[test]
fn two_thousand_streams_are_open_at_once_and_all_end() {
    let mut cfg = EngineConfig { recorded_requests_max: STREAMS, ..config() };
    cfg.batch.max_num_seqs = STREAMS;
    let engine = start(cfg);
    let addr = engine.local_addr();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..STREAMS {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(&request(r#"{"events":20,"stall_after_events":3}"#)).await.unwrap();
            clients.push(stream);
        }
        let mut open = Vec::new();
        for mut stream in clients {
            let seen = read_until(&mut stream, Vec::new(), b"\"content\":\" ").await;
            open.push((stream, seen));
        }
        let state = engine.state();
        assert_eq!((state.open_requests, state.open_connections), (STREAMS as u64, STREAMS as u64));
        let all = async {
            let ended = open.into_iter().map(|(mut stream, seen)| async move {
                let seen = read_until(&mut stream, seen, b"0\r\n\r\n").await;
                let text = String::from_utf8(seen).unwrap();
                assert_eq!(text.matches("data: {").count(), 21);
                assert!(text.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{text}");
            });
            for one in ended {
                one.await;
            }
        };
        // Every stream has its stall before it; those that come to it late are released by the next call.
        let releases = async {
            loop {
                engine.release();
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = all => {}
            () = releases => {}
            () = tokio::time::sleep(PATIENCE * 3) => panic!("the streams never end"),
        }
    });
    crate::support::until("all are counted", || engine.state().open_requests == 0);
    let requests = engine.requests();
    assert_eq!(requests.len(), STREAMS);
    assert!(requests.iter().all(|request| request.outcome == Outcome::Complete));
    let totals = engine.state().totals;
    assert_eq!((totals.finished, totals.generation_tokens), (STREAMS as u64, 20 * STREAMS as u64));
    assert_eq!(engine.state().kv_usage_ratio, 0.0);
}
