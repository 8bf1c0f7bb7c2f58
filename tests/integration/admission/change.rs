//! Configurations and endpoints that change while requests wait.

use std::fs;

use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, chat, wait_for};
use serde_json::json;

use super::rig::{Rig, TWO_BANDS, endpoint};
use crate::pair::{WITHIN, error_of, llmgw};

const ROUTER: &str = "scrape_interval: 100ms\ntimeouts: { settle: 0s }\n";

fn post(rig: &Rig, target: &str) -> Reply {
    let request = Request::new("POST", target).header("Connection", "close").header("Content-Length", "0");
    raw::call(rig.gateway.admin_addr(), &request.bytes())
}

/// Writes the file anew and has it loaded.
#[track_caller]
fn reload(rig: &Rig, endpoints: &[String], admission: &str) {
    let builder = endpoints.iter().fold(Gateway::builder(), |builder, endpoint| builder.endpoint(endpoint));
    let text = builder.router(&format!("{ROUTER}admission: {{ {admission} }}")).yaml();
    fs::write(rig.gateway.config_path(), text).expect("written");
    let reply = post(rig, "/api/v1/reload");
    assert_eq!(reply.status, 200, "{}", reply.text());
}

fn own(rig: &Rig, batch: u32) -> String {
    endpoint("e", &rig.engine, &format!("batch_capacity: {batch}"))
}

#[test]
fn bands_and_room_follow_the_configuration_while_requests_wait() {
    let rig = Rig::start(1, TWO_BANDS);
    let held = rig.hold(1);
    let waits = rig.ask("low", &chat("waits"));
    rig.wait_until_waiting(1);
    let bands = "bands: [{ name: day, priority: 5, saturation_ceiling: 1 }, { name: night, priority: 1, \
        saturation_ceiling: 0 }]";
    reload(&rig, &[own(&rig, 2)], bands);
    assert_eq!(waits.reply().status, 200, "there is a second place");
    wait_for("the new bands", WITHIN, || rig.ask("day", &chat("hello")).reply().status == 200);
    let reply = rig.ask("low", &chat("hello")).reply();
    assert_eq!(error_of(&reply).0, 400);
    assert!(reply.text().contains("bands: day, night"), "{}", reply.text());
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}

#[test]
fn an_endpoint_that_comes_takes_those_that_wait() {
    let rig = Rig::start(1, TWO_BANDS);
    let held = rig.hold(1);
    let waits: Vec<_> = (0..2).map(|_| rig.ask("low", &chat("waits"))).collect();
    rig.wait_until_waiting(2);
    let other = Engine::local();
    reload(&rig, &[own(&rig, 1), endpoint("other", &other, "batch_capacity: 1")], TWO_BANDS);
    for call in waits {
        // It keeps the table it began with: the place is in the pool, and the endpoint the one it knows.
        assert_eq!(call.reply().status, 200);
    }
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}

#[test]
fn a_drained_endpoint_makes_no_room_until_it_is_taken_back() {
    let rig = Rig::start(1, TWO_BANDS);
    let other = Engine::local();
    reload(&rig, &[own(&rig, 1), endpoint("other", &other, "batch_capacity: 1")], TWO_BANDS);
    wait_for("the other", WITHIN, || rig.count("llmgw_endpoint_ready", &[]) == 2);
    let table = || rig.count("llmgw_route_table_generation_oldest", &[]);
    let before = table();
    assert_eq!(post(&rig, "/api/v1/endpoints/other/drain").status, 200);
    // Room falls first, then every core counts anew.
    wait_for("one place", WITHIN, || table() > before);
    let held = rig.hold(1);
    let waits = rig.ask("low", &chat("waits"));
    rig.wait_until_waiting(1);
    assert_eq!(post(&rig, "/api/v1/endpoints/other/undrain").status, 200);
    let reply = waits.reply();
    assert_eq!((reply.status, reply.header("x-llmgw-replica")), (200, Some("other")));
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}

#[test]
fn a_model_that_is_gone_refuses_those_that_wait_for_it_as_one_that_is_not_there() {
    let rig = Rig::start(1, TWO_BANDS);
    let held = rig.hold(1);
    let waits = rig.ask("low", &chat("waits"));
    rig.wait_until_waiting(1);
    let other = Engine::local();
    let another = endpoint("other", &other, "batch_capacity: 1").replace("test-model", "another");
    reload(&rig, &[another], TWO_BANDS);
    assert_eq!(error_of(&waits.reply()), (404, json!("model_not_found"), json!("model")));
    assert_eq!(rig.rejected("no_endpoint"), 0, "its rows are out of the table, and the page");
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}

#[test]
fn a_request_whose_pool_is_gone_is_decided_anew_as_if_it_had_just_come() {
    let rig = Rig::start(1, TWO_BANDS);
    let held = rig.hold(1);
    let calls: Vec<_> = ["low", "high", "low"].into_iter().map(|band| rig.ask(band, &chat("waits"))).collect();
    rig.wait_until_waiting(3);
    // The same model, on other machines: another pool.
    let other = Engine::local();
    reload(&rig, &[endpoint("other", &other, "batch_capacity: 1, gpu_class: h100")], TWO_BANDS);
    for call in calls {
        let reply = call.reply();
        assert_eq!((reply.status, reply.header("x-llmgw-replica")), (200, Some("other")), "{}", reply.text());
        assert!(reply.header("x-llmgw-queue-ms").is_some_and(|ms| ms != "0"));
    }
    assert_eq!(rig.rejected("no_endpoint"), 0);
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}

#[test]
fn a_request_whose_last_engine_leaves_goes_to_the_model_that_stands_in() {
    let other = Engine::local_with(|config| config.models = vec!["small".to_owned()]);
    let engine = Engine::local();
    let small = endpoint("other", &other, "batch_capacity: 1").replace("test-model", "small");
    let gateway = Gateway::builder()
        .endpoint(&endpoint("e", &engine, "batch_capacity: 1"))
        .endpoint(&small)
        .top("models: [{ name: test-model, fallbacks: [small] }]")
        .router(&format!("{ROUTER}admission: {{ {TWO_BANDS} }}"))
        .start(llmgw());
    let rig = Rig { gateway, engine };
    wait_for("both", WITHIN, || rig.count("llmgw_endpoint_ready", &[]) == 2);
    rig.wait_for_room();
    let held = rig.hold(1);
    let waits = rig.ask("low", &chat("waits"));
    rig.wait_until_waiting(1);
    assert_eq!(post(&rig, "/api/v1/endpoints/e/drain").status, 200);
    let reply = waits.reply();
    assert_eq!((reply.status, reply.header("x-llmgw-served-model")), (200, Some("small")), "{}", reply.text());
    assert_eq!((rig.rejected("client_gone"), rig.rejected("no_endpoint"), rig.waiting()), (0, 0, 0));
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}
