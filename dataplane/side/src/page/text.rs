//! The metrics page's text: what all cores counted, the board, the process. Reads cells and keeps nothing.
//!
//! Label values are names of the newest route table, so whatever clients send adds no series, and what left the
//! table is not shown any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use llmgw_config::ServerConfig;
use llmgw_journal::metrics as journal;
use llmgw_kit::clock::{Mono, Wall};
use llmgw_obs::expose::Page;
use llmgw_obs::log::Sink;
use llmgw_obs::merge;
use llmgw_obs::metric::{Counter, Gauge, Histogram};
use llmgw_obs::registry::{DURATION, FIRST_TOKEN, MetricDesc, OVERHEAD, PER_TOKEN};
use llmgw_obs::rows::RowIdx;
use llmgw_router::board::Board;
use llmgw_router::endpoint::{BreakerState, EndpointCells, MetricsState};
use llmgw_router::metrics::{self as core, BandCells, CoreCells, PoolCells, STATUSES};
use llmgw_router::prefix::StampTable;
use llmgw_router::readiness::Readiness;
use llmgw_router::scheduler::Context;
use llmgw_router::scheduler::registry::FILTER_NAMES;
use llmgw_router::scheduler::run::survey;
use llmgw_types::CoreId;
use tokio::sync::{mpsc, watch};

use crate::certificate;
use crate::metrics as own;
use crate::process;
use crate::reload::Request;
use crate::rooms;
use crate::table::View;

/// Where the page's numbers are.
pub(crate) struct Sources {
    pub cells: Vec<Arc<CoreCells>>,
    pub board: Arc<Board>,
    pub prefixes: Arc<StampTable>,
    pub view: watch::Receiver<Arc<View>>,
    pub readiness: Arc<Readiness>,
    pub sink: Sink,
    pub started: Wall,
    /// The running configuration.
    pub running: watch::Receiver<Arc<ServerConfig>>,
    /// Where wishes for a reload go.
    pub requests: mpsc::Sender<Request>,
    /// Who answers the rest of the admin API.
    pub desk: Option<Arc<dyn crate::Desk>>,
    /// What the journal of usage counts, where there is one.
    pub usage: Option<Arc<llmgw_journal::Cells>>,
    /// Whether only this machine reaches the page.
    pub is_loopback: bool,
}

/// The whole page. Cost: one pass over the rows of every core; nothing waits for it.
pub(super) fn metrics(sources: &Sources) -> String {
    let view = sources.view.borrow().clone();
    let mut page = Page::new();
    for (row, [model, pool]) in &view.rows {
        pool_rows(&mut page, &sources.cells, *row, model, pool);
    }
    models(&mut page, &sources.cells, &view);
    for (row, [model, band]) in &view.band_rows {
        band_rows(&mut page, &sources.cells, *row, model, band);
    }
    whole_cores(&mut page, &sources.cells);
    if let Some(cells) = &sources.usage {
        usage(&mut page, cells, &sources.cells);
    }
    endpoints(&mut page, &sources.board, &view);
    process(&mut page, sources, &view);
    page.into_text()
}

fn pool_rows(page: &mut Page, cores: &[Arc<CoreCells>], row: RowIdx, model: &str, pool: &str) {
    let cells: Vec<&PoolCells> = cores.iter().filter_map(|core| core.pools.seen(row)).collect();
    if cells.is_empty() {
        return;
    }
    for (at, status) in STATUSES.iter().enumerate() {
        let count = merge::counters(cells.iter().filter_map(|cells| cells.requests.get(at)));
        // Twenty series a pool of which most would stay zero for ever.
        if count > 0 {
            page.family(&core::REQUESTS).count(&[model, pool, status], count);
        }
    }
    let sum =
        |pick: fn(&PoolCells) -> &Histogram, bounds| merge::histograms(bounds, cells.iter().map(|cells| pick(cells)));
    page.family(&core::REQUEST_DURATION).histogram(&[model, pool], &sum(|cells| &cells.duration, DURATION));
    page.family(&core::TTFT).histogram(&[model, pool], &sum(|cells| &cells.first_token, FIRST_TOKEN));
    page.family(&core::TPOT).histogram(&[model, pool], &sum(|cells| &cells.per_token, PER_TOKEN));
}

