//! `llmgw demo`: a server and three simulated engines in one process, one streamed chat shown as it arrives, and what
//! to try next.

use std::io::{self, BufRead as _, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use llmgw_engine_sim::{Engine, EngineConfig};
use llmgw_obs::log::{self, Format};
use llmgw_router::access::AccessLog;
use llmgw_runtime::driver::DriverChoice;

use crate::server::{Hangup, Server, Signals, curl_line};

/// Show everything working on this machine: a server and three simulated engines.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End after the show; else the server stays up until Ctrl-C.
    #[arg(long)]
    once: bool,
    /// Port of the server; 0 takes a free one.
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    port: u16,
    /// Port for /metrics and health pages; 0 takes a free one.
    #[arg(long, default_value_t = 9090, value_name = "PORT")]
    admin_port: u16,
}

const ENGINES: usize = 3;
const MODEL: &str = "demo";
const QUESTION: &str = "What does a gateway do all day?";

/// Runs the show.
pub(crate) fn run(args: &Args) -> ExitCode {
    match show(args, &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "llmgw demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(args: &Args, out: &mut impl Write) -> io::Result<()> {
    let log = log::init(Format::Text, "warn").map_err(io::Error::other)?;
    let mut engines = Vec::new();
    for _ in 0..ENGINES {
        let mut cfg = EngineConfig { models: vec![MODEL.to_owned()], ..EngineConfig::default() };
        (cfg.output_tokens_min, cfg.output_tokens_max) = (40, 40);
        engines.push(Engine::start(cfg, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?);
    }
    let mut file =
        format!("listen: \"127.0.0.1:{}\"\nadmin_listen: \"127.0.0.1:{}\"\nendpoints:\n", args.port, args.admin_port);
    for (engine, name) in engines.iter().zip(["sim-a", "sim-b", "sim-c"]) {
        file.push_str(&format!("  - {{ name: {name}, url: \"{}\", model: {MODEL}, engine: sim }}\n", engine.url()));
    }
    let config = llmgw_config::from_text("demo", &file, []).map_err(io::Error::other)?;
    let server = Server::start(config, None, &log, DriverChoice::Auto, AccessLog::Failures).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{error}; choose other ports with --port and --admin-port, or 0 for free ones"),
        )
    })?;
    let (ready, known) = server.wait_first_round();
    let client = server.client_addr();
    writeln!(out, "a server on http://{client}, {ready} of {known} simulated engines ready behind it")?;
    writeln!(out)?;
    writeln!(out, "> {QUESTION}")?;
    let replica = chat(client, out)?;
    writeln!(out)?;
    writeln!(out, "answered by replica {replica}")?;
    writeln!(out)?;
    writeln!(out, "try it:   {}", curl_line("http", client, MODEL, None))?;
    writeln!(out, "metrics:  http://{}/metrics", server.admin_addr())?;
    out.flush()?;
    if args.once {
        server.stop();
    } else {
        writeln!(out, "Ctrl-C ends it")?;
        out.flush()?;
        server.run_until_signal(Signals::new(Hangup::Ends)?)?;
    }
    drop(engines);
    Ok(())
}

/// Sends a streamed chat and writes each piece of the answer as it arrives. Answer: the replica that served it.
///
/// Errors: no connection, or an answer that is no stream of a chat.
fn chat(addr: SocketAddr, out: &mut impl Write) -> io::Result<String> {
    let body = serde_json::json!({
        "model": MODEL,
        "stream": true,
        "messages": [{ "role": "user", "content": QUESTION }],
    });
    let response = ureq::post(&format!("http://{addr}/v1/chat/completions"))
        .header("content-type", "application/json")
        .send(body.to_string())
        .map_err(io::Error::other)?;
    let replica = response.headers().get("x-llmgw-replica").and_then(|value| value.to_str().ok()).unwrap_or("");
    let replica = replica.to_owned();
    let mut is_done = false;
    for line in BufReader::new(response.into_body().into_reader()).lines() {
        let line = line?;
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            is_done = true;
            continue;
        }
        let event: serde_json::Value = serde_json::from_str(data)?;
        if let Some(text) = event["choices"][0]["delta"]["content"].as_str() {
            write!(out, "{text}")?;
            out.flush()?;
        }
    }
    writeln!(out)?;
    if is_done { Ok(replica) } else { Err(io::Error::other("the answer broke off")) }
}
