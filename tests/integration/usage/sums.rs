//! Many requests with every ending, through real processes with keys on: what metrics count, what the sums say, what
//! the rows say, what budgets were charged and what the engines gave out is one and the same.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use llmgw_kit::chance::Chance;
use llmgw_store::usage::Used;
use llmgw_store::{OpenOptions, Store};
use llmgw_test_kit::engine::Served;
use llmgw_test_kit::gateway::MODEL;
use llmgw_test_kit::raw::{self, Connection, End, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway, chat, wait_for};
use serde_json::{Value, json};

use crate::pair::{CHAT, is_full, llmgw};

/// Its clients leave at any moment.
const HASTY: &str = "hasty";
/// Its engines never answer, and its clients leave.
const SILENT: &str = "silent";
const MODELS: [&str; 3] = [MODEL, HASTY, SILENT];
const KEYS: usize = 4;
/// The key with a budget.
const HELD: usize = 0;
const CLIENTS: usize = 12;
/// Requests without an answer that are open at once.
const SILENT_BATCH: usize = 50;
/// For the last of them to have come through: a loaded machine may take its time.
const WITHIN: Duration = Duration::from_secs(60);

/// What prompts begin with, so that engines find a part of them in their cache.
const PREFACE: &str = "You are the assistant of a library. You answer briefly, in whole sentences, in the language in \
                       which you are asked, and you say so when you do not know something.";

/// Requests that were sent, by key and model.
type Sent = BTreeMap<(usize, &'static str), u64>;

struct World {
    engines: Vec<Engine>,
    gateway: Gateway,
    folder: tempfile::TempDir,
    /// Each key and its id.
    keys: Vec<(String, String)>,
}

impl World {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let names = MODELS.iter().flat_map(|name| ["--model", *name]);
        let flags: Vec<_> = names.chain(["--tokens-per-second", "0", "--record-body-bytes", "0"]).collect();
        let engines: Vec<_> = (0..2).map(|_| Engine::start_with(llmgw(), &flags)).collect();
        let file = folder.path().join("llmgw.db");
        let units = "units: { prompt: 0.5, cached: 0.25, completion: 2 }";
        let models = MODELS.map(|name| format!("{{ name: {name}, {units} }}")).join(", ");
        let top = format!("auth: keys\nstore: {{ path: {} }}\nmodels: [{models}]", file.display());
        let served = MODELS.map(|name| format!("{{ name: {name} }}")).join(", ");
        let builder = engines.iter().enumerate().fold(Gateway::builder().top(&top), |builder, (at, engine)| {
            let url = engine.url();
            builder.endpoint(&format!("{{ name: engine-{at}, url: \"{url}\", engine: sim, models: [{served}] }}"))
        });
        let gateway = builder.router("timeouts: { settle: 0s }").start(llmgw());
        let keys = (0..KEYS).map(|at| key(&gateway, at)).collect();
        let world = Self { engines, gateway, folder, keys };
        let budget = json!({ "budget_micros": 1_u64 << 52, "budget_period": "month" });
        let request = Request::new("PUT", &format!("/api/v1/limits/key/key-{HELD}")).header("Connection", "close");
        let reply = raw::call(world.gateway.admin_addr(), &request.json(&budget).bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        // Looked at often enough to have met every core.
        wait_for("a budget", WITHIN, || (0..20).all(|_| world.charged()["spent_micros"] == 0));
        world
    }

    /// What its owner says of the key with a budget.
    fn charged(&self) -> Value {
        let request = Request::new("GET", "/me").header("Authorization", format!("Bearer {}", self.keys[HELD].0));
        let reply = raw::call(self.gateway.addr(), &request.header("Connection", "close").bytes());
        reply.json()["limits"][0]["used"].clone()
    }

    fn request(&self, key: usize, chat: &Chat) -> Vec<u8> {
        let request = Request::new("POST", CHAT).header("Authorization", format!("Bearer {}", self.keys[key].0));
        request.json(&chat.json()).bytes()
    }

    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.gateway.metrics().sum(name, labels).unwrap_or(0.0)
    }

    /// What the engines gave out of a model.
    fn served(&self, model: &str) -> Served {
        let mut sum = Served::default();
        for engine in &self.engines {
            let one = engine.state().served.get(model).copied().unwrap_or_default();
            sum.answers += one.answers;
            sum.prompt_tokens += one.prompt_tokens;
            sum.completion_tokens += one.completion_tokens;
        }
        sum
    }

    fn blackholed(&self) -> u64 {
        self.engines.iter().map(|engine| engine.state().blackholed_requests).sum()
    }

    /// Every request has ended on both sides, and is on the record.
    #[track_caller]
    fn settle(&self) {
        wait_for("idle engines", WITHIN, || self.engines.iter().all(|engine| engine.state().open_requests == 0));
        wait_for("an idle gateway", WITHIN, || self.metric("llmgw_requests_in_flight", &[]) == 0.0);
        wait_for("an empty journal", WITHIN, || self.metric("llmgw_usage_records_waiting", &[]) == 0.0);
        wait_for("nothing held of the budget", WITHIN, || self.charged()["held"]["budget_micros"] == 0);
    }
}

