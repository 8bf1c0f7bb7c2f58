//! The bare proxy on the product's own runtime, as it runs a core.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bare_proxy::{Connect, Io, Pool, Start, serve};
use llmgw_runtime::driver::{DriverChoice, block_on, choose};
use llmgw_runtime::listener::Listener;
use llmgw_runtime::tcp::{self, Tcp};
use llmgw_runtime::{io as core_io, spawn};

struct Connection(Tcp);

impl Io for Connection {
    async fn read(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let room = buffer.capacity() - buffer.len();
        (core_io::read(&self.0, &mut buffer, room).await, buffer)
    }

    async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        (core_io::write_all(&self.0, &buffer).await, buffer)
    }
}

struct Connector;

impl Connect for Connector {
    type Io = Connection;

    async fn connect(&self, addr: SocketAddr) -> io::Result<Connection> {
        tcp::connect(addr).await.map(Connection)
    }
}

async fn run(start: Start) -> io::Result<()> {
    let listener = Listener::from_std(start.listener)?;
    let pool = Rc::new(Pool::new(Connector, start.engine));
    loop {
        let client = Connection(listener.accept().await);
        let pool = pool.clone();
        spawn(async move { drop(serve(client, &pool).await) });
    }
}

fn main() -> io::Result<()> {
    let start = bare_proxy::start()?;
    let (driver, _) = choose(DriverChoice::Auto)?;
    block_on(driver, run(start))?
}
