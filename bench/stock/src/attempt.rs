//! One try at an engine, up to the head of its answer.

use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Method, Request, Uri};
use llmgw_gateway::error::{ApiError, Reason};
use llmgw_gateway::intake::Intake;
use llmgw_kit::clock::Mono;

use crate::engine_io::Target;
use crate::headers::{X_REQUEST_ID, to_engine};
use crate::pieces::Pieces;
use crate::retry::Granted;
use crate::state::Gateway;
use crate::tables::{EndpointTexts, Tables};
use crate::turn::Turn;
use crate::upstream::{Fault, Limits, Outgoing, Upstream, exchange};

/// What an attempt sends.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) method: &'a Method,
    /// Of ours, with the client's query.
    pub(crate) target: &'a Uri,
    /// What has a body.
    pub(crate) intake: Option<&'a Intake>,
    pub(crate) id: &'a HeaderValue,
    /// The client asked for a stream of events.
    pub(crate) is_streaming: bool,
    /// Ask for usage where the client did not.
    pub(crate) adds_usage: bool,
}

/// Sends the request to the granted endpoint and waits for its response head. Dropping the future closes the
/// connection.
///
/// Errors: no connection, no answer in time, or one that is not HTTP.
pub(crate) async fn send(
    gateway: &Gateway,
    tables: &Tables,
    turn: &Turn,
    granted: &Granted,
    asked: &Asked<'_>,
    deadline: Mono,
) -> Result<(Parts, Upstream), ApiError> {
    let missing = || ApiError::new(Reason::Internal, "the route table does not fit the grant");
    let (table, choice) = (tables.routes(), &granted.choice);
    let endpoint = table.endpoints.get(choice.endpoint.idx()).ok_or_else(missing)?;
    let texts = tables.endpoints.get(choice.endpoint.idx()).ok_or_else(missing)?;
    let pool = table.pools.get(choice.pool.idx()).ok_or_else(missing)?;
    let member = pool.members.get(choice.member as usize).ok_or_else(missing)?;
    let target = Target::of(choice.slot, endpoint, texts.tls.as_ref()).ok_or_else(missing)?;
    let mut outgoing = Message { asked, texts, served_as: &member.served_as };
    let timeouts = &tables.settings().timeouts;
    let limits = Limits { connect: granted.connect, first_byte: timeouts.first_token, deadline };
    exchange(&gateway.pool, turn, &target, &mut outgoing, limits).await.map_err(|fault| match fault {
        Fault::Exchange(error) => ApiError::of_exchange(error, &endpoint.name),
        Fault::Cut => ApiError::shutting_down(),
        Fault::Total => {
            let (reason, limit) = (Reason::TotalTimeout, timeouts.total);
            ApiError::new(reason, format!("replica {}: {} after {limit:?}", endpoint.name.as_str(), reason.code()))
        }
    })
}

struct Message<'a> {
    asked: &'a Asked<'a>,
    texts: &'a EndpointTexts,
    served_as: &'a str,
}

impl Outgoing for Message<'_> {
    fn request(&mut self) -> Option<Request<Pieces>> {
        let Asked { headers, method, target, intake, id, adds_usage, .. } = *self.asked;
        let body = intake.map(|intake| Pieces::of(&intake.pieces(self.served_as, adds_usage))).unwrap_or_default();
        let mut headers = to_engine(headers);
        headers.insert(header::HOST, self.texts.host.clone());
        headers.insert(X_REQUEST_ID, id.clone());
        if let Some(authorization) = &self.texts.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = target.clone();
        *request.headers_mut() = headers;
        Some(request)
    }
}
