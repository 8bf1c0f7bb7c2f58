//! Route tables to cores: the one that makes a table, keeps the books and says so to every core.
//!
//! Started by `run`; publishes when an address or the configuration changes and passes on the gateway's way out.
//! Decides nothing about routes (`table` does) and never waits for a core.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use llmgw_config::ServerConfig;
use llmgw_kit::clock::Mono;
use llmgw_router::board::Board;
use llmgw_router::feed::Feed;
use llmgw_router::message::CoreMessage;
use llmgw_router::settings::Settings;
use llmgw_runtime::mailbox::Latest;
use llmgw_types::snapshot::SnapshotError;
use llmgw_types::{BoardSlot, Snapshot};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;
use tokio_rustls::rustls::ClientConfig;

use crate::caches::Caches;
use crate::certificate::{Certificates, PairError};
use crate::lanes::Lanes;
use crate::rooms::Rooms;
use crate::run::Stage;
use crate::settings::settings;
use crate::table::{self, Addrs, BoardFull, Book, View};
use crate::trust::{self, TrustError};

/// How often it is looked whether engines have more room or less.
const LOOK: Duration = Duration::from_millis(25);
/// How soon a full lane is tried again.
const FLUSH_AGAIN: Duration = Duration::from_millis(5);

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The board is too small.
    #[error(transparent)]
    Full(#[from] BoardFull),
    /// Authorities that are of no use.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A certificate that cannot be shown to clients.
    #[error(transparent)]
    Certificate(#[from] PairError),
    /// The table does not fit together: a fault of this program.
    #[error(transparent)]
    Table(#[from] SnapshotError),
}

/// A configuration to publish from here on, and where the answer goes.
pub(crate) struct Command {
    pub config: Arc<ServerConfig>,
    pub answer: oneshot::Sender<Result<Published, PublishError>>,
}

/// What a publication came to.
pub(crate) struct Published {
    pub generation: u64,
    /// The slot of every endpoint.
    pub slots: HashMap<String, BoardSlot>,
}

/// The only writer of feeds.
pub(crate) struct Publisher {
    config: Arc<ServerConfig>,
    settings: Arc<Settings>,
    board: Arc<Board>,
    feeds: Vec<Arc<Latest<Feed>>>,
    lanes: Lanes,
    book: Book,
    rooms: Rooms,
    caches: Caches,
    certificates: Certificates,
    view: watch::Sender<Arc<View>>,
    told: Stage,
}

impl Publisher {
    /// Nothing is published yet. `created` in unix seconds.
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        board: Arc<Board>,
        feeds: Vec<Arc<Latest<Feed>>>,
        lanes: Lanes,
        caches: Caches,
        created: u64,
    ) -> Self {
        let book = Book::new(&board, created);
        let settings = Arc::new(settings(&config));
        let rooms = Rooms::new(board.clone());
        Self {
            config,
            settings,
            board,
            feeds,
            lanes,
            book,
            rooms,
            caches,
            certificates: Certificates::default(),
            view: watch::Sender::default(),
            told: Stage::Serving,
        }
    }

    /// The names of the newest table.
    pub(crate) fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    /// The slots of the newest table's endpoints.
    pub(crate) fn slots(&self) -> HashMap<String, BoardSlot> {
        let endpoints = self.config.endpoints.iter();
        endpoints.filter_map(|endpoint| Some((endpoint.name.clone(), self.book.slot(&endpoint.name)?))).collect()
    }

    /// Publishes another configuration.
    ///
    /// Errors: there is no table; cores and publisher keep the configuration they have.
    fn follow(&mut self, config: Arc<ServerConfig>, addrs: &Addrs) -> Result<Published, PublishError> {
        let new_settings = settings(&config);
        let settings = if new_settings == *self.settings { self.settings.clone() } else { Arc::new(new_settings) };
        let before = (std::mem::replace(&mut self.config, config), std::mem::replace(&mut self.settings, settings));
        match self.publish(addrs) {
            Ok(generation) => Ok(Published { generation, slots: self.slots() }),
            Err(error) => {
                (self.config, self.settings) = before;
                Err(error)
            }
        }
    }

    /// Makes a table and puts it before every core.
    ///
    /// Errors: there is no table; the cores keep the one they have.
    pub(crate) fn publish(&mut self, addrs: &Addrs) -> Result<u64, PublishError> {
        let trust = self.trust()?;
        let client_tls = self.certificates.follow(&self.config.tls)?.map(|config| config as Arc<dyn Any + Send + Sync>);
        let table = table::table(&self.config, addrs, &mut self.book, &self.board)?;
        let snapshot = Snapshot::of(&table)?;
        // Less room before any core works with the table, more of it only once all do.
        self.rooms.follow(Arc::new(Snapshot::of(&table)?), Mono::now(), &self.lanes);
        self.caches.follow(&table);
        let feed = Arc::new(Feed { snapshot, trust, client_tls, settings: self.settings.clone() });
        // Names first: a core's record may be read before this thread comes back here.
        self.view.send_replace(Arc::new(View::of(&table, &self.book)));
        self.feeds.iter().for_each(|latest| latest.put(feed.clone()));
        self.lanes.tell_all(CoreMessage::FeedReady);
        tracing::debug!(generation = table.generation, bytes = feed.snapshot.size_bytes(), "route table published");
        Ok(table.generation)
    }

    /// Whom to trust, by the configuration's endpoints, which are the table's.
    fn trust(&self) -> Result<Vec<Option<Arc<dyn Any + Send + Sync>>>, TrustError> {
        let erased = |trust: Option<Arc<ClientConfig>>| trust.map(|config| config as Arc<dyn Any + Send + Sync>);
        self.config.endpoints.iter().map(|endpoint| Ok(erased(trust::of(endpoint)?))).collect()
    }

    fn tell_stage(&mut self, stage: Stage) {
        let steps = [
            (Stage::Settling, CoreMessage::Settle),
            (Stage::Draining, CoreMessage::Drain),
            (Stage::Cutting, CoreMessage::Cut),
        ];
        for (step, message) in steps {
            if self.told < step && step <= stage {
                self.lanes.tell_all(message);
                self.told = step;
            }
        }
    }

    /// Has room follow the engines. Where one drains, or takes requests again, each core counts its requests there
    /// anew.
    fn look(&mut self, addrs: &watch::Receiver<Addrs>) {
        self.caches.look();
        if self.rooms.look(Mono::now(), &self.lanes) {
            let known = addrs.borrow().clone();
            if let Err(error) = self.publish(&known) {
                tracing::error!(%error, "route table not published");
            }
        }
    }

    /// Publishes and passes on until the side runtime stops.
    pub(crate) async fn run(
        mut self,
        mut addrs: watch::Receiver<Addrs>,
        mut stage: watch::Receiver<Stage>,
        mut commands: mpsc::Receiver<Command>,
        changed: Arc<Notify>,
    ) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_sent = self.lanes.flush();
            tokio::select! {
                _ = look.tick() => self.look(&addrs),
                () = changed.notified() => self.look(&addrs),
                // A sender that is gone means that the side runtime is ending; whoever ends it aborts this task.
                Ok(()) = addrs.changed() => {
                    let known = addrs.borrow_and_update().clone();
                    if let Err(error) = self.publish(&known) {
                        tracing::error!(%error, "route table not published");
                    }
                }
                Some(Command { config, answer }) = commands.recv() => {
                    let known = addrs.borrow().clone();
                    let outcome = self.follow(config, &known);
                    // Whoever asked may have gone with the side runtime.
                    let _ = answer.send(outcome);
                }
                Ok(()) = stage.changed() => {
                    let stage = *stage.borrow_and_update();
                    self.tell_stage(stage);
                    if stage == Stage::Stopped {
                        return;
                    }
                }
                () = tokio::time::sleep(FLUSH_AGAIN), if !is_sent => {}
                else => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use llmgw_router::prefix::{Ledger, StampTable};
    use llmgw_runtime::mailbox::Mesh;

    use super::*;

    fn publisher(slots: usize) -> (Publisher, Vec<Arc<Latest<Feed>>>) {
        let text = "endpoints: [{ name: a, url: 'http://127.0.0.1:8000', model: m }, { url: 'http://h:1', model: m }]";
        let config = llmgw_config::from_text("server.yaml", text, []).expect("a configuration");
        let mesh = Mesh::new(2, 1, 8).expect("descriptors");
        let feeds: Vec<_> = (0..2).map(|_| Arc::new(Latest::default())).collect();
        let board = Arc::new(Board::new(2, slots));
        let prefixes = Arc::new(StampTable::new(1024, Ledger::new(2, slots)));
        let (caches, lanes) = (Caches::new(board.clone(), prefixes), Lanes::new(mesh.post(2), 2));
        (Publisher::new(Arc::new(config), board, feeds.clone(), lanes, caches, 7), feeds)
    }

    #[test]
    fn every_core_finds_the_newest_table_only() {
        let (mut publisher, feeds) = publisher(4);
        publisher.publish(&Addrs::default()).expect("room");
        publisher.publish(&Addrs::default()).expect("room");
        for feed in &feeds {
            assert_eq!(feed.take().map(|feed| feed.snapshot.table().generation.to_native()), Some(2));
            assert!(feed.take().is_none());
        }
        assert_eq!(publisher.view().borrow().generation, 2);
        let slots = publisher.slots();
        assert!(slots.contains_key("a") && slots.contains_key("h:1") && slots.len() == 2);
    }

    #[test]
    fn a_board_that_is_too_small_is_said_with_the_endpoint_that_found_no_room() {
        let (mut publisher, feeds) = publisher(1);
        let error = publisher.publish(&Addrs::default()).expect_err("one slot").to_string();
        assert!(error.contains("\"h:1\"") && error.contains("holds 1"), "{error}");
        assert!(feeds.iter().all(|feed| feed.take().is_none()));
    }
}
