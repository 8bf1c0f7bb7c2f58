//! A gateway before several engines, and requests from several clients at once.

use std::sync::Mutex;

use llmgw_test_kit::engine::Recorded;
use llmgw_test_kit::gateway::Builder;
use llmgw_test_kit::raw::{self, End, Reply};
use llmgw_test_kit::{Chat, Engine, Gateway, wait_for};

use crate::pair::{CHAT, WITHIN, llmgw};

/// Whether prompts are looked for, as an override of the file.
pub(crate) const FOLLOWS_PROMPTS: &str = "LLMGW__ROUTER__PREFIX__APPROX_TREE__ENABLED";

/// Several engines behind one gateway with two cores; the gateway ends first.
pub(crate) struct Fleet {
    pub(crate) gateway: Gateway,
    pub(crate) engines: Vec<Engine>,
}

impl Fleet {
    /// Engines on threads of the test, with keys of `router` as YAML lines.
    #[track_caller]
    pub(crate) fn local(count: usize, router: &str) -> Self {
        Self::of((0..count).map(|_| Engine::local()).collect(), router, |builder| builder)
    }

    /// Engines in processes of their own, to be killed and frozen.
    #[track_caller]
    pub(crate) fn processes(count: usize, router: &str) -> Self {
        Self::of((0..count).map(|_| Engine::start(llmgw())).collect(), router, |builder| builder)
    }

    #[track_caller]
    pub(crate) fn of(engines: Vec<Engine>, router: &str, change: impl FnOnce(Builder) -> Builder) -> Self {
        // Prompts that tests repeat spread as those of many clients do; who is about prompts turns it on again.
        let builder = Gateway::builder().env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s").env(FOLLOWS_PROMPTS, "false");
        let builder = builder.router(router);
        let builder = engines.iter().fold(builder, |builder, engine| builder.engine(engine));
        let gateway = change(builder).start(llmgw());
        let fleet = Self { gateway, engines };
        wait_for("every engine ready", WITHIN, || {
            fleet.count("llmgw_endpoint_ready", &[]) == fleet.engines.len() as u64
        });
        fleet
    }

    /// Sends a chat on a connection of its own and reads the whole reply.
    #[track_caller]
    pub(crate) fn ask(&self, chat: &Chat) -> Reply {
        raw::post(self.gateway.addr(), CHAT, &chat.json())
    }

    /// The sum of a metric over the samples with these labels.
    #[track_caller]
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.gateway.metrics().sum(name, labels).unwrap_or(0.0) as u64
    }

    /// The breaker of one engine: 0 closed, 1 half-open, 2 open.
    #[track_caller]
    pub(crate) fn breaker(&self, engine: usize) -> u64 {
        self.count("llmgw_breaker_state", &[("replica", &format!("engine-{engine}"))])
    }

    /// What all engines saw.
    #[track_caller]
    pub(crate) fn calls(&self) -> Vec<Recorded> {
        self.engines.iter().flat_map(Engine::calls).collect()
    }

    #[track_caller]
    pub(crate) fn set_faults(&self, faults: &serde_json::Value) {
        self.engines.iter().for_each(|engine| engine.set_faults(faults.clone()));
    }

    /// Waits until nothing is in flight.
    #[track_caller]
    pub(crate) fn wait_until_idle(&self) {
        crate::streams::rig::wait_until_idle(&self.gateway);
    }

    /// Sends from `clients` clients at once, `each` chats one after another, and meanwhile does something else.
    #[track_caller]
    pub(crate) fn load(&self, clients: usize, each: usize, chat: &Chat, meanwhile: impl FnOnce()) -> Vec<Reply> {
        let replies = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    for _ in 0..each {
                        let reply = self.ask(chat);
                        replies.lock().expect("no client panicked").push(reply);
                    }
                });
            }
            meanwhile();
        });
        replies.into_inner().expect("no client panicked")
    }
}

/// Every one of them is a 200 that came to its end.
#[track_caller]
pub(crate) fn assert_all_well(replies: &[Reply]) {
    for reply in replies {
        assert_eq!((reply.status, reply.end), (200, End::Complete), "{}", reply.text());
    }
}
