//! The tree of `server.yaml`, key by key, each with its unit and default.
//!
//! Read by `load`, judged by `checked`, rendered by `document`. A key is added here and nowhere else: a line with its
//! text, its kind and its default. Never holds a meaning that needs two sections.

use std::time::Duration;

use llmgw_types::EngineKind;

use crate::read::{Field, choice, section};
use crate::values::{Bytes, CoreCount, Factor, Named, OneOrMore, Period, Ratio, Share, Weight};

section! {
    /// The whole file.
    pub struct ServerTree {
        /// Where clients connect: `:8080` is port 8080 on every IPv4 interface, `[::]:8080` on every interface,
        /// `10.0.0.1:8080` on one.
        listen: OneOrMore<String> = "':8080'",
        /// Where operators connect: metrics, readiness and the admin API. Any address but loopback needs an admin
        /// token;
        /// `/metrics`, `/healthz` and `/readyz` are exempt from it.
        admin_listen: String = "'127.0.0.1:9090'",
        /// The environment variable that holds the admin token.
        admin_token_env: Option<String>,
        /// The file that holds the admin token, in place of `admin_token_env`.
        admin_token_file: Option<String>,
        /// Whether clients need a key.
        auth: Auth = "none",
        /// Data-plane threads, each pinned to a CPU of its own.
        cores: CoreCount = "auto",
        /// CPUs kept for everything but the data plane; 0 shares them with it. `auto` shares on machines with 4 CPUs
        /// or fewer.
        side_cpus: CoreCount = "auto",
        /// The certificate shown to clients, or a list of them, chosen by the name the client asks for. Absent:
        /// plain HTTP.
        tls: Option<OneOrMore<Certificate>>,
        /// Where agents connect.
        agent_listen: Option<String>,
        /// Certificates of the agents' port. Without them it is served in plain text, on loopback only.
        agent_tls: Option<AgentTls>,
        /// Serves the agents' port in plain text on any address.
        agent_plaintext: bool = "false",
        /// What is kept on disk.
        store: Store = "{}",
        /// Where traces are sent.
        tracing: Tracing = "{}",
        /// Engines named by hand. One URL is one endpoint, whatever number of models it serves.
        endpoints: Vec<Field<Endpoint>> = "[]",
        /// InfiniBand fabrics, for recognising them on nodes.
        fabrics: Vec<Field<Fabric>> = "[]",
        /// How requests are let in, placed and timed.
        router: Router = "{}",
        /// The catalog: aliases and settings of the models that endpoints serve.
        models: Vec<Field<Model>> = "[]",
    }
}

choice! {
    /// Whether clients need a key.
    pub enum Auth {
        /// Anyone who reaches the address may use the engines.
        None = "none",
        /// Every request needs a key.
        Keys = "keys",
    }
}

section! {
    /// A certificate and its key.
    pub struct Certificate {
        /// PEM file with the certificate chain.
        cert: Option<String>,
        /// PEM file with the private key.
        private_key as "key": Option<String>,
    }
}

section! {
    /// Certificates of the agents' port; both sides show one.
    pub struct AgentTls {
        /// PEM file with the authority that signs agents' certificates.
        ca: Option<String>,
        /// PEM file with the server's certificate chain.
        cert: Option<String>,
        /// PEM file with the server's private key.
        private_key as "key": Option<String>,
    }
}

section! {
    /// What is kept on disk.
    pub struct Store {
        /// The database file: keys, usage, audit trail. Made where keys are on or another path than the default is
        /// written; else, at the default path, one that is there is used.
        path: String = "/var/lib/llmgw/llmgw.db",
    }
}

section! {
    /// Where traces are sent.
    pub struct Tracing {
        /// URL of an OTLP collector; empty: traces are not sent.
        endpoint: String = "''",
    }
}

