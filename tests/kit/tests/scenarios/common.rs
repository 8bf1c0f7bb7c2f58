//! What both suites of scenarios use: a runtime, a target, and a relay such as a gateway must not be.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use llmgw_load::target::Target;

/// A relay that passes bytes on and hides the client's leaving; it reads as much as the engine gives, whether or not
/// the client takes it.
pub(crate) fn greedy_relay(engine: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || relay(client, engine));
        }
    });
    addr
}

fn relay(mut client: TcpStream, engine: SocketAddr) {
    let mut upstream = TcpStream::connect(engine).expect("the engine listens");
    let (mut from_client, mut to_engine) =
        (client.try_clone().expect("a handle"), upstream.try_clone().expect("a handle"));
    std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_engine));
    let (send, take) = std::sync::mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || take.iter().all(|piece| client.write_all(&piece).is_ok()));
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read) = upstream.read(&mut buffer) {
        if read == 0 {
            return;
        }
        // The client's thread may have ended: the engine is read on all the same.
        let _ = send.send(buffer[..read].to_vec());
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

pub(crate) fn target(addr: SocketAddr) -> Target {
    Target::parse(&format!("http://{addr}")).expect("a URL")
}
