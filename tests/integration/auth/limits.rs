//! Limits over sockets: what races, what ends in every way, what a refused client and a key's holder are told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use llmgw_test_kit::raw::{Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, chat, wait_for};
use serde_json::{Value, json};

use super::rig::{CONNECTIONS, Rig};
use crate::pair::{CHAT, WITHIN, error_of};

/// Sets a key's limits and waits until all cores know them.
#[track_caller]
fn limit(rig: &Rig, key: &str, name: &str, limits: &Value) {
    rig.admin(&format!("PUT /limits/key/{name}"), limits);
    let is_known = || me(rig, key)["limits"].as_array().is_some_and(|levels| !levels.is_empty());
    wait_for("the limits", WITHIN, || (0..CONNECTIONS).all(|_| is_known()));
}

fn me(rig: &Rig, key: &str) -> Value {
    rig.get(key, "/me").json()
}

/// What `/me` says of the key's own level.
fn used(rig: &Rig, key: &str) -> Value {
    me(rig, key)["limits"][0]["used"].clone()
}

/// Nothing is reserved or lent out any more.
#[track_caller]
fn wait_for_rest(rig: &Rig, key: &str) -> Value {
    let is_nothing =
        |held: &Value| held.as_object().is_some_and(|held| held.values().all(|it| it.is_null() || it == 0));
    wait_for("nothing held", WITHIN, || is_nothing(&used(rig, key)["held"]));
    used(rig, key)
}

fn number(reply: &Reply, header: &str) -> i64 {
    let text = reply.header(header).unwrap_or_else(|| panic!("{header} of {:?}", reply.text()));
    text.trim_end_matches('s').parse().expect("a number")
}

/// Asks over a few clients at once, so often each. Answer: the replies.
fn race(rig: &Rig, key: &str, clients: usize, each: usize, chat: &Chat) -> Vec<Reply> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|_| scope.spawn(|| (0..each).map(|_| rig.ask(key, chat, &[])).collect::<Vec<_>>()))
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    })
}

fn admitted(replies: &[Reply]) -> usize {
    replies.iter().filter(|reply| reply.status == 200).count()
}

/// All that a limit lets through got through, and no more. A core that stands still, on a machine with too much to do,
/// does not say in time whose requests fit: those are turned away, and what was kept for them may come back too late
/// for the others.
#[track_caller]
fn check_admitted(replies: &[Reply], limit: usize) {
    let admitted = admitted(replies);
    let busy = replies.iter().filter(|reply| reply.status == 503).count();
    assert!(admitted <= limit && admitted + busy >= limit, "{admitted} of {limit}, {busy} busy");
    for reply in replies.iter().filter(|reply| ![200, 429].contains(&reply.status)) {
        assert_eq!(error_of(reply).1, json!("limits_busy"), "{}", reply.text());
    }
}

#[test]
fn many_clients_over_several_cores_never_pass_more_than_a_limit_and_not_less() {
    let rig = Rig::start();
    let key = rig.key("racer", Value::Null);
    limit(&rig, &key, "racer", &json!({ "rpm": 100 }));
    let replies = race(&rig, &key, 16, 15, &chat("hello").max_tokens(4));
    check_admitted(&replies, 100);
    let refused = replies.iter().find(|reply| reply.status == 429).expect("some are refused");
    assert_eq!(error_of(refused), (429, json!("limit_requests"), json!(null)));
    assert_eq!(number(refused, "x-ratelimit-limit-requests"), 100);
    assert_eq!(number(refused, "x-ratelimit-remaining-requests"), 0);
    let wait = number(refused, "retry-after");
    assert!((1..=61).contains(&wait) && number(refused, "x-ratelimit-reset-requests") == wait, "{wait}");
    // What was kept for those that turned away comes back with the next report of their core.
    wait_for("the books", WITHIN, || used(&rig, &key)["requests"] == admitted(&replies));
    let metrics = rig.gateway.metrics();
    let refused = metrics.sum("llmgw_limit_refusals_total", &[("measure", "requests")]).expect("counted");
    let busy = metrics.sum("llmgw_limit_requests_total", &[("outcome", "busy")]).expect("counted");
    assert_eq!(refused + busy, (240 - admitted(&replies)) as f64, "{busy} of them busy");
    assert_eq!(rig.engines[0].calls().len(), admitted(&replies), "who is refused asks no engine");
    rig.gateway.finish(&[]);
}

