//! What requests used, on the record: through a kill, a store that is locked, and answers of every kind.

mod kills;

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use llmgw_store::usage::UsageRow;
use llmgw_store::{OpenOptions, Store, StoreError};
use llmgw_test_kit::gateway::{Builder, MODEL};
use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway, Launch, chat, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::{CHAT, WITHIN, is_full, llmgw};

struct World {
    engine: Engine,
    folder: TempDir,
    more: String,
    gateway: Option<Gateway>,
}

impl World {
    fn start(more: &str) -> Self {
        let (engine, folder) = (Engine::local(), tempfile::tempdir().expect("a folder"));
        let mut world = Self { engine, folder, more: more.to_owned(), gateway: None };
        world.start_again();
        world
    }

    fn start_again(&mut self) {
        let top = format!("store: {{ path: {} }}\n{}", self.file().display(), self.more);
        self.gateway = Some(builder(&self.engine).top(&top).start(llmgw()));
    }

    fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("a gateway")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("llmgw.db")
    }

    fn store(&self) -> Store {
        Store::open(OpenOptions::new(self.file())).expect("the store")
    }

    #[track_caller]
    fn ask(&self, chat: &Chat) -> Reply {
        raw::post(self.gateway().addr(), CHAT, &chat.json())
    }

    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.gateway().metrics().sum(name, labels).unwrap_or(0.0)
    }

    /// Waits until so many records have come to that step.
    #[track_caller]
    fn wait_for_records(&self, step: &str, count: usize) {
        wait_for(&format!("{count} records in the {step}"), WITHIN, || {
            self.metric("llmgw_usage_records_total", &[("step", step)]) >= count as f64
        });
    }

    /// The one row of an answer, when it has come.
    #[track_caller]
    fn row(&self, reply: &Reply) -> UsageRow {
        let (store, id) = (self.store(), id(reply));
        let row = || store.read(|rows| rows.usage_row(id)).expect("a look");
        wait_for("a row", WITHIN, || row().is_some());
        row().expect("a row")
    }

    /// Segments that are there.
    fn segments(&self) -> usize {
        let folder = self.folder.path().join("llmgw.db.usage");
        let files = std::fs::read_dir(folder).expect("the journal's folder").flatten();
        files.filter(|file| file.file_name().to_string_lossy().ends_with(".segment")).count()
    }

    fn ctl(&self, args: &[&str]) -> Value {
        let admin = format!("http://{}", self.gateway().admin_addr());
        let args = [&["ctl", "--admin", &admin, "--json"], args].concat();
        let mut process = Launch::new(llmgw()).args(args).start().expect("started");
        assert!(process.wait(WITHIN).expect("it ends").success());
        let lines: Vec<String> = process.lines().into_iter().map(|line| line.text).collect();
        serde_json::from_str(&lines.join("\n")).expect("JSON")
    }
}

fn builder(engine: &Engine) -> Builder {
    Gateway::builder().engine(engine).router("timeouts: { settle: 0s }")
}

/// The id of a record, from the header that names the request.
#[track_caller]
fn id(reply: &Reply) -> [u8; 16] {
    let id = reply.header("x-request-id").and_then(|id| id.strip_prefix("req-")).expect("an id");
    u128::from_str_radix(id, 16).expect("hexadecimal").to_be_bytes()
}

/// Holds the store's lock from another process's place, until it is let go.
struct Held {
    let_go: mpsc::Sender<()>,
    holder: JoinHandle<Result<(), StoreError>>,
}

impl Held {
    fn take(store: Store) -> Self {
        let (let_go, held) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let holder = thread::spawn(move || {
            store.write(move |_| {
                // Whoever holds it is waited for, and nothing is left when it lets go.
                let _ = (tell.send(()), held.recv_timeout(WITHIN * 3));
                Ok::<_, StoreError>(())
            })
        });
        told.recv_timeout(WITHIN).expect("the lock");
        Self { let_go, holder }
    }

    fn let_go(self) {
        self.let_go.send(()).expect("somebody holds it");
        self.holder.join().expect("no panic").expect("nothing was written");
    }
}

/// Calls of every usual kind.
fn calls(world: &World, count: usize) -> Vec<Reply> {
    let one = |at: usize| {
        let chat = chat(&format!("question {at}")).max_tokens(4 + (at % 3) as u32);
        let reply = world.ask(&if at.is_multiple_of(2) { chat.streamed() } else { chat });
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply
    };
    (0..count).map(one).collect()
}

#[test]
fn a_kill_loses_no_record_of_an_answer_and_writes_none_twice() {
    let mut world = World::start("");
    // The first ones are stored, and in the newest segment as well.
    let mut replies = calls(&world, 20);
    world.wait_for_records("store", 20);
    let held = Held::take(world.store());
    replies.extend(calls(&world, 40));
    world.wait_for_records("journal", 60);
    assert_eq!(world.metric("llmgw_usage_records_total", &[("step", "store")]), 20.0);
    assert_eq!(world.metric("llmgw_usage_records_waiting", &[]), 40.0);
    world.gateway.take().expect("a gateway").process().kill().expect("killed");
    held.let_go();
    let total = |store: &Store| {
        let totals = store.read(|rows| rows.used_since(0)).expect("sums");
        totals.iter().map(|total| total.requests).sum::<u64>()
    };
    assert_eq!(total(&world.store()), 20);

    world.start_again();
    let store = world.store();
    assert_eq!(total(&store), 60, "all are there before anybody is served");
    for reply in &replies {
        assert!(store.read(|rows| rows.usage_row(id(reply))).expect("a look").is_some());
    }
    wait_for("an empty journal", WITHIN, || world.segments() == 0);
    assert_eq!(world.metric("llmgw_usage_records_waiting", &[]), 0.0);
    world.gateway.take().expect("a gateway").finish(&[]);
}

