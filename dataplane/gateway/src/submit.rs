//! The wait for a place: where a request stands still on its home core until the owner of its queue has spoken.
//!
//! Called by `serve` for requests that could not pass, before the first attempt and between two. A client that leaves,
//! a gateway that ends and a request's own deadline end the wait; whatever ends it, the queue is left and a place that
//! was granted meanwhile goes back.

use llmgw_http::server::ServerConn;
use llmgw_kit::clock::Mono;
use llmgw_runtime::tcp::Tcp;
use llmgw_runtime::timer::timeout_at;
use llmgw_runtime::{Either, race};

use crate::admission::Waiting;
use crate::core::Core;
use crate::cut::parting;
use crate::error::ApiError;
use crate::finish::Finish;
use crate::retry::{Granted, Step, Tries};
use crate::routing::Routing;
use crate::snapshot::Tables;

/// What a request goes on with.
pub(crate) enum Waited {
    Go(Granted),
    /// The client left.
    Gone,
}

/// Waits until the request has an endpoint. A place in a pool whose engines are out by then is waited for anew.
///
/// Errors: why it has none.
pub(crate) async fn wait<'a>(
    core: &Core,
    tables: &Tables,
    mut waiting: Waiting<'a>,
    tries: &mut Tries<'a>,
    routing: &mut Routing,
    conn: &mut ServerConn<Tcp>,
    finish: &mut Finish,
) -> Result<Waited, ApiError> {
    loop {
        let until = waiting.until;
        let answer = race(timeout_at(until, waiting.place()), parting(&core.cut, &mut conn.reader)).await;
        let now = Mono::now();
        finish.waited(waiting.waited(now));
        routing.waited(finish.queue_time());
        let place = match answer {
            Either::Left(Ok(place)) => place,
            Either::Left(Err(_)) => Err(waiting.give_up()),
            Either::Right(Either::Left(())) => return Ok(Waited::Gone),
            Either::Right(Either::Right(())) => return Err(ApiError::shutting_down()),
        };
        let model = waiting.model;
        drop(waiting);
        let step = match place {
            Ok(place) => tries.first(now, Some((place, model)), routing.explanation()),
            Err(why) => Err(tries.no_place(why, model)),
        };
        routing.tell(tables, finish);
        match step? {
            Step::Go(granted) => return Ok(Waited::Go(granted)),
            Step::Wait(again) => waiting = again,
        }
    }
}
