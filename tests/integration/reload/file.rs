//! The file: how it may be replaced, what a wrong one does, who can ask for it to be loaded again.

use std::fs;
use std::os::unix::fs::symlink;

use llmgw_test_kit::raw::{self, Connection};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, chat, wait_for};
use serde_json::json;

use super::rig::{CHAT, Rig, WITHIN, yaml};

/// Trial H20: in place, by rename, by a link that is swapped as config maps are.
#[test]
fn a_file_that_was_replaced_is_loaded_however_that_was_done() {
    let (a, b) = (Engine::local(), Engine::local());
    let rig = Rig::start(&[("a", &a)]);
    let both = yaml(&[("a", &a), ("b", &b)], "");
    rig.write(&both);
    rig.wait_for_names(&["a", "b"]);

    let path = rig.path();
    let folder = path.parent().expect("a folder");
    fs::write(folder.join("next.yaml"), yaml(&[("b", &b)], "")).expect("written");
    fs::rename(folder.join("next.yaml"), &path).expect("renamed");
    rig.wait_for_names(&["b"]);

    // server.yaml points into a folder that is itself a link.
    for (data, text) in [("one", yaml(&[("b", &b)], "")), ("two", both)] {
        fs::create_dir(folder.join(data)).expect("a folder");
        fs::write(folder.join(data).join("server.yaml"), text).expect("written");
    }
    symlink("one", folder.join("data")).expect("a link");
    symlink("data/server.yaml", folder.join("link")).expect("a link");
    fs::rename(folder.join("link"), &path).expect("renamed");
    symlink("two", folder.join("swap")).expect("a link");
    fs::rename(folder.join("swap"), folder.join("data")).expect("renamed");
    rig.wait_for_names(&["a", "b"]);
    rig.wait_until_ready("a");
    assert_eq!(rig.ask().status, 200);
    rig.gateway.finish(&[]);
}

/// Trial H20: a broken file.
#[test]
fn a_wrong_file_changes_nothing_says_why_and_a_mended_one_is_loaded() {
    let (a, b) = (Engine::local(), Engine::local());
    let mut rig = Rig::start(&[("a", &a)]);
    let both = yaml(&[("a", &a), ("b", &b)], "");
    let unknown = both.replace("scrape_interval", "scrape_intervall");
    rig.write(&unknown);
    let hint = "did you mean";
    wait_for("the refusal in the log", WITHIN, || !rig.lines(&["not reloaded", "scrape_intervall", hint]).is_empty());
    assert_eq!(rig.names(), ["a"]);
    assert_eq!(rig.ask().status, 200);
    // The answer says the same.
    let reply = rig.reload();
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (422, &json!("config_refused")));
    assert!(reply.text().contains(hint), "{}", reply.text());
    // Half of it is not taken either.
    for wrong in ["endpoints: [", "", "endpoints: []\n", &both.replace("cores: 2", "cores: many")] {
        rig.write(wrong);
        assert_eq!(rig.reload().status, 422, "{wrong}");
        assert_eq!(rig.names(), ["a"]);
    }
    fs::remove_file(rig.path()).expect("removed");
    let reply = rig.reload();
    assert_eq!(reply.status, 422);
    assert!(reply.text().contains("cannot be read"), "{}", reply.text());
    rig.write(&both);
    rig.wait_for_names(&["a", "b"]);
    assert_eq!(rig.ask().status, 200);
    rig.gateway.finish(&["configuration not reloaded", "configuration file is gone"]);
}

#[test]
fn a_hangup_loads_the_file_and_the_log_says_what_changed() {
    let (a, b) = (Engine::local(), Engine::local());
    let mut rig = Rig::start(&[("a", &a)]);
    rig.hang_up();
    wait_for("word of a reload", WITHIN, || !rig.lines(&["configuration reloaded", "SIGHUP", "nothing"]).is_empty());
    rig.write(&yaml(&[("b", &b)], ""));
    rig.hang_up();
    rig.wait_for_names(&["b"]);
    wait_for("what changed", WITHIN, || !rig.lines(&["endpoints: added b; removed a"]).is_empty());
    rig.gateway.finish(&[]);
}

#[test]
fn keys_that_cannot_change_are_named_and_everything_else_is_applied() {
    let a = Engine::local();
    let rig = Rig::start(&[("a", &a)]);
    let text = yaml(&[("a", &a)], "side_cpus: 0");
    let answer = rig.reload_with(
        &text.replace("cores: 2", "cores: 1").replace("settle: 0s", "settle: 0s, first_token: 200ms, drain: 9s"),
    );
    assert_eq!(
        answer["needs_restart"],
        json!([
            { "key": "cores", "running": "2", "configured": "1" },
            { "key": "side_cpus", "running": "auto", "configured": "0" },
        ])
    );
    let keys: Vec<&str> = answer["changes"]["settings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["key"].as_str())
        .collect();
    assert_eq!(keys, ["router.timeouts.first_token", "router.timeouts.drain"]);
    // The new limit holds at once.
    let slow = chat("x").faults(json!({ "first_byte_delay_us": 3_000_000 })).json();
    wait_for("the shorter limit", WITHIN, || raw::post(rig.gateway.addr(), CHAT, &slow).status == 504);
    // What waits for a restart is said again, and nothing else is new.
    let again = rig.reload().json();
    assert_eq!((&again["is_changed"], again["needs_restart"].as_array().map(Vec::len)), (&json!(false), Some(2)));
    rig.gateway.finish(&["takes effect at a restart", "\"request_id\""]);
}

#[test]
fn limits_hold_for_requests_that_begin_after_them_on_kept_connections_too() {
    let a = Engine::local();
    let rig = Rig::start(&[("a", &a)]);
    let mut kept = Connection::open(rig.gateway.addr()).expect("a connection");
    let large = Request::new("POST", CHAT).json(&chat(&"x".repeat(4000)).json()).bytes();
    kept.send(&large).expect("sent");
    assert_eq!(kept.reply().expect("a reply").status, 200);
    let text = yaml(&[("a", &a)], "").replace("scrape_interval", "limits: { body: 2KiB }\n  scrape_interval");
    rig.reload_with(&text);
    // A kept connection was waiting under the limits it had.
    let small = Request::new("POST", CHAT).json(&chat("x").json()).bytes();
    wait_for("both cores have it", WITHIN, || (0..8).all(|_| raw::call(rig.gateway.addr(), &large).status == 413));
    kept.send(&small).expect("sent");
    assert_eq!(kept.reply().expect("a reply").status, 200);
    kept.send(&large).expect("sent");
    assert_eq!(kept.reply().expect("a reply").status, 413);
    rig.gateway.finish(&["\"request_id\""]);
}
