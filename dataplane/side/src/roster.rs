//! Who is asked and looked up: one task an endpoint, which probes and scrapes it,
//! one task a host name, started and stopped as the
//! configuration says.
//!
//! Told by `reload` after every publication. A task is stopped by dropping it, so that one that was stopped writes no
//! cell any more; its endpoint is struck from the census then.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use llmgw_config::{EndpointConfig, ServerConfig};
use llmgw_kit::chance::Chance;
use llmgw_router::prefix::StampTable;
use llmgw_types::BoardSlot;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::lanes::Lanes;
use crate::pace::Pace;
use crate::probe::client::Buffers;
use crate::probe::{Census, PROBES_MAX, Prober, Shared};
use crate::resolve;
use crate::scrape::{self, SCRAPES_MAX, Scraper};
use crate::table::Addrs;

pub(crate) struct Roster {
    census: Arc<Census>,
    addrs: Arc<watch::Sender<Addrs>>,
    lanes: Lanes,
    prefixes: Arc<StampTable>,
    permits: Arc<Semaphore>,
    scrape_permits: Arc<Semaphore>,
    buffers: Buffers,
    pace: Pace,
    probes: HashMap<String, Probe>,
    hosts: HashMap<String, AbortHandle>,
    tasks: JoinSet<()>,
}

/// A running probe and what it was started with.
struct Probe {
    slot: BoardSlot,
    asks: String,
    task: AbortHandle,
}

impl Roster {
    /// Nobody is asked yet.
    pub(crate) fn new(
        census: Arc<Census>,
        addrs: Arc<watch::Sender<Addrs>>,
        lanes: Lanes,
        prefixes: Arc<StampTable>,
    ) -> Self {
        Self {
            census,
            addrs,
            lanes,
            prefixes,
            permits: Arc::new(Semaphore::new(PROBES_MAX)),
            scrape_permits: Arc::new(Semaphore::new(SCRAPES_MAX)),
            buffers: Buffers::default(),
            pace: Pace::begin(),
            probes: HashMap::new(),
            hosts: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Starts what this configuration needs and stops what it does not. A probe goes on where nothing that it asks for
    /// changed.
    pub(crate) fn follow(&mut self, config: &ServerConfig, slots: &HashMap<String, BoardSlot>) {
        self.follow_hosts(resolve::hosts(config));
        self.probes.retain(|name, probe| {
            let stays = slots.get(name) == Some(&probe.slot);
            if !stays {
                probe.task.abort();
                self.census.strike(probe.slot);
            }
            stays
        });
        let shared = Shared {
            census: self.census.clone(),
            addrs: self.addrs.subscribe(),
            permits: self.permits.clone(),
            buffers: self.buffers.clone(),
            pace: self.pace,
            interval: config.router.scrape_interval,
            connect_time: config.router.timeouts.connect,
        };
        let scraping = scrape::Shared {
            board: self.census.board(),
            lanes: self.lanes.clone(),
            prefixes: self.prefixes.clone(),
            addrs: self.addrs.subscribe(),
            permits: self.scrape_permits.clone(),
            buffers: self.buffers.clone(),
            pace: self.pace,
            interval: config.router.scrape_interval,
            connect_time: config.router.timeouts.connect,
        };
        for endpoint in &config.endpoints {
            let Some(&slot) = slots.get(&endpoint.name) else { continue };
            let asks = asks(endpoint, [shared.interval, shared.connect_time]);
            match self.probes.get(&endpoint.name) {
                Some(probe) if probe.asks == asks => continue,
                // Its cells stay as they are until the next probe has judged.
                Some(probe) => probe.task.abort(),
                None => self.census.enlist(),
            }
            let prober = Prober::new(endpoint.clone(), slot, shared.clone());
            let scraper = Scraper::new(endpoint.clone(), slot, scraping.clone());
            let task = self.tasks.spawn(async move {
                match scraper {
                    // Neither waits for the other.
                    Some(scraper) => {
                        tokio::join!(prober.run(), scraper.run());
                    }
                    None => prober.run().await,
                }
            });
            self.probes.insert(endpoint.name.clone(), Probe { slot, asks, task });
        }
    }

    fn follow_hosts(&mut self, wanted: BTreeSet<String>) {
        self.hosts.retain(|host, task| {
            let stays = wanted.contains(host);
            if !stays {
                task.abort();
                // Nobody asks for it, so nothing is published for it.
                self.addrs.send_if_modified(|addrs| {
                    addrs.0.remove(host);
                    false
                });
            }
            stays
        });
        for host in wanted {
            if !self.hosts.contains_key(&host) {
                let task =
                    self.tasks.spawn(resolve::watch_host(host.clone(), self.addrs.clone(), Chance::from_system()));
                self.hosts.insert(host, task);
            }
        }
    }

    /// Waits until a task ends that was not stopped, which none should.
    pub(crate) async fn fault(&mut self) -> Result<(), JoinError> {
        loop {
            match self.tasks.join_next().await {
                Some(Err(error)) if error.is_cancelled() => {}
                Some(ended) => return ended,
                None => std::future::pending().await,
            }
        }
    }
}

/// Everything a probe depends on, to compare. Holds the engine's key: never shown.
fn asks(endpoint: &EndpointConfig, times: [Duration; 2]) -> String {
    // How requests are shared out is nothing to a probe.
    let (fabric, gpu_class) = (String::new(), String::new());
    let asked = EndpointConfig { weight: 0, priority: 0, fabric, gpu_class, ..endpoint.clone() };
    let key = endpoint.api_key.as_ref().map(|key| key.expose());
    format!("{asked:?} {key:?} {times:?}")
}
