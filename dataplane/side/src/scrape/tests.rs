//! Pages of every kind through the running side runtime, onto the board.

use llmgw_router::endpoint::{EndpointCells, MetricsState};
use llmgw_router::prefix::ledger::CAPACITY_MAX;
use llmgw_types::{BoardSlot, CoreId};

use crate::run::tests::{World, endpoint, until, world};
use crate::tiny_engine::{Answers, TinyEngine, serving};

const GOOD: &str = "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\n";

fn with_page(status: u16, page: &str) -> Answers {
    let mut answers = serving(&["m"]);
    answers.push(("/metrics", status, page.to_owned()));
    answers
}

fn cells(world: &World) -> &EndpointCells {
    world.board.endpoint(BoardSlot(0))
}

fn until_fresh(world: &World) {
    until("a page was read", || cells(world).metrics() == MetricsState::Fresh);
}

fn until_stale(world: &World) {
    until("a page was no good", || cells(world).metrics() == MetricsState::Stale);
}

/// The page leaves these numbers on the board, and the endpoint ready.
fn check(more: &str, page: &str, expected: (u32, u32, Option<f32>)) {
    let engine = TinyEngine::start(with_page(200, page));
    let world = world(&[endpoint("e", &engine, more)]);
    until_fresh(&world);
    let sample = cells(&world).sample().expect("fresh");
    assert_eq!((sample.running, sample.waiting, sample.kv_usage_ratio), expected, "{more} {page}");
    until("it is ready", || world.is_ready());
}

/// Trial M3.
#[test]
fn names_old_and_new_in_any_spelling_of_any_engine_are_read() {
    let counts = "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\n";
    check("", GOOD, (3, 2, Some(0.5)));
    check("", &format!("{counts}vllm:gpu_cache_usage_perc 0.25\n"), (3, 2, Some(0.25)));
    let both = format!("vllm:gpu_cache_usage_perc 0.25\n{counts}vllm:kv_cache_usage_perc 0.5\n");
    check("", &both, (3, 2, Some(0.5)));
    check("", counts, (3, 2, None));
    let odd = "# TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{model_name=\"a\",engine=\"0\"} 1e0 1700000000.5\n\
        vllm:num_requests_running{engine=\"1\",model_name=\"a\"} +2\n\
        vllm:num_requests_running_created{engine=\"1\",model_name=\"a\"} 1.7e9\n\
        vllm:num_requests_waiting{engine=\"0\"} 2.0\nvllm:num_requests_waiting{engine=\"1\"} NaN\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} +Inf\nvllm:kv_cache_usage_perc{engine=\"1\"} 5e-1 # {t=\"x\"} 1\n\
        vllm:lora_requests_info{max_lora=\"0\"} 1.0\n# EOF";
    check("", odd, (3, 2, Some(0.5)));
    let sglang = "sglang:num_running_reqs{tp_rank=\"0\"} 3\nsglang:num_running_reqs{tp_rank=\"1\"} 3\n\
        sglang:num_queue_reqs 2\nsglang:token_usage 0.5\n";
    check(", engine: sglang", sglang, (3, 2, Some(0.5)));
    let llamacpp = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 2\n";
    check(", engine: llamacpp", llamacpp, (3, 2, None));
    check(", metrics: { waiting: queue, kv_usage: off }", &format!("{counts}queue 9\n"), (3, 9, None));
}

#[test]
fn a_page_that_says_nothing_or_is_none_leaves_an_engine_to_our_own_count() {
    let too_long = format!("{GOOD}{}", "# x\n".repeat(2 << 20));
    let pages = [(200, ""), (200, "vllm:num_requests_running NaN\n"), (404, GOOD), (501, "{}"), (200, &too_long)];
    for (status, page) in pages {
        let engine = TinyEngine::start(with_page(status, page));
        let world = world(&[endpoint("e", &engine, "")]);
        until_stale(&world);
        until("it is ready all the same", || world.is_ready());
        assert_eq!(cells(&world).sample(), None);
        let (_, shown) = world.ask("/metrics");
        assert!(shown.contains("llmgw_endpoint_metrics_stale{replica=\"e\"} 1\n"), "{shown}");
        assert!(!shown.contains("llmgw_endpoint_running"), "{shown}");
        engine.answer(with_page(200, GOOD));
        until_fresh(&world);
    }
}

