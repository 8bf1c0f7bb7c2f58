//! The desk that operators come to: a question comes in as method, path and body, and an answer goes out as JSON.

use std::path::PathBuf;
use std::time::Duration;

use llmgw_kit::clock::Wall;
use llmgw_kit::percent::decoded;
use llmgw_store::audit::Event;
use llmgw_store::{Store, StoreError, Tx};
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::refusal::Refusal;
use crate::tenants::Waker;
use crate::{openapi, routes};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    /// As in HTTP.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// The verb of a method's name.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete].into_iter().find(|verb| verb.word() == word)
    }
}

/// A question. Whoever brings it has been let in already.
#[derive(Debug)]
pub struct Ask<'a> {
    /// As in HTTP.
    pub verb: &'a str,
    /// Below the API's root, as it was written: parts are percent-encoded.
    pub path: &'a str,
    /// Behind the `?`, as it was written.
    pub query: &'a str,
    /// JSON, or nothing.
    pub body: &'a [u8],
    /// Who asks, for the record.
    pub actor: &'a str,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// JSON. May hold a key that was just made: it is not to be logged.
    pub body: String,
    /// Of a path that is there and a verb that is not.
    pub allow: Option<String>,
}

/// What somebody did that is no change of the store, for the record.
#[derive(Debug)]
pub struct Deed {
    pub actor: String,
    pub action: &'static str,
    /// To what kind of thing, and to which.
    pub target: (&'static str, String),
    /// JSON.
    pub before: String,
    pub after: String,
}

/// The desk. Owner: any thread that may wait for a disk.
#[derive(Debug)]
pub struct Desk {
    store: Option<Store>,
    random: SystemRandom,
    /// Whoever tells the cores what changed.
    waker: Option<Waker>,
}

/// A question that was understood.
pub(crate) struct Request<'a> {
    /// What stood for the path's open parts, decoded.
    pub(crate) parts: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: &'a [u8],
    pub(crate) actor: String,
    /// Unix milliseconds.
    pub(crate) now: i64,
}

impl Desk {
    /// A desk on a store; without one it says how to get one.
    pub fn new(store: Option<Store>) -> Self {
        Self { store, random: SystemRandom::new(), waker: None }
    }

    /// The same, with somebody who is told at once of what changed.
    #[must_use]
    pub fn waking(self, waker: Waker) -> Self {
        Self { waker: Some(waker), ..self }
    }

    /// Answers. Cost: waits for the disk, and for other processes on the same store.
    pub fn answer(&self, ask: &Ask<'_>) -> Answer {
        let now = i64::try_from(Wall::now().0).unwrap_or(i64::MAX);
        let answered = |status: u16, body: &Value| Answer { status, body: body.to_string(), allow: None };
        let refused = |refusal: &Refusal| answered(refusal.status, &refusal.body());
        if ask.path == openapi::PATH && ask.verb == Verb::Get.word() {
            return answered(200, &openapi::document());
        }
        let (route, parts) = match routes::find(ask.verb, ask.path) {
            routes::Found::Route(route, parts) => (route, parts),
            routes::Found::OtherVerbs(allow) => {
                let message = format!("use {allow}");
                let refusal = Refusal { status: 405, code: "method_not_allowed", message };
                return Answer { allow: Some(allow), ..refused(&refusal) };
            }
            routes::Found::Nothing => {
                let message = "this is not part of the admin API; GET /api/v1/openapi.json describes it".to_owned();
                return refused(&Refusal { status: 404, code: "not_found", message });
            }
        };
        let Some(query) = read_query(ask.query) else {
            return refused(&Refusal::wrong("the query is no text"));
        };
        if let Some((name, _)) = query.iter().find(|(name, _)| !route.query.iter().any(|(known, _)| known == name)) {
            return refused(&Refusal::wrong(format!("{name:?} is not asked for here")));
        }
        let request = Request { parts, query, body: ask.body, actor: ask.actor.to_owned(), now };
        match (route.act)(self, &request) {
            Ok(body) => answered(200, &body),
            Err(refusal) => refused(&refusal),
        }
    }

