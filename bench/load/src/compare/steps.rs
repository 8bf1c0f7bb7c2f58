//! The loads of a comparison, by name.

use std::time::Duration;

use super::place::credential;
use crate::drive::{Arrivals, Drive};
use crate::mock::mark;
use crate::prompt::{Chat, Delivery};
use crate::target::Target;

/// The model every request names.
pub(crate) const MODEL: &str = "mock";

/// One load.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub name: &'static str,
    /// For a person.
    pub what: &'static str,
    /// Whether clients speak TLS: to a process of its own, of those gateways that are set up for it.
    pub is_tls: bool,
    pub(crate) load: Load,
    /// Length of the window; for a crowd, which ends by itself, what it takes.
    seconds: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// Whole answers in a closed loop.
    Whole { connection_count: usize, prompt_bytes: usize },
    /// Whole answers at a constant rate.
    Rate(f64),
    /// Whole answers at a share of the rate the gateway reached in `ns`.
    Share(f64),
    /// Streams in a closed loop.
    Streams { connection_count: usize, event_count: u64, delay_us: u64, ramp_seconds: f64 },
    /// Streams that are all open together, once.
    Crowd { stream_count: usize, event_count: u64, delay_us: u64, ramp_seconds: f64 },
}

/// Everything that can be run, in its order.
pub const STEPS: &[Step] = &[
    Step {
        name: "ns",
        what: "whole answers, 64 connections, 1 KB prompts",
        is_tls: false,
        load: Load::Whole { connection_count: 64, prompt_bytes: 1000 },
        seconds: 2.5,
    },
    Step {
        name: "open500",
        what: "whole answers, 500/s at a constant rate",
        is_tls: false,
        load: Load::Rate(500.0),
        seconds: 3.0,
    },
    Step {
        name: "s0",
        what: "64 streams of 32 events without delay",
        is_tls: false,
        load: Load::Streams { connection_count: 64, event_count: 32, delay_us: 0, ramp_seconds: 0.0 },
        seconds: 2.0,
    },
    Step {
        name: "s20",
        what: "1000 streams, 20 ms between events",
        is_tls: false,
        load: Load::Streams { connection_count: 1000, event_count: 200, delay_us: 20_000, ramp_seconds: 1.5 },
        seconds: 2.0,
    },
    Step {
        name: "s50",
        what: "1000 streams, 50 ms between events",
        is_tls: false,
        load: Load::Streams { connection_count: 1000, event_count: 100, delay_us: 50_000, ramp_seconds: 1.5 },
        seconds: 2.5,
    },
    Step {
        name: "b100k",
        what: "whole answers, 8 connections, 100 KB prompts",
        is_tls: false,
        load: Load::Whole { connection_count: 8, prompt_bytes: 100_000 },
        seconds: 1.5,
    },
    Step {
        name: "b1m",
        what: "whole answers, 8 connections, 1 MB prompts",
        is_tls: false,
        load: Load::Whole { connection_count: 8, prompt_bytes: 1_000_000 },
        seconds: 2.0,
    },
    Step {
        name: "p150",
        what: "whole answers, 150 connections, 220 KB prompts",
        is_tls: false,
        load: Load::Whole { connection_count: 150, prompt_bytes: 220_000 },
        seconds: 2.0,
    },
    // After those whose memory is read: at this rate a hiccup opens up to two thousand connections, which all stay.
    Step {
        name: "open30",
        what: "whole answers at a constant rate of 30 % of the gateway's own most",
        is_tls: false,
        load: Load::Share(0.3),
        seconds: 2.0,
    },
    Step {
        name: "c1000",
        what: "1000 streams opened, read to their end and closed, 100 ms between events",
        is_tls: false,
        load: Load::Crowd { stream_count: 1000, event_count: 30, delay_us: 100_000, ramp_seconds: 1.0 },
        seconds: 4.0,
    },
    Step {
        name: "c5000",
        what: "5000 streams opened, read to their end and closed, 200 ms between events",
        is_tls: false,
        load: Load::Crowd { stream_count: 5000, event_count: 20, delay_us: 200_000, ramp_seconds: 2.0 },
        seconds: 6.0,
    },
    Step {
        name: "tls",
        what: "whole answers within TLS, 64 kept connections, 1 KB prompts",
        is_tls: true,
        load: Load::Whole { connection_count: 64, prompt_bytes: 1000 },
        seconds: 2.0,
    },
];

/// How long the windows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Full,
    /// A third of the time, for tuning.
    Quick,
}

const WARM_UP: f64 = 0.3;
/// Keys that take turns on whole answers to small prompts.
const CALLERS: usize = 1024;
/// Between two steps, for closes to be handled.
pub(crate) const SETTLE: Duration = Duration::from_millis(150);
/// What a crowd may take over its own time.
const CROWD_WITHIN: Duration = Duration::from_secs(20);
const OPEN_MAX: usize = 2000;

impl Pace {
    fn of(self, seconds: f64) -> Duration {
        Duration::from_secs_f64(if self == Self::Quick { seconds / 3.0 } else { seconds })
    }
}

