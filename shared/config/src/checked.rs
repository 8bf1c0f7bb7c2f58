//! The tree, once read, → values that cannot be wrong, or everything that is wrong between its sections.
//!
//! Called by `load` after reading. Each section has a file; this one joins them. Looks up variables in the
//! environment it
//! is given and reads the secret files the tree names; nothing else.

mod admission;
mod certificate;
mod endpoint;
mod model;
mod placement;
mod profile;
mod router;
mod secret;

use std::net::SocketAddr;

use llmgw_kit::secret::Secret;

use crate::config::{ServerConfig, StoreConfig};
use crate::environment::Environment;
use crate::error::Problem;
use crate::read::{Field, Reader};
use crate::server::ServerTree;
use crate::url::parse_listen;
use crate::values::CoreCount;

/// Judges the tree. The reader brings the problems found before, and collects those found here.
pub(crate) fn check(
    tree: &ServerTree,
    environment: &Environment,
    mut reader: Reader,
) -> Result<ServerConfig, Vec<Problem>> {
    let listen = check_listen(tree, &mut reader);
    let (admin_listen, admin_token) = check_admin(tree, environment, &listen, &mut reader);
    if tree.cores.value == CoreCount::Exactly(0) {
        reader.problem(&tree.cores.place, "cores: at least 1 is needed; write a number, or auto".to_owned());
    }
    let tls = certificate::check(tree, &mut reader);
    let store = check_store(tree, &mut reader);
    let endpoints = endpoint::check(tree, environment, &mut reader);
    let router = router::check(&tree.router, &mut reader);
    let models = model::check(tree, &endpoints, &router, &mut reader);
    let (Some(admin_listen), true) = (admin_listen, reader.problems.is_empty()) else {
        return Err(reader.problems);
    };
    let mut without_effect = reader.without_effect;
    without_effect.sort();
    without_effect.dedup();
    Ok(ServerConfig {
        listen,
        admin_listen,
        admin_token,
        tls,
        auth: tree.auth.value,
        cores: tree.cores.value,
        side_cpus: tree.side_cpus.value,
        store,
        endpoints,
        models,
        router,
        without_effect,
    })
}

fn check_listen(tree: &ServerTree, reader: &mut Reader) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for text in &tree.listen.0 {
        match parse_listen(text) {
            Ok(address) if address.port() > 0 && addresses.contains(&address) => {
                reader.problem(&text.place, format!("listen: {address} is written twice; keep one"));
            }
            Ok(address) => addresses.push(address),
            Err(message) => reader.problem(&text.place, format!("listen: {message}")),
        }
    }
    if tree.listen.0.is_empty() {
        reader.problem(&tree.listen.place, "listen: no address is written; write for example \":8080\"".to_owned());
    }
    addresses
}

/// The default of `store.path`.
const STORE_PATH: &str = "/var/lib/llmgw/llmgw.db";

fn check_store(tree: &ServerTree, reader: &mut Reader) -> StoreConfig {
    let path = &tree.store.path;
    if path.is_empty() || path.ends_with('/') || path.contains('\0') {
        let message = format!("store.path: {:?} is not a file; write for example {STORE_PATH}", path.value);
        reader.problem(&path.place, message);
    }
    StoreConfig { path: path.value.clone().into(), is_named: path.value != STORE_PATH }
}

fn check_admin(
    tree: &ServerTree,
    environment: &Environment,
    listen: &[SocketAddr],
    reader: &mut Reader,
) -> (Option<SocketAddr>, Option<Secret>) {
    let source = secret::Keys { name: "admin_token", variable: &tree.admin_token_env, file: &tree.admin_token_file };
    let token = secret::check(&source, environment, reader).map(|found| found.secret);
    let has_source = tree.admin_token_env.is_some() || tree.admin_token_file.is_some();
    let place = &tree.admin_listen.place;
    match parse_listen(&tree.admin_listen) {
        Ok(address) => {
            if !address.ip().is_loopback() && !has_source {
                let message = format!(
                    "admin_listen: {address} can be reached from other machines; set admin_token_env or \
                    admin_token_file, \
                     or listen on 127.0.0.1:{}",
                    address.port()
                );
                reader.problem(place, message);
            }
            let is_shared = |other: &&SocketAddr| {
                let is_any = other.ip().is_unspecified() || address.ip().is_unspecified() || other.ip() == address.ip();
                other.port() == address.port() && address.port() > 0 && is_any
            };
            if let Some(other) = listen.iter().find(is_shared) {
                reader
                    .problem(place, format!("admin_listen: {address} is taken by listen ({other}); use another port"));
            }
            (Some(address), token)
        }
        Err(message) => {
            reader.problem(place, format!("admin_listen: {message}"));
            (None, token)
        }
    }
}

/// Whether a name can stand in a header field and in a metric label as it is.
fn check_name(field: &Field<String>, what: &str, reader: &mut Reader) {
    if field.is_empty() || field.len() > 256 || !field.bytes().all(|b| b.is_ascii_graphic()) {
        let message =
            format!("{what}: {:?} is not a name; use 1 to 256 printable ASCII characters without spaces", field.value);
        reader.problem(&field.place, message);
    }
}

/// Whether a model's name can be a JSON string, a metric label and a header field (in UTF-8) as it is. Any script will
/// do, since the names are those that engines already serve.
fn check_model_name(field: &Field<String>, what: &str, reader: &mut Reader) {
    if field.is_empty() || field.len() > 256 || field.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let message = format!(
            "{what}: {:?} is not a name; use 1 to 256 bytes of printable characters without spaces",
            field.value
        );
        reader.problem(&field.place, message);
    }
}
