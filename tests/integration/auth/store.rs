//! The store away, in whatever way: requests do not notice.

use std::fs;
use std::sync::mpsc::channel;

use llmgw_store::{OpenOptions, Store, StoreError};
use llmgw_test_kit::{Engine, Gateway, wait_for};
use serde_json::Value;

use super::rig::Rig;
use crate::pair::{WITHIN, llmgw};

#[test]
fn a_store_that_another_process_holds_is_not_noticed_by_requests() {
    let rig = Rig::start();
    let key = rig.key("alice", Value::Null);
    let store = Store::open(OpenOptions::new(rig.file())).expect("the same file");
    let ((held, is_held), (let_go, may_end)) = (channel(), channel::<()>());
    let holder = std::thread::spawn(move || {
        store.write(move |_| {
            held.send(()).expect("somebody waits");
            // Until the test lets go, or has ended.
            let _ = may_end.recv();
            Ok::<_, StoreError>(())
        })
    });
    is_held.recv().expect("the store is held");
    for _ in 0..200 {
        assert_eq!(rig.say(&key, &[]).status, 200);
    }
    assert_eq!(rig.say("sk-llmgw-wrong", &[]).status, 401);
    let_go.send(()).expect("it waits");
    holder.join().expect("no panic").expect("written");
    rig.gateway.finish(&["store"]);
}

#[test]
fn a_store_whose_file_is_gone_is_not_noticed_by_requests_and_is_said_once() {
    let rig = Rig::start();
    let key = rig.key("alice", Value::Null);
    for end in ["", "-wal", "-shm"] {
        // What is not there need not go.
        let _ = fs::remove_file(format!("{}{end}", rig.file()));
    }
    fs::write(rig.file(), "no database at all").expect("written");
    for _ in 0..200 {
        assert_eq!(rig.say(&key, &[]).status, 200);
    }
    rig.gateway.finish(&["store", "keys and limits"]);
}

#[test]
fn keys_are_on_from_the_first_request_with_a_store_that_was_not_there() {
    let (folder, engine) = (tempfile::tempdir().expect("a folder"), Engine::local());
    let file = folder.path().join("new.db");
    let builder = Gateway::builder().engine(&engine).router("timeouts: { settle: 0s }");
    let builder = builder.top(&format!("auth: keys\nstore: {{ path: {} }}", file.display()));
    let mut gateway = builder.start(llmgw());
    assert!(file.exists());
    assert_eq!(llmgw_test_kit::raw::get(gateway.addr(), "/v1/models").status, 401);
    let says = |text: &str| gateway.process().lines().iter().any(|line| line.text.contains(text));
    let mut says = says;
    wait_for("how to make a key", WITHIN, || says("keys are on, and there is none yet: llmgw keys create NAME"));
    wait_for("how to show it", WITHIN, || says("authorization: Bearer $LLMGW_KEY"));
    gateway.finish(&[]);
}
