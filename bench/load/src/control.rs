//! What a run asks beside its load: an engine's recording and clock, a gateway's metrics page.
//!
//! Called by the scenarios. Speaks the simulated engine's control routes by name and reads only the fields it needs.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::{Failure, Pool};
use crate::metrics::Metrics;
use crate::prompt;
use crate::target::Target;
use crate::usage::monotonic_ns;
use crate::wire::Part;

const WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// The most an answer may hold; a longer one is cut and then no JSON.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// One request as an engine recorded it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Recorded {
    #[serde(default)]
    pub(crate) body_text: String,
    pub(crate) client_closed_at_ns: Option<u64>,
    pub(crate) ended_at_ns: Option<u64>,
}

/// GETs a path and returns the body of a 200.
///
/// Errors: anything else, told with the path.
pub(crate) async fn fetch(at: &Target, path: &str) -> Result<String, String> {
    let target = at.at(path);
    let mut body = Vec::new();
    let ended = Pool::new(target.clone(), WITHIN)
        .call(&prompt::get(&target), &mut |part, _| {
            if let Part::Body(bytes) = part
                && body.len() + bytes.len() <= ANSWER_BYTES_MAX
            {
                body.extend_from_slice(bytes);
            }
        })
        .await;
    match ended {
        Ok(done) if done.status == 200 => Ok(String::from_utf8_lossy(&body).into_owned()),
        Ok(done) => Err(format!("{}{path} answered {}", at.addr, done.status)),
        Err(failure) => Err(format!("{}{path}: {}", at.addr, failure.name())),
    }
}

/// The status that a GET of a path is answered with.
pub(crate) async fn status(at: &Target, path: &str) -> Result<u16, Failure> {
    let target = at.at(path);
    Ok(Pool::new(target.clone(), WITHIN).call_fresh(&prompt::get(&target)).await?.status)
}

/// A gateway's (or an engine's) metrics page.
pub(crate) async fn metrics(at: &Target) -> Result<Metrics, String> {
    Ok(Metrics::parse(&fetch(at, "/metrics").await?))
}

/// What an engine has received.
pub(crate) async fn requests(at: &Target) -> Result<Vec<Recorded>, String> {
    /// The list itself, or the list as a field.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Answer {
        List(Vec<Recorded>),
        Field { requests: Vec<Recorded> },
    }
    match parse(at, "/sim/requests").await? {
        Answer::List(requests) | Answer::Field { requests } => Ok(requests),
    }
}

/// Nanoseconds to add to an engine's own times to get the machine's monotonic clock.
///
/// Error of the result: at most half the time of the quickest of several round trips, microseconds on one machine.
pub(crate) async fn clock_offset_ns(at: &Target) -> Result<i128, String> {
    #[derive(Deserialize)]
    struct State {
        now_ns: u64,
    }
    let mut best: Option<(u64, i128)> = None;
    for _ in 0..20 {
        let before = monotonic_ns();
        let State { now_ns } = parse(at, "/sim/state").await?;
        let after = monotonic_ns();
        let middle = i128::from(before) + i128::from(after - before) / 2;
        if best.is_none_or(|(trip, _)| after - before < trip) {
            best = Some((after - before, middle - i128::from(now_ns)));
        }
    }
    best.map(|(_, offset)| offset).ok_or_else(|| "no reading of the engine's clock".to_owned())
}

/// Asks again until the answer satisfies, or the time is over; returns the last answer and whether it did.
pub(crate) async fn until<T>(
    within: Duration,
    mut ask: impl AsyncFnMut() -> Result<T, String>,
    satisfies: impl Fn(&T) -> bool,
) -> Result<(T, bool), String> {
    let deadline = Instant::now() + within;
    loop {
        let answer = ask().await?;
        let is_good = satisfies(&answer);
        if is_good || Instant::now() >= deadline {
            return Ok((answer, is_good));
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn parse<T: DeserializeOwned>(at: &Target, path: &str) -> Result<T, String> {
    let body = fetch(at, path).await?;
    serde_json::from_str(&body).map_err(|error| format!("{}{path} is not what is known of it: {error}", at.addr))
}
