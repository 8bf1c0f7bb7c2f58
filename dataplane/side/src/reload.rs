//! The configuration while the gateway runs: loads the file again, compares, publishes, and says what came of it.
//!
//! Asked by the file's watcher, by SIGHUP through [`crate::Handle::reload`] and by the admin API, one after another.
//! All or nothing: with any error the running configuration stays as it is. Never touches a running request.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use llmgw_config::diff::{self, Changes};
use llmgw_config::{ConfigError, ServerConfig};
use tokio::sync::{mpsc, oneshot, watch};

use crate::publish::{Command, PublishError};
use crate::roster::Roster;

/// Requests that may wait for their turn.
pub(crate) const WAITING_MAX: usize = 16;

/// Who wants the file to be loaded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The process got SIGHUP.
    Signal,
    /// The file is another than before.
    File,
    /// Somebody asked over the admin API.
    Api,
}

impl Cause {
    const fn word(self) -> &'static str {
        match self {
            Self::Signal => "SIGHUP",
            Self::File => "file changed",
            Self::Api => "admin API",
        }
    }
}

/// What came of a reload that was not refused.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// What changed, and what waits for a restart.
    pub changes: Changes,
    /// The number of the newest route table.
    pub generation: u64,
}

/// Why the running configuration stayed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// This gateway was not started from a file.
    #[error("this gateway was not started from a file, so there is nothing to load again")]
    NoFile,
    /// The file is wrong, or cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cores could not be told.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The side runtime has ended.
    #[error("the gateway is stopping")]
    Stopping,
}

/// A wish, and where its answer goes.
pub(crate) struct Request {
    pub cause: Cause,
    pub answer: oneshot::Sender<Result<Reloaded, ReloadError>>,
}

/// Asks and waits for the answer.
pub(crate) async fn ask(requests: &mpsc::Sender<Request>, cause: Cause) -> Result<Reloaded, ReloadError> {
    let (answer, answered) = oneshot::channel();
    requests.send(Request { cause, answer }).await.map_err(|_| ReloadError::Stopping)?;
    answered.await.map_err(|_| ReloadError::Stopping)?
}

/// The one that changes the running configuration.
pub(crate) struct Reloader {
    pub file: Option<PathBuf>,
    pub running: Arc<watch::Sender<Arc<ServerConfig>>>,
    pub roster: Roster,
    pub publisher: mpsc::Sender<Command>,
    pub requests: mpsc::Receiver<Request>,
}

impl Reloader {
    /// Serves requests until the side runtime stops, or until one of the roster's tasks ends that must not.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        loop {
            tokio::select! {
                request = self.requests.recv() => {
                    let Some(Request { cause, answer }) = request else { return Ok(()) };
                    let outcome = self.reload().await;
                    tell(cause, &outcome);
                    // Whoever asked may have gone.
                    let _ = answer.send(outcome);
                }
                ended = self.roster.fault() => {
                    return Err(ended.map_or_else(io::Error::other, |()| io::Error::other("a probe ended by itself")));
                }
            }
        }
    }

    async fn reload(&mut self) -> Result<Reloaded, ReloadError> {
        let path = self.file.clone().ok_or(ReloadError::NoFile)?;
        // The file may lie on a disk that does not answer.
        let loaded = tokio::task::spawn_blocking(move || llmgw_config::from_process_env(&path)).await;
        let configured = loaded.map_err(|_| ReloadError::Stopping)??;
        let running = self.running.borrow().clone();
        let changes = diff::changes(&running, &configured);
        let config = Arc::new(diff::applicable(configured, &running));
        let (answer, answered) = oneshot::channel();
        let command = Command { config: config.clone(), answer };
        self.publisher.send(command).await.map_err(|_| ReloadError::Stopping)?;
        let published = answered.await.map_err(|_| ReloadError::Stopping)??;
        self.roster.follow(&config, &published.slots);
        self.running.send_replace(config);
        Ok(Reloaded { changes, generation: published.generation })
    }
}

fn tell(cause: Cause, outcome: &Result<Reloaded, ReloadError>) {
    let cause = cause.word();
    match outcome {
        Ok(reloaded) => {
            let Reloaded { changes, generation } = reloaded;
            let applied = if changes.applies_nothing() { "nothing".to_owned() } else { changes.to_string() };
            tracing::info!(cause, changes = applied, generation, "configuration reloaded");
            for setting in &changes.needs_restart {
                tracing::warn!(key = setting.key, change = %setting, "setting takes effect at a restart");
            }
        }
        Err(error) => tracing::error!(cause, %error, "configuration not reloaded, the running one stays"),
    }
}
