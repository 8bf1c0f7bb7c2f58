//! One kept connection to one engine, for small GETs. Everything is bounded: time, header, body, connections (one).

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use llmgw_config::EndpointConfig;
use llmgw_engines::kind::engine;
use llmgw_kit::clock::Mono;
use llmgw_types::snapshot::EngineAddr;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::ClientConfig;

use super::door::{Door, open};
use super::judge::{Cause, Verdict};
use crate::table::authorization;
use crate::trust;

/// What one exchange may take once connected.
const ANSWER_TIME: Duration = Duration::from_secs(3);
const HEADER_BYTES_MAX: usize = 16 << 10;
const HEADER_COUNT_MAX: usize = 100;
const AGENT: &str = concat!("llmgw/", env!("CARGO_PKG_VERSION"));

/// An answer that was read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Bytes,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No connection, or it broke.
    Broken(String),
    /// The engine shows no certificate that we trust, or speaks no TLS.
    Untrusted(String),
    /// Nothing came in time.
    Silent(String),
    /// The body is longer than the caller wants to read; the status is there.
    TooLarge(u16),
}

impl From<Fault> for Verdict {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Broken(reason) => Self::no(Cause::Unreachable, reason),
            Fault::Untrusted(reason) => Self::no(Cause::Untrusted, reason),
            Fault::Silent(reason) => Self::no(Cause::Silent, reason),
            Fault::TooLarge(status) => Self::no(Cause::Unhealthy, format!("answered {status}, and too long")),
        }
    }
}

/// Ends the connection's task with the connection.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Kept {
    sender: SendRequest<Empty<Bytes>>,
    _driver: Driver,
    addr: EngineAddr,
    used_at: Mono,
}

pub(crate) struct Client {
    host: String,
    authorization: Option<HeaderValue>,
    connect_time: Duration,
    idle_limit: Duration,
    /// Of engines that are reached within TLS.
    tls: Option<Arc<ClientConfig>>,
    kept: Option<Kept>,
}

impl Client {
    pub(crate) fn new(endpoint: &EndpointConfig, connect_time: Duration) -> Self {
        let authorization =
            authorization(endpoint).and_then(|text| HeaderValue::from_str(&text).ok()).map(|mut value| {
                value.set_sensitive(true);
                value
            });
        let idle_limit = engine(endpoint.engine).pool_idle_limit();
        // Authorities of no use are refused before anything is published; without them nobody is trusted.
        let tls = trust::of(endpoint).ok().flatten();
        Self { host: endpoint.host_header.clone(), authorization, connect_time, idle_limit, tls, kept: None }
    }

    /// Asks. A connection that was kept and turns out to be closed is replaced once, silently.
    pub(crate) async fn get(&mut self, addr: EngineAddr, path: &str, bytes_max: usize) -> Result<Answer, Fault> {
        if let Some(kept) = self.kept.take_if(|kept| kept.addr == addr && kept.sender.is_ready()) {
            // Engines close what was idle for long; one that is about to be closed is not used.
            if Mono::now().since(kept.used_at) < self.idle_limit {
                match self.exchange(kept, path, bytes_max).await {
                    Err(Fault::Broken(_)) => {}
                    other => return other,
                }
            }
        }
        let kept = self.connect(addr).await?;
        self.exchange(kept, path, bytes_max).await
    }

    async fn connect(&self, addr: EngineAddr) -> Result<Kept, Fault> {
        let opening = open(&addr, self.tls.as_ref());
        let stream: Box<dyn Door> = match tokio::time::timeout(self.connect_time, opening).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Err(match trust::reason(&error) {
                    Some(reason) => Fault::Untrusted(reason),
                    None => Fault::Broken(format!("no connection to {addr}: {error}")),
                });
            }
            Err(_) => return Err(Fault::Silent(format!("no connection to {addr} within {:?}", self.connect_time))),
        };
        let mut builder = Builder::new();
        builder.max_buf_size(HEADER_BYTES_MAX).max_headers(HEADER_COUNT_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let task = tokio::spawn(async move {
            // What ends a connection is seen by the exchange that is under way; between two it does not matter.
            let _ = connection.await;
        });
        Ok(Kept { sender, _driver: Driver(task), addr, used_at: Mono::now() })
    }

    async fn exchange(&mut self, mut kept: Kept, path: &str, bytes_max: usize) -> Result<Answer, Fault> {
        let mut request = Request::get(path).header(HOST, &self.host).header(USER_AGENT, AGENT).header(ACCEPT, "*/*");
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Empty::new()).map_err(|error| Fault::Broken(format!("{path:?}: {error}")))?;
        let whole = async {
            kept.sender.ready().await.map_err(broken)?;
            let response = kept.sender.send_request(request).await.map_err(broken)?;
            read(response, bytes_max).await
        };
        match tokio::time::timeout(ANSWER_TIME, whole).await {
            Ok(Ok(answer)) => {
                kept.used_at = Mono::now();
                self.kept = Some(kept);
                Ok(answer)
            }
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::Silent(format!("{path} did not answer within {ANSWER_TIME:?}"))),
        }
    }
}

async fn read<B>(response: Response<B>, bytes_max: usize) -> Result<Answer, Fault>
where
    B: hyper::body::Body<Data = Bytes, Error = hyper::Error>,
{
    let status = response.status().as_u16();
    match Limited::new(response.into_body(), bytes_max).collect().await {
        Ok(body) => Ok(Answer { status, body: body.to_bytes() }),
        Err(error) if error.is::<LengthLimitError>() => Err(Fault::TooLarge(status)),
        Err(error) => Err(Fault::Broken(format!("the connection broke: {error}"))),
    }
}

fn broken(error: hyper::Error) -> Fault {
    // hyper's own words are general; what lies beneath says more.
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Fault::Broken(format!("the connection broke: {error}{cause}"))
}
