//! From one answer after another to ready or not ready, and when to ask next. No I/O.

use std::time::Duration;

/// The wait after the first answer that is no; doubled each time until it is that of ready endpoints.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
/// A ready engine may be slow to answer while it works: so many silences in a row are needed to withdraw it.
const SILENCES_MAX: u32 = 2;

/// Why an endpoint may not get requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Unresolved,
    Unreachable,
    Untrusted,
    Silent,
    Unhealthy,
    WrongPath,
    KeyRefused,
    ModelAbsent,
}

impl Cause {
    /// Whether waiting does not help: then it is said even if the endpoint was not ready before.
    fn needs_person(self) -> bool {
        matches!(self, Self::Untrusted | Self::WrongPath | Self::KeyRefused | Self::ModelAbsent)
    }
}

/// What one probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ready,
    NotReady { cause: Cause, reason: String },
}

impl Verdict {
    pub(crate) fn no(cause: Cause, reason: impl Into<String>) -> Self {
        Self::NotReady { cause, reason: reason.into() }
    }
}

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Ready,
    NotReady(String),
}

/// What is known of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    is_ready: bool,
    /// Probes in a row that said no.
    refusals: u32,
    /// The causes said since it was ready last: each once.
    told: Vec<Cause>,
}

impl Judge {
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Takes a probe's answer. The result is to be logged.
    pub(crate) fn hear(&mut self, verdict: Verdict) -> Option<Change> {
        match verdict {
            Verdict::Ready => {
                self.refusals = 0;
                self.told.clear();
                (!std::mem::replace(&mut self.is_ready, true)).then_some(Change::Ready)
            }
            Verdict::NotReady { cause, reason } => {
                self.refusals = self.refusals.saturating_add(1);
                if self.is_ready && cause == Cause::Silent && self.refusals < SILENCES_MAX {
                    return None;
                }
                self.is_ready = false;
                let is_news = self.told.is_empty() || cause.needs_person() && !self.told.contains(&cause);
                if is_news {
                    self.told.push(cause);
                }
                is_news.then_some(Change::NotReady(reason))
            }
        }
    }

    /// How long to wait, before jitter; `interval` is the wait between two probes of a ready endpoint.
    pub(crate) fn pause(&self, interval: Duration) -> Duration {
        if self.refusals == 0 {
            return interval;
        }
        PAUSE_FIRST.saturating_mul(1 << (self.refusals - 1).min(16)).min(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(judge: &mut Judge, cause: Cause) -> Option<Change> {
        judge.hear(Verdict::no(cause, format!("{cause:?}")))
    }

    fn says(cause: Cause) -> Option<Change> {
        Some(Change::NotReady(format!("{cause:?}")))
    }

    #[test]
    fn a_change_is_said_once_and_nothing_in_between() {
        let mut judge = Judge::default();
        assert_eq!(hear(&mut judge, Cause::Unreachable), says(Cause::Unreachable));
        assert_eq!(hear(&mut judge, Cause::Unhealthy), None);
        assert_eq!(judge.hear(Verdict::Ready), Some(Change::Ready));
        assert_eq!(judge.hear(Verdict::Ready), None);
        assert_eq!(hear(&mut judge, Cause::Unhealthy), says(Cause::Unhealthy));
        assert_eq!(hear(&mut judge, Cause::Unhealthy), None);
        assert!(!judge.is_ready());
    }

    #[test]
    fn what_a_person_must_mend_is_said_once_also_while_not_ready() {
        let mut judge = Judge::default();
        hear(&mut judge, Cause::Unreachable);
        assert_eq!(hear(&mut judge, Cause::ModelAbsent), says(Cause::ModelAbsent));
        assert_eq!(hear(&mut judge, Cause::ModelAbsent), None);
        assert_eq!(hear(&mut judge, Cause::Unreachable), None);
        assert_eq!(hear(&mut judge, Cause::ModelAbsent), None);
    }

    #[test]
    fn one_silence_does_not_withdraw_a_ready_engine_but_anything_else_does() {
        let mut judge = Judge::default();
        judge.hear(Verdict::Ready);
        assert_eq!(hear(&mut judge, Cause::Silent), None);
        assert!(judge.is_ready());
        judge.hear(Verdict::Ready);
        assert_eq!(hear(&mut judge, Cause::Silent), None, "the count began again");
        assert_eq!(hear(&mut judge, Cause::Silent), says(Cause::Silent));
        assert!(!judge.is_ready());

        for cause in [Cause::Unreachable, Cause::Unhealthy, Cause::KeyRefused] {
            let mut judge = Judge::default();
            judge.hear(Verdict::Ready);
            assert_eq!(hear(&mut judge, cause), says(cause));
        }
    }

    #[test]
    fn probes_come_quicker_while_not_ready_and_slow_down_to_the_interval() {
        let interval = Duration::from_secs(2);
        let mut judge = Judge::default();
        let pauses: Vec<u128> = (0..6)
            .map(|_| {
                hear(&mut judge, Cause::Unhealthy);
                judge.pause(interval).as_millis()
            })
            .collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 2000, 2000]);
        assert_eq!(judge.pause(Duration::from_millis(100)), Duration::from_millis(100));
        judge.hear(Verdict::Ready);
        assert_eq!(judge.pause(interval), interval);
    }
}