/// Makes a key, and waits until it works.
fn key(gateway: &Gateway, at: usize) -> (String, String) {
    let made = raw::post(gateway.admin_addr(), "/api/v1/keys", &json!({ "name": format!("key-{at}") }));
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let (key, id) = (text(&made["key"]), text(&made["record"]["id"]));
    let asks = Request::new("GET", "/v1/models").header("Authorization", format!("Bearer {key}"));
    let asks = asks.header("Connection", "close").bytes();
    wait_for("a key that works", WITHIN, || raw::call(gateway.addr(), &asks).status == 200);
    (key, id)
}

/// A stream that says in each event what was used so far: what it used is known wherever it ends.
fn telling(tokens: u32) -> Chat {
    let options = json!({ "include_usage": true, "continuous_usage_stats": true });
    chat("tell me a story").streamed().field("stream_options", options).max_tokens(tokens)
}

/// One client's connection, opened anew when it was ended.
struct Client {
    addr: SocketAddr,
    connection: Option<Connection>,
}

impl Client {
    /// Sends a request and reads the whole answer, as far as there is one.
    #[track_caller]
    fn ask(&mut self, request: &[u8]) -> Reply {
        let mut connection = self.connection.take().unwrap_or_else(|| open(self.addr));
        connection.send(request).expect("sent");
        let reply = connection.reply().expect("a reply");
        if reply.end == End::Complete && reply.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        reply
    }
}

fn open(addr: SocketAddr) -> Connection {
    Connection::open(addr).expect("a connection")
}

/// Whether it was turned away since a core stood still, on a machine with too much to do, and did not say in time that
/// the budget has room: that asked nobody.
fn is_turned_away(reply: &Reply) -> bool {
    reply.status == 503 && reply.text().contains("limits_busy")
}

/// Leaves after so many events of an answer, of which there are no more. Answer: whether it was one.
#[track_caller]
fn leave_after(addr: SocketAddr, request: &[u8], events: usize) -> bool {
    let mut connection = open(addr);
    connection.send(request).expect("sent");
    let head = connection.head().expect("a head");
    if head.status == 503 {
        return false;
    }
    assert_eq!(connection.body(&head).events(events).expect("events").len(), events);
    connection.leave();
    true
}

/// Leaves at whatever moment that is, with a FIN or a RST.
fn leave_soon(addr: SocketAddr, request: &[u8], chance: &mut Chance) {
    let mut connection = open(addr);
    connection.send(request).expect("sent");
    if chance.below(4) > 0
        && let Ok(head) = connection.head()
    {
        // What came until then is of no concern.
        let _ = connection.body(&head).events(chance.below(40) as usize);
    }
    if chance.below(2) == 0 {
        connection.leave();
    } else {
        let _ = connection.abort();
    }
}

