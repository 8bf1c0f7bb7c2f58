//! Pages recorded from real engines, read by their own names.

use llmgw_engines::contract::{self, EngineStats};
use llmgw_engines::names::Names;
use llmgw_engines::promtext::Samples;
use llmgw_types::endpoint::EngineKind;

/// The page reads as `expected`, and every line of it that is no comment is a sample.
fn check(kind: EngineKind, page: &str, expected: EngineStats) {
    assert_eq!(contract::read(page.as_bytes(), &Names::of(kind)), Ok(expected));
    let mut samples = Samples::new(page.as_bytes());
    let sample_count = samples.by_ref().count();
    let line_count = page.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!((sample_count, samples.skipped_lines()), (line_count, 0));
}

macro_rules! fixture {
    ($path:literal) => {
        include_str!(concat!("../../../tests/fixtures/engines/", $path))
    };
}

const VLLM: EngineStats = EngineStats {
    running: 0,
    waiting: 0,
    kv_usage: Some(0.0),
    block_size: Some(32),
    block_count: Some(128),
    kv_capacity_tokens: Some(4096),
    prompt_tokens: Some(8850),
    generation_tokens: Some(3757),
    prefix_hits: Some(992),
    prefix_queries: Some(8846),
    requests_completed: Some(62),
};

const LLAMA_CPP: EngineStats = EngineStats {
    running: 4,
    waiting: 4,
    kv_usage: None,
    block_size: None,
    block_count: None,
    kv_capacity_tokens: None,
    prompt_tokens: Some(486),
    generation_tokens: Some(2501),
    prefix_hits: Some(1234),
    prefix_queries: None,
    requests_completed: None,
};

#[test]
fn vllm_at_rest() {
    check(EngineKind::Vllm, fixture!("vllm-0.32.0/metrics-after.txt"), VLLM);
}

#[test]
fn vllm_with_four_running_and_four_waiting() {
    let busy = EngineStats {
        running: 4,
        waiting: 4,
        kv_usage: Some(0.12598425196850394),
        prompt_tokens: Some(7119),
        generation_tokens: Some(547),
        prefix_hits: Some(224),
        prefix_queries: Some(7119),
        requests_completed: Some(14),
        ..VLLM
    };
    check(EngineKind::Vllm, fixture!("vllm-0.32.0/metrics-busy.txt"), busy);
}

#[test]
fn llama_cpp_with_four_running_and_four_waiting() {
    check(EngineKind::LlamaCpp, fixture!("llama-cpp-0.10434.0/metrics-busy.txt"), LLAMA_CPP);
}

#[test]
fn a_real_page_read_by_the_wrong_names_is_told_as_such() {
    let page = fixture!("llama-cpp-0.10434.0/metrics-busy.txt");
    let violation = contract::read(page.as_bytes(), &Names::of(EngineKind::Vllm)).expect_err("not vLLM's page");
    assert_eq!(violation.spoken, Some(EngineKind::LlamaCpp));
    let page = fixture!("vllm-0.32.0/metrics-after.txt");
    let violation = contract::read(page.as_bytes(), &Names::of(EngineKind::Sglang)).expect_err("not SGLang's page");
    assert_eq!(violation.spoken, Some(EngineKind::Vllm));
}

#[test]
fn a_page_cut_anywhere_is_read_or_refused_without_a_panic() {
    let page = fixture!("llama-cpp-0.10434.0/metrics-after.txt").as_bytes();
    for end in 0..page.len() {
        let _ = contract::read(&page[..end], &Names::of(EngineKind::LlamaCpp));
    }
    assert!(contract::read(page, &Names::of(EngineKind::LlamaCpp)).is_ok());
}
