//! In which order those go on that wait, and who makes room for whom.

use llmgw_test_kit::chat;

use super::rig::{Rig, TWO_BANDS};

#[test]
fn a_higher_band_goes_first_and_within_a_band_who_came_first() {
    let rig = Rig::start(1, TWO_BANDS);
    let held = rig.hold(1);
    let mut calls = Vec::new();
    for (at, (band, name)) in
        [("low", "l1"), ("low", "l2"), ("high", "h1"), ("low", "l3"), ("high", "h2")].into_iter().enumerate()
    {
        calls.push(rig.ask(band, &chat(name)));
        rig.wait_until_waiting(at as u64 + 1);
    }
    let depth = |band| rig.count("llmgw_admission_queue_depth", &[("band", band), ("model", "test-model")]);
    assert_eq!((depth("low"), depth("high")), (3, 2));
    rig.engine.release();
    held.into_iter().chain(calls).for_each(|call| assert_eq!(call.reply().status, 200));
    assert_eq!(rig.prompts(), ["h1", "h2", "l1", "l2", "l3"]);
    assert_eq!(rig.count("llmgw_admission_wait_seconds_count", &[("band", "high")]), 2);
    rig.assert_at_rest(1);
}

#[test]
fn tenants_of_a_band_have_their_turns_by_what_they_cost() {
    let rig = Rig::start(1, TWO_BANDS);
    let held = rig.hold(1);
    let mut calls = Vec::new();
    // Each costs about one turn.
    let of = |user: &str, name: &str| chat(name).field("user", user).max_tokens(2000);
    let names = ["a1", "a2", "a3", "a4", "a5", "a6", "b1", "b2"];
    for (at, name) in names.into_iter().enumerate() {
        calls.push(rig.ask("low", &of(&name[..1], name)));
        rig.wait_until_waiting(at as u64 + 1);
    }
    rig.engine.release();
    held.into_iter().chain(calls).for_each(|call| assert_eq!(call.reply().status, 200));
    let order = rig.prompts();
    let place = |name: &str| order.iter().position(|prompt| prompt == name).expect("it came");
    assert!(place("b1") < place("a4") && place("b2") < place("a6"), "{order:?}");
    assert!(place("a1") < place("a2") && place("b1") < place("b2"), "{order:?}");
}

#[test]
fn a_higher_band_makes_room_by_displacing_the_newest_of_the_lowest() {
    let rig = Rig::start(1, &format!("queue_capacity_total: 2, {TWO_BANDS}"));
    let held = rig.hold(1);
    let oldest = rig.ask("low", &chat("oldest"));
    rig.wait_until_waiting(1);
    let newest = rig.ask("low", &chat("newest"));
    rig.wait_until_waiting(2);
    let high = rig.ask("high", &chat("high"));
    let reply = newest.reply();
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (503, Some("displaced")));
    assert!(reply.header("retry-after").is_some());
    rig.wait_until_waiting(2);
    // Nobody of its own band, or a higher one, makes room for it.
    let low = rig.ask("low", &chat("too many")).reply();
    assert_eq!((low.status, low.json()["error"]["code"].as_str()), (503, Some("full")));
    rig.engine.release();
    held.into_iter().chain([oldest, high]).for_each(|call| assert_eq!(call.reply().status, 200));
    assert_eq!(rig.prompts(), ["high", "oldest"]);
    assert_eq!((rig.rejected("displaced"), rig.rejected("full")), (1, 1));
    rig.assert_at_rest(1);
}

#[test]
fn a_band_that_never_waits_is_counted_and_waits_for_nobody() {
    let bands = "bands: [{ name: low, priority: 1, saturation_ceiling: 0 }, \
        { name: high, priority: 2, saturation_ceiling: 1000 }]";
    let rig = Rig::start(1, bands);
    let held = rig.hold(1);
    let waits = rig.ask("low", &chat("waits"));
    rig.wait_until_waiting(1);
    for _ in 0..5 {
        assert_eq!(rig.ask("high", &chat("now")).reply().status, 200);
    }
    assert_eq!(rig.waiting(), 1);
    rig.engine.release();
    held.into_iter().chain([waits]).for_each(|call| assert_eq!(call.reply().status, 200));
}
