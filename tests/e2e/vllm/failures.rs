//! Two real vLLMs and a real llama.cpp in reserve behind one gateway: the first loses the process that computes, the
//! second is told to end while it streams. Prints what it saw: `docs/measurements` has a run of it.

#![expect(clippy::print_stdout, reason = "what it saw is printed, to be written down")]

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use llmgw_test_kit::gateway::Metrics;
use llmgw_test_kit::raw::{Connection, End};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Gateway, chat, raw, wait_for, wait_for_some};
use serde_json::{Value, json};

use super::alone;
use super::server::Vllm;
use crate::engines::{LlamaCpp, MODEL};
use crate::llmgw;

const CHAT: &str = "/v1/chat/completions";
/// Two engines that compute on two shared cores, and one of them that ends.
const SOON: Duration = Duration::from_secs(120);
const STREAM: Duration = Duration::from_secs(300);
const BETWEEN_EVENTS: Duration = Duration::from_secs(5);
/// More than two engines of four slots run at once, so that both have a queue; five failures open a breaker.
const STREAMS: usize = 14;
/// Tokens of a stream: some seconds of work.
const LONG: u32 = 1000;

/// As many as the model has room for behind the prompt.
const LONGEST: u32 = 1900;

/// A stream as its client saw it.
struct Seen {
    replica: String,
    status: u16,
    events: Vec<(Instant, String)>,
    end: End,
}

impl Seen {
    fn has_tokens(&self) -> bool {
        self.events.iter().any(|(_, event)| event.contains("\"content\""))
    }

    fn is_whole(&self) -> bool {
        self.end == End::Complete && self.error().is_none() && self.says_done()
    }

    fn says_done(&self) -> bool {
        self.events.iter().any(|(_, event)| event.contains("[DONE]"))
    }

    /// The error event, wherever it stands.
    fn error(&self) -> Option<Value> {
        let parsed = self
            .events
            .iter()
            .filter_map(|(_, event)| serde_json::from_str::<Value>(event.trim().strip_prefix("data:")?).ok());
        parsed.map(|event| event["error"].clone()).find(|error| error["message"].is_string())
    }

    /// How long nothing came before the last event.
    fn last_pause(&self) -> Duration {
        match self.events.as_slice() {
            [.., (before, _), (last, _)] => last.duration_since(*before),
            _ => Duration::ZERO,
        }
    }
}

/// A stream being read by a client of its own.
struct Stream {
    client: JoinHandle<std::io::Result<Seen>>,
    first_events: mpsc::Receiver<String>,
}

impl Stream {
    fn open(gateway: &Gateway, asked: &Chat) -> Self {
        let addr = gateway.addr();
        let bytes = Request::new("POST", CHAT).header("Connection", "close").json(&asked.json()).bytes();
        let (tell, first_events) = mpsc::channel();
        let client = thread::spawn(move || {
            let mut connection = Connection::open(addr)?.patience(STREAM);
            connection.send(&bytes)?;
            let head = connection.head()?;
            let replica = head.header("x-llmgw-replica").unwrap_or_default().to_owned();
            let mut body = connection.body(&head);
            let mut events = Vec::new();
            while let Some(event) = body.event()? {
                events.push((Instant::now(), event));
                if events.len() == 3 {
                    // Nobody waits for the first events of a stream that was queued.
                    let _ = tell.send(replica.clone());
                }
            }
            Ok(Seen { end: body.end(), status: head.status, replica, events })
        });
        Self { client, first_events }
    }

    /// Waits for its first events, and says who sends them.
    #[track_caller]
    fn runs_at(&self) -> String {
        self.first_events.recv_timeout(STREAM).unwrap_or_else(|error| panic!("no first events: {error}"))
    }

    #[track_caller]
    fn finish(self) -> Seen {
        let seen = self.client.join().unwrap_or_else(|_| panic!("the client panicked"));
        seen.unwrap_or_else(|error| panic!("the stream: {error}"))
    }
}

