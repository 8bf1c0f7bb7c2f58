//! The route table: everything a core needs to know to route, as one immutable value with a generation.
//!
//! Written by whoever publishes (the side runtime, later the control plane), read in place by every core. It is never
//! changed: a newer one replaces it whole. No field is a live measurement; those are on the load board.

use std::net::SocketAddr;

use rkyv::{Archive, Deserialize, Serialize};

use crate::EngineKind;
use crate::admission::{Admission, QueueOrder, Thresholds};
use crate::checked::{Checked, Table};

pub use crate::checked::SnapshotError;

/// Where an engine is, and how it is reached.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
pub enum EngineAddr {
    /// Over the network.
    Tcp(SocketAddr),
    /// Over the network, within TLS; the certificate must be for this name. Whom to trust is published beside the
    /// table.
    Tls(SocketAddr, String),
    /// The path of a UNIX socket.
    Unix(String),
}

impl<A: Into<SocketAddr>> From<A> for EngineAddr {
    fn from(addr: A) -> Self {
        Self::Tcp(addr.into())
    }
}

impl std::fmt::Display for EngineAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(addr) | Self::Tls(addr, _) => addr.fmt(f),
            Self::Unix(path) => f.write_str(path),
        }
    }
}

/// One engine that requests can be sent to.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Unique name, shown as `x-llmgw-replica`.
    pub name: String,
    /// Its column on the load board (`BoardSlot`), for life.
    pub slot: u32,
    /// Where to connect, and how; absent while its host name does not resolve.
    pub addr: Option<EngineAddr>,
    /// Value of the `Host` header.
    pub host: String,
    /// Whole value of the `Authorization` header the engine wants, if it wants one. A secret.
    pub authorization: Option<String>,
    /// What kind of engine it is.
    pub engine: EngineKind,
    /// Share within its pool relative to others, 1 or more.
    pub weight: u32,
    /// How long an idle connection to it may be kept, in milliseconds; below the engine's own limit.
    pub idle_limit_ms: u32,
    /// In which order it takes its own queue.
    pub queue_order: QueueOrder,
}

/// An endpoint's membership in a pool.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Member {
    /// Row in `RouteTable::endpoints`.
    pub endpoint: u32,
    /// What this engine calls the pool's model.
    pub served_as: String,
}

/// Endpoints that serve one model on one fabric and GPU class.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Pool {
    /// Row in `RouteTable::models`.
    pub model: u32,
    /// `fabric/gpu_class`, as headers and metrics show it.
    pub label: String,
    /// Highest first.
    pub priority: u32,
    /// Where this pool's requests are counted (a row of the metric cells), for life.
    pub metric_row: u32,
    /// Its column on the load board (`PoolSlot`), for life. Pools that share their engines, as those of a model and its
    /// adapters do, share it.
    pub slot: u32,
    /// Hash of the base model's name: the core that owns it keeps the pool's queue.
    pub gate: u64,
    /// When it counts as full.
    pub thresholds: Thresholds,
    /// When its requests follow their prompts to where those are cached; none: nobody looks.
    pub prefix: Option<PrefixSpec>,
    /// Who is in it; not empty.
    pub members: Vec<Member>,
}

/// When requests follow their prompts to where those are cached.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub struct PrefixSpec {
    /// The least part of a prompt that must be cached somewhere, 0 to 1.
    pub cache_threshold: f32,
    /// How much more the engine that has it may have to do than the least loaded one: in requests like the one at hand.
    pub balance_abs: f32,
    /// The same as a multiple. Both must be passed for a prompt not to be followed.
    pub balance_rel: f32,
}

impl Default for PrefixSpec {
    fn default() -> Self {
        Self { cache_threshold: 0.30, balance_abs: 16.0, balance_rel: 1.5 }
    }
}

/// A model by its public name.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct ModelRoute {
    /// The public name.
    pub name: String,
    /// When it became known, unix seconds; what `/v1/models` says as `created`.
    pub created: u64,
    /// Rows in `RouteTable::pools`, by falling priority.
    pub pools: Vec<u32>,
    /// Row in `RouteTable::profiles`.
    pub profile: u32,
    /// What its engines are chosen by.
    pub placement: Placement,
    /// How its requests wait.
    pub admission: Admission,
    /// Rows of the models that stand in when no endpoint of this one can be used, first choice first.
    pub fallbacks: Vec<u32>,
    /// Row of the model that serves in place of this one where a budget is spent.
    pub budget_fallback: Option<u32>,
    /// What its use costs against budgets.
    pub units: Units,
}

