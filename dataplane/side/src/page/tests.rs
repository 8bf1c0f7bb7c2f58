//! The page's text, from cells and a table of the test's own.

use llmgw_kit::clock::{Mono, Wall};
use llmgw_obs::rows::RowIdx;
use llmgw_router::board::Board;
use llmgw_router::endpoint::{MetricsState, Sample};
use llmgw_router::metrics::{CoreCells, STATUSES, status_row};
use llmgw_router::prefix::{Ledger, StampTable};
use llmgw_router::readiness::Readiness;
use llmgw_types::{BoardSlot, CoreId};
use tokio::sync::watch;

use super::*;
use crate::table::{Addrs, Book, View, table};

const FIRST: &str = "
endpoints:
  - { name: b, url: 'http://127.0.0.1:2', models: [{ name: big }, { name: small }] }
  - { name: a, url: 'http://127.0.0.1:1', model: big, fabric: ib0, gpu_class: h100 }
";
const LATER: &str = "endpoints: [{ name: a, url: 'http://127.0.0.1:1', model: big, fabric: ib0, gpu_class: h100 }]";

struct World {
    board: Arc<Board>,
    book: Book,
    view: watch::Sender<Arc<View>>,
    cells: Vec<Arc<CoreCells>>,
}

impl World {
    fn new() -> Self {
        let board = Arc::new(Board::new(2, 4));
        let book = Book::new(&board, 0);
        let cells = (0..2).map(|_| Arc::new(CoreCells::new())).collect();
        Self { board, book, view: watch::Sender::default(), cells }
    }

    fn publish(&mut self, text: &str) {
        let config = llmgw_config::from_text("server.yaml", text, []).unwrap_or_else(|error| panic!("{error}"));
        let table = table(&config, &Addrs::default(), &mut self.book, &self.board).expect("room");
        self.view.send_replace(Arc::new(View::of(&table, &self.book)));
    }

    fn slot(&self, endpoint: &str) -> BoardSlot {
        self.book.slot(endpoint).expect(endpoint)
    }

    /// Samples that say something of ours: no zeros of whole cores, no buckets, nothing of this process.
    fn samples(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.page().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        lines.retain(|line| !line.contains("_bucket") && !line.starts_with("process_") && !line.contains("log_lines"));
        lines.retain(|line| {
            !line.contains("llmgw_ttft")
                && !line.contains("llmgw_tpot")
                && !line.contains("duration")
                && !line.contains("overhead")
        });
        lines.sort();
        lines
    }

    fn page(&self) -> String {
        let sources = Sources {
            cells: self.cells.clone(),
            board: self.board.clone(),
            prefixes: Arc::new(StampTable::new(1024, Ledger::new(1, 1))),
            view: self.view.subscribe(),
            readiness: Arc::new(Readiness::default()),
            sink: crate::run::tests::log().sink(),
            started: Wall(1_700_000_000_500),
            running: running(),
            requests: tokio::sync::mpsc::channel(1).0,
            desk: None,
            usage: None,
            is_loopback: true,
        };
        super::text::metrics(&sources)
    }
}

/// A configuration that the page does not ask for.
fn running() -> watch::Receiver<Arc<llmgw_config::ServerConfig>> {
    let config = llmgw_config::from_text("server.yaml", FIRST, []).unwrap_or_else(|error| panic!("{error}"));
    watch::Sender::new(Arc::new(config)).subscribe()
}

fn row(world: &World, model: &str, pool: &str) -> RowIdx {
    let view = world.view.borrow();
    view.rows.iter().find(|(_, names)| *names == [model, pool]).map(|(row, _)| *row).expect("a row")
}