fn long() -> Chat {
    chat("Why is the gateway slow?").model(MODEL).streamed().max_tokens(LONG).field("ignore_eos", true)
}

fn of(gateway: &Gateway, name: &str, replica: &str) -> Option<f64> {
    gateway.metrics().sum(name, &[("replica", replica)])
}

/// Short calls, one after another: all must be answered, and by this engine.
#[track_caller]
fn answered_by(gateway: &Gateway, replica: &str) {
    for _ in 0..10 {
        let reply = raw::post(gateway.addr(), CHAT, &chat("hello").model(MODEL).max_tokens(4).json());
        let by = reply.header("x-llmgw-replica").unwrap_or_default();
        assert_eq!((reply.status, by), (200, replica), "{}", reply.text());
    }
}

/// The gateway's page says what the engine's own page says of the size of its cache.
#[track_caller]
fn check_contract(gateway: &Gateway, name: &str, engine: &Vllm) {
    let shown = wait_for_some("both numbers of a busy engine", SOON, || {
        let running = of(gateway, "llmgw_endpoint_running", name)?;
        let waiting = of(gateway, "llmgw_endpoint_waiting", name)?;
        let kv = of(gateway, "llmgw_endpoint_kv_usage_ratio", name)?;
        (running == 4.0 && waiting > 0.0 && kv > 0.0).then_some((running, waiting, kv))
    });
    let page = raw::get(engine.addr, "/metrics").text();
    let cache = page.lines().find(|line| line.starts_with("vllm:cache_config_info{")).unwrap_or_default();
    let label = |name: &str| {
        let (_, rest) = cache.split_once(&format!("{name}=\""))?;
        rest.split('"').next()?.parse::<f64>().ok()
    };
    let expected = label(",block_size").zip(label(",num_gpu_blocks")).map(|(size, count)| size * count);
    let tokens = of(gateway, "llmgw_endpoint_kv_capacity_tokens", name);
    let own = Metrics::parse(&page).sum("vllm:num_requests_running", &[]);
    println!("{name}: (running, waiting, kv) {shown:?}, the engine's own running {own:?}");
    println!("{name}: kv capacity {tokens:?} tokens, by its own page {expected:?}");
    assert!(tokens.is_some() && tokens == expected, "{tokens:?}, by its own page {expected:?}: {cache}");
    assert_eq!(of(gateway, "llmgw_endpoint_batch_capacity", name).map(|count| count >= 4.0), Some(true));
    assert_eq!(of(gateway, "llmgw_endpoint_metrics_stale", name), Some(0.0));
}

