//! The same proxy on hyper and tokio's current-thread runtime: its server, its client connections in a pool of ours.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bare_proxy::Start;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONNECTION, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// Idle connections to the engine.
struct Pool {
    engine: SocketAddr,
    idle: RefCell<Vec<SendRequest<Incoming>>>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Pool {
    async fn take(&self) -> Result<SendRequest<Incoming>, Failure> {
        // One whose answer's end was not seen by its task yet is not ready: the next one, or a new one.
        let idle = || self.idle.borrow_mut().pop();
        while let Some(mut sender) = idle() {
            if !sender.is_closed() && sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let stream = TcpStream::connect(self.engine).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(sender)
    }
}

async fn forward(mut request: Request<Incoming>, pool: Rc<Pool>) -> Result<Response<Incoming>, Failure> {
    request.headers_mut().remove(CONNECTION);
    let id = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
    request.headers_mut().insert(HeaderName::from_static("x-request-id"), id);
    let mut sender = pool.take().await?;
    let mut response = sender.send_request(request).await?;
    // It is used again once its body has passed, which `ready` waits for.
    pool.idle.borrow_mut().insert(0, sender);
    let replica = HeaderValue::from_static("engine-0");
    response.headers_mut().insert(HeaderName::from_static("x-llmgw-replica"), replica);
    Ok(response)
}

async fn run(start: Start) -> io::Result<()> {
    let listener = TcpListener::from_std(start.listener)?;
    let pool = Rc::new(Pool { engine: start.engine, idle: RefCell::new(Vec::new()) });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let pool = pool.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| forward(request, pool.clone()));
            drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

fn main() -> io::Result<()> {
    let start = bare_proxy::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run(start))
}
