//! Our own gateway before the suite's engines, with the limits the checks go by.

use std::path::{Path, PathBuf};
use std::time::Duration;

use llmgw_test_kit::gateway::Builder;
use llmgw_test_kit::raw;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Gateway, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::args::Limits;
use crate::upstream::{Engines, MODEL};

/// Starts the built gateway.
///
/// Errors: the program is not there.
pub(crate) fn start(program: Option<&Path>, engines: &Engines, limits: &Limits) -> Result<Gateway, String> {
    Ok(builder(engines, limits).start(&found(program)?))
}

/// A gateway that asks for keys.
pub(crate) struct Keyed {
    pub(crate) gateway: Gateway,
    /// May use every model.
    pub(crate) key: String,
    /// May use none.
    pub(crate) narrow: String,
    #[expect(dead_code, reason = "holds the store until the gateway is gone")]
    folder: TempDir,
}

/// How long a change of keys may take to be felt.
const FELT_WITHIN: Duration = Duration::from_secs(20);

/// Starts the built gateway with a store of its own and two keys in it.
///
/// Errors: the program is not there, or there is no folder for its store.
pub(crate) fn start_keyed(program: Option<&Path>, engines: &Engines, limits: &Limits) -> Result<Keyed, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for a store: {error}"))?;
    let store = folder.path().join("llmgw.db");
    let top = format!("auth: keys\nstore: {{ path: \"{}\" }}", store.display());
    let gateway = builder(engines, limits).top(&top).start(&found(program)?);
    let [key, narrow] = ["all", "none"].map(|name| {
        let made = admin(&gateway, "POST", "/keys", &json!({ "name": name }));
        made["key"].as_str().unwrap_or_default().to_owned()
    });
    admin(&gateway, "PUT", "/limits/key/none", &json!({ "allowed_models": [] }));
    let list = |key: &str| {
        let request = Request::new("GET", "/v1/models").header("X-Api-Key", key).header("Connection", "close");
        raw::call(gateway.addr(), &request.bytes())
    };
    wait_for("the keys", FELT_WITHIN, || {
        let (all, none) = (list(&key), list(&narrow));
        all.status == 200 && none.status == 200 && !none.text().contains(MODEL)
    });
    Ok(Keyed { gateway, key, narrow, folder })
}

fn admin(gateway: &Gateway, method: &str, path: &str, body: &Value) -> Value {
    let request = Request::new(method, &format!("/api/v1{path}")).header("Connection", "close").json(body);
    let reply = raw::call(gateway.admin_addr(), &request.bytes());
    assert_eq!(reply.status, 200, "{method} {path}: {}", reply.text());
    reply.json()
}

/// The program that is named, or the one that was built with this program.
///
/// Errors: it is not there.
fn found(program: Option<&Path>) -> Result<PathBuf, String> {
    let program = match program {
        Some(program) => program.to_owned(),
        None => beside()?,
    };
    if program.is_file() {
        return Ok(program);
    }
    Err(format!("{} is not there: build it, or name it with --llmgw", program.display()))
}

fn builder(engines: &Engines, limits: &Limits) -> Builder {
    let seconds = |limit: Option<Duration>| limit.unwrap_or(Duration::from_secs(3600)).as_secs();
    let timeouts = format!(
        "timeouts: {{ connect: 1s, first_token: {engine}s, between_events: {engine}s, client_header: {}s, \
         client_body: {}s, client_idle: {}s }}",
        seconds(limits.head),
        seconds(limits.body),
        seconds(limits.idle),
        engine = seconds(limits.engine),
    );
    let size = limits.size.unwrap_or(1 << 30);
    let mut builder = Gateway::builder()
        .router(&timeouts)
        .router(&format!("limits: {{ body: {size}B }}"))
        .router("cooldown_seconds: 1")
        // Prompts that are the same would all go to one engine, and each check wants its own.
        .router("prefix: { approx_tree: { enabled: false } }")
        .env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s");
    for addr in engines.addrs() {
        builder = builder.url(&format!("http://{addr}"));
    }
    builder
}

/// The gateway that was built with this program.
fn beside() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("where this program is, is not known: {error}"))?;
    Ok(own.with_file_name("llmgw"))
}
