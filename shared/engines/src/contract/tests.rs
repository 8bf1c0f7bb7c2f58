//! Pages of every vocabulary, whole, odd and broken.

use super::*;

const VLLM: &str = "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\n";

fn stats(kind: EngineKind, page: &str) -> EngineStats {
    read(page.as_bytes(), &Names::of(kind)).unwrap_or_else(|violation| panic!("{violation}\n{page}"))
}

fn violation(kind: EngineKind, page: &str) -> ContractViolation {
    match read(page.as_bytes(), &Names::of(kind)) {
        Ok(stats) => panic!("{stats:?} of\n{page}"),
        Err(violation) => *violation,
    }
}

#[test]
fn the_old_and_the_todays_name_of_kv_usage_are_both_known() {
    let cases = [
        ("vllm:kv_cache_usage_perc 0.5\n", 0.5),
        ("vllm:gpu_cache_usage_perc 0.25\n", 0.25),
        ("vllm:gpu_cache_usage_perc 0.25\nvllm:kv_cache_usage_perc 0.5\n", 0.5),
        ("vllm:kv_cache_usage_perc NaN\nvllm:gpu_cache_usage_perc 0.25\n", 0.25),
        ("vllm:kv_cache_usage_perc 1.0000002\n", 1.0),
    ];
    for (line, usage) in cases {
        assert_eq!(stats(EngineKind::Vllm, &format!("{VLLM}{line}")).kv_usage, Some(usage), "{line}");
    }
}

#[test]
fn a_page_without_kv_usage_is_a_violation_that_leaves_the_rest_to_be_used() {
    let violation = violation(EngineKind::Vllm, VLLM);
    let rest = violation.rest.expect("running and waiting were there");
    assert_eq!((rest.running, rest.waiting, rest.kv_usage), (3, 2, None));
    assert_eq!(violation.to_string(), "kv_usage is missing: no vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc");
}

#[test]
fn llamacpp_needs_no_kv_usage_and_sim_speaks_as_vllm() {
    let page = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n";
    assert_eq!(stats(EngineKind::LlamaCpp, page), EngineStats { running: 1, ..Default::default() });
    let page = format!("{VLLM}vllm:kv_cache_usage_perc 0\n");
    assert_eq!(stats(EngineKind::Sim, &page), stats(EngineKind::Vllm, &page));
}