section! {
    /// One engine.
    pub struct Endpoint {
        /// Unique name, shown to clients as `x-llmgw-replica`. Absent: `host:port` of the URL.
        name: Option<String>,
        /// The engine's root, without `/v1`.
        url: String,
        /// The model's public name. Or `models`.
        model: Option<String>,
        /// What the engine calls the model. Absent: the same as `model`.
        served_as: Option<String>,
        /// The models, where the engine serves several.
        models: Vec<Field<EndpointModel>> = "[]",
        /// What kind of engine it is: decides paths and metric names.
        engine: EngineKind = "vllm",
        /// The fabric its node is on; part of the pool.
        fabric: String = "none",
        /// The kind of GPU it runs on; part of the pool. A pool is one model on one fabric and GPU class.
        gpu_class: String = "unknown",
        /// The pool's priority: pools of higher priority are filled first.
        priority: i32 = "100",
        /// Share of the pool's requests, beside the weights of the others in it.
        weight: u32 = "100",
        /// The environment variable that holds the engine's key.
        api_key_env: Option<String>,
        /// The file that holds the engine's key, in place of `api_key_env`.
        api_key_file: Option<String>,
        /// Path that answers 200 when the engine is ready. Absent: the engine's own.
        health_path: Option<String>,
        /// Path of the engine's metrics; `off`: the engine is judged by our own requests in flight only. Absent: the
        /// engine's own.
        metrics_path: Option<String>,
        /// Metric names, where the engine's version uses others.
        metrics: MetricNames = "{}",
        /// Requests the engine runs at once. Absent: learned.
        batch_capacity: Option<u32>,
        /// In which order the engine takes its own queue.
        scheduling: Scheduling = "fifo",
        /// Tokens the engine's KV cache holds, for engines that do not publish it.
        kv_capacity_tokens: Option<u64>,
        /// How an `https` engine is trusted.
        tls: Option<EndpointTls>,
    }
}

section! {
    /// One of several models of an engine.
    pub struct EndpointModel {
        /// The public name.
        name: String,
        /// What the engine calls it. Absent: the same.
        served_as: Option<String>,
    }
}

section! {
    /// The engine's names for what the gateway reads. Absent: the names of the engine's kind; `off`: it does not
    /// publish that.
    pub struct MetricNames {
        /// Requests waiting in the engine's queue; cannot be `off`.
        waiting: Option<String>,
        /// Requests the engine works on; cannot be `off`.
        running: Option<String>,
        /// Fill of the KV cache, 0 to 1.
        kv_usage: Option<String>,
        /// Prompt tokens processed, a counter.
        prompt_tokens: Option<String>,
        /// Tokens generated, a counter.
        generation_tokens: Option<String>,
        /// Prompt tokens found in the prefix cache, a counter.
        prefix_hits: Option<String>,
        /// Prompt tokens looked up in the prefix cache, a counter.
        prefix_queries: Option<String>,
        /// Tokens in a block of the KV cache.
        block_size: Option<String>,
        /// Blocks in the KV cache.
        block_count: Option<String>,
        /// Tokens that fit into the KV cache.
        kv_capacity_tokens: Option<String>,
        /// Requests that ended, a counter.
        requests_completed: Option<String>,
    }
}

choice! {
    /// In which order an engine takes its own queue.
    pub enum Scheduling {
        /// First come, first served.
        Fifo = "fifo",
        /// By the request's priority.
        Priority = "priority",
    }
}

section! {
    /// How an `https` engine is trusted.
    pub struct EndpointTls {
        /// PEM file with the authority that signed the engine's certificate. Absent: the system's authorities.
        ca: Option<String>,
    }
}

section! {
    /// One InfiniBand fabric.
    pub struct Fabric {
        /// Unique name.
        name: String,
        /// First half of its ports' GIDs: nodes with such ports are on this fabric.
        gid_prefix: Option<String>,
    }
}

section! {
    /// How requests are let in, placed and timed.
    pub struct Router {
        /// How often each engine's metrics are read.
        scrape_interval: Period = "2s",
        /// Asks engines for token usage where the client did not, and keeps the answer's extra event from the client.
        inject_usage: bool = "true",
        /// Further tries of a request, each on another endpoint, before anything was sent to the client.
        retries: u16 = "2",
        /// Seconds for which an endpoint that failed is left out.
        cooldown_seconds: u32 = "15",
        /// How long the last known endpoints are used while the control plane is away.
        endpoint_cache_max_age: Period = "5m",
        /// The largest requests taken from clients.
        limits: RequestLimits = "{}",
        /// How long each step may take.
        timeouts: Timeouts = "{}",
        /// When requests wait, and in which order they go on.
        admission: Admission = "{}",
        /// The routing profile of models that name none.
        default_profile: String = "chat",
        /// Routing profiles by name. One written here takes the place of the built-in one of that name.
        profiles: Named<Profile> = "{ chat: { cost: { w_overlap: 4 }, picker: { type: p2c } }, \
            batch: { scorers: { queue: 3.0, kv: 1.0, load: 1.0, prefix: 0.5 }, picker: { type: max-score } }, \
            long-context: { scorers: { kv: 3.0, prefix: 2.0, queue: 1.0 }, \
            picker: { type: softmax, temperature: 0.2 } }, \
            debug: { picker: { type: round-robin } } }",
        /// How requests find the engine that holds their beginning in its cache.
        prefix: Prefix = "{}",
    }
}