#[test]
fn the_last_good_sample_stays_and_grows_old_when_a_page_is_no_good() {
    let engine = TinyEngine::start(with_page(200, GOOD));
    let world = world(&[endpoint("e", &engine, "")]);
    until_fresh(&world);
    engine.answer(with_page(200, "vllm:num_requests_running 9\n"));
    until_stale(&world);
    let sample = cells(&world).sample().expect("the earlier one");
    assert_eq!((sample.running, sample.waiting), (3, 2));
    let asked = engine.asked("/metrics");
    until("it was asked again", || engine.asked("/metrics") >= asked + 2);
    assert_eq!(cells(&world).sample().map(|later| later.at), Some(sample.at));
}

#[test]
fn an_engine_that_went_away_is_stale_and_read_again_when_it_is_back() {
    let engine = TinyEngine::start(with_page(200, GOOD));
    let addr = engine.addr();
    let world = world(&[endpoint("e", &engine, "")]);
    until_fresh(&world);
    drop(engine);
    until_stale(&world);
    let _again = TinyEngine::start_on(addr, with_page(200, GOOD));
    until_fresh(&world);
}

#[test]
fn an_engine_whose_metrics_are_off_is_never_asked_for_them() {
    let engine = TinyEngine::start(with_page(200, GOOD));
    let world = world(&[endpoint("e", &engine, ", metrics_path: off, batch_capacity: 8, kv_capacity_tokens: 100")]);
    until("it was asked for its health often", || engine.asked("/health") >= 10);
    assert_eq!((engine.asked("/metrics"), cells(&world).metrics()), (0, MetricsState::Unread));
    assert_eq!((cells(&world).batch_capacity(), cells(&world).kv_capacity_tokens()), (Some(8), Some(100)));
    let (_, shown) = world.ask("/metrics");
    assert!(!shown.contains("llmgw_endpoint_metrics_stale"), "{shown}");
    assert!(shown.contains("llmgw_endpoint_batch_capacity{replica=\"e\"} 8\n"), "{shown}");
}

#[test]
fn all_pages_of_an_engine_come_over_one_connection_from_its_own_path() {
    let mut answers = serving(&["m"]);
    answers.push(("/stats/prometheus", 200, GOOD.to_owned()));
    let engine = TinyEngine::start(answers);
    let world = world(&[endpoint("e", &engine, ", metrics_path: /stats/prometheus")]);
    until("it was asked ten times", || engine.asked("/stats/prometheus") >= 10);
    assert_eq!(cells(&world).metrics(), MetricsState::Fresh);
    assert_eq!(engine.connections(), 2, "one for pages, one for probes");
}

#[test]
fn capacities_are_learned_from_pages_and_from_what_we_hold() {
    let cache = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n";
    let page = |running| {
        let numbers = "vllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n";
        with_page(200, &format!("vllm:num_requests_running {running}\n{numbers}{cache}"))
    };
    let engine = TinyEngine::start(page(5));
    let world = world(&[endpoint("e", &engine, "")]);
    until("the most it ran", || cells(&world).batch_capacity() == Some(5));
    assert_eq!(cells(&world).kv_capacity_tokens(), Some(1600));
    engine.answer(page(1));
    let asked = engine.asked("/metrics");
    until("it was asked again", || engine.asked("/metrics") >= asked + 3);
    assert_eq!(cells(&world).batch_capacity(), Some(5));
    (0..7).for_each(|_| world.board.raise(CoreId(0), BoardSlot(0), 1));
    until("it rose above what we hold", || cells(&world).batch_capacity() == Some(8));
    let asked = engine.asked("/metrics");
    until("it was asked again", || engine.asked("/metrics") >= asked + 3);
    assert_eq!(cells(&world).batch_capacity(), Some(8), "it rises no further");
}

/// Trial R5.
#[test]
fn an_engine_that_was_started_again_has_forgotten_its_prompts() {
    let page = |tokens: u32| with_page(200, &format!("{GOOD}vllm:generation_tokens_total {tokens}\n"));
    let engine = TinyEngine::start(page(100));
    let world = world(&[endpoint("e", &engine, "")]);
    until_fresh(&world);
    let count = || world.prefixes.ledger().count(BoardSlot(0));
    let before = count();
    engine.answer(page(120));
    for _ in 0..2 {
        let at = cells(&world).sample().expect("fresh").at;
        until("another page was read", || cells(&world).sample().is_some_and(|sample| sample.at > at));
    }
    assert_eq!(count(), before, "it went on");
    engine.answer(page(3));
    until("nothing that it got counts any more", || count() - before >= CAPACITY_MAX);
}
