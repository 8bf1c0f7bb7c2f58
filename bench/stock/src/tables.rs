//! A publication as requests work with it: the route table, and of its texts those that become header values, made
//! once.

use std::sync::Arc;

use hyper::header::HeaderValue;
use llmgw_http::tls::TlsConfig;
use llmgw_router::Map;
use llmgw_router::feed::Feed;
use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_router::session::Ring;
use llmgw_router::settings::Settings;
use llmgw_types::snapshot::ArchivedRouteTable;

/// See the module. Immutable; the newest is shared behind a lock that is held to clone its handle.
pub(crate) struct Tables {
    feed: Arc<Feed>,
    profiles: Vec<RoutingProfile>,
    rings: Vec<Ring>,
    pub(crate) endpoints: Vec<EndpointTexts>,
    pub(crate) pools: Vec<HeaderValue>,
    pub(crate) models: Vec<HeaderValue>,
}

/// What is said of an endpoint to a client, and to it.
pub(crate) struct EndpointTexts {
    pub(crate) name: HeaderValue,
    pub(crate) host: HeaderValue,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) tls: Option<Arc<TlsConfig>>,
}

impl Tables {
    pub(crate) fn of(feed: Arc<Feed>) -> Self {
        let table = feed.snapshot.table();
        let endpoints = table.endpoints.iter().enumerate().map(|(row, endpoint)| EndpointTexts {
            name: value(&endpoint.name),
            host: value(&endpoint.host),
            authorization: endpoint.authorization.as_ref().map(|text| value(text)),
            tls: feed.trust.get(row).cloned().flatten().and_then(|trust| trust.downcast::<TlsConfig>().ok()),
        });
        Self {
            profiles: table.profiles.iter().map(RoutingProfile::of).collect(),
            rings: Ring::all(table),
            endpoints: endpoints.collect(),
            pools: table.pools.iter().map(|pool| value(&pool.label)).collect(),
            models: table.models.iter().map(|model| value(&model.name)).collect(),
            feed: feed.clone(),
        }
    }

    /// What requests are held to that begin with these tables.
    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.feed.settings
    }

    /// What is decided on.
    pub(crate) fn map(&self) -> Map<'_> {
        Map { table: self.routes(), rings: &self.rings, profiles: &self.profiles }
    }

    pub(crate) fn routes(&self) -> &ArchivedRouteTable {
        self.feed.snapshot.table()
    }
}

/// A text of the configuration as a header value; it was checked to be one when it was read.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
