//! Projects that wait for the same engine: each has its turn, whichever of its keys asks and whatever they say of their
//! users.

use std::thread;

use llmgw_test_kit::engine::Recorded;
use llmgw_test_kit::{Chat, Engine, chat, wait_for};
use serde_json::json;

use super::rig::Rig;
use crate::pair::WITHIN;

#[test]
fn a_project_with_many_waiting_leaves_the_next_turn_to_another() {
    let router = "scrape_interval: 100ms\ncooldown_seconds: 0\n\
                  admission: { bands: [{ name: all, priority: 1, saturation_ceiling: 0 }] }";
    let rig = Rig::with(vec![Engine::local()], &["model: test-model, batch_capacity: 1"], "", router);
    rig.projects(&["busy", "calm"]);
    let key = |name: &str, project: &str| rig.key(name, json!({ "project": format!("acme/search/{project}") }));
    let (one, two, calm) = (key("one", "busy"), key("two", "busy"), key("calm", "calm"));
    let count = |name: &str, labels: &[(&str, &str)]| rig.gateway.metrics().sum(name, labels).unwrap_or(0.0) as u64;
    let passed = || count("llmgw_admission_admitted_total", &[("how", "passed")]);
    wait_for("room", WITHIN, || {
        let before = passed();
        rig.ask(&one, &chat("are you there"), &[]);
        passed() > before
    });
    let engine = &rig.engines[0];
    let before = engine.calls().len();
    // Each costs about one turn. Whose they are is the key's to say: users are not asked.
    let of = |name: &str| -> Chat { chat(name).field("user", name).max_tokens(2000) };
    let asked = [("b1", &one), ("b2", &two), ("b3", &one), ("b4", &two), ("b5", &one), ("b6", &two), ("c1", &calm)];
    let held = chat("held").faults(json!({ "stall_after_events": 0 }));
    thread::scope(|scope| {
        let first = scope.spawn(|| rig.ask(&one, &held, &[]));
        wait_for("held by the engine", WITHIN, || engine.state().open_requests == 1);
        let waiting: Vec<_> = (1..)
            .zip(asked)
            .map(|(depth, (name, key))| {
                let chat = of(name);
                let rig = &rig;
                let call = scope.spawn(move || rig.ask(key, &chat, &[]));
                wait_for("it waits", WITHIN, || count("llmgw_admission_queue_depth", &[]) == depth);
                call
            })
            .collect();
        engine.release();
        for call in [first].into_iter().chain(waiting) {
            assert_eq!(call.join().expect("a call").status, 200);
        }
    });
    let prompt = |call: &Recorded| call.json()["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
    let order: Vec<String> = engine.calls().iter().skip(before).map(prompt).collect();
    let place = |name: &str| order.iter().position(|prompt| prompt == name).expect("it came");
    assert!(place("c1") < place("b3"), "{order:?}");
    assert!(place("b1") < place("b2") && place("b2") < place("b3"), "{order:?}");
    rig.gateway.finish(&[]);
}
