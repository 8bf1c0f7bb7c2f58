//! Who may ask, put together: the tables that cores are given, and a desk on a store's file for a command line.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use llmgw_config::ServerConfig;
use llmgw_control::tenants::{Builder, Built, Seats, Watch};
use llmgw_control::{Ask, Desk};
use llmgw_ctl::{OfflineAnswer, OfflineDesk};
use llmgw_join::tenants::Publications;
use llmgw_router::message::CoreMessage;
use llmgw_router::tenants::Tenants;
use llmgw_runtime::mailbox::{Latest, Post};
use llmgw_store::{OpenOptions, Store};
use llmgw_types::{CoreId, KeyIdx, TenantSnapshot};

/// Who may ask, as the cores are told it, from the start to the end of a server.
pub(crate) struct Keys {
    /// By core.
    pub(crate) feeds: Vec<Arc<Latest<Tenants>>>,
    /// Keys that worked at the start.
    pub(crate) key_count: usize,
    pub(crate) watch: Watch,
}

impl Keys {
    /// Publishes the first table, and has a thread publish those that follow.
    ///
    /// Errors: the store cannot be read; no thread left.
    pub(crate) fn start(
        store: &Store,
        cores: usize,
        post: Post<CoreMessage>,
        config: &ServerConfig,
    ) -> io::Result<Self> {
        let mut builder = Builder::default();
        let built = builder.build(store).map_err(io::Error::other)?;
        let names = Names::of(config);
        names.say_unknown(&built);
        warn_of_plain_http(config);
        let feeds: Vec<Arc<Latest<Tenants>>> = (0..cores).map(|_| Arc::default()).collect();
        let (generation, key_count) = (built.generation, built.key_count);
        let (publications, first) = Publications::begin(store, cores, built.snapshot).map_err(io::Error::other)?;
        let mut seats = CoreSeats { feeds: feeds.clone(), post, publications };
        seats.send(&first);
        let watch = Watch::start(store.clone(), builder, generation, seats)?;
        Ok(Self { feeds, key_count, watch })
    }
}

/// Words that the configuration gives a meaning.
struct Names {
    bands: HashSet<String>,
    profiles: HashSet<String>,
}

impl Names {
    fn of(config: &ServerConfig) -> Self {
        let bands = config.models.iter().flat_map(|model| &model.admission.bands).map(|band| band.name.clone());
        let profiles = config.router.profiles.iter().map(|profile| profile.name.clone());
        Self { bands: bands.collect(), profiles: profiles.collect() }
    }

    /// Says which words of keys mean nothing: the requests of such keys are treated as their band or profile were not
    /// there.
    fn say_unknown(&self, built: &Built) {
        for band in built.bands.iter().filter(|band| !self.bands.contains(*band)) {
            tracing::warn!(band, "keys name a band that no model has; their requests are in the lowest");
        }
        for profile in built.profiles.iter().filter(|profile| !self.profiles.contains(*profile)) {
            tracing::warn!(profile, "keys name a routing profile that is not there; their model's own is used");
        }
    }
}

/// Keys in plain text on a network are keys for whoever listens there.
fn warn_of_plain_http(config: &ServerConfig) {
    for listen in plain_on_a_network(config) {
        tracing::warn!(%listen, "keys pass over plain HTTP here, to be read by anybody on the way: set tls");
    }
}

/// The addresses that other machines reach and that are served without TLS.
fn plain_on_a_network(config: &ServerConfig) -> Vec<SocketAddr> {
    let plain = config.listen.iter().filter(|_| config.tls.is_empty());
    plain.filter(|listen| !listen.ip().is_loopback()).copied().collect()
}

/// The cores, as whoever watches the store sees them.
struct CoreSeats {
    feeds: Vec<Arc<Latest<Tenants>>>,
    post: Post<CoreMessage>,
    publications: Publications,
}

impl CoreSeats {
    fn send(&mut self, tenants: &Arc<Tenants>) {
        for (core, feed) in (0..).map(CoreId).zip(&self.feeds) {
            feed.put(tenants.clone());
            self.post.send_or_keep(core, CoreMessage::TenantsReady);
        }
    }
}

impl Seats for CoreSeats {
    fn publish(&mut self, snapshot: Arc<TenantSnapshot>) {
        if let Some(newer) = self.publications.next(snapshot) {
            self.send(&newer);
        }
    }

    fn tend(&mut self) {
        if let Some(newer) = self.publications.tend() {
            self.send(&newer);
        }
        self.post.flush();
    }

    fn used(&mut self) -> Vec<(KeyIdx, i64)> {
        self.publications.used()
    }
}

/// Answers on a store's file, for a command line.
///
/// Errors: the file is not there, or cannot be used.
pub(crate) fn offline(file: &Path) -> Result<OfflineDesk, String> {
    let make_first = "a server makes it, with store.path in its configuration";
    if !file.parent().is_some_and(|folder| folder.as_os_str().is_empty() || folder.is_dir()) {
        return Err(format!("--store {}: there is no such folder; {make_first}", file.display()));
    }
    let store = Store::open(OpenOptions::new(file)).map_err(|error| error.to_string())?;
    let desk = Desk::new(Some(store));
    Ok(Box::new(move |verb, target, body, actor| {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let answer = desk.answer(&Ask { verb, path, query, body: body.as_bytes(), actor });
        OfflineAnswer { status: answer.status, body: answer.body }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_other_machines_reach_in_plain_text_is_warned_of() {
        let check = |listen: &str, expected: &[&str]| {
            let text = format!("listen: {listen}\nauth: keys\nendpoints: [{{ url: 'http://h:1', model: m }}]");
            let config = llmgw_config::from_text("server.yaml", &text, []).expect("a configuration");
            let plain: Vec<String> = plain_on_a_network(&config).iter().map(ToString::to_string).collect();
            assert_eq!(plain, expected, "{listen}");
        };
        check("'127.0.0.1:1'", &[]);
        check("[':1', '[::1]:2', '10.0.0.1:3']", &["0.0.0.0:1", "10.0.0.1:3"]);
    }
}