/// A client's share: of ten, six answers, one that an engine fails at, one left where it is known how much came, one
/// left anywhere; the tenth has no answer and is another's.
fn client(world: &World, count: usize, seed: u64) -> Sent {
    let (addr, mut chance, mut sent) = (world.gateway.addr(), Chance::seeded(seed), Sent::new());
    let mut client = Client { addr, connection: None };
    for number in 0..count {
        let key = chance.below(KEYS as u32) as usize;
        let tokens = 1 + chance.below(8);
        let asked = chat(&format!("{PREFACE} question {number} of {seed}")).max_tokens(tokens);
        let mut model = MODEL;
        let is_asked = match number % 9 {
            at @ 0..6 => {
                let asked = if at < 3 { asked } else { asked.streamed() };
                let reply = client.ask(&world.request(key, &asked));
                assert!(reply.status == 200 || is_turned_away(&reply), "{}", reply.text());
                reply.status == 200
            }
            6 => {
                let failing = match chance.below(3) {
                    0 => asked.faults(json!({ "status": 422 })),
                    1 => asked.faults(json!({ "status": 500 })),
                    // The first event sets the role.
                    _ => telling(20).faults(json!({ "close_after_events": 2 + tokens })),
                };
                !is_turned_away(&client.ask(&world.request(key, &failing)))
            }
            7 => {
                let cut = telling(20).faults(json!({ "stall_after_events": 1 + tokens }));
                leave_after(addr, &world.request(key, &cut), 1 + tokens as usize)
            }
            _ => {
                model = HASTY;
                let faults = json!({ "events": 40, "delay_us": chance.below(200) });
                let asked = chat("quick").model(model).streamed().faults(faults);
                leave_soon(addr, &world.request(key, &asked), &mut chance);
                true
            }
        };
        *sent.entry((key, model)).or_default() += u64::from(is_asked);
    }
    sent
}

/// Requests that get no answer: each reaches its engine, and then its client leaves.
fn silent(world: &World, count: usize) -> Sent {
    let (mut sent, key) = (Sent::new(), |at: usize| HELD + 1 + at % (KEYS - 1));
    let asked = chat("is anybody there").model(SILENT).streamed().faults(json!({ "blackhole": true }));
    let mut done = 0;
    while done < count {
        let batch = SILENT_BATCH.min(count - done);
        let open = |at: usize| {
            let mut connection = open(world.gateway.addr());
            connection.send(&world.request(key(at), &asked)).expect("sent");
            connection
        };
        let connections: Vec<_> = (0..batch).map(open).collect();
        (0..batch).for_each(|at| *sent.entry((key(at), SILENT)).or_default() += 1);
        done += batch;
        wait_for("requests at their engines", WITHIN, || world.blackholed() >= done as u64);
        drop(connections);
    }
    sent
}

/// The store's sums, by key and model.
fn sums(store: &Store) -> BTreeMap<(String, String), Used> {
    let totals = store.read(|rows| rows.used_since(0)).expect("sums");
    totals.into_iter().map(|total| ((total.key_id, total.model), total.used)).collect()
}

fn of_model(sums: &BTreeMap<(String, String), Used>, model: &str) -> Used {
    let mut all = Used::default();
    for used in sums.iter().filter(|((_, of), _)| of == model).map(|(_, used)| used) {
        all.requests += used.requests;
        all.prompt_tokens += used.prompt_tokens;
        all.cached_tokens += used.cached_tokens;
        all.completion_tokens += used.completion_tokens;
        all.units_micros += used.units_micros;
        all.estimated_requests += used.estimated_requests;
    }
    all
}

