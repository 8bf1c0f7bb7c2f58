//! One exchange with an engine: connect or reuse, send, await the head, then hand out the body piece by piece.
//!
//! Called by the gateway for every attempt. A reused connection that turns out to be closed before it answered costs
//! one silent second try on a fresh one; nothing else is retried here. An exchange that is dropped closes its
//! connection at once. Never chooses an endpoint, never follows a redirect.

mod door;
mod upstream;

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_runtime::io::Io;
use llmgw_runtime::timer::timeout;

pub(crate) use door::Place;
pub use door::{Address, EngineConnector, EngineIo};
pub use upstream::{Piece, Upstream};

use crate::draft::RequestDraft;
use crate::error::ExchangeError;
use crate::head::{AnswerTo, ResponseHead};
use crate::pool::{Pool, Target, count};
use crate::tls::TlsFault;

/// Opens connections. [`EngineConnector`] in production, scripted ones in tests.
pub trait Connector {
    /// What it opens.
    type Io: Io;
    /// Connects, without a time limit of its own.
    fn connect(&self, target: &Target<'_>) -> impl Future<Output = io::Result<Self::Io>>;
}

/// One request, ready to be sent to one target.
pub struct Outgoing<'a> {
    /// Where to.
    pub target: &'a Target<'a>,
    /// Head without framing; its buffer comes from [`Pool::buffer`] and goes back there.
    pub head: RequestDraft,
    /// Body in pieces, sent as they are, their length announced.
    pub body: &'a [&'a [u8]],
    /// Decides how the answer is framed.
    pub answer_to: AnswerTo,
    /// For a connection.
    pub connect_timeout: Duration,
    /// From the connection to the end of the response head.
    pub first_byte_timeout: Duration,
}

/// Sends a request and waits for the response head.
///
/// Errors: see [`ExchangeError`]; the connection is closed. Dropping the future closes it too.
/// Cost: one write.
pub async fn exchange<C: Connector>(
    pool: &Pool<C::Io>,
    connector: &C,
    outgoing: Outgoing<'_>,
    answer: &mut ResponseHead,
    now: Mono,
) -> Result<Upstream<C::Io>, ExchangeError> {
    let Outgoing { target, head, body, answer_to, connect_timeout, first_byte_timeout } = outgoing;
    let body_bytes: usize = body.iter().map(|piece| piece.len()).sum();
    let wire = head.end(body_bytes as u64);
    let mut idle = pool.checkout(&target.shelf(), now);
    loop {
        let is_reused = idle.is_some();
        let mut upstream = match idle.take() {
            Some(ahead) => {
                count(&pool.counts().reused);
                Upstream::reused(ahead, pool, target)
            }
            None => connect(pool, connector, target, connect_timeout).await?,
        };
        let attempt = upstream.ask(&wire, body, answer, answer_to);
        match timeout(first_byte_timeout, attempt).await.unwrap_or(Err(ExchangeError::FirstByteTimeout)) {
            Ok(()) => {
                pool.recycle(wire);
                return Ok(upstream);
            }
            Err(ExchangeError::ClosedBeforeHead) if is_reused => count(&pool.counts().silent_retries),
            Err(error) => return Err(error),
        }
    }
}

async fn connect<C: Connector>(
    pool: &Pool<C::Io>,
    connector: &C,
    target: &Target<'_>,
    limit: Duration,
) -> Result<Upstream<C::Io>, ExchangeError> {
    let began = Mono::now();
    let io = timeout(limit, connector.connect(target))
        .await
        .map_err(|_| ExchangeError::ConnectTimeout)?
        .map_err(|error| TlsFault::within(&error).map_or(ExchangeError::Connect(error.kind()), ExchangeError::Tls))?;
    count(&pool.counts().opened);
    Ok(Upstream::fresh(io, pool, target, Mono::now().since(began)))
}
