//! The bare proxy on glommio. It reads into a buffer of its own and copies: glommio wants memory that is written to
//! already, and the copy costs less than clearing a buffer each time.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bare_proxy::{BUFFER_BYTES, Connect, Io, Pool, Start, serve};
use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};
use std::os::fd::{FromRawFd, IntoRawFd};

struct Tcp {
    stream: TcpStream,
    scratch: Box<[u8]>,
}

impl Tcp {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true).map_err(io::Error::from)?;
        Ok(Self { stream, scratch: vec![0; BUFFER_BYTES].into() })
    }
}

impl Io for Tcp {
    async fn read(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let room = self.scratch.len().min(buffer.capacity() - buffer.len());
        let outcome = self.stream.read(&mut self.scratch[..room]).await;
        if let Ok(read) = outcome {
            buffer.extend_from_slice(&self.scratch[..read]);
        }
        (outcome, buffer)
    }

    async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        (self.stream.write_all(&buffer).await, buffer)
    }
}

struct Connector;

impl Connect for Connector {
    type Io = Tcp;

    async fn connect(&self, addr: SocketAddr) -> io::Result<Tcp> {
        Tcp::new(TcpStream::connect(addr).await.map_err(io::Error::from)?)
    }
}

async fn run(start: Start) -> io::Result<()> {
    // SAFETY: the descriptor is a listening socket that was given away here.
    let listener = unsafe { TcpListener::from_raw_fd(start.listener.into_raw_fd()) };
    let pool = Rc::new(Pool::new(Connector, start.engine));
    loop {
        let stream = Tcp::new(listener.accept().await.map_err(io::Error::from)?)?;
        let pool = pool.clone();
        glommio::spawn_local(async move { drop(serve(stream, &pool).await) }).detach();
    }
}

fn main() -> io::Result<()> {
    let start = bare_proxy::start()?;
    let builder = LocalExecutorBuilder::new(Placement::Fixed(start.cpu));
    let executor = builder.spawn(move || run(start)).map_err(io::Error::from)?;
    executor.join().map_err(io::Error::from)?
}
