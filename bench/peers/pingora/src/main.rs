//! A proxy on Pingora: requests go to the engines in turn, and to the next one when a connection cannot be made.
//!
//! Started by `cargo x bench overhead` as `llmgw-peer-pingora LISTEN ENGINE…`, each a `host:port`.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::lb::LoadBalancer;
use pingora::lb::selection::RoundRobin;
use pingora::prelude::{Error, HttpPeer, ProxyHttp, Result, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;

const RETRIES_MAX: usize = 2;

struct Proxy(Arc<LoadBalancer<RoundRobin>>);

#[async_trait]
impl ProxyHttp for Proxy {
    /// How often the request has been tried again.
    type CTX = usize;

    fn new_ctx(&self) -> usize {
        0
    }

    async fn upstream_peer(&self, _session: &mut Session, _retries: &mut usize) -> Result<Box<HttpPeer>> {
        let engine = self.0.select(b"", 16).ok_or_else(|| Error::new_str("no engine"))?;
        Ok(Box::new(HttpPeer::new(engine, false, String::new())))
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        retries: &mut usize,
        mut error: Box<Error>,
    ) -> Box<Error> {
        *retries += 1;
        error.set_retry(*retries <= RETRIES_MAX);
        error
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let listen = words.next().expect("LISTEN ENGINE…");
    let engines: Vec<String> = words.collect();
    let conf = ServerConf { threads: 1, upstream_keepalive_pool_size: 8192, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let balancer = LoadBalancer::try_from_iter(engines.iter().map(String::as_str)).expect("engines as host:port");
    let mut service = http_proxy_service(&server.configuration, Proxy(Arc::new(balancer)));
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever();
}
