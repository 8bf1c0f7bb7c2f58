//! Host names to addresses, off the cores and again and again.
//!
//! One task a name, started by `run`; publisher and probes watch the answers. A name that stops resolving keeps its
//! last address. Written addresses are never looked up. Trouble is said when it begins and when it ends.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use llmgw_config::ServerConfig;
use llmgw_config::url::Scheme;
use llmgw_kit::chance::Chance;
use tokio::sync::watch;

use crate::table::{Addrs, literal};

/// How often a name is looked up again, give or take a tenth.
const AGAIN: Duration = Duration::from_secs(30);
/// How soon a name is tried again that has no address yet; doubled until it is `AGAIN`.
const AGAIN_SOON: Duration = Duration::from_millis(500);
/// What a look-up may take. The system's own work goes on behind it, on one of few threads.
const LOOKUP_TIME: Duration = Duration::from_secs(5);

/// The names that must be looked up, each once.
pub(crate) fn hosts(config: &ServerConfig) -> BTreeSet<String> {
    let urls = config.endpoints.iter().map(|endpoint| &endpoint.url);
    urls.filter(|url| url.scheme != Scheme::Unix && literal(url).is_none()).map(|url| url.host.clone()).collect()
}

/// Looks a name up until the runtime ends.
pub(crate) async fn watch_host(host: String, addrs: std::sync::Arc<watch::Sender<Addrs>>, mut chance: Chance) {
    let mut state = HostState::default();
    loop {
        let answer = look_up(&host).await;
        let event = state.hear(answer);
        match &event {
            Some(Event::Failed(reason)) => match state.address {
                Some(address) => tracing::warn!(host, reason, %address, "host name not resolved, last address kept"),
                None => tracing::warn!(host, reason, "host name not resolved"),
            },
            Some(Event::Moved(from)) => tracing::info!(host, from = %from, to = ?state.address, "host name moved"),
            Some(Event::Healed) => tracing::info!(host, "host name resolved again"),
            None => {}
        }
        addrs.send_if_modified(|addrs| {
            let is_new = addrs.0.get(&host) != Some(&state.address);
            if is_new {
                addrs.0.insert(host.clone(), state.address);
            }
            is_new
        });
        tokio::time::sleep(jittered(state.pause(), &mut chance)).await;
    }
}

/// The wait, a tenth shorter to a tenth longer, so that many tasks do not stay in step.
pub(crate) fn jittered(wait: Duration, chance: &mut Chance) -> Duration {
    wait.mul_f64(0.9 + 0.2 * chance.unit())
}

async fn look_up(host: &str) -> Result<Vec<IpAddr>, String> {
    match tokio::time::timeout(LOOKUP_TIME, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {LOOKUP_TIME:?}")),
    }
}

/// What to say about a look-up.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Failed(String),
    Moved(IpAddr),
    Healed,
}

/// What is known of a name.
#[derive(Default)]
struct HostState {
    address: Option<IpAddr>,
    failures: u32,
}

impl HostState {
    fn hear(&mut self, answer: Result<Vec<IpAddr>, String>) -> Option<Event> {
        let answer = match answer {
            Ok(found) if found.is_empty() => Err("it has no address".to_owned()),
            other => other,
        };
        match answer {
            Err(reason) => {
                self.failures = self.failures.saturating_add(1);
                (self.failures == 1).then_some(Event::Failed(reason))
            }
            Ok(found) => {
                let was_failing = std::mem::take(&mut self.failures) > 0;
                let healed = was_failing.then_some(Event::Healed);
                // Names with several addresses are answered in changing order: the one in use is kept while it is
                // there.
                if self.address.is_some_and(|address| found.contains(&address)) {
                    return healed;
                }
                let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first()).copied();
                let moved = std::mem::replace(&mut self.address, chosen).map(Event::Moved);
                moved.or(healed)
            }
        }
    }

    fn pause(&self) -> Duration {
        match self.address {
            None => AGAIN_SOON.saturating_mul(1 << self.failures.saturating_sub(1).min(8)).min(AGAIN),
            Some(_) => AGAIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const SIX: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    #[test]
    fn a_failure_keeps_the_address_and_is_said_once_and_once_when_healed() {
        let mut state = HostState::default();
        assert_eq!(state.hear(Ok(vec![A])), None);
        assert_eq!(state.hear(Err("gone".into())), Some(Event::Failed("gone".into())));
        assert_eq!((state.hear(Err("gone".into())), state.hear(Ok(vec![]))), (None, None));
        assert_eq!((state.address, state.pause()), (Some(A), AGAIN));
        assert_eq!(state.hear(Ok(vec![A])), Some(Event::Healed));
        assert_eq!(state.hear(Ok(vec![A])), None);
    }

    #[test]
    fn the_address_in_use_is_kept_while_the_name_still_has_it() {
        let mut state = HostState::default();
        state.hear(Ok(vec![SIX, B, A]));
        assert_eq!(state.address, Some(B), "IPv4 first");
        assert_eq!(state.hear(Ok(vec![A, SIX, B])), None);
        assert_eq!(state.address, Some(B));
        assert_eq!(state.hear(Ok(vec![SIX])), Some(Event::Moved(B)));
        assert_eq!(state.address, Some(SIX));
    }

    #[test]
    fn a_name_that_never_resolved_is_tried_again_soon_and_then_less_often() {
        let mut state = HostState::default();
        let pauses: Vec<_> = (0..10)
            .map(|_| {
                state.hear(Err("no".into()));
                state.pause()
            })
            .collect();
        assert_eq!(pauses[..3], [AGAIN_SOON, 2 * AGAIN_SOON, 4 * AGAIN_SOON]);
        assert_eq!(pauses[9], AGAIN);
        assert!(pauses.is_sorted());
    }

    #[test]
    fn only_names_are_looked_up_and_each_once() {
        let text = "endpoints: [{ url: 'http://127.0.0.1:1', model: m }, { url: 'http://[::1]:1', model: m }, \
                    { url: 'http://H:1', model: m }, { url: 'http://h:2', model: m }]";
        let config = llmgw_config::from_text("server.yaml", text, []).expect("a configuration");
        assert_eq!(hosts(&config).into_iter().collect::<Vec<_>>(), ["h"]);
    }

    #[test]
    fn waits_stay_within_a_tenth() {
        let mut chance = Chance::seeded(3);
        for _ in 0..1000 {
            let wait = jittered(Duration::from_secs(10), &mut chance);
            assert!((9.0..=11.0).contains(&wait.as_secs_f64()), "{wait:?}");
        }
    }
}