#[test]
fn order_and_spelling_of_a_page_do_not_matter() {
    let pages = [
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n\
         vllm:num_requests_waiting{model_name=\"m\",engine=\"0\"} 2e0\n\
         vllm:kv_cache_usage_perc{a=\"\\\"}\"} 5e-1",
        "# TYPE x gauge\r\nvllm:kv_cache_usage_perc .5 1700000000000\r\n\
         vllm:num_requests_waiting 2\r\nvllm:num_requests_running 3\r\n# EOF\r\n",
        "vllm:num_requests_running_created 9e9\nvllm:num_requests_running 3 # {t=\"x\"} 1\n\
         vllm:num_requests_waiting +2\nbroken{ line\nvllm:kv_cache_usage_perc 0.5\n",
    ];
    for page in pages {
        let stats = stats(EngineKind::Vllm, page);
        assert_eq!((stats.running, stats.waiting, stats.kv_usage), (3, 2, Some(0.5)), "{page}");
    }
}

#[test]
fn a_value_that_is_no_number_is_told_apart_from_one_that_is_missing() {
    for odd in ["NaN", "+Inf", "-Inf", "-1"] {
        let page = format!("vllm:num_requests_running {odd}\nvllm:kv_cache_usage_perc 0.5\n");
        let violation = violation(EngineKind::Vllm, &page);
        let faults: Vec<_> = violation.gaps.iter().map(|gap| (gap.field, gap.fault)).collect();
        assert_eq!(faults, [(Field::Running, Fault::NotANumber), (Field::Waiting, Fault::Missing)]);
        assert_eq!(violation.rest, None);
    }
}

#[test]
fn models_and_engines_are_summed_and_the_fullest_cache_counts() {
    let page = "vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 1\n\
        vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 2\n\
        vllm:num_requests_running{model_name=\"b\",engine=\"0\"} 4\n\
        vllm:num_requests_waiting{engine=\"0\"} 8\nvllm:num_requests_waiting{engine=\"1\"} NaN\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.9\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"100\"} 1\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"2\",num_gpu_blocks=\"None\"} 1\n";
    let stats = stats(EngineKind::Vllm, page);
    assert_eq!((stats.running, stats.waiting, stats.kv_usage), (7, 8, Some(0.9)));
    assert_eq!((stats.block_size, stats.block_count, stats.kv_capacity_tokens), (Some(16), Some(200), Some(3200)));
}

#[test]
fn sglangs_copies_count_once_and_its_parts_not_beside_their_whole() {
    let page = "sglang:num_running_reqs{tp_rank=\"0\",model_name=\"m\",dp_rank=\"0\"} 3\n\
        sglang:num_running_reqs{dp_rank=\"0\",model_name=\"m\",tp_rank=\"1\"} 3\n\
        sglang:num_running_reqs{tp_rank=\"2\",model_name=\"m\",dp_rank=\"1\"} 5\n\
        sglang:num_queue_reqs{tp_rank=\"0\",priority=\"\"} 7\n\
        sglang:num_queue_reqs{tp_rank=\"0\",priority=\"1\"} 4\n\
        sglang:num_queue_reqs{tp_rank=\"0\",priority=\"2\"} 2\n\
        sglang:token_usage{dp_rank=\"0\"} 0.1\nsglang:token_usage{dp_rank=\"1\"} 0.3\n\
        sglang:prompt_tokens_total{is_streaming=\"true\"} 100\nsglang:prompt_tokens_total{is_streaming=\"false\"} 50\n\
        sglang:cached_tokens_total{cache_source=\"device\"} 30\nsglang:cached_tokens_total{cache_source=\"host\"} 10\n\
        sglang:page_size{tp_rank=\"0\"} 1\nsglang:page_size{tp_rank=\"1\"} 1\n\
        sglang:num_pages{tp_rank=\"0\"} 4096\nsglang:num_pages{tp_rank=\"1\"} 4096\n";
    let expected = EngineStats {
        running: 8,
        waiting: 7,
        kv_usage: Some(0.3),
        block_size: Some(1),
        block_count: Some(4096),
        kv_capacity_tokens: Some(4096),
        prompt_tokens: Some(150),
        generation_tokens: None,
        prefix_hits: Some(40),
        prefix_queries: Some(150),
        requests_completed: None,
    };
    assert_eq!(stats(EngineKind::Sglang, page), expected);
}

#[test]
fn requests_that_ended_are_summed_over_their_reasons() {
    let page = format!(
        "{VLLM}vllm:kv_cache_usage_perc 0\nvllm:request_success_total{{finished_reason=\"stop\"}} 3\n\
         vllm:request_success_total{{finished_reason=\"abort\"}} 4\n"
    );
    assert_eq!(stats(EngineKind::Vllm, &page).requests_completed, Some(7));
}

#[test]
fn another_engines_words_are_recognised() {
    let llamacpp = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n";
    let told = violation(EngineKind::Vllm, llamacpp).to_string();
    assert_eq!(told, "llamacpp metrics where vllm's were expected; set `engine: llamacpp`");
    let told = violation(EngineKind::LlamaCpp, VLLM);
    assert_eq!(told.spoken, Some(EngineKind::Vllm));
    assert_eq!(violation(EngineKind::Sim, "sglang:x 1").spoken, Some(EngineKind::Sglang));
    assert_eq!(violation(EngineKind::Vllm, "vllm:x 1\nllamacpp:requests_deferred 0\n").spoken, None);
}

#[test]
fn a_page_without_metrics_tells_the_flag_that_makes_them() {
    assert!(violation(EngineKind::Sglang, "").to_string().contains("--enable-metrics"));
    assert!(violation(EngineKind::LlamaCpp, "{\"error\":\"off\"}").to_string().contains("--metrics"));
    assert_eq!(violation(EngineKind::Vllm, "<html>\n").to_string(), "no metrics on the page");
}

#[test]
fn configured_names_are_read_in_place_of_the_engines() {
    let mut names = Names::of(EngineKind::Vllm);
    names.replace("waiting", "proxy_queue").and_then(|()| names.replace("kv_usage", "off")).expect("lawful");
    let stats = read(format!("{VLLM}proxy_queue 9\n").as_bytes(), &names).expect("the contract is kept");
    assert_eq!((stats.running, stats.waiting, stats.kv_usage), (3, 9, None));
}

#[test]
fn the_same_trouble_with_other_numbers_is_an_equal_violation() {
    let page = |running| format!("vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n");
    assert_eq!(violation(EngineKind::Vllm, &page(1)), violation(EngineKind::Vllm, &page(2)));
    assert_ne!(violation(EngineKind::Vllm, &page(1)), violation(EngineKind::Vllm, "vllm:num_requests_running 1\n"));
}

#[test]
fn lines_without_number_and_absurd_counts_are_survived() {
    let mut page = format!("{VLLM}vllm:kv_cache_usage_perc 0\nvllm:prompt_tokens_total 1e300\n");
    (0..5000).for_each(|n| page.push_str(&format!("vllm:generation_tokens_total{{m=\"{n}\"}} 1\n")));
    let stats = stats(EngineKind::Vllm, &page);
    assert_eq!(stats.prompt_tokens, Some(u64::MAX));
    assert_eq!(stats.generation_tokens, Some(crate::tally::GROUPS_MAX as u64));
}
