//! While there is room: no message, no wait. Where there is none in the first pool, the next.

use llmgw_test_kit::{Engine, Gateway, chat, wait_for};
use serde_json::{Value, json};

use super::rig::{Rig, TWO_BANDS, endpoint, request, stalled};
use crate::pair::{WITHIN, llmgw};

#[test]
fn at_half_load_no_request_sends_a_message_or_waits() {
    let rig = Rig::start(8, TWO_BANDS);
    let sent = rig.count("llmgw_admission_messages_total", &[]);
    for _ in 0..50 {
        let calls: Vec<_> = (0..4).map(|at| rig.ask(["low", "high"][at % 2], &chat("hello"))).collect();
        for call in calls {
            let reply = call.reply();
            assert_eq!((reply.status, reply.header("x-llmgw-queue-ms")), (200, Some("0")));
        }
    }
    assert_eq!(rig.count("llmgw_admission_messages_total", &[]), sent, "hop-free");
    let admitted = |how| rig.count("llmgw_admission_admitted_total", &[("how", how)]);
    assert!(admitted("passed") >= 200);
    assert_eq!(rig.count("llmgw_admission_wait_seconds_count", &[("band", "low")]), 0);
    rig.assert_at_rest(8);
}

#[test]
fn a_request_spills_over_to_the_next_pool_before_it_waits() {
    let engines = [Engine::local(), Engine::local()];
    let first = endpoint("first", &engines[0], "batch_capacity: 1, gpu_class: a, priority: 9");
    let second = endpoint("second", &engines[1], "batch_capacity: 1, gpu_class: b, priority: 1");
    let router = format!("timeouts: {{ settle: 0s }}\nadmission: {{ {TWO_BANDS} }}");
    let gateway = Gateway::builder().endpoint(&first).endpoint(&second).router(&router).start(llmgw());
    let [engine, other] = engines;
    let rig = Rig { gateway, engine };
    wait_for("both", WITHIN, || rig.count("llmgw_endpoint_ready", &[]) == 2);
    rig.wait_for_room();
    let held = rig.hold(1);
    wait_for("the other pool's room", WITHIN, || {
        rig.ask("low", &chat("hello")).reply().header("x-llmgw-replica") == Some("second")
    });
    let (waits, before) = (rig.ask("low", &stalled()), other.state());
    wait_for("held by the second", WITHIN, || other.state().open_requests == before.open_requests.max(1));
    assert_eq!(rig.waiting(), 0);
    let last = rig.ask("low", &chat("last"));
    rig.wait_until_waiting(1);
    other.release();
    assert_eq!(last.reply().header("x-llmgw-replica"), Some("second"), "whichever has room first");
    rig.engine.release();
    held.into_iter().chain([waits]).for_each(|call| assert_eq!(call.reply().status, 200));
}

#[test]
fn an_answer_says_why_it_waited_when_asked() {
    let bands = "target_waiting_per_replica: 1, bands: [{ name: low, priority: 1, saturation_ceiling: 0, \
        capacity_share: 0.5 }, { name: high, priority: 2, saturation_ceiling: 1 }]";
    let rig = Rig::start(4, bands);
    let held = rig.hold(2);
    let saturation = || rig.gateway.metrics().sum("llmgw_pool_saturation", &[("pool", "none/unknown")]);
    assert_eq!(saturation(), Some(0.0), "two of four places are free");
    let explained = |band: &str| request(band).header("x-llmgw-explain", "1").json(&chat("why").json());
    let reply = rig.send(explained("high")).reply();
    let said = |reply: &llmgw_test_kit::raw::Reply| -> Value {
        serde_json::from_str(reply.header("x-llmgw-explain").expect("the header")).expect("JSON")
    };
    assert_eq!(said(&reply)["admission"]["band"], "high");
    assert_eq!(said(&reply)["admission"]["gates"][0]["room"], 5);
    assert_eq!(said(&reply)["admission"]["gates"][0]["why"], "there is room");
    let waits = rig.send(explained("low"));
    rig.wait_until_waiting(1);
    rig.engine.release();
    let reply = waits.reply();
    let admission = &said(&reply)["admission"];
    assert_eq!((admission["band"].clone(), admission["capacity_share"].clone()), (json!("low"), json!(0.5)));
    assert!(admission["note"].as_str().is_some_and(|note| note.contains("leaves places of the batch free")));
    assert_eq!(admission["gates"][0]["room"], 2);
    assert!(admission["waited_ms"].is_u64());
    assert!(reply.header("x-llmgw-queue-ms").is_some_and(|ms| ms.parse::<u64>().is_ok()));
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}
