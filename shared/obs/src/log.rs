//! Logging set-up: `tracing` events as JSON or text lines on standard error.
//!
//! `main` calls `init` once and keeps the `Log` to its end. Threads that are not cores log with `tracing`; cores hand
//! records to the side runtime, which writes them with `access`. Either way a line only enters a bounded queue
//! (`sink`). The fields `request_id`, `model`, `replica` and `node` have these names everywhere. The environment is
//! not read here.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;

pub use crate::sink::Sink;
use crate::stamp::Stamp;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

impl std::str::FromStr for Format {
    type Err = LogError;

    fn from_str(word: &str) -> Result<Self, LogError> {
        match word {
            "json" => Ok(Format::Json),
            "text" => Ok(Format::Text),
            _ => Err(LogError::Format(word.into())),
        }
    }
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log format `{0}` is unknown: json or text")]
    Format(String),
    #[error(
        "log level `{level}` is not understood ({reason}): \
         error, warn, info, debug or trace, or `info,llmgw_side=debug`"
    )]
    Level { level: String, reason: String },
    #[error("the log thread did not start: {0}")]
    Thread(#[source] io::Error),
    #[error("logging is set up already")]
    Twice,
}

/// The process's log. Dropping it writes out what is queued.
#[derive(Debug)]
#[must_use = "dropped at once it ends before the first line"]
pub struct Log {
    sink: Sink,
    format: Format,
}

impl Log {
    /// The queue, for lines that are not events.
    pub fn sink(&self) -> Sink {
        self.sink.clone()
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Writes out what is queued, waiting some two seconds at most. Dropping does it too; this is for an end that
    /// does not drop (`std::process::exit`).
    pub fn flush(&self) {
        self.sink.flush();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Sends events at or above `level` to standard error. `level` is a word, or words for single crates
/// (`info,llmgw_side=debug`).
pub fn init(format: Format, level: &str) -> Result<Log, LogError> {
    let filter = filter(level)?;
    let sink = Sink::start(Box::new(io::stderr()), lost_line(format)).map_err(LogError::Thread)?;
    let subscriber = subscriber(format, filter, sink.clone());
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok(Log { sink, format })
}

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    let refused = |reason: String| LogError::Level { level: level.into(), reason };
    if level.trim().is_empty() {
        return Err(refused("it is empty".into()));
    }
    // A lone word that is no level would be taken for a crate's name and silence everything else.
    if !level.contains(['=', ',', '[']) && level.parse::<tracing::level_filters::LevelFilter>().is_err() {
        return Err(refused("no such level".into()));
    }
    EnvFilter::builder().parse(level).map_err(|error| refused(error.to_string()))
}

fn subscriber(format: Format, filter: EnvFilter, sink: Sink) -> Box<dyn tracing::Subscriber + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || sink.clone());
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Json => Box::new(registry.with(lines.json().flatten_event(true).with_span_list(false))),
        Format::Text => Box::new(registry.with(lines)),
    }
}

/// The line that tells of lost ones, in the log's own format.
fn lost_line(format: Format) -> fn(u64) -> Vec<u8> {
    match format {
        Format::Json => |count| {
            let now = now();
            let what = "\"level\":\"WARN\",\"message\":\"log lines lost\",\"target\":\"llmgw_obs::log\"";
            format!("{{\"timestamp\":\"{now}\",{what},\"count\":{count}}}\n").into_bytes()
        },
        Format::Text => |count| format!("{}  WARN llmgw_obs::log: log lines lost count={count}\n", now()).into_bytes(),
    }
}

fn now() -> Stamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::Kept;

    fn logged(format: Format, level: &str) -> String {
        let kept = Kept::default();
        let sink = Sink::start(Box::new(kept.clone()), lost_line(format)).expect("a thread");
        let subscriber = subscriber(format, filter(level).expect("a level"), sink.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(request_id = "r-1", model = "org/m:7b", replica = "a\"b", "request\nserved");
            tracing::debug!("not asked for");
        });
        sink.flush();
        kept.text()
    }

    #[test]
    fn an_event_is_one_json_object_with_flat_fields() {
        let text = logged(Format::Json, "info");
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["message"], "request\nserved");
        assert_eq!((&line["request_id"], &line["model"]), (&"r-1".into(), &"org/m:7b".into()));
        assert_eq!(line["replica"], "a\"b");
        assert!(line["timestamp"].is_string());
    }

    #[test]
    fn text_lines_carry_the_same_fields_without_colours() {
        let text = logged(Format::Text, "info");
        assert!(text.contains("request_id=\"r-1\"") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_level_can_be_said_for_one_crate() {
        assert_eq!(logged(Format::Json, "warn"), "");
        assert_ne!(logged(Format::Json, "warn,llmgw_obs=info"), "");
    }

    #[test]
    fn a_level_that_is_none_is_refused_with_the_right_words() {
        for level in ["", "loud", "llmgw_side=loud", "info,=,"] {
            let told = filter(level).expect_err(level).to_string();
            assert!(told.contains(level) && told.contains("trace"), "{told}");
        }
        assert!("xml".parse::<Format>().is_err_and(|error| error.to_string().contains("json or text")));
    }

    #[test]
    fn lost_lines_are_told_in_the_logs_format() {
        let line: serde_json::Value = serde_json::from_slice(&lost_line(Format::Json)(3)).expect("JSON");
        assert_eq!(line["count"], 3);
        assert!(lost_line(Format::Text)(3).ends_with(b"count=3\n"));
    }
}