    /// Puts a deed on the audit trail; a server without a store has none. Cost: waits for the disk.
    ///
    /// Errors: the store cannot be written.
    pub fn note(&self, deed: Deed) -> Result<(), String> {
        let Some(store) = &self.store else { return Ok(()) };
        let Deed { actor, action, target: (kind, id), before, after } = deed;
        // Only whole JSON is handed in; something else is shown as the text it is.
        let json = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        let event = Event {
            seq: 0,
            ts: i64::try_from(Wall::now().0).unwrap_or(i64::MAX),
            actor,
            action: action.to_owned(),
            target_type: kind.to_owned(),
            target_id: id,
            before: Some(json(before)),
            after: Some(json(after)),
        };
        store.write(move |tx| tx.audit(&event)).map(drop).map_err(|error: StoreError| error.to_string())
    }

    pub(crate) fn store(&self) -> Result<&Store, Refusal> {
        let none = || {
            let message = "this server has no store, so there are no keys here; set store.path and restart".to_owned();
            Refusal { status: 409, code: "no_store", message }
        };
        self.store.as_ref().ok_or_else(none)
    }

    /// Writes, for an act that says what happened.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Tx<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let done = self.store()?.write(act);
        if let Some(waker) = self.waker.as_ref().filter(|_| done.is_ok()) {
            waker.wake();
        }
        done
    }

    /// Random bytes that nobody can guess. Errors: the system has none.
    pub(crate) fn random<const N: usize>(&self) -> Result<[u8; N], Refusal> {
        let mut bytes = [0; N];
        let none = |_| Refusal {
            status: 500,
            code: "no_randomness",
            message: "the system has no randomness for a key".to_owned(),
        };
        self.random.fill(&mut bytes).map_err(none)?;
        Ok(bytes)
    }

    /// Copies the store to a new file.
    pub(crate) fn backup(&self, path: PathBuf) -> Result<(PathBuf, u64), Refusal> {
        let copied = self.store()?.backup(&path).map_err(|error| match error {
            StoreError::Open { .. } => Refusal::conflict(error.to_string()),
            other => other.into(),
        })?;
        Ok((copied.path, copied.bytes))
    }
}

impl Request<'_> {
    /// The body as what is asked for. Errors: it is something else; says what, and nothing of its values.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let body = if self.body.is_empty() { b"{}" } else { self.body };
        let wrong = |error| Refusal::wrong(format!("the body is not what is asked for: {error}"));
        serde_json::from_slice(body).map_err(wrong)
    }

    pub(crate) fn part(&self, at: usize) -> &str {
        self.parts.get(at).map_or("", String::as_str)
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// A number of the query.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let value = self.query(name).map(str::parse).transpose();
        value.map_err(|_| Refusal::wrong(format!("{name} is not a number")))
    }

    /// A moment that long after this one. Errors: it is further than times go.
    pub(crate) fn later(&self, by: Duration) -> Result<i64, Refusal> {
        let by = i64::try_from(by.as_millis()).ok();
        by.and_then(|by| self.now.checked_add(by)).ok_or_else(|| Refusal::wrong("that is too far in the future"))
    }

    /// The record of an act, to be written with it.
    pub(crate) fn event(
        &self,
        action: &str,
        target: (&str, &str),
        before: Option<Value>,
        after: Option<Value>,
    ) -> Event {
        Event {
            seq: 0,
            ts: self.now,
            actor: self.actor.clone(),
            action: action.to_owned(),
            target_type: target.0.to_owned(),
            target_id: target.1.to_owned(),
            before,
            after,
        }
    }
}

fn read_query(written: &str) -> Option<Vec<(String, String)>> {
    let pairs = written.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(&value.replace('+', " "))?))
        })
        .collect()
}
