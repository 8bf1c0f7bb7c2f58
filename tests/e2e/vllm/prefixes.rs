//! Chats of several turns and several system prompts over two real vLLMs, each with a cache that holds half of them:
//! what engines say they had cached, by how the gateway chooses. Prints what it saw: `docs/measurements` has a run of
//! it.

#![expect(clippy::print_stdout, reason = "what it saw is printed, to be written down")]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Gateway, chat};
use serde_json::{Value, json};

use super::alone;
use super::server::Vllm;
use crate::engines::MODEL;
use crate::llmgw;

const ROUNDS: usize = 5;
const CHATS: usize = 20;
/// Different system prompts; five chats begin with each.
const SYSTEMS: usize = 4;
const SYSTEM_WORDS: usize = 900;
const TURNS: usize = 5;
const TURN_WORDS: usize = 40;
const ANSWER_TOKENS: u32 = 16;
/// Chats that are answered at once; the others think.
const AT_ONCE: usize = 4;
/// Blocks of 32 tokens in each cache: two system prompts and ten chats have about as many, four and ten a third more.
const BLOCKS: &str = "160";

const WORDS: &[&str] = &[
    "gateway", "engine", "model", "token", "block", "cache", "prefix", "router", "request", "stream", "chunk", "queue",
    "batch", "worker", "river", "stone", "cloud", "window", "garden", "paper", "bridge", "letter", "market", "winter",
];

/// Words that differ by what they are for.
fn words(count: usize, seed: usize) -> String {
    let word = |at: usize| WORDS[(seed * 7919 + at * at * 31 + at * (seed % 23 + 1)) % WORDS.len()];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

/// How the gateway chooses.
struct Way {
    name: &'static str,
    router: &'static str,
    names_sessions: bool,
}

const BY_LOAD: &str =
    "default_profile: measured\nprofiles:\n  measured: { scorers: { inflight: 1 }, picker: { type: max-score } }";
const IN_TURN: &str = "default_profile: measured\nprofiles:\n  measured: { picker: { type: round-robin } }";
const WAYS: [Way; 3] = [
    Way { name: "round robin", router: IN_TURN, names_sessions: false },
    Way { name: "session", router: BY_LOAD, names_sessions: true },
    Way { name: "block cost", router: "", names_sessions: false },
];

/// What the usages of answers told together, and who answered.
#[derive(Debug, Default, Clone)]
struct Told {
    prompt_tokens: u64,
    cached_tokens: u64,
    by: BTreeMap<String, usize>,
}

impl Told {
    fn add(&mut self, other: &Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        other.by.iter().for_each(|(name, count)| *self.by.entry(name.clone()).or_default() += count);
    }

    fn percent(&self) -> f64 {
        100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

/// One chat: what was said, and how many turns are left.
struct Talk {
    session: String,
    seed: usize,
    messages: Vec<Value>,
    turns_left: usize,
}

impl Talk {
    /// One of a round, which nobody else shares words with.
    fn new(round: usize, number: usize) -> Self {
        let system =
            format!("{round} {} {}", number % SYSTEMS, words(SYSTEM_WORDS, round * SYSTEMS + number % SYSTEMS));
        Self {
            session: format!("chat-{round}-{number}"),
            seed: 1000 + number * 100,
            messages: vec![json!({ "role": "system", "content": system })],
            turns_left: TURNS,
        }
    }

    #[track_caller]
    fn turn(&mut self, gateway: SocketAddr, names_sessions: bool) -> Told {
        let said = words(TURN_WORDS, self.seed + self.turns_left);
        self.messages.push(json!({ "role": "user", "content": format!("{} {said}", self.session) }));
        let asked = chat("").model(MODEL).max_tokens(ANSWER_TOKENS).field("temperature", 0).field("ignore_eos", true);
        let mut body = asked.json();
        body["messages"] = self.messages.clone().into();
        let mut request = Request::new("POST", "/v1/chat/completions").header("Connection", "close");
        if names_sessions {
            request = request.header("x-session-id", &self.session);
        }
        let reply: Reply = raw::call(gateway, &request.json(&body).bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let by = reply.header("x-llmgw-replica").unwrap_or_default().to_owned();
        let answer: Value = serde_json::from_str(&reply.text()).expect("JSON");
        self.messages.push(answer["choices"][0]["message"].clone());
        self.turns_left -= 1;
        let usage = &answer["usage"];
        // A count of nothing is left out.
        let cached_tokens = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        let prompt_tokens = usage["prompt_tokens"].as_u64().unwrap_or_else(|| panic!("usage: {usage}"));
        Told { prompt_tokens, cached_tokens, by: BTreeMap::from([(by, 1)]) }
    }
}

/// All chats, turn after turn, some of them at once.
#[track_caller]
fn talk(gateway: SocketAddr, names_sessions: bool, round: usize) -> Told {
    let talks: Mutex<VecDeque<Talk>> = Mutex::new((0..CHATS).map(|number| Talk::new(round, number)).collect());
    let told = Mutex::new(Told::default());
    let next = || talks.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(mut one) = next() {
                    let turn = one.turn(gateway, names_sessions);
                    told.lock().unwrap_or_else(PoisonError::into_inner).add(&turn);
                    if one.turns_left > 0 {
                        talks.lock().unwrap_or_else(PoisonError::into_inner).push_back(one);
                    }
                }
            });
        }
    });
    told.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn chats_find_more_of_themselves_cached_by_cost_than_in_turn_or_by_session() {
    let _alone = alone();
    let engines = Vllm::start::<2>(&["--enable-prefix-caching", "--num-gpu-blocks-override", BLOCKS]);
    let mut all = [(); WAYS.len()].map(|()| Told::default());
    for round in 0..ROUNDS {
        for (at, way) in WAYS.iter().enumerate() {
            let endpoint = |at: usize| format!("{{ name: vllm-{at}, url: \"{}\", model: {MODEL} }}", engines[at].url());
            let builder = Gateway::builder().endpoint(&endpoint(0)).endpoint(&endpoint(1)).router(way.router);
            let gateway = builder.router("scrape_interval: 500ms").start(llmgw());
            let told = talk(gateway.addr(), way.names_sessions, round * WAYS.len() + at);
            assert_eq!(told.by.values().sum::<usize>(), CHATS * TURNS);
            println!(
                "round {round}, {}: {} of {} prompt tokens cached, {:.1} %; answered {:?}",
                way.name,
                told.cached_tokens,
                told.prompt_tokens,
                told.percent(),
                told.by
            );
            all[at].add(&told);
            assert_eq!(gateway.inflight(), 0.0);
            gateway.finish(&[]);
        }
    }
    let [in_turn, by_session, by_cost] = all.map(|told| told.percent());
    println!("all rounds: in turn {in_turn:.1} %, by session {by_session:.1} %, by cost {by_cost:.1} %");
    assert!(by_cost > in_turn && by_cost > by_session, "{in_turn:.1} {by_session:.1} {by_cost:.1}");
}