/// What the use of a model costs against budgets. Units: millionths of a budget unit. All 0: exempt from budgets.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// A prompt token that was not cached.
    pub prompt_micros: u64,
    /// A cached prompt token.
    pub cached_micros: u64,
    /// A generated token.
    pub completion_micros: u64,
    /// A second of a GPU.
    pub gpu_second_micros: u64,
}

/// A unit a token.
impl Default for Units {
    fn default() -> Self {
        const ONE: u64 = 1_000_000;
        Self { prompt_micros: ONE, cached_micros: ONE, completion_micros: ONE, gpu_second_micros: 0 }
    }
}

/// What the engines of a model are chosen by.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// How sessions are kept together, if they are.
    pub session: Option<SessionSpec>,
}

/// How requests of one session are kept on one engine.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct SessionSpec {
    /// The header that names the session.
    pub header: String,
    /// Load over the pool's mean at which a session's engine is passed over, 1 or more.
    pub load_factor: f32,
}

/// A public name or alias and the model it means.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct ModelName {
    /// The name as clients write it.
    pub name: String,
    /// Row in `RouteTable::models`.
    pub model: u32,
}

/// A routing profile as it is configured; the router's registry turns the names into plugins.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct ProfileSpec {
    /// Name, as in configuration and `x-llmgw-profile`.
    pub name: String,
    /// Scorer names and weights.
    pub scorers: Vec<(String, f32)>,
    /// Picker name: `p2c`, `max-score`, `softmax`, `round-robin`.
    pub picker: String,
    /// Of `softmax`, else 0.
    pub temperature: f32,
}

/// Everything a core needs to know to route.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct RouteTable {
    /// Grows with every publication.
    pub generation: u64,
    /// Age beyond which an engine's sample says nothing, in milliseconds.
    pub stale_after_ms: u32,
    /// Engines.
    pub endpoints: Vec<Endpoint>,
    /// Pools.
    pub pools: Vec<Pool>,
    /// Models, in the order in which `/v1/models` lists them.
    pub models: Vec<ModelRoute>,
    /// Names and aliases, sorted by name (checked when a snapshot is made).
    pub names: Vec<ModelName>,
    /// Routing profiles.
    pub profiles: Vec<ProfileSpec>,
}

impl ArchivedRouteTable {
    /// The model a client's name or alias means. Cost: a binary search.
    pub fn model(&self, name: &str) -> Option<(u32, &ArchivedModelRoute)> {
        let at = self.names.binary_search_by(|row| row.name.as_str().cmp(name)).ok()?;
        let model = self.names.get(at)?.model.to_native();
        Some((model, self.models.get(model as usize)?))
    }
}

/// A checked route table.
pub type Snapshot = Checked<RouteTable>;

impl Table for RouteTable {
    const NAME: &'static str = "route table";

    fn fits_together(table: &ArchivedRouteTable) -> Result<(), String> {
        fits_together(table)
    }
}

