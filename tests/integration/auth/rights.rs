//! What a key may: its models, its band, its profile, the replica it names, the responses of its project.

use llmgw_test_kit::raw::Reply;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, chat, wait_for};
use serde_json::{Value, json};

use super::rig::{Rig, explained};
use crate::pair::{WITHIN, error_of};

fn engine(model: &str) -> Engine {
    let model = model.to_owned();
    Engine::local_with(move |config| config.models = vec![model])
}

/// Engine 0 serves `large`, engine 1 `small`; `large` falls back to `small`.
fn two_models() -> Rig {
    let engines = vec![engine("large"), engine("small")];
    let top = "models: [{ name: large, aliases: [big], fallbacks: [small] }]";
    Rig::with(engines, &["model: large", "model: small"], top, "cooldown_seconds: 60")
}

fn names(reply: &Reply) -> Vec<String> {
    let list = reply.json();
    let rows = list["data"].as_array().expect("a list");
    rows.iter().map(|row| row["id"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_key_may_use_what_every_level_allows_and_is_told_what_that_is() {
    let rig = two_models();
    rig.projects(&["chat"]);
    let project = json!({ "project": "acme/search/chat" });
    let (alice, bob) = (rig.key("alice", project.clone()), rig.key("bob", project));
    let other = rig.key("carol", Value::Null);
    rig.admin("PUT /limits/team/acme%2Fsearch", &json!({ "allowed_models": ["large", "small"] }));
    rig.admin("PUT /limits/key/alice", &json!({ "allowed_models": ["large", "elsewhere"] }));
    rig.admin("PUT /limits/key/bob", &json!({ "allowed_models": [] }));
    wait_for("the lists", WITHIN, || names(&rig.get(&bob, "/v1/models")).is_empty());
    assert_eq!(names(&rig.get(&alice, "/v1/models")), ["large"]);
    assert_eq!(names(&rig.get(&other, "/v1/models")), ["large", "small"]);
    assert_eq!(rig.get(&alice, "/v1/models/large").status, 200);
    assert_eq!(rig.get(&alice, "/v1/models/big").status, 200, "an alias is its model");
    assert_eq!(rig.get(&alice, "/v1/models/small").status, 404);

    let ask = |key: &str, model: &str| rig.ask(key, &chat("hello").model(model), &[]);
    assert_eq!((ask(&alice, "large").status, ask(&alice, "big").status, ask(&other, "small").status), (200, 200, 200));
    let refused = ask(&alice, "small");
    assert_eq!(error_of(&refused), (404, json!("model_not_found"), json!("model")));
    assert!(refused.text().contains("it may use: large\"") || refused.text().contains("it may use: large"));
    assert!(!refused.text().contains("it may use: large, small"));
    assert!(ask(&bob, "large").text().contains("may use no model"));
    rig.gateway.finish(&[]);
}

#[test]
fn a_model_that_is_withheld_does_not_stand_in() {
    let rig = two_models();
    let (one, all) = (rig.key("one", Value::Null), rig.key("all", Value::Null));
    rig.admin("PUT /limits/key/one", &json!({ "allowed_models": ["large"] }));
    wait_for("the list", WITHIN, || names(&rig.get(&one, "/v1/models")) == ["large"]);
    rig.engines[0].set_faults(json!({ "status": 503 }));
    let large = chat("hello").model("large");
    let served = |key: &str| {
        let reply = rig.ask(key, &large, &[]);
        (reply.status, reply.header("x-llmgw-served-model").map(str::to_owned))
    };
    assert_eq!(served(&all), (200, Some("small".to_owned())));
    assert_eq!(served(&one).0, 503);
    assert!(rig.engines[1].calls().len() == 1, "the other key's request alone");
    rig.gateway.finish(&["\"request_id\"", "breaker"]);
}

const BANDS: &str = "admission: { bands: [{ name: low, priority: 1, saturation_ceiling: 0.5 }, \
     { name: high, priority: 2, saturation_ceiling: 1 }] }";

#[test]
fn the_band_comes_from_the_key_alone_and_the_profile_unless_a_request_names_one() {
    let rig = Rig::with(vec![Engine::local()], &["model: test-model"], "", BANDS);
    rig.projects(&["batch"]);
    let change = json!({ "band": "low", "routing_profile": "batch" });
    rig.admin("PATCH /projects/acme%2Fsearch%2Fbatch", &change);
    let of_project = rig.key("of-project", json!({ "project": "acme/search/batch" }));
    let own = json!({ "project": "acme/search/batch", "band": "high", "routing_profile": "debug" });
    let own = rig.key("own", own);
    let (none, gone) = (rig.key("none", Value::Null), rig.key("gone", json!({ "band": "gone" })));
    let seen = |key: &str, headers: &[(&str, &str)]| {
        let said = explained(&rig.say(key, &[&[("x-llmgw-explain", "1")], headers].concat()));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&said["admission"]["band"]), text(&said["decisions"][0]["picker"]))
    };
    let pair = |band: &str, picker: &str| (band.to_owned(), picker.to_owned());
    assert_eq!(seen(&of_project, &[]), pair("low", "max-score"));
    assert_eq!(seen(&own, &[]), pair("high", "round-robin"));
    assert_eq!(seen(&none, &[]), pair("high", "p2c"), "the highest, and the model's own");
    assert_eq!(seen(&gone, &[]), pair("low", "p2c"), "nobody gains by a band that was removed");
    let wishes = [("x-llmgw-band", "high"), ("x-llmgw-profile", "debug")];
    assert_eq!(seen(&of_project, &wishes), pair("low", "round-robin"));
    assert_eq!(seen(&of_project, &[("x-llmgw-band", "nothing")]), pair("low", "max-score"));
    rig.gateway.finish(&[]);
}

#[test]
fn a_replica_is_named_by_keys_that_may_and_another_answers_where_it_cannot() {
    let models = ["model: test-model"; 3];
    let rig = Rig::with((0..3).map(|_| Engine::local()).collect(), &models, "", "cooldown_seconds: 60");
    let plain = rig.key("plain", Value::Null);
    let pinning = rig.key("pinning", json!({ "may_pin_replica": true }));
    let pin = [("x-llmgw-replica", "engine-1")];
    let refused = rig.say(&plain, &pin);
    assert_eq!(error_of(&refused), (403, json!("replica_not_allowed"), json!(null)));
    let replica = |headers: &[(&str, &str)]| {
        let reply = rig.say(&pinning, headers);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.header("x-llmgw-replica").expect("who answered").to_owned()
    };
    assert!((0..12).all(|_| replica(&pin) == "engine-1"));
    assert_ne!(replica(&[("x-llmgw-replica", "nobody")]), "", "a name that is gone binds to nobody");
    // It fails this very request, which goes on elsewhere; and then it cools down, and nobody is sent there.
    rig.engines[1].set_faults(json!({ "status": 503 }));
    assert_ne!(replica(&pin), "engine-1");
    let calls = rig.engines[1].calls().len();
    assert!((0..6).all(|_| replica(&pin) != "engine-1"));
    assert_eq!(rig.engines[1].calls().len(), calls);
    rig.admin("POST /endpoints/engine-2/drain", &Value::Null);
    assert_eq!(replica(&[("x-llmgw-replica", "engine-2")]), "engine-0");
    rig.gateway.finish(&["\"request_id\"", "breaker"]);
}

#[test]
fn a_stored_response_is_its_projects() {
    let rig = Rig::start();
    rig.projects(&["a", "b"]);
    let key = |name: &str, project: &str| rig.key(name, json!({ "project": format!("acme/search/{project}") }));
    let (mine, ours, theirs) = (key("mine", "a"), key("ours", "a"), key("theirs", "b"));
    let request = Request::new("POST", "/v1/responses").header("x-api-key", &mine);
    let made = rig.send(request.json(&json!({ "model": "test-model", "input": "hello" })));
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let target = format!("/v1/responses/{id}");
    assert_eq!(rig.get(&mine, &target).status, 200);
    assert_eq!(rig.get(&ours, &target).status, 200);
    assert_eq!(error_of(&rig.get(&theirs, &target)), (404, json!("response_not_found"), json!(null)));
    rig.gateway.finish(&[]);
}

#[test]
fn me_tells_a_key_what_it_may_and_is_held_to() {
    let rig = Rig::with(vec![Engine::local()], &["model: test-model"], "", BANDS);
    rig.projects(&["chat"]);
    let key = rig.key("alice", json!({ "project": "acme/search/chat", "band": "low", "may_pin_replica": true }));
    rig.admin("PUT /limits/org/acme", &json!({ "budget_micros": 5, "budget_period": "day" }));
    rig.admin("PUT /limits/key/alice", &json!({ "rpm": 60, "allowed_models": ["test-model"] }));
    let me = || rig.get(&key, "/me").json();
    wait_for("the limits", WITHIN, || me()["limits"].as_array().is_some_and(|limits| limits.len() == 2));
    let me = me();
    assert_eq!((&me["key"]["name"], &me["key"]["expires_at"]), (&json!("alice"), &Value::Null));
    assert_eq!(me["project"]["path"], "acme/search/chat");
    assert_eq!(
        (&me["band"], &me["routing_profile"], &me["may_pin_replica"]),
        (&json!("low"), &json!(null), &json!(true))
    );
    assert_eq!(me["allowed_models"], json!(["test-model"]));
    let [own, organization] = [0, 1].map(|at| me["limits"][at].clone());
    assert_eq!(
        (&own["level"], &own["rpm"], &own["tpm"], &own["budget"]),
        (&json!("key"), &json!(60), &json!(null), &json!(null))
    );
    assert_eq!(organization["budget"], json!({ "micros": 5, "period": "day", "time_zone": "UTC" }));
    assert_eq!(organization["level"], "org");
    rig.gateway.finish(&[]);
}