#[test]
fn the_page_adds_up_the_cores_and_names_what_the_table_names() {
    let mut world = World::new();
    world.publish(FIRST);
    let (big, small) = (row(&world, "big", "ib0/h100"), row(&world, "big", "none/unknown"));
    for (core, count) in [(0, 3), (1, 4)] {
        let pools = &world.cells[core].pools;
        pools.at(big).requests[status_row(200)].add(count);
        pools.at(big).completion_tokens.add(10 * count);
        pools.at(small).prompt_tokens.add(1);
        pools.at(RowIdx::OTHER).requests[status_row(404)].increment();
        world.cells[core].upstream_opened.add(2);
        world.cells[core].connections_open.set(5);
    }
    world.board.set_ready(world.slot("a"), true);
    world.board.raise(CoreId(1), world.slot("a"), 100);
    world.board.set_generation(CoreId(0), 1);
    let expected = "\
llmgw_access_lines_lost_total 0
llmgw_admission_found_by_net_total 0
llmgw_admission_heartbeats_total 0
llmgw_admission_messages_total{message=\"enqueue\"} 0
llmgw_admission_messages_total{message=\"granted\"} 0
llmgw_admission_messages_total{message=\"nudge\"} 0
llmgw_admission_messages_total{message=\"refused\"} 0
llmgw_admission_messages_total{message=\"withdraw\"} 0
llmgw_admission_queue_depth{band=\"bronze\",model=\"big\"} 0
llmgw_admission_queue_depth{band=\"bronze\",model=\"small\"} 0
llmgw_admission_queue_depth{band=\"gold\",model=\"big\"} 0
llmgw_admission_queue_depth{band=\"gold\",model=\"small\"} 0
llmgw_admission_queue_depth{band=\"platinum\",model=\"big\"} 0
llmgw_admission_queue_depth{band=\"platinum\",model=\"small\"} 0
llmgw_admission_queue_depth{band=\"silver\",model=\"big\"} 0
llmgw_admission_queue_depth{band=\"silver\",model=\"small\"} 0
llmgw_breaker_state{replica=\"a\"} 0
llmgw_breaker_state{replica=\"b\"} 0
llmgw_broken_streams_total 0
llmgw_build_info{version=\"0.1.0\"} 1
llmgw_candidates_considered_count 0
llmgw_candidates_considered_sum 0
llmgw_candidates_filtered_total{filter=\"breaker\"} 0
llmgw_candidates_filtered_total{filter=\"draining\"} 0
llmgw_candidates_filtered_total{filter=\"excluded\"} 0
llmgw_candidates_filtered_total{filter=\"pinned\"} 0
llmgw_candidates_filtered_total{filter=\"ready\"} 0
llmgw_client_connections 10
llmgw_cooldowns_total 0
llmgw_endpoint_cooling{replica=\"a\"} 0
llmgw_endpoint_cooling{replica=\"b\"} 0
llmgw_endpoint_draining{replica=\"a\"} 0
llmgw_endpoint_draining{replica=\"b\"} 0
llmgw_endpoint_inflight{replica=\"a\"} 1
llmgw_endpoint_inflight{replica=\"b\"} 0
llmgw_endpoint_ready{replica=\"a\"} 1
llmgw_endpoint_ready{replica=\"b\"} 0
llmgw_last_resorts_total 0
llmgw_limit_refusals_total{measure=\"budget\"} 0
llmgw_limit_refusals_total{measure=\"parallel\"} 0
llmgw_limit_refusals_total{measure=\"requests\"} 0
llmgw_limit_refusals_total{measure=\"tokens\"} 0
llmgw_limit_requests_total{outcome=\"busy\"} 0
llmgw_limit_requests_total{outcome=\"fallback\"} 0
llmgw_limit_requests_total{outcome=\"lease\"} 0
llmgw_limit_requests_total{outcome=\"overloaded\"} 0
llmgw_limit_requests_total{outcome=\"owner\"} 0
llmgw_limit_requests_total{outcome=\"refused\"} 0
llmgw_limit_slices_total{event=\"given\"} 0
llmgw_limit_slices_total{event=\"recalled\"} 0
llmgw_limit_slices_total{event=\"refill\"} 0
llmgw_panics_total 0
llmgw_pool_saturation{model=\"big\",pool=\"ib0/h100\"} 0
llmgw_pool_saturation{model=\"big\",pool=\"none/unknown\"} 0
llmgw_pool_saturation{model=\"small\",pool=\"none/unknown\"} 0
llmgw_prefix_table_slots 16
llmgw_replicas{model=\"big\",state=\"not_ready\"} 1
llmgw_replicas{model=\"big\",state=\"ready\"} 1
llmgw_replicas{model=\"small\",state=\"not_ready\"} 1
llmgw_replicas{model=\"small\",state=\"ready\"} 0
llmgw_requests_in_flight 0
llmgw_requests_total{model=\"big\",pool=\"ib0/h100\",status=\"200\"} 7
llmgw_requests_total{model=\"other\",pool=\"other\",status=\"404\"} 2
llmgw_retries_refused_total 0
llmgw_retries_total{reason=\"429\"} 0
llmgw_retries_total{reason=\"503\"} 0
llmgw_retries_total{reason=\"closed\"} 0
llmgw_retries_total{reason=\"connect\"} 0
llmgw_route_table_generation 1
llmgw_route_table_generation_oldest 0
llmgw_scorer_value{scorer=\"cost\",replica=\"a\"} 1
llmgw_scorer_value{scorer=\"cost\",replica=\"b\"} 1
llmgw_scorer_value{scorer=\"inflight\",replica=\"a\"} 0
llmgw_scorer_value{scorer=\"inflight\",replica=\"b\"} 1
llmgw_scorer_value{scorer=\"kv\",replica=\"a\"} 1
llmgw_scorer_value{scorer=\"kv\",replica=\"b\"} 1
llmgw_scorer_value{scorer=\"load\",replica=\"a\"} 1
llmgw_scorer_value{scorer=\"load\",replica=\"b\"} 1
llmgw_scorer_value{scorer=\"pool-priority\",replica=\"a\"} 1
llmgw_scorer_value{scorer=\"pool-priority\",replica=\"b\"} 1
llmgw_scorer_value{scorer=\"queue\",replica=\"a\"} 1
llmgw_scorer_value{scorer=\"queue\",replica=\"b\"} 1
llmgw_session_messages_total{about=\"response\",outcome=\"found\"} 0
llmgw_session_messages_total{about=\"response\",outcome=\"not_asked\"} 0
llmgw_session_messages_total{about=\"response\",outcome=\"not_told\"} 0
llmgw_session_messages_total{about=\"response\",outcome=\"told\"} 0
llmgw_session_messages_total{about=\"response\",outcome=\"unanswered\"} 0
llmgw_session_messages_total{about=\"response\",outcome=\"unknown\"} 0
llmgw_session_messages_total{about=\"session\",outcome=\"found\"} 0
llmgw_session_messages_total{about=\"session\",outcome=\"not_asked\"} 0
llmgw_session_messages_total{about=\"session\",outcome=\"not_told\"} 0
llmgw_session_messages_total{about=\"session\",outcome=\"told\"} 0
llmgw_session_messages_total{about=\"session\",outcome=\"unanswered\"} 0
llmgw_session_messages_total{about=\"session\",outcome=\"unknown\"} 0
llmgw_tls_handshakes_total{outcome=\"client_gone\"} 0
llmgw_tls_handshakes_total{outcome=\"failed\"} 0
llmgw_tls_handshakes_total{outcome=\"full\"} 0
llmgw_tls_handshakes_total{outcome=\"plain_text\"} 0
llmgw_tls_handshakes_total{outcome=\"resumed\"} 0
llmgw_tls_handshakes_total{outcome=\"too_slow\"} 0
llmgw_tokens_total{model=\"big\",direction=\"completion\"} 70
llmgw_tokens_total{model=\"big\",direction=\"prompt\"} 2
llmgw_tokens_total{model=\"other\",direction=\"completion\"} 0
llmgw_tokens_total{model=\"other\",direction=\"prompt\"} 0
llmgw_upstream_connections_total{event=\"opened\"} 4
llmgw_upstream_connections_total{event=\"retried\"} 0
llmgw_upstream_connections_total{event=\"reused\"} 0
llmgw_upstream_connections_total{event=\"stale\"} 0
llmgw_usage_absent_total{kind=\"absurd\"} 0
llmgw_usage_absent_total{kind=\"missing\"} 0";
    assert_eq!(world.samples().join("\n"), expected.replace("0.1.0", env!("CARGO_PKG_VERSION")));
    let page = world.page();
    for part in [
        "# HELP llmgw_replicas Endpoints that serve a model, by state\n# TYPE llmgw_replicas gauge\n",
        "process_start_time_seconds 1700000000.5\n",
        "# TYPE process_resident_memory_bytes gauge\n",
        "# TYPE llmgw_request_duration_seconds histogram\n",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn an_engines_own_numbers_are_shown_while_they_are_fresh() {
    let mut world = World::new();
    world.publish(FIRST);
    let cells = world.board.endpoint(world.slot("a"));
    let shown = || -> Vec<String> {
        let mut lines = world.samples();
        let ours =
            ["_running", "_waiting", "_kv_usage_ratio", "_metrics_stale", "_batch_capacity", "_kv_capacity_tokens"];
        lines.retain(|line| ours.iter().any(|name| line.contains(name)));
        lines
    };
    assert_eq!(shown(), Vec::<String>::new(), "nothing was read, or metrics are off");
    let mut sample = Sample { running: 3, waiting: 2, kv_usage_ratio: Some(0.12), drain_rate: None, at: Mono(1) };
    cells.set_sample(&sample);
    cells.set_metrics(MetricsState::Fresh);
    cells.set_batch_capacity(8);
    cells.set_kv_capacity_tokens(1600);
    let all = [
        "llmgw_endpoint_batch_capacity{replica=\"a\"} 8",
        "llmgw_endpoint_kv_capacity_tokens{replica=\"a\"} 1600",
        "llmgw_endpoint_kv_usage_ratio{replica=\"a\"} 0.12",
        "llmgw_endpoint_metrics_stale{replica=\"a\"} 0",
        "llmgw_endpoint_running{replica=\"a\"} 3",
        "llmgw_endpoint_waiting{replica=\"a\"} 2",
    ];
    assert_eq!(shown(), all);
    cells.set_metrics(MetricsState::Stale);
    assert_eq!(shown(), [all[0], all[1], "llmgw_endpoint_metrics_stale{replica=\"a\"} 1"]);
    sample.kv_usage_ratio = None;
    cells.set_sample(&sample);
    cells.set_metrics(MetricsState::Fresh);
    assert_eq!(shown(), [all[0], all[1], all[3], all[4], all[5]], "no KV usage is not a usage of 0");
}

/// Trial M2.
#[test]
fn what_left_the_table_is_not_shown_any_more() {
    let mut world = World::new();
    world.publish(FIRST);
    for endpoint in ["a", "b"] {
        let cells = world.board.endpoint(world.slot(endpoint));
        cells.set_sample(&Sample { running: 3, waiting: 2, kv_usage_ratio: Some(0.5), drain_rate: None, at: Mono(1) });
        cells.set_metrics(MetricsState::Fresh);
        cells.set_batch_capacity(8);
    }
    let rows = world.view.borrow().rows.clone();
    rows.iter().for_each(|(row, _)| world.cells[0].pools.at(*row).requests[0].increment());
    assert!(world.page().contains("replica=\"b\"") && world.page().contains("model=\"small\""));
    world.publish(LATER);
    let page = world.page();
    assert!(page.contains("llmgw_endpoint_running{replica=\"a\"} 3\n"), "{page}");
    assert!(!page.contains("replica=\"b\"") && !page.contains("small") && !page.contains("none/unknown"), "{page}");
    assert!(page.contains("llmgw_requests_total{model=\"big\",pool=\"ib0/h100\",status=\"200\"} 1\n"), "{page}");
}

#[test]
fn a_model_that_is_called_other_shares_the_series_of_others() {
    let mut world = World::new();
    world.publish("endpoints: [{ url: 'http://127.0.0.1:1', models: [{ name: other }, { name: apple }] }]");
    let row = row(&world, "other", "none/unknown");
    for row in [row, RowIdx::OTHER] {
        world.cells[0].pools.at(row).prompt_tokens.add(3);
        world.cells[0].pools.at(row).requests[0].increment();
    }
    let samples = world.samples();
    let names: std::collections::HashSet<_> =
        samples.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    assert_eq!(names.len(), samples.len(), "no series twice: {samples:?}");
    assert!(samples.contains(&"llmgw_tokens_total{model=\"other\",direction=\"prompt\"} 6".to_owned()), "{samples:?}");
}

#[test]
fn a_hundred_thousand_unknown_models_paths_and_methods_add_no_series() {
    let mut world = World::new();
    world.publish(FIRST);
    world.cells[0].pools.at(RowIdx::OTHER).requests[status_row(404)].increment();
    let before = world.samples().len();
    let sources = Sources {
        cells: world.cells.clone(),
        board: world.board.clone(),
        prefixes: Arc::new(StampTable::new(1024, Ledger::new(1, 1))),
        view: world.view.subscribe(),
        readiness: Arc::new(Readiness::default()),
        sink: crate::run::tests::log().sink(),
        started: Wall(0),
        running: running(),
        requests: tokio::sync::mpsc::channel(1).0,
        desk: None,
        usage: None,
        is_loopback: true,
    };
    for n in 0..100_000u32 {
        // What a core does with a name that no table knows.
        world.cells[0].pools.at(RowIdx::OTHER).requests[status_row(404)].increment();
        if n % 100 == 0 {
            let method = Method::from_bytes(format!("M{n}").as_bytes()).expect("a token");
            assert_eq!(answer(&method, &format!("/path-{n}"), &sources).status(), StatusCode::NOT_FOUND);
        }
    }
    assert_eq!(world.samples().len(), before);
    assert!(STATUSES.len() < 32, "statuses are a closed set");
}
