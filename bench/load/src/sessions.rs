//! Conversations: each session asks, reads the answer, thinks, and asks again with everything said before.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Pool;
use crate::progress::Progress;
use crate::prompt::{post, words};
use crate::replay::Streamed;
use crate::report::{Report, row, spread, watched_rows};
use crate::tally::{Quantiles, Times};
use crate::target::Target;
use crate::usage::monotonic_ns;
use crate::watch::{Watch, Watched};

/// The header that names a session, as the gateway knows it without a setting.
const HEADER: &str = "x-session-id";
/// Bytes of an answer that a next turn repeats, for each token asked for.
const ANSWER_BYTES_PER_TOKEN: usize = 4;

/// What to run.
#[derive(Debug, Clone)]
pub struct Sessions {
    pub target: Target,
    pub model: String,
    pub session_count: usize,
    pub turn_count: usize,
    /// What every session's first message begins with.
    pub system_bytes: usize,
    /// What each turn adds.
    pub turn_bytes: usize,
    pub max_tokens: u64,
    pub think: Duration,
    pub pid: Option<u32>,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct SessionsReport {
    pub session_count: usize,
    pub turn_count: usize,
    pub call_count: u64,
    pub bad: std::collections::BTreeMap<String, u64>,
    pub event_count: u64,
    /// Of each turn, the first at the front.
    pub first_event_by_turn: Vec<Quantiles>,
    pub first_event: Quantiles,
    pub gap: Quantiles,
    pub latency: Quantiles,
    pub watched: Watched,
}

/// Runs it over a pool of connections; must be called inside a local task set.
pub async fn run(plan: Sessions, pool: &Rc<Pool>, progress: Progress) -> SessionsReport {
    let shared = Rc::new(Streamed::default());
    let line = progress.show("sessions", {
        let shared = Rc::clone(&shared);
        move || shared.state()
    });
    let watch = Watch::start(plan.pid);
    let plan = Rc::new(plan);
    let mut sessions = JoinSet::new();
    for number in 0..plan.session_count {
        let (plan, shared, pool) = (Rc::clone(&plan), Rc::clone(&shared), Rc::clone(pool));
        sessions.spawn_local(async move {
            let mut firsts = Vec::with_capacity(plan.turn_count);
            for turn in 0..plan.turn_count {
                if turn > 0 {
                    tokio::time::sleep(plan.think).await;
                }
                firsts.push(shared.call(&pool, &plan.request(number, turn), monotonic_ns()).await);
            }
            firsts
        });
    }
    let mut by_turn = vec![Times::default(); plan.turn_count];
    let mut call_count = 0;
    while let Some(joined) = sessions.join_next().await {
        for (times, first) in by_turn.iter_mut().zip(joined.unwrap_or_default()) {
            call_count += 1;
            first.into_iter().for_each(|ns| times.record(ns));
        }
    }
    drop(line);
    SessionsReport {
        session_count: plan.session_count,
        turn_count: plan.turn_count,
        call_count,
        bad: shared.bad.borrow().clone(),
        event_count: shared.event_count.get(),
        first_event_by_turn: by_turn.iter().map(Times::quantiles).collect(),
        first_event: shared.first_event.borrow().quantiles(),
        gap: shared.gap.borrow().quantiles(),
        latency: shared.latency.borrow().quantiles(),
        watched: watch.finish(),
    }
}

impl Sessions {
    /// The call of a turn: everything the session has said and heard, and one message more.
    fn request(&self, session: usize, turn: usize) -> Vec<u8> {
        let seed = |turn: usize, salt: u64| (session as u64) << 24 | (turn as u64) << 2 | salt;
        let answer_bytes = usize::try_from(self.max_tokens).unwrap_or(0) * ANSWER_BYTES_PER_TOKEN;
        let say = |role: &str, text: String| json!({ "role": role, "content": text });
        // One system message for all: what sessions share.
        let mut messages: Vec<Value> = vec![say("system", words(self.system_bytes, u64::MAX))];
        for past in 0..turn {
            messages.push(say("user", words(self.turn_bytes, seed(past, 1))));
            messages.push(say("assistant", words(answer_bytes, seed(past, 2))));
        }
        messages.push(say("user", words(self.turn_bytes, seed(turn, 1))));
        let body = json!({
            "model": self.model, "messages": messages, "max_tokens": self.max_tokens, "stream": true,
        });
        let id = format!("session-{session}");
        post(&self.target, &body.to_string(), &[(HEADER, &id)])
    }
}

impl Report for SessionsReport {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            row("sessions", format!("{} of {} turns", self.session_count, self.turn_count)),
            row("calls", self.call_count.to_string()),
            row("events", self.event_count.to_string()),
            row("time to first event", spread(&self.first_event)),
        ];
        for (turn, times) in self.first_event_by_turn.iter().enumerate() {
            rows.push(row(&format!("  turn {}", turn + 1), spread(times)));
        }
        rows.push(row("gap between events", spread(&self.gap)));
        rows.push(row("whole", spread(&self.latency)));
        rows.extend(watched_rows(&self.watched, Some(("call", self.call_count))));
        rows
    }

    fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> =
            self.bad.iter().map(|(name, count)| format!("{count} calls ended with {name}")).collect();
        let planned = (self.session_count * self.turn_count) as u64;
        if self.call_count < planned {
            faults.push(format!("{} of {planned} calls were made", self.call_count));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_repeats_what_was_said_and_names_its_session() {
        let plan = Sessions {
            target: Target::parse("http://127.0.0.1:9").expect("a URL"),
            model: "m".to_owned(),
            session_count: 2,
            turn_count: 3,
            system_bytes: 50,
            turn_bytes: 30,
            max_tokens: 5,
            think: Duration::ZERO,
            pid: None,
        };
        let messages = |session, turn| {
            let text = String::from_utf8(plan.request(session, turn)).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains(&format!("x-session-id: session-{session}\r\n")));
            let body: Value = serde_json::from_str(body).expect("JSON");
            body["messages"].as_array().expect("messages").clone()
        };
        let (first, third, other) = (messages(0, 0), messages(0, 2), messages(1, 2));
        assert_eq!((first.len(), third.len()), (2, 6));
        assert_eq!(first[..2], third[..2]);
        assert_eq!(third[0], other[0]);
        assert_ne!(third[1], other[1]);
    }
}
