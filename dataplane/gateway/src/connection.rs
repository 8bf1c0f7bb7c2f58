//! One client connection: request after request until it ends.

use std::rc::Rc;

use llmgw_http::error::Reject;
use llmgw_http::head::RequestHead;
use llmgw_http::server::{Next, ServerConn};
use llmgw_kit::clock::Mono;
use llmgw_runtime::catch::without_panic;
use llmgw_runtime::tcp::Tcp;

use crate::core::Core;
use crate::door::{self, ClientIo, Entered};
use crate::error::ApiError;
use crate::finish::Finish;
use crate::respond;
use crate::route::Route;
use crate::serve::serve;

/// Serves a connection to its end.
pub(crate) async fn run(core: Rc<Core>, tcp: Tcp) {
    let mut core = core.current();
    let _open = Open::new(&core);
    let shared = core.clone();
    let _listening = shared.cut.listen().await;
    let (io, is_understood) = match door::enter(&core, tcp).await {
        Entered::Ready(io) => (io, true),
        Entered::SpeaksPlain(io) => (io, false),
        Entered::Gone => return,
    };
    let mut conn = ServerConn::new(io, core.limits.clone());
    if !is_understood {
        conn.reader.refuse();
        refuse(&core, &mut conn, Reject::bad("this address speaks TLS: use https://")).await;
    }
    let mut head = RequestHead::default();
    loop {
        match conn.reader.next(&mut head).await {
            Ok(Next::Request) => {
                core = core.current();
                conn.reader.keep_to(&core.limits);
                // Only an answer can say that its connection ends: to close without one would lose a request on its
                // way.
                if core.is_closing.get() {
                    conn.writer.close_after();
                }
                let mut finish = Finish::begin(&core, Mono::now(), head.method());
                if without_panic(serve(&core, &mut head, &mut conn, &mut finish)).await.is_err() {
                    core.cells.panics.increment();
                    apologise(&mut conn, &mut finish).await;
                }
            }
            Ok(Next::Closed) => return,
            Err(reject) => refuse(&core, &mut conn, reject).await,
        }
    }
}

/// Answers a request whose head or body framing is refused. The connection ends after it.
async fn refuse(core: &Rc<Core>, conn: &mut ServerConn<ClientIo>, reject: Reject) {
    let mut finish = Finish::begin(core, Mono::now(), b"");
    finish.route(Route::Unknown);
    respond::error(conn, &ApiError::from(reject), &mut finish).await;
}

/// A fault of ours: a 500 where nothing was sent yet, else the end of the connection.
async fn apologise(conn: &mut ServerConn<ClientIo>, finish: &mut Finish) {
    conn.writer.close_after();
    if conn.writer.has_begun() {
        finish.fail("internal");
        conn.writer.abort();
    } else {
        respond::error(conn, &ApiError::internal(), finish).await;
    }
}

/// Counts an open connection, also when its task is dropped.
struct Open(Rc<Core>);

impl Open {
    fn new(core: &Rc<Core>) -> Self {
        core.cells.connections_open.increment();
        core.connection_count.set(core.connection_count.get() + 1);
        Self(core.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.cells.connections_open.decrement();
        self.0.connection_count.set(self.0.connection_count.get() - 1);
    }
}
