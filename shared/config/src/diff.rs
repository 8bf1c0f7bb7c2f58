//! What differs between two configurations, and when each difference takes effect.
//!
//! Asked by whoever loads the file again while the gateway runs. [`KEYS`] is the one table of keys; rows of lists
//! (endpoints, models, routing profiles) are told apart by name. Never says a secret, only that it changed.

use std::fmt;

use llmgw_kit::secret::Secret;
use llmgw_kit::units::{format_bytes, format_duration};

use crate::config::{EndpointConfig, RouterConfig, ServerConfig};
use crate::values::CoreCount;

/// When another value of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// With the next request, connection or probe; what runs keeps what it began with.
    AtOnce,
    /// When the gateway is started again. Until then the running value stays.
    AtRestart,
}

/// A key outside of lists.
struct Key {
    name: &'static str,
    takes: Takes,
    value: Value,
}

enum Value {
    Shown(fn(&ServerConfig) -> String),
    Secret(fn(&ServerConfig) -> Option<&Secret>),
    /// Files, of which it is said that they changed and not how.
    Files(fn(&ServerConfig) -> Vec<[&str; 4]>),
}

const fn key(name: &'static str, takes: Takes, show: fn(&ServerConfig) -> String) -> Key {
    Key { name, takes, value: Value::Shown(show) }
}

use Takes::{AtOnce, AtRestart};

/// Every key outside of lists that this version reads.
static KEYS: &[Key] = &[
    key("listen", AtRestart, |c| c.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    key("admin_listen", AtRestart, |c| c.admin_listen.to_string()),
    key("auth", AtRestart, |c| c.auth.word().to_owned()),
    key("cores", AtRestart, |c| count(c.cores)),
    key("side_cpus", AtRestart, |c| count(c.side_cpus)),
    key("store.path", AtRestart, |c| c.store.path.display().to_string()),
    Key { name: "admin_token", takes: AtOnce, value: Value::Secret(|c| c.admin_token.as_ref()) },
    Key { name: "tls", takes: AtOnce, value: Value::Files(certificates) },
    key("router.prefix.approx_tree.max_tree_size", AtRestart, |c| c.router.prefix_table_slots.to_string()),
    key("router.scrape_interval", AtOnce, |c| format_duration(c.router.scrape_interval)),
    key("router.inject_usage", AtOnce, |c| c.router.inject_usage.to_string()),
    key("router.retries", AtOnce, |c| c.router.retries.to_string()),
    key("router.cooldown_seconds", AtOnce, |c| c.router.cooldown.as_secs().to_string()),
    key("router.endpoint_cache_max_age", AtOnce, |c| format_duration(c.router.endpoint_cache_max_age)),
    key("router.limits.body", AtOnce, |c| format_bytes(c.router.limits.body_bytes)),
    key("router.limits.header", AtOnce, |c| format_bytes(c.router.limits.header_bytes)),
    key("router.limits.headers", AtOnce, |c| c.router.limits.header_count.to_string()),
    key("router.timeouts.connect", AtOnce, |c| format_duration(c.router.timeouts.connect)),
    key("router.timeouts.first_token", AtOnce, |c| format_duration(c.router.timeouts.first_token)),
    key("router.timeouts.between_events", AtOnce, |c| format_duration(c.router.timeouts.between_events)),
    key("router.timeouts.total", AtOnce, |c| format_duration(c.router.timeouts.total)),
    key("router.timeouts.client_header", AtOnce, |c| format_duration(c.router.timeouts.client_header)),
    key("router.timeouts.client_body", AtOnce, |c| format_duration(c.router.timeouts.client_body)),
    key("router.timeouts.client_idle", AtOnce, |c| format_duration(c.router.timeouts.client_idle)),
    key("router.timeouts.drain", AtOnce, |c| format_duration(c.router.timeouts.drain)),
    key("router.timeouts.settle", AtOnce, |c| format_duration(c.router.timeouts.settle)),
    key("router.default_profile", AtOnce, |c| c.router.default_profile.clone()),
];

type ShowEndpoint = fn(&EndpointConfig) -> String;

/// The values of an endpoint, by the key that sets them. A changed `url` is another engine under the same name.
const ENDPOINT_KEYS: &[(&str, ShowEndpoint)] = &[
    ("url", |e| e.url.to_string()),
    ("models", |e| format!("{:?}", e.models)),
    ("engine", |e| e.engine.to_string()),
    ("fabric", |e| e.fabric.clone()),
    ("gpu_class", |e| e.gpu_class.clone()),
    ("priority", |e| e.priority.to_string()),
    ("weight", |e| e.weight.to_string()),
    ("health_path", |e| format!("{:?}", e.health_path)),
    ("metrics_path", |e| format!("{:?}", e.metrics_path)),
    ("metrics", |e| format!("{:?}", e.metrics)),
    ("batch_capacity", |e| format!("{:?}", e.batch_capacity)),
    ("scheduling", |e| format!("{:?}", e.scheduling)),
    ("kv_capacity_tokens", |e| format!("{:?}", e.kv_capacity_tokens)),
    ("tls", |e| format!("{:?}", e.tls_ca)),
];

fn certificates(config: &ServerConfig) -> Vec<[&str; 4]> {
    config.tls.iter().map(|pair| [&*pair.cert_file, &*pair.cert_pem, &*pair.key_file, pair.key_pem.expose()]).collect()
}

/// What stands for keys that the tables do not name one by one.
const OTHER: &str = "other settings";

fn count(count: CoreCount) -> String {
    match count {
        CoreCount::Auto => "auto".to_owned(),
        CoreCount::Exactly(count) => count.to_string(),
    }
}

/// What differs, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Engines.
    pub endpoints: Rows,
    /// Public models.
    pub models: Rows,
    /// Routing profiles.
    pub profiles: Rows,
    /// Keys outside of lists that take effect at once.
    pub settings: Vec<Setting>,
    /// Keys that take effect at a restart.
    pub needs_restart: Vec<Setting>,
}

