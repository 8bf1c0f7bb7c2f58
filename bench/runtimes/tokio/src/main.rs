//! The bare proxy on tokio's current-thread runtime.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bare_proxy::{Connect, Io, Pool, Start, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

struct Tcp(TcpStream);

impl Io for Tcp {
    async fn read(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        (self.0.read_buf(&mut buffer).await, buffer)
    }

    async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        (self.0.write_all(&buffer).await, buffer)
    }
}

struct Connector;

impl Connect for Connector {
    type Io = Tcp;

    async fn connect(&self, addr: SocketAddr) -> io::Result<Tcp> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Tcp(stream))
    }
}

async fn run(start: Start) -> io::Result<()> {
    let listener = TcpListener::from_std(start.listener)?;
    let pool = Rc::new(Pool::new(Connector, start.engine));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let pool = pool.clone();
        tokio::task::spawn_local(async move { drop(serve(Tcp(stream), &pool).await) });
    }
}

fn main() -> io::Result<()> {
    let start = bare_proxy::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run(start))
}