section! {
    /// The largest requests taken from clients.
    pub struct RequestLimits {
        /// The body, in bytes.
        body: Bytes = "64MiB",
        /// Request line and header fields together, in bytes.
        header: Bytes = "32KiB",
        /// Number of header fields.
        headers: u16 = "128",
    }
}

section! {
    /// How long each step may take.
    pub struct Timeouts {
        /// Connecting to an engine.
        connect: Period = "2s",
        /// From the request sent to the engine's first byte.
        first_token: Period = "120s",
        /// Between two events of a stream.
        between_events: Period = "60s",
        /// The whole request.
        total: Period = "1h",
        /// A client sending its request's head.
        client_header: Period = "10s",
        /// A client sending its request's body.
        client_body: Period = "60s",
        /// An idle client connection.
        client_idle: Period = "75s",
        /// Requests still running when the server is told to stop.
        drain: Period = "60s",
        /// From readiness withdrawn to the listening socket closed.
        settle: Duration = "5s",
    }
}

section! {
    /// When requests wait, and in which order they go on.
    pub struct Admission {
        /// Requests per replica that may wait in the engines' own queues: the pool counts as full at this mean.
        target_waiting_per_replica: u32 = "4",
        /// Fill of the KV cache at which a pool counts as full.
        kv_ceiling: Share = "0.90",
        /// Scales the KV ceiling by band as the queue's is, in place of one ceiling for all bands.
        kv_by_band: bool = "false",
        /// How long a request may wait.
        queue_ttl: Period = "30s",
        /// How often a waiting stream gets a comment line, so that proxies keep it open; `0s`: never, else `100ms` or
        /// more. With the first its answer has begun: what goes wrong after it is an event within the stream.
        heartbeat: Duration = "0s",
        /// Waiting requests of one band.
        queue_capacity_per_band: u32 = "2000",
        /// Waiting requests of all bands. A higher band makes room in this one by displacing the lowest, never in a
        /// full band.
        queue_capacity_total: u32 = "8000",
        /// Bytes of the waiting requests together.
        queue_bytes_max: Bytes = "2GiB",
        /// Priority bands. Neither ceiling nor share may fall as priority rises.
        bands: Vec<Field<Band>> = "[{ name: platinum, priority: 400, saturation_ceiling: 1.00 }, \
            { name: gold, priority: 300, saturation_ceiling: 0.85 }, \
            { name: silver, priority: 200, saturation_ceiling: 0.60 }, \
            { name: bronze, priority: 100, saturation_ceiling: 0.30, capacity_share: 0.95 }]",
    }
}

section! {
    /// One priority band.
    pub struct Band {
        /// Unique name.
        name: String,
        /// Higher goes first; unique.
        priority: i32,
        /// Saturation of the pool above which this band waits; 1 is the healthy limit.
        saturation_ceiling: Weight,
        /// Share of a pool's batch this band may fill; under 1 it replaces the ceiling's queue allowance.
        capacity_share: Share = "1.0",
    }
}

section! {
    /// How a request's engine is chosen within its pool.
    pub struct Profile {
        /// Scores by cost in cache blocks. Or `scorers`.
        cost: Option<Cost>,
        /// Weights of scorers, by name. `inflight` is always on, also where it is not named.
        scorers: Option<Named<Weight>>,
        /// How one engine is picked from the scores.
        picker: Picker = "{}",
    }
}

section! {
    /// Scores by cost in cache blocks.
    pub struct Cost {
        /// Weight of the prompt's blocks that the engine does not hold, beside its queued and running work.
        w_overlap: Weight = "4",
    }
}

section! {
    /// How one engine is picked from the scores.
    pub struct Picker {
        /// The kind of picker.
        kind as "type": PickerKind = "p2c",
        /// Of `softmax`: 0 picks the best, higher values spread more.
        temperature: Option<Weight>,
    }
}

choice! {
    /// The kind of picker.
    pub enum PickerKind {
        /// The better of two drawn at random.
        P2c = "p2c",
        /// The best.
        MaxScore = "max-score",
        /// Drawn with a chance that grows with the score.
        Softmax = "softmax",
        /// In turn.
        RoundRobin = "round-robin",
    }
}

