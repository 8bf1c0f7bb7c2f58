//! One try at an engine, up to its response head.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use llmgw_http::client::{Address, EngineIo, Outgoing, Upstream, exchange};
use llmgw_http::draft::RequestDraft;
use llmgw_http::head::{AnswerTo, RequestHead, ResponseHead};
use llmgw_http::pool::Target;
use llmgw_http::tls::TlsConfig;
use llmgw_kit::clock::Mono;
use llmgw_router::Grant;
use llmgw_types::endpoint::ArchivedEngineKind;
use llmgw_types::snapshot::{ArchivedEndpoint, ArchivedEngineAddr, ArchivedRouteTable};

use crate::core::Core;
use crate::error::{ApiError, Reason};
use crate::forward::VLLM_PRIORITY;
use crate::intake::{Intake, Spliced, Splices};
use crate::route::PriorityIn;

/// Idle connections a core keeps to one endpoint.
const IDLE_PER_ENDPOINT: usize = 512;

/// What an attempt sends.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) head: &'a RequestHead,
    pub(crate) method: &'static [u8],
    /// Of ours.
    pub(crate) path: &'a [u8],
    /// With its question mark.
    pub(crate) query: &'a [u8],
    /// What has a body.
    pub(crate) intake: Option<&'a Intake>,
    pub(crate) id: &'a str,
    /// The client asked for a stream of events.
    pub(crate) is_streaming: bool,
    /// Ask for usage where the client did not.
    pub(crate) adds_usage: bool,
    /// Priority of its band, and where it is told to an engine that orders its queue so.
    pub(crate) priority: Option<(i32, PriorityIn)>,
}

/// Sends the request to the granted endpoint and waits for its response head. Dropping the future closes the
/// connection.
///
/// Errors: no connection, no answer in time, or one that is not HTTP.
pub(crate) async fn send(
    core: &Core,
    table: &ArchivedRouteTable,
    grant: &Grant,
    request: &Request<'_>,
    answer: &mut ResponseHead,
    connect_timeout: Duration,
    now: Mono,
) -> Result<Upstream<EngineIo>, ApiError> {
    let missing = || ApiError::new(Reason::Internal, "the route table does not fit the grant");
    let endpoint = table.endpoints.get(grant.endpoint.idx()).ok_or_else(missing)?;
    let pool = table.pools.get(grant.pool.idx()).ok_or_else(missing)?;
    let member = pool.members.get(grant.member as usize).ok_or_else(missing)?;
    let tls = core.tls(grant.slot);
    let target = target(endpoint, grant, tls.as_ref()).ok_or_else(missing)?;

    let Request { method, path, query, .. } = *request;
    let host = endpoint.host.as_bytes();
    let mut draft = if query.is_empty() {
        RequestDraft::new(core.pool.buffer(), method, path, host)
    } else {
        RequestDraft::new(core.pool.buffer(), method, &[path, query].concat(), host)
    };
    crate::forward::to_engine(request.head, &mut draft);
    draft.known("x-request-id", request.id);
    if let Some(authorization) = endpoint.authorization.as_ref() {
        draft.known("authorization", authorization.as_str());
    }

    let told = request.priority.and_then(|(band, place)| Some((endpoint.queue_order.priority(band)?, place)));
    if let Some((priority, PriorityIn::Header)) = told
        && endpoint.engine == ArchivedEngineKind::Vllm
    {
        draft.known(VLLM_PRIORITY, priority.to_string());
    }
    let splices = Splices {
        served_as: &member.served_as,
        adds_usage: request.adds_usage,
        priority: told.filter(|(_, place)| *place == PriorityIn::Body).map(|(priority, _)| priority),
    };
    let spliced = request.intake.map(|intake| intake.spliced(splices));
    let parts = spliced.as_ref().map(Spliced::parts).unwrap_or_default();
    let timeouts = &core.settings.timeouts;
    let outgoing = Outgoing {
        target: &target,
        head: draft,
        body: &parts,
        answer_to: AnswerTo::Other,
        connect_timeout,
        first_byte_timeout: timeouts.first_token,
    };
    exchange(&core.pool, &core.connector, outgoing, answer, now)
        .await
        .map_err(|error| ApiError::of_exchange(error, &endpoint.name))
}

/// Whether the request says something of its priority in the body that goes to the granted endpoint.
pub(crate) fn tells_priority(table: &ArchivedRouteTable, grant: &Grant, request: &Request<'_>) -> bool {
    let Some((band, PriorityIn::Body)) = request.priority else { return false };
    table.endpoints.get(grant.endpoint.idx()).is_some_and(|endpoint| endpoint.queue_order.priority(band).is_some())
}

fn target<'a>(endpoint: &'a ArchivedEndpoint, grant: &Grant, tls: Option<&'a Arc<TlsConfig>>) -> Option<Target<'a>> {
    let address = match endpoint.addr.as_ref()? {
        ArchivedEngineAddr::Tcp(addr) => Address::Tcp(addr.as_socket_addr()),
        ArchivedEngineAddr::Tls(addr, name) => Address::Tls { addr: addr.as_socket_addr(), name, config: tls? },
        ArchivedEngineAddr::Unix(path) => Address::Unix(Path::new(path.as_str())),
    };
    Some(Target {
        key: u64::from(grant.slot.0),
        address,
        idle_limit: Duration::from_millis(u64::from(endpoint.idle_limit_ms.to_native())),
        idle_max: IDLE_PER_ENDPOINT,
    })
}