/// What differs in a list of named rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Names that were not there.
    pub added: Vec<String>,
    /// Names that are there no more.
    pub removed: Vec<String>,
    /// Names that stayed, with what of them changed.
    pub changed: Vec<(String, Vec<&'static str>)>,
}

/// A key that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its path.
    pub key: &'static str,
    /// The running value; nothing where it may not be shown.
    pub running: Option<String>,
    /// The value of the file.
    pub configured: Option<String>,
}

/// What another configuration would change in the running one.
pub fn changes(running: &ServerConfig, configured: &ServerConfig) -> Changes {
    let mut changes = Changes {
        endpoints: rows(&running.endpoints, &configured.endpoints, |e| &e.name, endpoint_keys),
        models: rows(
            &running.models,
            &configured.models,
            |m| &m.name,
            |one, other| {
                let is_same = format!("{one:?}") == format!("{other:?}");
                if is_same { Vec::new() } else { vec!["settings"] }
            },
        ),
        profiles: rows(
            &running.router.profiles,
            &configured.router.profiles,
            |p| &p.name,
            |one, other| {
                if one == other { Vec::new() } else { vec!["settings"] }
            },
        ),
        ..Changes::default()
    };
    for key in KEYS {
        let Some((from, to)) = key.value.differs(running, configured) else { continue };
        let setting = Setting { key: key.name, running: from, configured: to };
        match key.takes {
            AtOnce => changes.settings.push(setting),
            AtRestart => changes.needs_restart.push(setting),
        }
    }
    let is_router_told = changes.settings.iter().any(|setting| setting.key.starts_with("router."));
    if !is_router_told && at_once(&running.router) != at_once(&configured.router) {
        changes.settings.push(Setting { key: "router", running: None, configured: None });
    }
    changes
}

/// The configuration as it can be applied now: keys that take effect at a restart keep their running value.
pub fn applicable(configured: ServerConfig, running: &ServerConfig) -> ServerConfig {
    ServerConfig {
        listen: running.listen.clone(),
        admin_listen: running.admin_listen,
        auth: running.auth,
        cores: running.cores,
        side_cpus: running.side_cpus,
        store: running.store.clone(),
        router: RouterConfig { prefix_table_slots: running.router.prefix_table_slots, ..configured.router },
        ..configured
    }
}

impl Value {
    fn differs(&self, one: &ServerConfig, other: &ServerConfig) -> Option<(Option<String>, Option<String>)> {
        match self {
            Self::Shown(show) => {
                let (from, to) = (show(one), show(other));
                (from != to).then_some((Some(from), Some(to)))
            }
            Self::Secret(secret) => {
                let exposed = |config| secret(config).map(Secret::expose);
                (exposed(one) != exposed(other)).then_some((None, None))
            }
            Self::Files(files) => (files(one) != files(other)).then_some((None, None)),
        }
    }
}

