//! This core's current tables. A request keeps the ones it began with; the core swaps between requests.

use std::rc::Rc;
use std::sync::Arc;

use llmgw_router::feed::Feed;
use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_router::settings::Settings;
use llmgw_types::snapshot::ArchivedRouteTable;

/// A publication as this core works with it.
pub(crate) struct Tables {
    feed: Arc<Feed>,
    /// Routing profiles, by row.
    pub(crate) profiles: Vec<RoutingProfile>,
}

impl Tables {
    pub(crate) fn of(feed: Arc<Feed>) -> Rc<Self> {
        let profiles = feed.snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
        Rc::new(Self { feed, profiles })
    }

    /// What requests are held to that begin with these tables.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.feed.settings.clone()
    }

    /// The route table. Cost: about a nanosecond.
    pub(crate) fn routes(&self) -> &ArchivedRouteTable {
        self.feed.snapshot.table()
    }
}
