//! What requests used, on the record: through kills, a store that is away, and answers of every kind.

mod away;
mod full_disk;
mod kills;
mod reports;
mod sums;

use std::path::PathBuf;

use llmgw_store::usage::UsageRow;
use llmgw_store::{OpenOptions, Store};
use llmgw_test_kit::gateway::{Builder, MODEL};
use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway, Launch, chat, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::{CHAT, WITHIN, llmgw};

struct World {
    engine: Engine,
    /// Where the store is.
    place: PathBuf,
    _folder: TempDir,
    more: String,
    /// What its cores and its journal run on.
    driver: &'static str,
    gateway: Option<Gateway>,
}

impl World {
    fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::at(folder.path().to_owned(), folder, more)
    }

    /// With its store in that folder, which lies in a temporary one.
    fn at(place: PathBuf, folder: TempDir, more: &str) -> Self {
        // Every request is to be found there, however many there are.
        let engine = Engine::local_with(|cfg| {
            (cfg.recorded_requests_max, cfg.recorded_body_bytes_max) = (100_000, 0);
        });
        let more = more.to_owned();
        let mut world = Self { engine, place, _folder: folder, more, driver: "auto", gateway: None };
        world.start_again();
        world
    }

    fn builder(&self) -> Builder {
        let top = format!("store: {{ path: {} }}\n{}", self.file().display(), self.more);
        builder(&self.engine).top(&top).arg("--driver").arg(self.driver)
    }

    fn start_again(&mut self) {
        self.gateway = Some(self.builder().start(llmgw()));
    }

    fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("a gateway")
    }

    fn file(&self) -> PathBuf {
        self.place.join("llmgw.db")
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
        let folder = self.place.join("llmgw.db.usage");
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
    id_of(reply.header("x-request-id").expect("an id"))
}

#[track_caller]
fn id_of(header: &str) -> [u8; 16] {
    let digits = header.strip_prefix("req-").expect("a request's id");
    u128::from_str_radix(digits, 16).expect("hexadecimal").to_be_bytes()
}

/// Requests that the store's sums say there were.
fn requests(store: &Store) -> u64 {
    let totals = store.read(|rows| rows.used_since(0)).expect("sums");
    totals.iter().map(|total| total.used.requests).sum()
}

fn has_row(store: &Store, id: [u8; 16]) -> bool {
    store.read(|rows| rows.usage_row(id)).expect("a look").is_some()
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
    let held = away::Held::take(world.store());
    replies.extend(calls(&world, 40));
    world.wait_for_records("journal", 60);
    assert_eq!(world.metric("llmgw_usage_records_total", &[("step", "store")]), 20.0);
    assert_eq!(world.metric("llmgw_usage_records_waiting", &[]), 40.0);
    world.gateway.take().expect("a gateway").process().kill().expect("killed");
    held.let_go();
    assert_eq!(requests(&world.store()), 20);

    world.start_again();
    let store = world.store();
    assert_eq!(requests(&store), 60, "all are there before anybody is served");
    for reply in &replies {
        assert!(has_row(&store, id(reply)));
    }
    wait_for("an empty journal", WITHIN, || world.segments() == 0);
    assert_eq!(world.metric("llmgw_usage_records_waiting", &[]), 0.0);
    world.gateway.take().expect("a gateway").finish(&[]);
}

#[test]
fn the_engines_word_is_what_is_recorded() {
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

    let (refused, reply) = row(chat("refused").faults(json!({ "status": 422 })));
    assert_eq!((reply.status, refused.status, refused.reason.as_deref()), (422, 422, Some("engine_error")));
    assert_eq!((refused.prompt_tokens, refused.completion_tokens, refused.units_micros), (0, 0, 0));
    let unknown = world.ask(&chat("unknown").model("nobody"));
    assert_eq!(unknown.status, 404);

    let sums = world.ctl(&["usage", "--by", "model,day"]);
    let sum = &sums["usage"][0];
    assert_eq!((&sum["model"], &sum["requests"], &sum["estimated_requests"]), (&json!(MODEL), &json!(3), &json!(0)));
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
    let id = id_of(head.header("x-request-id").expect("an id"));
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
