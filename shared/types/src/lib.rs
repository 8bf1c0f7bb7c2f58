//! Ids and plain values that more than one plane speaks of: endpoints, pools, models, the route table.
//!
//! Used by every crate above the kit. Changes when the product learns a new word. Never does I/O, reads no clock, holds
//! no behaviour beyond checking and looking up.

pub mod admission;
pub mod endpoint;
pub mod ids;
pub mod snapshot;

pub use endpoint::{EngineKind, PoolKey};
pub use ids::{BandRank, BoardSlot, CoreId, EndpointIdx, ModelIdx, PoolIdx, PoolSlot, RequestId};
pub use snapshot::{ArchivedRouteTable, ModelRoute, Pool, RouteTable, Snapshot};