#[test]
#[expect(clippy::print_stdout, reason = "figures are shown")]
fn what_is_counted_summed_up_recorded_and_given_out_is_one_and_the_same() {
    let total = if is_full() { 100_000 } else { 3_000 };
    let world = World::start();
    let anew_at = world.charged()["budget_begins_anew_at"].clone();
    let (began, sent) = (Instant::now(), Mutex::new(Sent::new()));
    let silent_count = total / 10;
    let add = |more: Sent| {
        let mut all = sent.lock().expect("no panic");
        more.into_iter().for_each(|(of, count)| *all.entry(of).or_default() += count);
    };
    thread::scope(|scope| {
        let (world, add) = (&world, &add);
        scope.spawn(move || add(silent(world, silent_count)));
        let rest = total - silent_count;
        for at in 0..CLIENTS {
            let share = rest / CLIENTS + usize::from(at < rest % CLIENTS);
            scope.spawn(move || add(client(world, share, at as u64)));
        }
    });
    let took = began.elapsed();
    world.settle();
    let sent = sent.into_inner().expect("no panic");
    assert!((total as u64 / 2..=total as u64).contains(&sent.values().sum()), "most were turned away");
    let store = Store::open(OpenOptions::new(world.folder.path().join("llmgw.db"))).expect("the store");
    let rows = sums(&store);

    // Summed up by the hour, it is the same again.
    const DAY: i64 = 86_400_000;
    let tomorrow = i64::try_from(llmgw_kit::clock::Wall::now().0).expect("a time") + DAY;
    while store.write(move |tx| tx.roll_up(tomorrow)).expect("summed up") {}
    assert_eq!(sums(&store), rows, "sums by the hour");

    for model in MODELS {
        let (used, served) = (of_model(&rows, model), world.served(model));
        let counted =
            |direction: &str| world.metric("llmgw_tokens_total", &[("model", model), ("direction", direction)]) as u64;
        println!("{model}: {used:?}; given out: {served:?}");
        assert_eq!((counted("prompt"), counted("completion")), (used.prompt_tokens, used.completion_tokens), "{model}");
        let uncached = used.prompt_tokens - used.cached_tokens;
        let price = uncached * 500_000 + used.cached_tokens * 250_000 + used.completion_tokens * 2_000_000;
        assert_eq!(used.units_micros, price, "{model}");
        if model == HASTY {
            // Some left before anybody had read their request; and what was on its way is given out and not used.
            assert!(used.completion_tokens <= served.completion_tokens && used.requests >= served.answers, "{used:?}");
            assert!(used.completion_tokens > 0, "all of them left too soon");
        } else {
            assert_eq!((used.prompt_tokens, used.completion_tokens), (served.prompt_tokens, served.completion_tokens));
            assert!(used.cached_tokens > 0 || model == SILENT, "nothing was found in a cache");
        }
        for (at, (_, id)) in world.keys.iter().enumerate() {
            let recorded = rows.get(&(id.clone(), model.to_owned())).map_or(0, |used| used.requests);
            let sent = sent.get(&(at, model)).copied().unwrap_or(0);
            assert!(recorded == sent || (model == HASTY && recorded <= sent), "{model}: {recorded} of {sent}");
        }
    }
    let charged = world.charged();
    let of_key = rows.iter().filter(|((key, _), _)| *key == world.keys[HELD].1);
    let spent: u64 = of_key.map(|(_, used)| used.units_micros).sum();
    println!("the key with a budget was charged {charged}, its rows say {spent}");
    // A month may have ended on the way.
    assert!(charged["spent_micros"] == spent || charged["budget_begins_anew_at"] != anew_at, "{charged} {spent}");
    let all: u64 = rows.values().map(|used| used.requests).sum();
    let journal = world.metric("llmgw_usage_records_total", &[("step", "store")]) as u64;
    assert_eq!((journal, world.metric("llmgw_usage_records_lost_total", &[])), (all, 0.0));
    println!("{total} requests in {took:?}, {all} on the record");
    finish(world, store);
}

fn finish(world: World, store: Store) {
    drop(store);
    let World { gateway, engines, folder, .. } = world;
    gateway.finish(&["\"request_id\"", "the endpoint's breaker opens"]);
    drop(engines);
    assert!(is_empty(&folder.path().join("llmgw.db.usage")), "segments are left");
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder").next().is_none()
}
