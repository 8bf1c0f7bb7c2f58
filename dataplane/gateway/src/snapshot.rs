//! This core's current tables. A request keeps the ones it began with; the core swaps between requests.

use std::rc::Rc;
use std::sync::Arc;

use llmgw_http::tls::{TlsConfig, TlsServerConfig};
use llmgw_router::Map;
use llmgw_router::feed::Feed;
use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_router::session::Ring;
use llmgw_router::settings::Settings;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::ArchivedRouteTable;

/// A publication as this core works with it.
pub(crate) struct Tables {
    feed: Arc<Feed>,
    /// Routing profiles, by row.
    profiles: Vec<RoutingProfile>,
    /// Pools' rings, by row.
    rings: Vec<Ring>,
}

impl Tables {
    pub(crate) fn of(feed: Arc<Feed>) -> Rc<Self> {
        let table = feed.snapshot.table();
        let profiles = table.profiles.iter().map(RoutingProfile::of).collect();
        let rings = Ring::all(table);
        Rc::new(Self { feed, profiles, rings })
    }

    /// What requests are held to that begin with these tables.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.feed.settings.clone()
    }

    /// What the dispatcher decides on.
    pub(crate) fn map(&self) -> Map<'_> {
        Map { table: self.routes(), rings: &self.rings, profiles: &self.profiles }
    }

    /// Whom to trust, by the slots of endpoints that are reached within TLS.
    pub(crate) fn tls(&self) -> impl Iterator<Item = (BoardSlot, Arc<TlsConfig>)> {
        self.routes().endpoints.iter().zip(&self.feed.trust).filter_map(|(endpoint, trust)| {
            let config = trust.clone()?.downcast::<TlsConfig>().ok()?;
            Some((BoardSlot(endpoint.slot.to_native()), config))
        })
    }

    /// How clients are spoken to within TLS; none: in plain text.
    pub(crate) fn client_tls(&self) -> Option<Arc<TlsServerConfig>> {
        self.feed.client_tls.clone()?.downcast().ok()
    }

    /// The route table. Cost: about a nanosecond.
    pub(crate) fn routes(&self) -> &ArchivedRouteTable {
        self.feed.snapshot.table()
    }
}