impl Step {
    /// By its name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        STEPS.iter().find(|step| step.name == name)
    }

    /// Whether its calls are streams, whose unit is the event.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        matches!(self.load, Load::Streams { .. } | Load::Crowd { .. })
    }

    /// Whether it says how many calls a second the gateway can do.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.load, Load::Whole { .. } | Load::Streams { delay_us: 0, .. })
    }

    /// About what it takes.
    #[must_use]
    pub fn takes(&self, pace: Pace) -> Duration {
        let ramp = match self.load {
            Load::Streams { ramp_seconds, .. } => ramp_seconds,
            _ => 0.0,
        };
        let window = if matches!(self.load, Load::Crowd { .. }) { Pace::Full } else { pace };
        window.of(self.seconds) + Duration::from_secs_f64(ramp + WARM_UP) + SETTLE
    }

    /// The load against a target, its requests in turn with these keys. `own_rate` is what the gateway reached in `ns`.
    pub(crate) fn drive(&self, target: &Target, pace: Pace, own_rate: Option<f64>, keys: &[String]) -> Drive {
        let open = |calls_per_second| Arrivals::Open { calls_per_second, open_max: OPEN_MAX };
        let mut prompt_bytes = 1000;
        let (mut tag, mut expected_event_count) = (String::new(), None);
        let mut warm_up = WARM_UP;
        let mut time = pace.of(self.seconds);
        let arrivals = match self.load {
            Load::Whole { connection_count, prompt_bytes: bytes } => {
                prompt_bytes = bytes;
                Arrivals::Closed { connection_count, ramp: Duration::ZERO }
            }
            Load::Rate(rate) => open(rate),
            Load::Share(share) => open((own_rate.unwrap_or(1000.0) * share).max(20.0)),
            Load::Streams { connection_count, event_count, delay_us, ramp_seconds } => {
                (tag, expected_event_count) = (mark(event_count, delay_us, 0), Some(event_count));
                warm_up = ramp_seconds + WARM_UP;
                Arrivals::Closed { connection_count, ramp: Duration::from_secs_f64(ramp_seconds) }
            }
            Load::Crowd { stream_count, event_count, delay_us, ramp_seconds } => {
                (tag, expected_event_count) = (mark(event_count, delay_us, 0), Some(event_count));
                warm_up = 0.0;
                time = CROWD_WITHIN;
                Arrivals::Once { call_count: stream_count, ramp: Duration::from_secs_f64(ramp_seconds) }
            }
        };
        // As many callers as connections, and more where requests are small.
        let (prompt_count, caller_count) = match self.load {
            _ if prompt_bytes > 50_000 => (8, 8),
            Load::Streams { connection_count, .. } => (64, connection_count),
            Load::Crowd { stream_count, .. } => (64, stream_count),
            Load::Whole { .. } | Load::Rate(_) | Load::Share(_) => (64, CALLERS),
        };
        let delivery = if expected_event_count.is_some() { Delivery::Streamed } else { Delivery::Whole };
        let chat = Chat { model: MODEL.to_owned(), prompt_bytes, tag, delivery, ..Chat::default() };
        let request = |caller: usize| {
            let headers = credential(keys.get(caller % keys.len().max(1)));
            Chat { seed: caller as u64 % prompt_count, headers, ..chat.clone() }.bytes(target)
        };
        Drive {
            target: target.clone(),
            requests: (0..caller_count).map(request).collect(),
            arrivals,
            expected_event_count,
            warm_up: Duration::from_secs_f64(warm_up),
            time,
            pid: None,
            mock_pid: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_of_every_step_is_over_soon_enough_to_have_many() {
        let all: Duration = STEPS.iter().map(|step| step.takes(Pace::Full)).sum();
        assert!(all < Duration::from_secs(40), "{all:?}");
        let quick: Duration = STEPS.iter().map(|step| step.takes(Pace::Quick)).sum();
        assert!(quick < all);
    }

    #[test]
    fn a_share_is_of_the_gateways_own_rate_and_streams_carry_their_mark() {
        let target = Target::parse("http://127.0.0.1:9").expect("a URL");
        let keys: Vec<String> = (0..3).map(|number| format!("sk-{number}")).collect();
        let drive = |name| Step::find(name).expect("a step").drive(&target, Pace::Full, Some(10_000.0), &keys);
        assert_eq!(drive("open30").arrivals, Arrivals::Open { calls_per_second: 3000.0, open_max: OPEN_MAX });
        let stream = drive("s20");
        let text = String::from_utf8(stream.requests[3].clone()).expect("text");
        assert!(text.contains("@@c=200,d=20000,p=0@@ ") && text.contains("\"stream\":true"));
        assert_eq!(stream.expected_event_count, Some(200));
        assert!(drive("b1m").requests[0].len() > 1_000_000);
        let asked = drive("ns").requests;
        assert!(asked.len() == CALLERS && stream.requests.len() == 1000);
        let key_of = |at: usize| String::from_utf8_lossy(&asked[at]).contains(&format!("Bearer sk-{}\r\n", at % 3));
        assert!((0..CALLERS).all(key_of), "the keys take turns");
    }
}