#[test]
fn of_several_at_once_only_those_that_a_budget_or_a_minute_can_hold_are_let_in() {
    let rig = Rig::start();
    let (budget, tokens) = (rig.key("budget", Value::Null), rig.key("tokens", Value::Null));
    limit(&rig, &budget, "budget", &json!({ "budget_micros": 1_000_000_000, "budget_period": "day" }));
    limit(&rig, &tokens, "tokens", &json!({ "tpm": 1000 }));
    // The engine says nothing until it is told to, so that none ends before all have asked.
    let held = chat("hello").max_tokens(590).faults(json!({ "stall_after_events": 0, "events": 5 }));
    let turned_away = |measure| {
        let metrics = rig.gateway.metrics();
        let refused = metrics.sum("llmgw_limit_refusals_total", &[("measure", measure)]).unwrap_or(0.0);
        refused + metrics.sum("llmgw_limit_requests_total", &[("outcome", "busy")]).unwrap_or(0.0)
    };
    for (key, code, measure) in [(&budget, "budget_spent", "budget"), (&tokens, "limit_tokens", "tokens")] {
        let before = turned_away(measure);
        let replies = thread::scope(|scope| {
            let racing = scope.spawn(|| race(&rig, key, 64, 1, &held));
            wait_for("all but one turned away", WITHIN, || turned_away(measure) >= before + 63.0);
            rig.engines[0].release();
            racing.join().expect("the race")
        });
        check_admitted(&replies, 1);
        let codes: Vec<_> = replies.iter().filter(|reply| reply.status == 429).map(error_of).collect();
        assert!(codes.iter().all(|(_, said, _)| said == &json!(code)), "{codes:?}");
        wait_for_rest(&rig, key);
        let again = chat("hello").max_tokens(590).faults(json!({ "events": 5 }));
        let again = rig.ask(key, &again, &[]);
        assert_eq!(again.status, 200, "what was not used is there again: {}", again.text());
    }
    rig.gateway.finish(&[]);
}

#[test]
fn requests_that_end_in_every_way_leave_nothing_reserved() {
    let rig = Rig::with(vec![Engine::local()], &["model: test-model"], "", "cooldown_seconds: 0\nretries: 0");
    let key = rig.key("mixed", Value::Null);
    let limits = json!({
        "rpm": 100_000, "tpm": 10_000_000, "parallel": 64,
        "budget_micros": 1_000_000_000_000_u64, "budget_period": "month", "time_zone": "Europe/Berlin",
    });
    limit(&rig, &key, "mixed", &limits);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..40 {
                    match next.fetch_add(1, Ordering::Relaxed) % 6 {
                        0 => drop(rig.ask(&key, &chat("hello").max_tokens(9), &[])),
                        1 => drop(rig.ask(&key, &chat("hello").with_usage().max_tokens(9), &[])),
                        2 => drop(rig.ask(&key, &chat("hello").faults(json!({ "status": 500 })), &[])),
                        3 => drop(rig.ask(&key, &chat("hello").faults(json!({ "status": 400 })), &[])),
                        4 => drop(rig.ask(&key, &chat("hello").model("nobody"), &[])),
                        _ => leave_early(&rig, &key),
                    }
                }
            });
        }
    });
    let used = wait_for_rest(&rig, &key);
    // Models that are not there asked nobody.
    assert_eq!(used["requests"], 200, "{used}");
    assert!(used["tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{used}");
    assert_eq!(used["spent_micros"].as_u64(), used["tokens"].as_u64().map(|tokens| tokens * 1_000_000), "{used}");
    // An answer leaves a moment before its request is over.
    wait_for("nothing in flight", WITHIN, || rig.gateway.metrics().sum("llmgw_requests_in_flight", &[]) == Some(0.0));
    rig.gateway.finish(&["\"request_id\""]);
}

/// Begins a stream and goes away after its head.
fn leave_early(rig: &Rig, key: &str) {
    let slow = chat("hello").streamed().faults(json!({ "events": 100, "delay_us": 20_000 }));
    let request = Request::new("POST", CHAT).header("Authorization", format!("Bearer {key}")).json(&slow.json());
    let mut client = Connection::open(rig.gateway.addr()).expect("connected");
    client.send(&request.bytes()).expect("sent");
    let head = client.head().expect("a head");
    assert_eq!(head.status, 200);
    client.leave();
}

#[test]
fn the_tightest_of_all_levels_holds_for_all_keys_below_it() {
    let rig = Rig::start();
    rig.projects(&["chat"]);
    let project = json!({ "project": "acme/search/chat" });
    let (one, two) = (rig.key("one", project.clone()), rig.key("two", project));
    rig.admin("PUT /limits/team/acme%2Fsearch", &json!({ "rpm": 30 }));
    limit(&rig, &one, "one", &json!({ "rpm": 10 }));
    let short = chat("hello").max_tokens(2);
    let of_one = race(&rig, &one, 4, 5, &short);
    let of_two = race(&rig, &two, 4, 8, &short);
    check_admitted(&of_one, 10);
    check_admitted(&of_two, 30 - admitted(&of_one));
    let text = |replies: &[Reply]| replies.iter().find(|reply| reply.status == 429).expect("one is refused").text();
    assert!(text(&of_one).contains("the key's limit of 10 requests a minute is reached"), "{}", text(&of_one));
    assert!(text(&of_two).contains("the team's limit of 30 requests a minute is reached"), "{}", text(&of_two));
    rig.gateway.finish(&[]);
}

