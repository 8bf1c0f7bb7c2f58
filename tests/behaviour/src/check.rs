//! What a check is, what it can come to, and what it is given to work with.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use llmgw_test_kit::raw::{Connection, Reply};
use llmgw_test_kit::request::Request;

use crate::args::Limits;
use crate::gateway::Keyed;
use crate::upstream::{Case, Engines, Exchange, MODEL, Then};

pub(crate) const CHAT: &str = "/v1/chat/completions";
/// How long a check waits for what should come at once; long, for a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Why a check did not pass.
#[derive(Debug)]
pub(crate) enum Fault {
    /// What was seen in place of what should be.
    Failed(String),
    /// Why the check says nothing about this proxy.
    NotApplicable(String),
}

/// What was seen, of a check that passed.
pub(crate) type Verdict = Result<String, Fault>;

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Failed(match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
            _ => format!("{error}"),
        })
    }
}

/// A failure with these words.
pub(crate) fn failed<T>(seen: impl fmt::Display) -> Result<T, Fault> {
    Err(Fault::Failed(seen.to_string()))
}

/// Goes on when it holds, else fails with what was seen.
pub(crate) fn need(holds: bool, seen: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Failed(seen())) }
}

/// Whether a check may run beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    Together,
    /// Its engines fail, so that the proxy may hold them back for a while: alone, and the next waits for all of them.
    Alone,
}

/// For whom a check is a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Every,
    /// What this project's gateway promises beyond a good proxy.
    Extra,
}

/// One named behaviour.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// The promise, as a sentence.
    pub(crate) says: &'static str,
    pub(crate) runs: Runs,
    pub(crate) is_for: For,
    pub(crate) run: fn(&Bench) -> Verdict,
}

impl Check {
    pub(crate) const fn new(name: &'static str, says: &'static str, run: fn(&Bench) -> Verdict) -> Self {
        Self { name, says, runs: Runs::Together, is_for: For::Every, run }
    }

    pub(crate) const fn alone(mut self) -> Self {
        self.runs = Runs::Alone;
        self
    }

    pub(crate) const fn extra(mut self) -> Self {
        self.is_for = For::Extra;
        self
    }
}

/// The proxy under test between the client and the engines of a check.
pub(crate) struct Bench {
    pub(crate) proxy: SocketAddr,
    pub(crate) pid: Option<u32>,
    pub(crate) engines: Engines,
    pub(crate) limits: Limits,
    /// The same gateway as one that asks for keys; none where somebody else started the proxy.
    pub(crate) keyed: Option<Keyed>,
}

impl Bench {
    /// Gives a check its script at the engines.
    pub(crate) fn case(&self, script: impl Fn(&mut Exchange<'_>) -> io::Result<Then> + Send + Sync + 'static) -> Case {
        self.engines.case(script)
    }

    pub(crate) fn connect(&self) -> Result<Connection, Fault> {
        Ok(Connection::open(self.proxy)?)
    }

    /// Sends bytes on a connection of its own and reads one reply.
    pub(crate) fn call(&self, bytes: &[u8]) -> Result<Reply, Fault> {
        let mut connection = self.connect()?;
        connection.send(bytes)?;
        Ok(connection.reply()?)
    }

    /// Posts the case's plain body on a connection of its own.
    pub(crate) fn ask(&self, case: &Case) -> Result<Reply, Fault> {
        self.call(&post(&body(case)))
    }

    /// Waits until every engine answers through the proxy again.
    pub(crate) fn settle(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let case = self.case(|x| x.good());
        let (mut in_a_row, mut used) = (0, vec![false; self.engines.count()]);
        while Instant::now() < deadline {
            let before = case.seen().len();
            let is_good = self.ask(&case).is_ok_and(|reply| reply.status == 200);
            in_a_row = if is_good { in_a_row + 1 } else { 0 };
            for seen in case.seen().iter().skip(before) {
                used[seen.engine] = true;
            }
            if in_a_row >= 3 && used.iter().all(|used| *used) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

/// A plain chat body of the case.
pub(crate) fn body(case: &Case) -> String {
    format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"{}"}}]}}"#, case.mark())
}

/// A body that asks for a stream and for its usage, so that a gateway has nothing to add.
pub(crate) fn stream_body(case: &Case) -> String {
    body(case).replacen('{', r#"{"stream":true,"stream_options":{"include_usage":true},"#, 1)
}

/// A POST of JSON to the chat route.
pub(crate) fn post(body: &str) -> Vec<u8> {
    Request::new("POST", CHAT).body("application/json", body).bytes()
}

/// A POST's head with these lines where its framing would be, then these bytes.
pub(crate) fn framed(lines: &str, rest: &str) -> Vec<u8> {
    format!("POST {CHAT} HTTP/1.1\r\nHost: suite.test\r\nContent-Type: application/json\r\n{lines}\r\n\r\n{rest}")
        .into_bytes()
}

/// Asks until it holds or the time is over.
pub(crate) fn comes_true(within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The start of a text, for a line of the report.
pub(crate) fn brief(text: &str) -> String {
    let short: String = text.chars().take(120).collect();
    short.escape_debug().to_string()
}
