//! Engines behind TLS and behind UNIX sockets: who is served, and refusals that say why.

mod relay;
mod serve;
mod tls;
mod unix;