#[test]
fn vllm_fails_in_mid_stream_and_the_others_take_over() {
    let _alone = alone();
    let reserve = LlamaCpp::start(MODEL, &[]);
    let mut engines = Vllm::start::<2>(&[]);
    let names = ["one", "two"];
    let endpoint = |at: usize| format!("{{ name: {}, url: \"{}\", model: {MODEL} }}", names[at], engines[at].url());
    let spare = format!(
        "{{ name: reserve, url: \"{}\", model: {MODEL}, engine: llamacpp, gpu_class: reserve, priority: 10 }}",
        reserve.url()
    );
    let limits = format!(
        "timeouts: {{ settle: 0s, between_events: {}s, first_token: {}s }}",
        BETWEEN_EVENTS.as_secs(),
        STREAM.as_secs()
    );
    let builder = Gateway::builder().endpoint(&endpoint(0)).endpoint(&endpoint(1)).endpoint(&spare);
    let mut gateway = builder.router("scrape_interval: 250ms").router(&limits).start(llmgw());
    wait_for("three ready endpoints", SOON, || gateway.metrics().sum("llmgw_endpoint_ready", &[]) == Some(3.0));

    // More than both run at once: each works, and each has a queue.
    let streams: Vec<Stream> = (0..STREAMS).map(|_| Stream::open(&gateway, &long())).collect();
    for (name, engine) in names.iter().zip(&engines) {
        check_contract(&gateway, name, engine);
    }

    let (killed, other) = (0, 1);
    engines[killed].kill_engine_process();
    let at = Instant::now();
    wait_for("an open breaker", SOON, || of(&gateway, "llmgw_breaker_state", names[killed]) == Some(2.0));
    println!("engine process of {} killed: breaker open after {:?}", names[killed], at.elapsed());
    wait_for("not ready", SOON, || of(&gateway, "llmgw_endpoint_ready", names[killed]) == Some(0.0));
    println!("not ready after {:?}", at.elapsed());
    let seen: Vec<Seen> = streams.into_iter().map(Stream::finish).collect();
    let (there, elsewhere): (Vec<&Seen>, Vec<&Seen>) = seen.iter().partition(|seen| seen.replica == names[killed]);
    for stream in &elsewhere {
        assert!(stream.is_whole(), "{} {} {:?}", stream.replica, stream.status, stream.events.last());
    }
    let mut with_tokens = 0;
    for stream in there.iter().filter(|stream| !stream.is_whole()) {
        let error = stream.error().unwrap_or_else(|| panic!("no error: {} {:?}", stream.status, stream.events.last()));
        with_tokens += usize::from(stream.has_tokens());
        println!("status {}, {} events, [DONE]: {}, {error}", stream.status, stream.events.len(), stream.says_done());
        assert!(error.to_string().contains("EngineCore"), "the engine's own words: {error}");
    }
    println!(
        "{} streams at {}, {with_tokens} broken after tokens; {} whole elsewhere",
        there.len(),
        names[killed],
        elsewhere.len()
    );
    assert!(with_tokens > 0);
    answered_by(&gateway, names[other]);

    let longest = long().max_tokens(LONGEST);
    let streams: Vec<Stream> = (0..3).map(|_| Stream::open(&gateway, &longest)).collect();
    for stream in &streams {
        assert_eq!(stream.runs_at(), names[other]);
    }
    engines[other].terminate();
    let at = Instant::now();
    wait_for("a closed port", SOON, || engines[other].refuses_connections());
    println!("SIGTERM of {}: port closed after {:?}", names[other], at.elapsed());
    answered_by(&gateway, "reserve");
    println!("ten calls answered by the reserve after {:?}", at.elapsed());
    let mut cut = 0;
    for seen in streams.into_iter().map(Stream::finish) {
        // On a starved machine the signal may take longer than one of them.
        if seen.is_whole() {
            println!("{} events, and its end before vLLM heard the signal", seen.events.len());
            continue;
        }
        cut += 1;
        let error = seen.error().unwrap_or_else(|| panic!("no error: {:?}", seen.events.last()));
        println!("{} events, then silent for {:?}, then {error}; {:?}", seen.events.len(), seen.last_pause(), seen.end);
        assert_eq!(error["code"], json!("between_events_timeout"), "vLLM falls silent: {error}");
        assert!(!seen.says_done() && matches!(seen.end, End::Cut(_)), "{:?}", seen.end);
        assert!(seen.events.last().is_some_and(|(_, event)| event.ends_with("\n\n")), "{:?}", seen.events.last());
    }
    assert!(cut > 0, "no stream was left when vLLM heard the signal");
    println!("ended: {} after {:?}", engines[other].ends_within(SOON), at.elapsed());

    wait_for("the gauges to be at rest", SOON, || gateway.inflight() == 0.0);
    for part in ["broken_streams", "retries_total", "cooldowns", "breaker_state", "endpoint_ready", "requests_total"] {
        println!("{}", gateway.metrics().lines_about(part).join("\n"));
    }
    let log = gateway.process().lines();
    let loud = log.iter().filter(|line| line.text.contains("\"WARN\"") || line.text.contains("llmgw::access"));
    loud.for_each(|line| println!("{}", line.text));
    for part in ["endpoint not ready", "engine_error", "between_events_timeout", "its requests fail"] {
        assert!(log.iter().any(|line| line.text.contains(part)), "the log does not speak of {part}");
    }
    gateway.finish(&["llmgw::access", "endpoint not ready", "metrics", "breaker"]);
}
