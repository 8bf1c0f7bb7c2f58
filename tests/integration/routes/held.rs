//! Follow-ups to a stored response whose engine cannot take them: they are told so, and no other engine is asked.

use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, wait_for};
use serde_json::{Value, json};

use super::responses::{RESPONSES, ask, fleet, id_of};
use crate::pair::{WITHIN, error_of};
use crate::reload::rig::{Rig, yaml};

/// Status, code and `param` of an error whose message holds all of these.
#[track_caller]
fn refused(reply: &Reply, says: &[&str]) -> (u16, Value, Value) {
    let body = reply.json();
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(says.iter().all(|text| message.contains(text)), "{message}");
    error_of(reply)
}

fn follow_up(addr: std::net::SocketAddr, id: &str) -> Reply {
    raw::post(addr, RESPONSES, &ask(Some(id)))
}

const UNAVAILABLE: &str = "response_unavailable";

#[test]
fn a_follow_up_is_refused_while_the_engine_that_holds_its_response_is_down_and_nobody_else_is_asked() {
    let (gateway, mut engines) = fleet();
    let reply = raw::post(gateway.addr(), RESPONSES, &ask(None));
    let id = id_of(&reply);
    let replica = reply.header("x-llmgw-replica").expect("who answered").to_owned();
    let at: usize = replica.strip_prefix("engine-").and_then(|at| at.parse().ok()).expect("a name");
    engines.remove(at).stop();
    wait_for("the engine to be noticed", WITHIN, || {
        raw::get(gateway.admin_addr(), "/readyz").json()["endpoints_ready"] == json!(2)
    });
    let calls = |engines: &[Engine]| engines.iter().map(|engine| engine.calls().len()).sum::<usize>();
    let before = calls(&engines);
    for _ in 0..4 {
        let refusal = follow_up(gateway.addr(), &id);
        assert_eq!(refusal.header("retry-after"), Some("1"), "it may come back");
        let says = [replica.as_str(), id.as_str(), "not ready"];
        assert_eq!(refused(&refusal, &says), (503, json!(UNAVAILABLE), json!("previous_response_id")));
        let read = raw::get(gateway.addr(), &format!("{RESPONSES}/{id}"));
        assert_eq!(refused(&read, &says), (503, json!(UNAVAILABLE), Value::Null));
    }
    assert_eq!(calls(&engines), before);
}

#[test]
fn a_follow_up_waits_for_a_drained_engine_and_ends_with_a_removed_one() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a), ("b", &b)]);
    let addr = rig.gateway.addr();
    wait_for("both engines", WITHIN, || rig.replicas(8) == ["a", "b"]);
    let reply = raw::post(addr, RESPONSES, &ask(None));
    let id = id_of(&reply);
    let replica = reply.header("x-llmgw-replica").expect("who answered").to_owned();
    let (holder, other) = if replica == "a" { (&a, ("b", &b)) } else { (&b, ("a", &a)) };

    assert_eq!(rig.post(&format!("/api/v1/endpoints/{replica}/drain")).status, 200);
    let says = [replica.as_str(), "draining"];
    assert_eq!(refused(&follow_up(addr, &id), &says).1, json!(UNAVAILABLE));
    assert_eq!(rig.post(&format!("/api/v1/endpoints/{replica}/undrain")).status, 200);
    let id = id_of(&follow_up(addr, &id));

    // A failure keeps others away for a while; for this request there is nobody else.
    holder.set_faults(json!({ "status": 503 }));
    assert_eq!(follow_up(addr, &id).status, 503, "the engine's own word");
    holder.set_faults(json!({}));
    wait_for("its cooldown", WITHIN, || rig.gateway.metrics().sum("llmgw_endpoint_cooling", &[]) == Some(1.0));
    let id = id_of(&follow_up(addr, &id));

    rig.reload_with(&yaml(&[other], ""));
    let gone = || follow_up(addr, &id);
    wait_for("every core to know", WITHIN, || (0..8).all(|_| gone().status == 404));
    let (status, code, param) = refused(&gone(), &[&id, "removed"]);
    assert_eq!((status, code, param), (404, json!("response_not_found"), json!("previous_response_id")));
    // Another endpoint gets the slot in time; it is not taken for the one before.
    let third = Engine::local();
    rig.reload_with(&yaml(&[other, ("c", &third)], ""));
    rig.wait_until_ready("c");
    assert_eq!(refused(&gone(), &[&id, "removed"]).0, 404);
    let delete = Request::new("DELETE", &format!("{RESPONSES}/{id}")).header("Connection", "close");
    assert_eq!(error_of(&raw::call(addr, &delete.bytes())).1, json!("response_not_found"));
}

#[test]
fn a_follow_up_for_a_model_that_its_engine_does_not_serve_says_so() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a), ("b", &b)]);
    let text =
        yaml(&[("a", &a), ("b", &b)], "").replacen("model: test-model", "model: other, served_as: test-model", 1);
    rig.reload_with(&text);
    rig.wait_until_ready("a");
    let addr = rig.gateway.addr();
    let mut body = ask(None);
    body["model"] = "other".into();
    wait_for("the new name", WITHIN, || raw::post(addr, RESPONSES, &body).status == 200);
    let id = id_of(&raw::post(addr, RESPONSES, &body));
    let refusal = refused(&follow_up(addr, &id), &["replica a", "does not serve `test-model`"]);
    assert_eq!(refusal, (404, json!("response_not_found"), json!("previous_response_id")));
}