section! {
    /// How requests find the engine that holds their beginning in its cache.
    pub struct Prefix {
        /// Requests of one session go to one engine.
        session_affinity: SessionAffinity = "{}",
        /// Engines' caches are estimated from the requests sent to them.
        approx_tree: ApproxTree = "{}",
        /// Engines' caches are known from the events they publish.
        kv_events: KvEvents = "{}",
    }
}

section! {
    /// Requests of one session go to one engine.
    pub struct SessionAffinity {
        /// Whether it is on.
        enabled: bool = "true",
        /// The header that names the session.
        header: String = "x-session-id",
        /// Load over the pool's mean at which a session's engine is passed over.
        load_factor: Factor = "1.25",
    }
}

section! {
    /// Engines' caches are estimated from the requests sent to them.
    pub struct ApproxTree {
        /// Whether it is on.
        enabled: bool = "true",
        /// Matched part of the prompt below which the match counts for nothing.
        cache_threshold: Ratio = "0.30",
        /// How much more the engine that has the prompt may have to do than the least loaded one, in requests like the
        /// one at hand. Beyond this and the next, the prompt is not followed.
        balance_abs_threshold: u32 = "16",
        /// The same as a multiple.
        balance_rel_threshold: Factor = "1.5",
        /// Slots of the table, at most; of 72 bytes each, which are taken as engines need them. One table for all
        /// models.
        max_tree_size: u32 = "2000000",
        /// Accepted and without effect: the table needs none.
        eviction_interval: Period = "60s",
    }
}

section! {
    /// Engines' caches are known from the events they publish.
    pub struct KvEvents {
        /// Whether it is on.
        enabled: bool = "false",
    }
}

section! {
    /// One model of the catalog.
    pub struct Model {
        /// The public name, as endpoints name it.
        name: String,
        /// Further names clients may use.
        aliases: Vec<Field<String>> = "[]",
        /// Models that answer when this one has no engine, in this order.
        fallbacks: Vec<Field<String>> = "[]",
        /// The model that answers a key whose budget is spent, if it may use that: one that costs less, or nothing.
        budget_fallback: Option<String>,
        /// The routing profile. Absent: `router.default_profile`.
        routing_profile: Option<String>,
        /// Overrides of `router.admission` for this model.
        admission: Option<Admission>,
        /// Overrides of `router.prefix` for this model.
        prefix: Option<Prefix>,
        /// Where its weights are, for agents that start it.
        source: Option<String>,
        /// What its use is counted as, in sums and against budgets.
        units: Units = "{}",
        /// How many replicas agents run.
        scaling: Option<Scaling>,
        /// The service level its capacity is measured against.
        slo: Option<Slo>,
        /// How agents may run it.
        profiles: Vec<Field<ModelProfile>> = "[]",
    }
}

section! {
    /// What the use of a model is counted as, in units of your own choice: tokens, money, seconds. To a millionth; all
    /// 0: it costs nothing, and no budget ends its use.
    pub struct Units {
        /// Units per prompt token that was not cached.
        prompt: Weight = "1",
        /// Units per cached prompt token.
        cached: Weight = "1",
        /// Units per generated token.
        completion: Weight = "1",
        /// Units per second that an engine has a request, from its sending to the end of its answer.
        gpu_second: Weight = "0",
    }
}

section! {
    /// How many replicas agents run.
    pub struct Scaling {
        /// At least.
        min: u32 = "0",
        /// At most.
        max: u32,
    }
}

section! {
    /// A service level.
    pub struct Slo {
        /// Time to first token, 99th percentile.
        ttft_p99: Option<Period>,
        /// Time per output token, 99th percentile.
        tpot_p99: Option<Period>,
    }
}

section! {
    /// One way to run a model.
    pub struct ModelProfile {
        /// Unique name within the model.
        name: String,
        /// The kind of GPU it needs.
        gpu_class: String,
        /// The engine.
        engine: EngineKind = "vllm",
        /// Tensor parallelism: GPUs a replica spans.
        tp: u32 = "1",
        /// Nodes a replica spans, all on one fabric.
        nodes: u32 = "1",
        /// The pool's priority: pools of higher priority are filled first.
        priority: i32 = "100",
        /// Share of the pool's requests.
        weight: u32 = "100",
        /// Further arguments of the engine's command.
        args: Vec<Field<String>> = "[]",
        /// Overrides of `router.admission` for this profile.
        admission: Option<Admission>,
        /// Overrides of `router.prefix` for this profile.
        prefix: Option<Prefix>,
    }
}
