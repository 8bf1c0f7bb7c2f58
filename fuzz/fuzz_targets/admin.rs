//! The admin API behind its HTTP: questions of any verb, path, query and body, one after the other on a store of their
//! own, are answered in JSON without a panic, never by a fault of the server's own, and no key is shown twice.
#![no_main]

use std::cell::OnceCell;

use libfuzzer_sys::fuzz_target;
use llmgw_control::{Ask, Desk};
use llmgw_store::{OpenOptions, Store};
use serde_json::Value;

/// Questions of one input.
const ASKS_MAX: usize = 6;
/// Rows after which a store makes room for a new one.
const ASKED_MAX: u32 = 4_000;

struct World {
    _folder: tempfile::TempDir,
    desk: Desk,
    asked: u32,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(OpenOptions::new(folder.path().join("llmgw.db"))).expect("a store");
        Self { desk: Desk::new(Some(store)), _folder: folder, asked: 0 }
    }

    fn ask(&mut self, verb: &str, target: &str, body: &[u8]) {
        self.asked += 1;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if verb == "POST" && path == "/backup" {
            // It writes where it is told.
            return;
        }
        let answer = self.desk.answer(&Ask { verb, path, query, body, actor: "fuzzer" });
        let told: Value = serde_json::from_str(&answer.body).expect("JSON");
        match answer.status {
            200 => assert!(told.is_object()),
            400 | 404 | 405 | 409 => assert!(told["error"]["message"].is_string(), "{told}"),
            other => panic!("{verb} {target}: {other} {told}"),
        }
        let shows = answer.body.matches("\"key\":\"sk-llmgw-").count();
        assert_eq!(shows, usize::from(answer.status == 200 && told["key"].is_string()), "{verb} {target}");
    }
}

thread_local! {
    static WORLD: OnceCell<std::cell::RefCell<World>> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| {
    WORLD.with(|world| {
        let mut world = world.get_or_init(|| World::new().into()).borrow_mut();
        if world.asked > ASKED_MAX {
            *world = World::new();
        }
        // A question a line: verb, target, body.
        for line in bytes.split(|byte| *byte == b'\n').take(ASKS_MAX) {
            let mut words = line.splitn(3, |byte| *byte == b' ');
            let text = |word: Option<&[u8]>| String::from_utf8_lossy(word.unwrap_or_default()).into_owned();
            let (verb, target) = (text(words.next()), text(words.next()));
            world.ask(&verb, &target, words.next().unwrap_or_default());
        }
    });
});
