//! The same proxy on the codecs of monoio-http, on monoio with the ring's flags that the product uses.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bare_proxy::Start;
use http::header::{CONNECTION, HeaderName, HeaderValue};
use monoio::io::sink::SinkExt;
use monoio::io::stream::Stream;
use monoio::net::{TcpListener, TcpStream};
use monoio_http::common::error::HttpError;
use monoio_http::common::request::Request;
use monoio_http::h1::codec::decoder::FillPayload;
use monoio_http::h1::codec::{ClientCodec, ServerCodec};

struct Pool {
    engine: SocketAddr,
    idle: RefCell<Vec<ClientCodec<TcpStream>>>,
}

impl Pool {
    async fn take(&self) -> io::Result<ClientCodec<TcpStream>> {
        let idle = self.idle.borrow_mut().pop();
        if let Some(codec) = idle {
            return Ok(codec);
        }
        let stream = TcpStream::connect_addr(self.engine).await?;
        stream.set_nodelay(true)?;
        Ok(ClientCodec::new(stream))
    }
}

async fn serve(stream: TcpStream, pool: Rc<Pool>) -> Result<(), HttpError> {
    let mut client = ServerCodec::new(stream);
    while let Some(request) = client.next().await {
        let request: Request = request?;
        let (mut head, body) = request.into_parts();
        // The body is fed from here; it must be there before the engine's side asks for it.
        client.fill_payload().await?;
        head.headers.remove(CONNECTION);
        let id = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
        head.headers.insert(HeaderName::from_static("x-request-id"), id);
        let mut engine = pool.take().await?;
        engine.send_and_flush(http::Request::from_parts(head, body)).await?;
        let Some(answer) = engine.next().await else { return Ok(()) };
        let (mut head, body) = answer?.into_parts();
        let replica = HeaderValue::from_static("engine-0");
        head.headers.insert(HeaderName::from_static("x-llmgw-replica"), replica);
        client.send_and_flush(http::Response::from_parts(head, body.with_io(&mut engine))).await?;
        pool.idle.borrow_mut().push(engine);
    }
    Ok(())
}

async fn run(start: Start) -> io::Result<()> {
    let listener = TcpListener::from_std(start.listener)?;
    let pool = Rc::new(Pool { engine: start.engine, idle: RefCell::new(Vec::new()) });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let pool = pool.clone();
        monoio::spawn(async move { drop(serve(stream, pool).await) });
    }
}

fn main() -> io::Result<()> {
    let start = bare_proxy::start()?;
    let mut flags = io_uring::IoUring::builder();
    flags.setup_coop_taskrun().setup_single_issuer();
    let builder = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().with_entries(4096).uring_builder(flags);
    builder.enable_timer().build()?.block_on(run(start))
}