fn band_rows(page: &mut Page, cores: &[Arc<CoreCells>], row: RowIdx, model: &str, band: &str) {
    let cells: Vec<&BandCells> = cores.iter().filter_map(|core| core.bands.seen(row)).collect();
    let waiting = merge::gauges(cells.iter().map(|cells| &cells.waiting));
    page.family(&core::ADMISSION_QUEUE_DEPTH).gauge(&[band, model], waiting);
    if cells.is_empty() {
        return;
    }
    let wait = merge::histograms(FIRST_TOKEN, cells.iter().map(|cells| &cells.wait));
    page.family(&core::ADMISSION_WAIT).histogram(&[band, model], &wait);
    for (at, reason) in core::REJECTIONS.iter().enumerate() {
        let count = merge::counters(cells.iter().filter_map(|cells| cells.rejected.get(at)));
        page.family(&core::ADMISSION_REJECTED).count(&[band, model, reason], count);
    }
    for (at, how) in core::ADMISSIONS.iter().enumerate() {
        let count = merge::counters(cells.iter().filter_map(|cells| cells.admitted.get(at)));
        page.family(&core::ADMISSION_ADMITTED).count(&[band, model, how], count);
    }
}

/// Tokens and prompts have no pool label: the rows of one model add up.
fn models(page: &mut Page, cores: &[Arc<CoreCells>], view: &View) {
    let mut by_model: BTreeMap<&str, Vec<RowIdx>> = BTreeMap::new();
    for (row, [model, _]) in &view.rows {
        by_model.entry(model).or_default().push(*row);
    }
    for (model, rows) in by_model {
        let cells: Vec<&PoolCells> =
            cores.iter().flat_map(|core| rows.iter().filter_map(|row| core.pools.seen(*row))).collect();
        if cells.is_empty() {
            continue;
        }
        let prompt = merge::counters(cells.iter().map(|cells| &cells.prompt_tokens));
        let completion = merge::counters(cells.iter().map(|cells| &cells.completion_tokens));
        page.family(&core::TOKENS).count(&[model, "prompt"], prompt).count(&[model, "completion"], completion);
        let audio_ms = merge::counters(cells.iter().map(|cells| &cells.audio_ms));
        if audio_ms > 0 {
            page.family(&core::AUDIO_SECONDS).millis(&[model], audio_ms);
        }
        let decisions: [u64; core::CACHE_DECISIONS.len()] =
            std::array::from_fn(|at| merge::counters(cells.iter().filter_map(|cells| cells.cache_decisions.get(at))));
        if decisions.iter().all(|count| *count == 0) {
            continue;
        }
        for (decision, count) in core::CACHE_DECISIONS.iter().zip(decisions) {
            page.family(&core::CACHE_DECISION).count(&[model, decision], count);
        }
        let matched = merge::histograms(core::RATIO, cells.iter().map(|cells| &cells.prefix_match));
        page.family(&core::PREFIX_MATCH_RATIO).histogram(&[model], &matched);
    }
}

fn whole_cores(page: &mut Page, cores: &[Arc<CoreCells>]) {
    let counter = |pick: fn(&CoreCells) -> &Counter| merge::counters(cores.iter().map(|core| pick(core)));
    let gauge = |pick: fn(&CoreCells) -> &Gauge| merge::gauges(cores.iter().map(|core| pick(core)));
    // Cells that may be set back in one core and shown as what only grows.
    let grown = |pick: fn(&CoreCells) -> &Gauge| u64::try_from(gauge(pick)).unwrap_or(0);

    let overhead = merge::histograms(OVERHEAD, cores.iter().map(|core| &core.overhead));
    page.family(&core::OVERHEAD_SECONDS).histogram(&[], &overhead);
    page.family(&core::USAGE_ABSENT)
        .count(&["missing"], counter(|core| &core.usage_absent[0]))
        .count(&["absurd"], counter(|core| &core.usage_absent[1]));
    page.family(&core::BROKEN_STREAMS).count(&[], counter(|core| &core.broken_streams));
    for (at, reason) in core::RETRY_REASONS.iter().enumerate() {
        let count = merge::counters(cores.iter().filter_map(|core| core.retries.get(at)));
        page.family(&core::RETRIES).count(&[reason], count);
    }
    for (about, subject) in core::SESSION_SUBJECTS.iter().enumerate() {
        for (at, outcome) in core::SESSION_OUTCOMES.iter().enumerate() {
            let cells = cores.iter().filter_map(|core| core.session_messages.get(about)?.get(at));
            page.family(&core::SESSION_MESSAGES).count(&[subject, outcome], merge::counters(cells));
        }
    }
    page.family(&core::RETRIES_REFUSED).count(&[], counter(|core| &core.retries_refused));
    page.family(&core::COOLDOWNS).count(&[], counter(|core| &core.cooldowns));
    page.family(&core::LAST_RESORTS).count(&[], counter(|core| &core.last_resorts));
    page.family(&core::CONNECTIONS_OPEN).gauge(&[], gauge(|core| &core.connections_open));
    for (at, outcome) in core::TLS_OUTCOMES.iter().enumerate() {
        let count = merge::counters(cores.iter().filter_map(|core| core.tls_handshakes.get(at)));
        page.family(&core::TLS_HANDSHAKES).count(&[outcome], count);
    }
    page.family(&core::REQUESTS_IN_FLIGHT).gauge(&[], gauge(|core| &core.in_flight));
    page.family(&core::UPSTREAM_CONNECTIONS)
        .count(&["opened"], grown(|core| &core.upstream_opened))
        .count(&["reused"], grown(|core| &core.upstream_reused))
        .count(&["stale"], grown(|core| &core.upstream_stale))
        .count(&["retried"], grown(|core| &core.upstream_retried));
    page.family(&core::PANICS).count(&[], counter(|core| &core.panics));
    page.family(&core::ACCESS_LINES_LOST).count(&[], counter(|core| &core.access_lines_lost));
    decisions(page, cores);
    for (at, message) in core::GATE_MESSAGES.iter().enumerate() {
        let count = merge::counters(cores.iter().filter_map(|core| core.gate_messages.get(at)));
        page.family(&core::ADMISSION_MESSAGES).count(&[message], count);
    }
    page.family(&core::ADMISSION_HEARTBEATS).count(&[], counter(|core| &core.heartbeats));
    page.family(&core::ADMISSION_FOUND_BY_NET).count(&[], grown(|core| &core.found_by_net));
    limits(page, cores);
}

