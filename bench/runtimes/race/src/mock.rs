//! The engine behind the proxies: answers `/whole` with 400 bytes of JSON and `/stream/EVENTS/GAP-MS` with events.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const WHOLE_BYTES: usize = 400;
const EVENT: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\
                     \"delta\":{\"content\":\" word of an answer\"},\"finish_reason\":null}]}\n\n";

/// Serves until the program ends.
pub(crate) async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::task::spawn_local(async move { drop(connection(stream).await) });
    }
}

async fn connection(mut stream: TcpStream) -> io::Result<()> {
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(WHOLE_BYTES - 11));
    let whole = format!(
        "HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 12:00:00 GMT\r\nserver: mock\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let event = format!("{:x}\r\n{EVENT}\r\n", EVENT.len());
    let mut received = Vec::with_capacity(16 << 10);
    loop {
        let Some((path, bytes)) = crate::wire::request(&received) else {
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
            continue;
        };
        received.drain(..bytes);
        let mut words = path.split('/').skip(2).filter_map(|word| word.parse::<u64>().ok());
        match (words.next(), words.next()) {
            (Some(count), Some(gap_ms)) => stream_events(&mut stream, &event, count, gap_ms).await?,
            _ => stream.write_all(whole.as_bytes()).await?,
        }
    }
}

async fn stream_events(stream: &mut TcpStream, event: &str, count: u64, gap_ms: u64) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 12:00:00 GMT\r\nserver: mock\r\n\
                content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}{event}").as_bytes()).await?;
    for _ in 1..count {
        match gap_ms {
            0 => tokio::task::yield_now().await,
            gap_ms => tokio::time::sleep(Duration::from_millis(gap_ms)).await,
        }
        stream.write_all(event.as_bytes()).await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}
