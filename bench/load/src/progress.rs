//! A line that shows that a run is alive: rewritten on a terminal, one line every few seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const ON_TERMINAL: Duration = Duration::from_millis(500);
const ELSEWHERE: Duration = Duration::from_secs(5);

/// Whether a run shows its progress on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Shown,
    Silent,
}

/// The running line; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Line(Option<tokio::task::JoinHandle<()>>);

impl Progress {
    /// Shows a line until the guard is dropped. Must be called inside a local task set.
    pub(crate) fn show(self, title: &str, mut state: impl FnMut() -> String + 'static) -> Line {
        if self == Self::Silent {
            return Line(None);
        }
        let title = title.to_owned();
        let is_terminal = std::io::stderr().is_terminal();
        let every = if is_terminal { ON_TERMINAL } else { ELSEWHERE };
        Line(Some(tokio::task::spawn_local(async move {
            let started = Instant::now();
            loop {
                tokio::time::sleep(every).await;
                let text = format!("{title}  {:4.0} s  {}", started.elapsed().as_secs_f64(), state());
                let ended = if is_terminal {
                    write!(std::io::stderr(), "\r\x1b[K{text}")
                } else {
                    writeln!(std::io::stderr(), "{text}")
                };
                if ended.is_err() {
                    return;
                }
            }
        })))
    }

    /// The same line for a loop without tasks, which shows it by itself.
    pub(crate) fn beat(self) -> Beat {
        let is_terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Beat { is_shown: self == Self::Shown && is_terminal, started: now, last: now }
    }

    /// Says one thing on a line of its own.
    pub fn say(self, text: &str) {
        if self == Self::Shown {
            // Nobody to tell when standard error is closed.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
}

/// A running line on a terminal, rewritten as often as is useful; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Beat {
    is_shown: bool,
    started: Instant,
    last: Instant,
}

impl Beat {
    /// Writes the line when it is time to.
    pub(crate) fn show(&mut self, state: impl FnOnce() -> String) {
        if self.is_shown && self.last.elapsed() >= ON_TERMINAL {
            self.last = Instant::now();
            // Nobody to tell when standard error is closed.
            let _ = write!(std::io::stderr(), "\r\x1b[K{:4.0} s  {}", self.started.elapsed().as_secs_f64(), state());
        }
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
            if std::io::stderr().is_terminal() {
                let _ = write!(std::io::stderr(), "\r\x1b[K");
            }
        }
    }
}