/// What of it takes effect at once and has no row of its own.
fn at_once(router: &RouterConfig) -> String {
    format!("{:?}", RouterConfig { profiles: Vec::new(), prefix_table_slots: 0, ..router.clone() })
}

fn endpoint_keys(one: &EndpointConfig, other: &EndpointConfig) -> Vec<&'static str> {
    let differs = ENDPOINT_KEYS.iter().filter(|(_, show)| show(one) != show(other));
    let mut keys: Vec<&'static str> = differs.map(|(name, _)| *name).collect();
    let exposed = |endpoint: &EndpointConfig| endpoint.api_key.as_ref().map(|key| key.expose().to_owned());
    if exposed(one) != exposed(other) {
        keys.push("api_key");
    }
    if keys.is_empty() && format!("{one:?}") != format!("{other:?}") {
        keys.push(OTHER);
    }
    keys
}

fn rows<T>(running: &[T], configured: &[T], name: fn(&T) -> &String, differs: fn(&T, &T) -> Vec<&'static str>) -> Rows {
    let mut rows = Rows::default();
    let find = |list: &'_ [T], wanted: &str| list.iter().position(|row| name(row) == wanted);
    for row in configured {
        match find(running, name(row)).and_then(|at| running.get(at)) {
            None => rows.added.push(name(row).clone()),
            Some(before) => {
                let keys = differs(before, row);
                if !keys.is_empty() {
                    rows.changed.push((name(row).clone(), keys));
                }
            }
        }
    }
    rows.removed = running.iter().map(name).filter(|name| find(configured, name).is_none()).cloned().collect();
    rows
}

impl Rows {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl Changes {
    /// Whether nothing takes effect at once.
    pub fn applies_nothing(&self) -> bool {
        let Self { endpoints, models, profiles, settings, .. } = self;
        [endpoints, models, profiles].iter().all(|rows| rows.is_empty()) && settings.is_empty()
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.applies_nothing() && self.needs_restart.is_empty()
    }
}

/// `added a, b; removed c; changed d (weight, priority)`.
impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed: Vec<String> =
            self.changed.iter().map(|(name, keys)| format!("{name} ({})", keys.join(", "))).collect();
        let mut is_first = true;
        for (what, names) in [("added", &self.added), ("removed", &self.removed), ("changed", &changed)] {
            if !names.is_empty() {
                let separator = if std::mem::take(&mut is_first) { "" } else { "; " };
                write!(f, "{separator}{what} {}", names.join(", "))?;
            }
        }
        Ok(())
    }
}

/// `router.timeouts.total from 1h to 2h`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.running, &self.configured) {
            (Some(from), Some(to)) => write!(f, "{} from {from} to {to}", self.key),
            _ => f.write_str(self.key),
        }
    }
}

