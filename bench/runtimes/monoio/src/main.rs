//! The bare proxy on monoio: `configured` with the ring's flags that the product uses, `default` with none, `legacy` on
//! its epoll driver.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bare_proxy::{Connect, Io, Pool, Start, serve};
use monoio::buf::IoBufMut;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};

struct Tcp(TcpStream);

impl Io for Tcp {
    async fn read(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let (from, to) = (buffer.len(), buffer.capacity());
        let (outcome, slice) = self.0.read(buffer.slice_mut(from..to)).await;
        (outcome, slice.into_inner())
    }

    async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        let (outcome, buffer) = self.0.write_all(buffer).await;
        (outcome.map(drop), buffer)
    }
}

struct Connector;

impl Connect for Connector {
    type Io = Tcp;

    async fn connect(&self, addr: SocketAddr) -> io::Result<Tcp> {
        let stream = TcpStream::connect_addr(addr).await?;
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
        monoio::spawn(async move { drop(serve(Tcp(stream), &pool).await) });
    }
}

fn main() -> io::Result<()> {
    let start = bare_proxy::start()?;
    if start.mode == "legacy" {
        let builder = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new();
        return builder.enable_timer().build()?.block_on(run(start));
    }
    let mut flags = io_uring::IoUring::builder();
    if start.mode == "configured" {
        flags.setup_coop_taskrun().setup_single_issuer();
    }
    let builder = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().with_entries(4096).uring_builder(flags);
    builder.enable_timer().build()?.block_on(run(start))
}
