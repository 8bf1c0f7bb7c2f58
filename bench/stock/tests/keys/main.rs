//! The conventional gateway where keys are asked for: the same answers as `llmgw server`, what requests used in the
//! same store, and what they are held to.

mod limits;
mod rig;

use llmgw_test_kit::{chat, wait_for};
use serde_json::{Value, json};

use rig::{Rig, WITHIN};

#[test]
fn who_has_no_key_is_refused_and_a_key_that_is_revoked_works_no_more() {
    let rig = Rig::start();
    let key = rig.key("alice");
    let refused = |key: &str| {
        let reply = rig.ask(key, &chat("hello"));
        (reply.status, reply.json()["error"]["code"].clone())
    };
    assert_eq!(refused(""), (401, json!("missing_api_key")));
    assert_eq!(refused("sk-llmgw-none"), (401, json!("invalid_api_key")));
    assert_eq!(rig.ask(&key, &chat("hello")).status, 200);
    assert!(rig.engines[0].only_call().header("authorization").is_none(), "the key stays here");
    rig.admin("POST", "/keys/alice/revoke", &json!({}));
    wait_for("it is felt", WITHIN, || refused(&key) == (401, json!("revoked_api_key")));
    rig.gateway.finish(&[]);
}

#[test]
fn what_a_request_used_is_on_the_record_with_its_key() {
    let rig = Rig::start();
    let key = rig.key("bob");
    let reply = rig.ask(&key, &chat("hello").max_tokens(4));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let id = reply.header("x-request-id").expect("an id").to_owned();
    let path = format!("/api/v1/usage/requests/{id}");
    wait_for("its record", WITHIN, || rig.gateway.admin(&path).status == 200);
    let record = rig.gateway.admin(&path).json();
    assert_eq!((&record["status"], &record["completion_tokens"]), (&json!(200), &json!(4)), "{record}");
    let keys = rig.admin("GET", "/keys", &Value::Null);
    assert_eq!(record["key_id"], keys["keys"][0]["id"], "{keys}");
    rig.gateway.finish(&[]);
}