#[test]
fn nothing_at_all_and_more_than_all_are_said_at_once() {
    let rig = Rig::start();
    let (none, few) = (rig.key("none", Value::Null), rig.key("few", Value::Null));
    limit(&rig, &none, "none", &json!({ "rpm": 0 }));
    limit(&rig, &few, "few", &json!({ "tpm": 100 }));
    let refused = rig.say(&none, &[]);
    assert_eq!((refused.status, refused.header("retry-after")), (429, None));
    assert!(refused.text().contains("lets nothing through"), "{}", refused.text());
    let refused = rig.ask(&few, &chat("hello").max_tokens(1000), &[]);
    assert_eq!(error_of(&refused).1, json!("limit_tokens"));
    assert!(refused.text().contains("ask for a lower max_tokens"), "{}", refused.text());
    let fits = rig.ask(&few, &chat("hello").max_tokens(10), &[]);
    assert_eq!((fits.status, number(&fits, "x-ratelimit-limit-tokens")), (200, 100));
    assert!(number(&fits, "x-ratelimit-remaining-tokens") < 100);
    rig.gateway.finish(&[]);
}

#[test]
fn a_spent_budget_leaves_what_costs_nothing_and_falls_back_to_it() {
    let engine = |model: &str| {
        let model = model.to_owned();
        Engine::local_with(move |config| config.models = vec![model])
    };
    // Of `other` only the time costs something, which nobody knows before.
    let top = "models: [{ name: large, budget_fallback: small }, \
               { name: other, units: { prompt: 0, cached: 0, completion: 0, gpu_second: 5 } }, \
               { name: small, units: { prompt: 0, cached: 0, completion: 0 } }]";
    let engines = vec![engine("large"), engine("small"), engine("other")];
    let rig = Rig::with(engines, &["model: large", "model: small", "model: other"], top, "");
    let (key, tied) = (rig.key("poor", Value::Null), rig.key("tied", Value::Null));
    let budget = json!({ "budget_micros": 0, "budget_period": "day" });
    limit(&rig, &key, "poor", &budget);
    let mut narrow = budget.clone();
    narrow["allowed_models"] = json!(["large"]);
    limit(&rig, &tied, "tied", &narrow);
    let ask = |key: &str, model: &str| {
        let reply = rig.ask(key, &chat("hello").model(model), &[]);
        (reply.status, reply.header("x-llmgw-served-model").map(str::to_owned))
    };
    assert_eq!(ask(&key, "small"), (200, Some("small".to_owned())));
    assert_eq!(ask(&key, "large"), (200, Some("small".to_owned())));
    assert_eq!(ask(&key, "other"), (429, None));
    assert_eq!(ask(&tied, "large"), (429, None), "its key may not use what would stand in");
    assert_eq!(rig.gateway.metrics().sum("llmgw_limit_requests_total", &[("outcome", "fallback")]), Some(1.0));
    rig.gateway.finish(&[]);
}

#[test]
fn a_lowered_limit_and_a_revoked_key_are_felt_at_once_and_what_runs_goes_on() {
    let rig = Rig::start();
    let key = rig.key("busy", Value::Null);
    limit(&rig, &key, "busy", &json!({ "rpm": 10_000 }));
    (0..20).for_each(|_| assert_eq!(rig.say(&key, &[]).status, 200));
    let slow = chat("hello").streamed().faults(json!({ "events": 10, "delay_us": 200_000 }));
    thread::scope(|scope| {
        let running = scope.spawn(|| rig.ask(&key, &slow, &[]));
        rig.engines[0].wait_for_calls(21, WITHIN, |_| true);
        rig.admin("PUT /limits/key/busy", &json!({ "rpm": 15 }));
        wait_for("the lower limit", WITHIN, || rig.say(&key, &[]).status == 429);
        rig.admin("POST /keys/busy/revoke", &json!({}));
        rig.wait_for(&key, 401);
        assert_eq!(running.join().expect("the stream").status, 200);
    });
    rig.gateway.finish(&[]);
}