fn limits(page: &mut Page, cores: &[Arc<CoreCells>]) {
    for (at, outcome) in core::LIMIT_OUTCOMES.iter().enumerate() {
        let count = merge::counters(cores.iter().filter_map(|core| core.limited.get(at)));
        page.family(&core::LIMIT_REQUESTS).count(&[outcome], count);
    }
    for (at, measure) in core::LIMIT_MEASURES.iter().enumerate() {
        let count = merge::counters(cores.iter().filter_map(|core| core.limit_refusals.get(at)));
        page.family(&core::LIMIT_REFUSALS).count(&[measure], count);
    }
    for (at, event) in core::LIMIT_SLICES.iter().enumerate() {
        let count = merge::gauges(cores.iter().filter_map(|core| core.limit_slices.get(at)));
        page.family(&core::LIMIT_LEASES).count(&[event], u64::try_from(count).unwrap_or(0));
    }
}

/// Records of what requests used, on their way to the store.
fn usage(page: &mut Page, cells: &llmgw_journal::Cells, cores: &[Arc<CoreCells>]) {
    page.family(&journal::RECORDS).count(&["journal"], cells.journaled.value()).count(&["store"], cells.stored.value());
    page.family(&journal::RECORDS_WAITING).gauge(&[], merge::gauges([&cells.came, &cells.arrived]));
    page.family(&journal::RECORDS_LOST)
        .count(&["ring_full"], merge::counters(cores.iter().map(|core| &core.usage_lost)))
        .count(&["journal_full"], cells.lost.value());
    let bytes = merge::gauges([&cells.bytes_written, &cells.bytes_gone]);
    page.family(&journal::JOURNAL_BYTES).gauge(&[], bytes);
    page.family(&journal::JOURNAL_CUT_BYTES).count(&[], cells.bytes_cut.value());
    let commits = merge::histograms(journal::COMMIT, std::iter::once(&cells.commits));
    page.family(&journal::COMMIT_SECONDS).histogram(&[], &commits);
    page.family(&journal::FAILURES)
        .count(&["journal"], cells.journal_failures.value())
        .count(&["store"], cells.store_failures.value());
}

fn decisions(page: &mut Page, cores: &[Arc<CoreCells>]) {
    let considered = merge::histograms(core::CANDIDATES, cores.iter().map(|core| &core.decisions.considered));
    page.family(&core::CANDIDATES_CONSIDERED).histogram(&[], &considered);
    for (at, filter) in FILTER_NAMES.iter().enumerate() {
        let dropped = merge::counters(cores.iter().filter_map(|core| core.decisions.filtered.get(at)));
        page.family(&core::CANDIDATES_FILTERED).count(&[filter], dropped);
    }
}

fn endpoints(page: &mut Page, board: &Board, view: &View) {
    let now = Mono::now();
    for (replica, slot) in &view.replicas {
        let cells = board.endpoint(*slot);
        let is_out = now < cells.out_until();
        let breaker = match cells.breaker() {
            BreakerState::Closed => 0,
            BreakerState::Open if is_out => 2,
            BreakerState::Open | BreakerState::HalfOpen => 1,
        };
        page.family(&own::BREAKER_STATE).gauge(&[replica], breaker);
        page.family(&own::ENDPOINT_COOLING).gauge(&[replica], i64::from(is_out));
        page.family(&own::ENDPOINT_INFLIGHT).gauge(&[replica], board.in_flight(*slot));
        page.family(&own::ENDPOINT_READY).gauge(&[replica], i64::from(board.is_ready(*slot)));
        let is_draining = board.endpoint(*slot).is_draining();
        page.family(&own::ENDPOINT_DRAINING).gauge(&[replica], i64::from(is_draining));
        own_words(page, replica, cells);
    }
    scorer_values(page, board, view);
    if let Some(table) = view.routes.as_ref().map(|routes| routes.table()) {
        for pool in table.pools.iter() {
            let model = table.models.get(pool.model.to_native() as usize).map_or("", |model| model.name.as_str());
            let value = f64::from(rooms::saturation_of(board, table, pool, now));
            page.family(&own::POOL_SATURATION).ratio(&[model, pool.label.as_str()], (value * 1e6).round() / 1e6);
        }
    }
    for (model, slots) in &view.models {
        let ready = slots.iter().filter(|slot| board.is_ready(**slot)).count();
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        page.family(&own::REPLICAS)
            .gauge(&[model, "ready"], number(ready))
            .gauge(&[model, "not_ready"], number(slots.len() - ready));
    }
}

