//! Closed loops of keep-alive clients: as many requests at once as there are connections.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::process::Proxy;
use crate::wire;

/// Bytes of a request's body.
const BODY_BYTES: usize = 600;

/// A kind of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) connection_count: usize,
    pub(crate) counts: Counts,
}

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Whole answers.
    Requests,
    /// Events of streams, as they arrive.
    Events,
}

impl Counts {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Requests => "request",
            Self::Events => "event",
        }
    }
}

/// What an event begins with.
const EVENT: &[u8] = b"data: ";

pub(crate) const LOADS: [Load; 3] = [
    Load { name: "whole answers, 64 connections", path: "/whole", connection_count: 64, counts: Counts::Requests },
    Load {
        name: "64 streams of 32 events, no gap",
        path: "/stream/32/0",
        connection_count: 64,
        counts: Counts::Events,
    },
    Load {
        name: "256 streams of 32 events, 20 ms apart",
        path: "/stream/32/20",
        connection_count: 256,
        counts: Counts::Events,
    },
];

/// What a round showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) cpu_us_each: f64,
    pub(crate) per_second: f64,
}

/// Loads a proxy for `time` after `warm_up`.
///
/// Errors: a connection failed, or an answer was wrong.
pub(crate) async fn run(load: Load, proxy: &Proxy, warm_up: Duration, time: Duration) -> io::Result<Round> {
    let (done, is_over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let mut clients = JoinSet::new();
    for _ in 0..load.connection_count {
        clients.spawn_local(client(load, proxy.addr, done.clone(), is_over.clone()));
    }
    tokio::time::sleep(warm_up).await;
    let (begin, before, cpu_before) = (Instant::now(), done.get(), proxy.cpu_ns()?);
    tokio::time::sleep(time).await;
    let (count, cpu_ns) = (done.get() - before, proxy.cpu_ns()? - cpu_before);
    let seconds = begin.elapsed().as_secs_f64();
    is_over.set(true);
    while let Some(joined) = clients.join_next().await {
        joined.map_err(io::Error::other)??;
    }
    let counted = count as f64;
    Ok(Round { cpu_us_each: cpu_ns as f64 / 1e3 / counted, per_second: counted / seconds })
}

async fn client(load: Load, addr: SocketAddr, done: Rc<Cell<u64>>, is_over: Rc<Cell<bool>>) -> io::Result<()> {
    let body = format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "y".repeat(BODY_BYTES - 25));
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: bench\r\nuser-agent: bench/1\r\naccept: */*\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        load.path,
        body.len()
    );
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(16 << 10);
    while !is_over.get() {
        stream.write_all(request.as_bytes()).await?;
        received.clear();
        while wire::answer(&received).is_none() {
            let before = received.len();
            if stream.read_buf(&mut received).await? == 0 {
                return Err(io::Error::other(format!("{addr} closed inside an answer")));
            }
            if load.counts == Counts::Events {
                done.set(done.get() + events_after(&received, before));
            }
        }
        if !received.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other(format!("{addr} answered otherwise than 200")));
        }
        if load.counts == Counts::Requests {
            done.set(done.get() + 1);
        }
    }
    Ok(())
}

/// Events whose beginning came whole with the bytes behind `before`.
fn events_after(received: &[u8], before: usize) -> u64 {
    let from = before.saturating_sub(EVENT.len() - 1);
    let fresh = received.get(from..).unwrap_or_default();
    fresh.windows(EVENT.len()).filter(|window| *window == EVENT).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_counted_once_however_the_bytes_come() {
        let bytes = b"head

data: a

data: b

";
        for cut in 0..bytes.len() {
            assert_eq!(events_after(&bytes[..cut], 0) + events_after(bytes, cut), 2, "{cut}");
        }
    }
}