/// What takes effect at once, on one line: `endpoints: added b; router.retries from 2 to 3`. Empty when nothing does.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [("endpoints", &self.endpoints), ("models", &self.models), ("profiles", &self.profiles)];
        let lists = lists.iter().filter(|(_, rows)| !rows.is_empty()).map(|(name, rows)| format!("{name}: {rows}"));
        let parts: Vec<String> = lists.chain(self.settings.iter().map(ToString::to_string)).collect();
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ServerConfig {
        let env = [("KEY", "k1"), ("OTHER_KEY", "k2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        crate::from_text("server.yaml", text, env).unwrap_or_else(|error| panic!("{error}"))
    }

    const TWO: &str = "[{ name: a, url: 'http://h:1', model: m }, { name: b, url: 'http://h:2', model: n }]";

    /// What takes effect at once, and what at a restart.
    fn check(from: &str, to: &str, at_once: &str, at_restart: &str) {
        let (running, configured) = (config(from), config(to));
        let changes = changes(&running, &configured);
        let restart: Vec<String> = changes.needs_restart.iter().map(ToString::to_string).collect();
        assert_eq!(
            (changes.to_string().as_str(), restart.join("; ").as_str()),
            (at_once, at_restart),
            "{from} to {to}"
        );
        assert_eq!(changes.is_empty(), at_once.is_empty() && at_restart.is_empty());
        let applied = applicable(configured, &running);
        assert!(super::changes(&running, &applied).needs_restart.is_empty(), "what cannot change has not");
        assert_eq!(super::changes(&applied, &config(to)).to_string(), "", "everything else has");
    }

    #[test]
    fn endpoints_and_models_are_told_apart_by_name() {
        let list = |rows: &str| format!("endpoints: [{rows}]");
        let a = "{ name: a, url: 'http://h:1', model: m }";
        check(&list(a), &list(a), "", "");
        check(&list(a), &format!("endpoints: {TWO}"), "endpoints: added b; models: added n", "");
        check(
            &format!("endpoints: {TWO}"),
            &list("{ name: c, url: 'http://h:1', model: m }, { name: b, url: 'http://h:3', weight: 7, model: n }"),
            "endpoints: added c; removed a; changed b (url, weight)",
            "",
        );
        check(
            &format!("endpoints: {TWO}"),
            &format!("endpoints: {TWO}\nmodels: [{{ name: n, aliases: [x] }}]"),
            "models: changed n (settings)",
            "",
        );
    }

    #[test]
    fn the_order_of_the_file_is_no_change() {
        let other = "[{ name: b, url: 'http://h:2', model: n }, { name: a, url: 'http://h:1', model: m }]";
        check(&format!("endpoints: {TWO}"), &format!("endpoints: {other}"), "", "");
    }

    #[test]
    fn a_key_is_told_with_both_values_and_a_secret_with_none() {
        let with = |more: &str| format!("endpoints: {TWO}\n{more}");
        check(&with(""), &with("router: { retries: 5 }"), "router.retries from 2 to 5", "");
        check(
            &with("router: { timeouts: { total: 1h }, limits: { body: 1MiB } }"),
            &with("router: { timeouts: { total: 90m }, limits: { body: 2MiB } }"),
            "router.limits.body from 1MiB to 2MiB; router.timeouts.total from 1h to 90m",
            "",
        );
        check(&with("admin_token_env: KEY"), &with("admin_token_env: OTHER_KEY"), "admin_token", "");
        let engine = |key: &str| format!("endpoints: [{{ name: a, url: 'http://h:1', model: m, api_key_env: {key} }}]");
        check(&engine("KEY"), &engine("OTHER_KEY"), "endpoints: changed a (api_key)", "");
        check(
            &with(""),
            &with("router: { profiles: { mine: { picker: { type: max-score } } } }"),
            "profiles: added mine",
            "",
        );
    }

    #[test]
    fn certificates_that_changed_are_told_by_their_key_alone() {
        let file = |label: &str, text: &str| {
            let file = tempfile::NamedTempFile::new().expect("a file");
            let pem = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
            std::fs::write(file.path(), pem).expect("written");
            file
        };
        let (cert, key, other) = (file("CERTIFICATE", "a"), file("PRIVATE KEY", "b"), file("PRIVATE KEY", "c"));
        let with = |key: &tempfile::NamedTempFile| {
            let [cert, key] = [cert.path(), key.path()].map(|path| path.display().to_string());
            format!("endpoints: {TWO}\ntls: {{ cert: {cert}, key: {key} }}")
        };
        check(&with(&key), &with(&key), "", "");
        check(&with(&key), &with(&other), "tls", "");
        check(&format!("endpoints: {TWO}"), &with(&key), "tls", "");
    }

    #[test]
    fn addresses_and_threads_wait_for_a_restart_and_the_rest_does_not() {
        check(
            &format!("endpoints: {TWO}"),
            &format!(
                "listen: ':1'\nadmin_listen: '127.0.0.1:2'\nauth: keys\ncores: 3\nside_cpus: 1\n\
                 router: {{ retries: 0, prefix: {{ approx_tree: {{ max_tree_size: 5000 }} }} }}\nendpoints: {TWO}"
            ),
            "router.retries from 2 to 0",
            "listen from 0.0.0.0:8080 to 0.0.0.0:1; admin_listen from 127.0.0.1:9090 to 127.0.0.1:2; auth from none to \
             keys; cores from auto to 3; side_cpus from auto to 1; router.prefix.approx_tree.max_tree_size from \
             2000000 to 5000",
        );
    }
}