#[test]
fn a_store_that_is_locked_is_not_noticed_and_gets_every_record_later() {
    let mut world = World::start("");
    let held = Held::take(world.store());
    let replies = calls(&world, 30);
    world.wait_for_records("journal", 30);
    if is_full() {
        // Longer than the store itself waits.
        wait_for("a failure", WITHIN, || world.metric("llmgw_usage_failures_total", &[("at", "store")]) > 0.0);
    }
    held.let_go();
    for reply in &replies {
        assert_eq!(world.row(reply).status, 200);
    }
    assert_eq!(world.metric("llmgw_usage_records_lost_total", &[]), 0.0);
    world.gateway.take().expect("a gateway").finish(if is_full() { &["usage records cannot be stored"] } else { &[] });
    assert_eq!(world.segments(), 0, "what is stored leaves nothing behind");
}

#[test]
fn the_engines_word_is_what_is_recorded_and_what_is_missing_is_estimated() {
    let world =
        World::start("models: [{ name: test-model, aliases: [other-name], units: { prompt: 0.5, completion: 2 } }]");
    let row = |chat: Chat| {
        let reply = world.ask(&chat);
        (world.row(&reply), reply)
    };
    let (whole, reply) = row(chat("hello there").model("other-name").max_tokens(5));
    let usage = &reply.json()["usage"];
    assert_eq!(json!([whole.prompt_tokens, whole.completion_tokens]), json!([usage["prompt_tokens"], 5]));
    let uncached = whole.prompt_tokens - whole.cached_tokens;
    assert_eq!(whole.units_micros, uncached * 500_000 + whole.cached_tokens * 1_000_000 + 5 * 2_000_000);
    assert!(!whole.is_estimated && whole.reason.is_none() && whole.key_id.is_empty());
    assert_eq!((whole.model.as_str(), whole.served_model.as_str()), (MODEL, MODEL));
    assert_eq!((whole.pool.as_deref(), whole.replica.as_deref()), (Some("none/unknown"), Some("engine-0")));
    assert!(whole.admitted_at <= whole.ts);

    let (streamed, _) = row(chat("hello there").streamed().max_tokens(5));
    assert_eq!((streamed.prompt_tokens, streamed.completion_tokens), (whole.prompt_tokens, 5));
    assert!(streamed.ttft_ms.is_some() && !streamed.is_estimated);

    for faults in [json!({ "usage": null }), json!({ "usage": "n/a" })] {
        for chat in [chat("no usage").max_tokens(6), chat("no usage").max_tokens(6).streamed()] {
            let (row, _) = row(chat.faults(faults.clone()));
            assert!(row.is_estimated && row.prompt_tokens > 0 && row.completion_tokens > 0, "{faults}: {row:?}");
        }
    }
    let (refused, reply) = row(chat("refused").faults(json!({ "status": 422 })));
    assert_eq!((reply.status, refused.status, refused.reason.as_deref()), (422, 422, Some("engine_error")));
    assert_eq!((refused.prompt_tokens, refused.completion_tokens, refused.units_micros), (0, 0, 0));
    let unknown = world.ask(&chat("unknown").model("nobody"));
    assert_eq!(unknown.status, 404);

    let sums = world.ctl(&["usage", "--by", "model,day"]);
    let sum = &sums["usage"][0];
    assert_eq!((&sum["model"], &sum["requests"], &sum["estimated_requests"]), (&json!(MODEL), &json!(7), &json!(4)));
    let one = world.ctl(&["usage", "--request", reply.header("x-request-id").expect("an id")]);
    assert_eq!((&one["status"], &one["reason"]), (&json!(422), &json!("engine_error")));
}

#[test]
fn a_stream_that_its_client_leaves_is_recorded_as_far_as_it_came() {
    let world = World::start("");
    let chat = chat("a long story").streamed().faults(json!({ "events": 10_000, "delay_us": 500 }));
    let mut connection = Connection::open(world.gateway().addr()).expect("a connection");
    connection.send(&Request::new("POST", CHAT).json(&chat.json()).bytes()).expect("sent");
    let head = connection.head().expect("a head");
    let text = head.header("x-request-id").and_then(|id| id.strip_prefix("req-")).expect("an id").to_owned();
    let id = u128::from_str_radix(&text, 16).expect("hexadecimal").to_be_bytes();
    assert_eq!(connection.body(&head).events(20).expect("events").len(), 20);
    connection.leave();
    let store = world.store();
    let row = || store.read(|rows| rows.usage_row(id)).expect("a look");
    wait_for("a row", WITHIN, || row().is_some());
    let row = row().expect("a row");
    assert!(row.is_estimated && row.prompt_tokens > 0, "{row:?}");
    assert!((10..10_000).contains(&row.completion_tokens), "{row:?}");
}

#[test]
fn where_nothing_is_stored_no_journal_is_kept() {
    let engine = Engine::local();
    let gateway = builder(&engine).start(llmgw());
    assert_eq!(raw::post(gateway.addr(), CHAT, &chat("hello").json()).status, 200);
    assert_eq!(gateway.metrics().sum("llmgw_usage_records_total", &[]), None);
    let reply = gateway.admin("/api/v1/usage");
    assert!(reply.status == 409 && reply.text().contains("store.path"), "{}", reply.text());
    gateway.finish(&[]);
}
