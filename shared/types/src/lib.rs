//! Ids and plain values that more than one plane speaks of: endpoints, pools, models, the route table; who
//! may ask.
//!
//! Used by every crate above the kit. Changes when the product learns a new word. Never does I/O, reads no clock, holds
//! no behaviour beyond checking and looking up.

pub mod admission;
mod checked;
pub mod endpoint;
pub mod ids;
pub mod snapshot;
pub mod tenants;
pub mod usage;

pub use endpoint::{EngineKind, PoolKey};
pub use ids::{
    BandRank, BoardSlot, CoreId, EndpointIdx, KeyIdx, LevelIdx, ModelIdx, OrganizationIdx, PoolIdx, PoolSlot,
    ProjectIdx, RequestId, ShortId,
};
pub use snapshot::{ArchivedRouteTable, ModelRoute, Pool, RouteTable, Snapshot};
pub use tenants::{ArchivedTenantTable, TenantSnapshot, TenantTable};
pub use usage::{Tokens, UsageRecord};