fn fits_together(table: &ArchivedRouteTable) -> Result<(), String> {
    let refuse = |what: String| Err(what);
    for pool in table.pools.iter() {
        if pool.model.to_native() as usize >= table.models.len() {
            return refuse(format!("pool {} names a model that is not there", pool.label));
        }
        if pool.members.is_empty() {
            return refuse(format!("pool {} has no member", pool.label));
        }
        if pool.members.iter().any(|member| member.endpoint.to_native() as usize >= table.endpoints.len()) {
            return refuse(format!("pool {} has a member that is not there", pool.label));
        }
    }
    for model in table.models.iter() {
        if model.pools.iter().any(|&pool| pool.to_native() as usize >= table.pools.len()) {
            return refuse(format!("model {} names a pool that is not there", model.name));
        }
        if let Some(fault) = model.admission.fault() {
            return refuse(format!("model {} {fault}", model.name));
        }
        if model.profile.to_native() as usize >= table.profiles.len() {
            return refuse(format!("model {} names a routing profile that is not there", model.name));
        }
        let stand_ins = model.fallbacks.iter().chain(model.budget_fallback.as_ref());
        if stand_ins.into_iter().any(|row| row.to_native() as usize >= table.models.len()) {
            return refuse(format!("model {} falls back to a model that is not there", model.name));
        }
    }
    let mut last: Option<&str> = None;
    for row in table.names.iter() {
        if last.is_some_and(|last| last >= row.name.as_str()) {
            return refuse(format!("names are not sorted or not unique at {}", row.name));
        }
        if row.model.to_native() as usize >= table.models.len() {
            return refuse(format!("name {} means a model that is not there", row.name));
        }
        last = Some(row.name.as_str());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rkyv::rancor::Error;
    use rkyv::util::AlignedVec;

    use super::*;
    use crate::admission::Band;

    fn table() -> RouteTable {
        RouteTable {
            generation: 3,
            stale_after_ms: 6000,
            endpoints: vec![Endpoint {
                name: "a".into(),
                slot: 0,
                addr: Some(([127, 0, 0, 1], 8000).into()),
                host: "127.0.0.1:8000".into(),
                authorization: None,
                engine: EngineKind::Vllm,
                weight: 100,
                idle_limit_ms: 4000,
                queue_order: QueueOrder::default(),
            }],
            pools: vec![Pool {
                model: 0,
                label: "none/unknown".into(),
                priority: 100,
                metric_row: 1,
                slot: 0,
                gate: 1,
                thresholds: Thresholds::default(),
                prefix: None,
                members: vec![Member { endpoint: 0, served_as: "tiny".into() }],
            }],
            models: vec![ModelRoute {
                name: "m".into(),
                created: 1,
                pools: vec![0],
                profile: 0,
                placement: Placement::default(),
                admission: Admission::default(),
                fallbacks: vec![],
                budget_fallback: None,
                units: Units::default(),
            }],
            names: vec![ModelName { name: "alias".into(), model: 0 }, ModelName { name: "m".into(), model: 0 }],
            profiles: vec![ProfileSpec {
                name: "chat".into(),
                scorers: vec![],
                picker: "p2c".into(),
                temperature: 0.0,
            }],
        }
    }

    #[test]
    fn a_model_is_found_by_name_and_by_alias() {
        let snapshot = Snapshot::of(&table()).unwrap();
        for name in ["m", "alias"] {
            assert_eq!(snapshot.table().model(name).unwrap().1.name.as_str(), "m");
        }
        assert!(snapshot.table().model("nope").is_none());
        assert_eq!(snapshot.table().generation.to_native(), 3);
    }

    #[test]
    fn tables_that_do_not_fit_together_are_refused() {
        let check = |change: fn(&mut RouteTable), says: &str| {
            let mut bad = table();
            change(&mut bad);
            let error = Snapshot::of(&bad).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        };
        check(|t| t.pools[0].model = 9, "names a model that is not there");
        check(|t| t.pools[0].members.clear(), "has no member");
        check(|t| t.pools[0].members[0].endpoint = 1, "has a member that is not there");
        check(|t| t.models[0].pools[0] = 1, "names a pool that is not there");
        check(|t| t.models[0].profile = 4, "routing profile that is not there");
        check(|t| t.models[0].fallbacks = vec![1], "falls back to a model that is not there");
        check(|t| t.models[0].budget_fallback = Some(1), "falls back to a model that is not there");
        check(|t| t.models[0].admission.bands.clear(), "no bands");
        let band = |priority: i32, saturation_ceiling, capacity_share| Band {
            name: priority.to_string(),
            priority,
            metric_row: 0,
            saturation_ceiling,
            capacity_share,
        };
        for (bands, says) in [
            ([band(2, 1.0, 1.0), band(1, 1.0, 1.0)], "not sorted by priority"),
            ([band(1, 1.0, 1.0), band(2, 0.5, 1.0)], "held tighter"),
            ([band(1, 1.0, 1.0), band(2, 1.0, 0.9)], "held tighter"),
        ] {
            let mut bad = table();
            bad.models[0].admission.bands = bands.into();
            let error = Snapshot::of(&bad).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
        check(|t| t.names.reverse(), "not sorted");
        check(|t| t.names[1].name = "alias".into(), "not sorted or not unique");
    }

    #[test]
    fn a_damaged_or_cut_buffer_is_refused_not_read() {
        let good = rkyv::to_bytes::<Error>(&table()).unwrap();
        for cut in 0..good.len() {
            let mut bytes = AlignedVec::new();
            bytes.extend_from_slice(&good[..cut]);
            // A cut buffer may by chance still be a (smaller) table; what counts is that nothing is read past its end.
            if let Ok(snapshot) = Snapshot::check(bytes) {
                let _ = snapshot.table().model("m");
            }
        }
        let mut bytes = AlignedVec::new();
        bytes.extend_from_slice(&good);
        let end = bytes.len();
        bytes[end - 6] ^= 0x7f;
        assert!(Snapshot::check(bytes).is_err());
    }
}