#[test]
#[expect(clippy::print_stdout, reason = "the figure, for whoever asks with --nocapture")]
fn at_half_of_a_limit_ninety_nine_of_a_hundred_requests_ask_nobody() {
    let rig = Rig::start();
    let key = rig.key("steady", Value::Null);
    limit(&rig, &key, "steady", &json!({ "rpm": 6000, "tpm": 6_000_000, "parallel": 200 }));
    let replies = race(&rig, &key, 4, 750, &chat("hello").max_tokens(8));
    assert_eq!(admitted(&replies), 3000);
    wait_for_rest(&rig, &key);
    let metrics = rig.gateway.metrics();
    let [by_lease, by_owner] =
        ["lease", "owner"].map(|outcome| metrics.sum("llmgw_limit_requests_total", &[("outcome", outcome)]));
    let (by_lease, by_owner) = (by_lease.expect("counted"), by_owner.expect("counted"));
    assert_eq!(by_lease + by_owner, 3000.0);
    println!("{by_owner} of 3000 requests asked their owner");
    assert!(by_owner <= 30.0, "{by_owner} of 3000 asked");
    rig.gateway.finish(&[]);
}

#[test]
fn no_path_gets_past_a_spent_limit() {
    let rig = Rig::start();
    let key = rig.key("spent", Value::Null);
    limit(&rig, &key, "spent", &json!({ "rpm": 0 }));
    let paths = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/v1/rerank",
        "/v2/rerank",
        "/rerank",
        "/v1/score",
        "/score",
        "/tokenize",
        "/detokenize",
        "/v1/audio/speech",
    ];
    for path in paths {
        let body = json!({ "model": "test-model", "input": "hello", "prompt": "hello", "messages": [] });
        let request = Request::new("POST", path).header("Authorization", format!("Bearer {key}")).json(&body);
        let reply = rig.send(request);
        assert_eq!(
            (reply.status, reply.text().contains("lets nothing through")),
            (429, true),
            "{path}: {}",
            reply.text()
        );
        assert_eq!(number(&reply, "x-ratelimit-limit-requests"), 0, "{path}");
    }
    let unknown = Request::new("POST", "/v1/x").header("Authorization", format!("Bearer {key}")).json(&json!({}));
    assert_eq!(rig.send(unknown).status, 404);
    assert_eq!(rig.engines[0].calls().len(), 0);
    rig.gateway.finish(&[]);
}

#[test]
fn what_was_spent_of_a_budget_is_known_after_a_restart_and_begins_anew_with_its_period() {
    let rig = Rig::start();
    let key = rig.key("thrifty", Value::Null);
    // A hundred tokens.
    let budget = json!({ "budget_micros": 100_000_000, "budget_period": "month", "time_zone": "Asia/Tokyo" });
    limit(&rig, &key, "thrifty", &budget);
    let ask = |rig: &Rig| rig.ask(&key, &chat("hello").max_tokens(12), &[]);
    let mut served = 0;
    let refused = loop {
        let reply = ask(&rig);
        if reply.status != 200 {
            break reply;
        }
        served += 1;
    };
    assert!(served > 1, "{}", refused.text());
    assert_eq!(error_of(&refused).1, json!("budget_spent"));
    let before = wait_for_rest(&rig, &key);
    let (spent, anew) = (&before["spent_micros"], before["budget_begins_anew_at"].as_u64().expect("a moment"));
    // Midnight in Tokyo is 15:00 of the day before in UTC.
    assert_eq!(anew / 1000 % 86_400, 15 * 3600);
    let wait = number(&refused, "retry-after");
    assert!((1..=31 * 86_400).contains(&wait), "{wait}");
    let rig = rig.restart(&[]);
    let refused = ask(&rig);
    assert_eq!((refused.status, error_of(&refused).1), (429, json!("budget_spent")), "{}", refused.text());
    assert_eq!(&used(&rig, &key)["spent_micros"], spent);
    rig.gateway.finish(&[]);
}

#[test]
fn a_limit_for_one_model_leaves_the_others_to_the_keys_own() {
    let engine = |model: &str| {
        let model = model.to_owned();
        Engine::local_with(move |config| config.models = vec![model])
    };
    let rig = Rig::with(vec![engine("large"), engine("small")], &["model: large", "model: small"], "", "");
    let key = rig.key("mixed", Value::Null);
    rig.admin("PUT /limits/key/mixed?model=large", &json!({ "rpm": 3 }));
    limit(&rig, &key, "mixed", &json!({ "rpm": 8 }));
    let is_whole = || me(&rig, &key)["limits"].as_array().is_some_and(|levels| levels.len() == 2);
    wait_for("both limits", WITHIN, || (0..CONNECTIONS).all(|_| is_whole()));
    let of = |model: &str| chat("hello").model(model).max_tokens(2);
    check_admitted(&race(&rig, &key, 3, 3, &of("large")), 3);
    // Those three counted for all models as well.
    let of_small = race(&rig, &key, 3, 4, &of("small"));
    check_admitted(&of_small, 5);
    let refused = rig.ask(&key, &of("large"), &[]).text();
    assert!(refused.contains("the key's limit of"), "{refused}");
    rig.gateway.finish(&[]);
}
