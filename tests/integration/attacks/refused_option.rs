//! A refusal that only quotes the option we add is no refusal of the option.

use llmgw_test_kit::chat;
use serde_json::json;

use crate::streams::rig::Rig;

#[test]
fn a_client_cannot_talk_the_gateway_out_of_asking_for_usage() {
    let rig = Rig::start();
    // As engines do that quote the request they refuse.
    let body = r#"{"error":{"message":"bad temperature in: {\"user\":\"stream_options\"}","code":400}}"#;
    let refused = rig.ask(chat("x").streamed().faults(json!({ "status": 400, "body": body })));
    assert_eq!((refused.status, refused.text()), (400, body.to_owned()));
    let reply = rig.ask(chat("x").streamed());
    assert_eq!(reply.status, 200);
    let calls = rig.engine.calls();
    let last = calls.last().expect("a call");
    assert!(last.json().to_string().contains("include_usage"), "{}", last.json());
    rig.wait_for_ended(2);
    assert_eq!(rig.usage_absent(), (0, 0));
    rig.finish();
}