/// Scorers that have nothing to say without a request: of its session, of its prompt.
const OF_A_REQUEST: [&str; 2] = ["session", "prefix"];

/// One value an endpoint and scorer: an endpoint of several pools is judged in the first of them.
fn scorer_values(page: &mut Page, board: &Board, view: &View) {
    let Some(table) = view.routes.as_ref().map(|routes| routes.table()) else { return };
    let now = Mono::now();
    let mut judged: HashMap<u32, u32> = HashMap::new();
    for (pool, row) in table.pools.iter().zip(0u32..) {
        let Some(route) = table.models.get(pool.model.to_native() as usize) else { continue };
        let ctx = Context::of(board, CoreId(0), now, table, route, pool);
        survey(table, pool, &ctx, |scorer, endpoint, value| {
            let name = table.endpoints.get(endpoint.idx()).map_or("", |endpoint| endpoint.name.as_str());
            let is_first = *judged.entry(endpoint.0).or_insert(row) == row;
            if is_first && !OF_A_REQUEST.contains(&scorer) {
                page.family(&own::SCORER_VALUE).ratio(&[scorer, name], value.into());
            }
        });
    }
}

/// What an engine says of itself.
fn own_words(page: &mut Page, replica: &str, cells: &EndpointCells) {
    let state = cells.metrics();
    if let Some(sample) = cells.sample().filter(|_| state == MetricsState::Fresh) {
        page.family(&own::ENDPOINT_RUNNING).gauge(&[replica], sample.running.into());
        page.family(&own::ENDPOINT_WAITING).gauge(&[replica], sample.waiting.into());
        if let Some(ratio) = sample.kv_usage_ratio {
            // The board holds millionths: more digits would be those of the conversion.
            page.family(&own::ENDPOINT_KV_USAGE).ratio(&[replica], (f64::from(ratio) * 1e6).round() / 1e6);
        }
    }
    if state != MetricsState::Unread {
        let is_stale = state == MetricsState::Stale;
        page.family(&own::ENDPOINT_METRICS_STALE).gauge(&[replica], i64::from(is_stale));
    }
    if let Some(capacity) = cells.batch_capacity() {
        page.family(&own::ENDPOINT_BATCH_CAPACITY).gauge(&[replica], capacity.into());
    }
    if let Some(tokens) = cells.kv_capacity_tokens() {
        page.family(&own::ENDPOINT_KV_CAPACITY).gauge(&[replica], i64::try_from(tokens).unwrap_or(i64::MAX));
    }
}

fn process(page: &mut Page, sources: &Sources, view: &View) {
    let generation = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    page.family(&own::GENERATION).gauge(&[], generation(view.generation));
    page.family(&own::GENERATION_OLDEST).gauge(&[], generation(sources.board.oldest_generation()));
    page.family(&own::PREFIX_SLOTS).gauge(&[], i64::try_from(sources.prefixes.slot_count()).unwrap_or(i64::MAX));
    page.family(&own::LOG_LINES_LOST).count(&[], sources.sink.lost_lines());
    page.family(&own::BUILD_INFO).gauge(&[env!("CARGO_PKG_VERSION")], 1);
    for certificate in &sources.running.borrow().tls {
        if let Some(expires) = certificate::expires_unix_seconds(certificate) {
            let expires = i64::try_from(expires).unwrap_or(i64::MAX);
            page.family(&own::CERTIFICATE_EXPIRES).gauge(&[certificate.cert_file.as_str()], expires);
        }
    }
    let mut known = |desc: &'static MetricDesc, value: Option<i64>| {
        if let Some(value) = value {
            page.family(desc).gauge(&[], value);
        }
    };
    known(&own::RESIDENT_MEMORY, process::resident_memory_bytes());
    known(&own::OPEN_FDS, process::open_fds());
    page.family(&own::START_TIME).ratio(&[], sources.started.0 as f64 / 1000.0);
}
