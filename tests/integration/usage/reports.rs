//! What engines say of their use that cannot be, or do not say: it is counted, estimated and marked, and no sum is
//! spoilt by it.

use llmgw_store::usage::UsageRow;
use llmgw_test_kit::raw::Reply;
use llmgw_test_kit::{Chat, chat};
use serde_json::{Value, json};

use super::World;

/// Tokens of every answer here.
const TOKENS: u32 = 6;

/// A chat whose engine says that of its use.
fn saying(usage: &str) -> Chat {
    let usage: Value = serde_json::from_str(usage).expect("JSON");
    chat("what did that cost").max_tokens(TOKENS).faults(json!({ "usage": usage }))
}

fn asked(world: &World, chat: &Chat) -> (UsageRow, Reply) {
    let reply = world.ask(chat);
    assert_eq!(reply.status, 200, "{}", reply.text());
    (world.row(&reply), reply)
}

/// Answers without usage, and with usage that cannot be.
fn absent(world: &World) -> (f64, f64) {
    let count = |kind| world.metric("llmgw_usage_absent_total", &[("kind", kind)]);
    (count("missing"), count("absurd"))
}

#[test]
fn what_an_engine_says_that_cannot_be_is_counted_estimated_and_marked() {
    let world = World::start("");
    let (honest, _) = asked(&world, &chat("what did that cost").max_tokens(TOKENS));
    assert!(!honest.is_estimated && honest.completion_tokens == u64::from(TOKENS));
    let (mut missing, mut absurd, mut estimated) = (0.0, 0.0, 0);
    for (usage, is_absurd) in [
        ("null", false),
        ("{}", false),
        (r#""n/a""#, true),
        ("[]", true),
        ("7", true),
        (r#"{"prompt_tokens":-1,"completion_tokens":-6}"#, true),
        (r#"{"prompt_tokens":"12","completion_tokens":"6"}"#, true),
        (r#"{"prompt_tokens":1.5,"completion_tokens":6.25}"#, true),
        (r#"{"prompt_tokens":[12],"completion_tokens":{}}"#, true),
        (r#"{"prompt_tokens":9223372036854775808,"completion_tokens":1e300}"#, true),
        (r#"{"prompt_tokens":1000000000000,"completion_tokens":1000000000000}"#, true),
    ] {
        for chat in [saying(usage), saying(usage).streamed(), saying(usage).with_usage()] {
            let (row, reply) = asked(&world, &chat);
            let body = reply.text();
            assert!(row.is_estimated && row.reason.is_none() && row.cached_tokens == 0, "{usage}: {row:?}");
            // A quarter of the bytes, or an event each.
            assert!((5..100).contains(&row.prompt_tokens), "{usage}: {row:?}");
            let most = if body.starts_with("data:") { u64::from(TOKENS) } else { 200 };
            assert!((u64::from(TOKENS)..=most).contains(&row.completion_tokens), "{usage}: {row:?}");
            assert_eq!(row.units_micros, (row.prompt_tokens + row.completion_tokens) * 1_000_000);
            if is_absurd {
                absurd += 1.0
            } else {
                missing += 1.0
            }
            estimated += 1;
            assert_eq!(absent(&world), (missing, absurd), "{usage}");
        }
    }
    let sums = world.ctl(&["usage", "--by", "model"]);
    let sum = &sums["usage"][0];
    assert_eq!((sum["requests"].as_u64(), sum["estimated_requests"].as_u64()), (Some(estimated + 1), Some(estimated)));
    assert!(sum["completion_tokens"].as_u64() < Some(10_000) && sum["prompt_tokens"].as_u64() < Some(10_000), "{sum}");
    // What metrics count is what is on the record.
    for direction in ["prompt", "completion"] {
        let counted = world.metric("llmgw_tokens_total", &[("direction", direction)]);
        assert_eq!(Some(counted as u64), sum[format!("{direction}_tokens")].as_u64());
    }
}

#[test]
fn an_engine_that_says_more_than_it_was_let_is_not_believed() {
    let world = World::start("");
    let usage = r#"{"prompt_tokens":21,"completion_tokens":7,"total_tokens":28}"#;
    for (chat, is_believed) in [
        (saying(usage), false),
        (saying(usage).streamed(), false),
        // Two answers may have twice as many; and who sets no limit takes what comes.
        (saying(usage).field("n", 2), true),
        (saying(usage).max_tokens(7), true),
    ] {
        let before = absent(&world).1;
        let (row, _) = asked(&world, &chat);
        assert_eq!((row.prompt_tokens, row.is_estimated), (21, !is_believed), "{row:?}");
        assert_eq!(row.completion_tokens == 7, is_believed, "{row:?}");
        assert_eq!(absent(&world).1 - before, if is_believed { 0.0 } else { 1.0 });
    }
}

#[test]
fn half_of_what_is_to_be_said_is_taken_and_a_total_is_not_missed() {
    let world = World::start("");
    for (usage, tokens, is_estimated) in [
        (r#"{"prompt_tokens":21,"completion_tokens":5}"#, (Some(21), Some(5)), false),
        (r#"{"prompt_tokens":21,"completion_tokens":5,"total_tokens":"many"}"#, (Some(21), Some(5)), false),
        (r#"{"prompt_tokens":21,"completion_tokens":5,"prompt_tokens_details":null}"#, (Some(21), Some(5)), false),
        (r#"{"completion_tokens":5}"#, (None, Some(5)), true),
        (r#"{"prompt_tokens":21}"#, (Some(21), None), true),
    ] {
        for chat in [saying(usage), saying(usage).streamed()] {
            let (row, _) = asked(&world, &chat);
            assert_eq!(row.is_estimated, is_estimated, "{usage}: {row:?}");
            assert!(tokens.0.is_none_or(|tokens| row.prompt_tokens == tokens) && row.prompt_tokens > 0, "{row:?}");
            assert!(
                tokens.1.is_none_or(|tokens| row.completion_tokens == tokens) && row.completion_tokens > 0,
                "{row:?}"
            );
        }
    }
}

#[test]
fn a_stream_that_its_engine_breaks_off_is_recorded_as_far_as_it_came() {
    let world = World::start("");
    // The first event sets the role.
    let chat = chat("and then").streamed().max_tokens(50).faults(json!({ "close_after_events": 5 }));
    let reply = world.ask(&chat);
    let row = world.row(&reply);
    assert_eq!((row.completion_tokens, row.is_estimated, row.status), (4, true, 200), "{row:?}");
    assert!(row.prompt_tokens > 0 && row.reason.is_some(), "{row:?}");
    let before = failed(&world);
    assert_eq!((before.prompt_tokens, before.completion_tokens, before.is_estimated), (0, 0, false));
}

/// An engine that fails before it answers.
fn failed(world: &World) -> UsageRow {
    let reply = world.ask(&chat("no").faults(json!({ "status": 500 })));
    assert_eq!(reply.status, 500);
    world.row(&reply)
}
