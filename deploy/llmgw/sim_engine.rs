//! `llmgw sim-engine`: the flags of the simulated engine, and its process.
//!
//! Called by `main.rs`. Changes when the engine's configuration does. Decides nothing about how the engine behaves.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use llmgw_engine_sim::batch::Policy;
use llmgw_engine_sim::store::Memory;
use llmgw_engine_sim::{Engine, EngineConfig, Faults, Vocabulary};

/// Exit code of a mistake in the flags.
const EXIT_USAGE: u8 = 64;

/// The flags. A field's documentation is its help text.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one. The address is printed as `listening on http://IP:PORT`.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// A JSON file with the whole configuration, as `GET /sim/config` shows it; flags win over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A served model name; give it several times for aliases. The first one labels the metrics. [default: sim]
    #[arg(long = "model", value_name = "NAME", help_heading = "API")]
    models: Vec<String>,
    /// Key that requests under /v1 must bring as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "KEY", help_heading = "API")]
    api_key: Option<String>,
    /// Longest prompt and answer together, in tokens. [default: 131072]
    #[arg(long, value_name = "TOKENS", help_heading = "API")]
    max_model_len: Option<usize>,
    /// Length of an answer when the request sets none: one number, or MIN-MAX. [default: 64]
    #[arg(long, value_name = "TOKENS", value_parser = output_tokens, help_heading = "API")]
    output_tokens: Option<(u32, u32)>,
    /// Tokens of an event of a stream; the first is sent at once. [default: 1]
    #[arg(long, value_name = "TOKENS", help_heading = "API")]
    stream_interval: Option<u32>,
    /// Numbers in an embedding. [default: 8]
    #[arg(long, value_name = "COUNT", help_heading = "API")]
    embedding_dims: Option<usize>,
    /// Whose names /metrics uses (and whose reply /health gives). [default: vllm]
    #[arg(long, value_enum, value_name = "ENGINE", help_heading = "API")]
    vocabulary: Option<Words>,
    /// A file to answer on /metrics in place of the engine's own page.
    #[arg(long, value_name = "FILE", help_heading = "API")]
    metrics_file: Option<PathBuf>,
    /// Closes a connection that has been idle for so long; 0 never. [default: 5000]
    #[arg(long, value_name = "MS", help_heading = "API")]
    keep_alive_ms: Option<u64>,

    /// Tokens a second of one request alone; 0 answers without any delay. [default: 50]
    #[arg(long, value_name = "RATE", help_heading = "Speed")]
    tokens_per_second: Option<f64>,
    /// What each further running request adds to the time of a token. [default: 50]
    #[arg(long, value_name = "US", help_heading = "Speed")]
    step_us_per_seq: Option<f64>,
    /// Prompt tokens a second; 0 takes no time. [default: 20000]
    #[arg(long, value_name = "RATE", help_heading = "Speed")]
    prefill_tokens_per_second: Option<f64>,

    /// Requests that run at once; the others wait. [default: 256]
    #[arg(long, value_name = "COUNT", help_heading = "Batch")]
    max_num_seqs: Option<usize>,
    /// Prompt and answer tokens of one step. [default: 8192]
    #[arg(long, value_name = "TOKENS", help_heading = "Batch")]
    max_num_batched_tokens: Option<usize>,
    /// Who goes first: by arrival, or the lowest `priority` of the request. [default: fifo]
    #[arg(long, visible_alias = "scheduling-policy", value_enum, help_heading = "Batch")]
    policy: Option<Order>,
    /// Blocks of KV cache. [default: 16384]
    #[arg(long, value_name = "COUNT", help_heading = "Batch")]
    blocks: Option<usize>,
    /// Tokens in a block. [default: 16]
    #[arg(long, value_name = "TOKENS", help_heading = "Batch")]
    block_size: Option<usize>,
    /// Does not keep prefixes for later requests.
    #[arg(long, help_heading = "Batch")]
    no_prefix_caching: bool,
    /// Whole slots in place of blocks, as llama.cpp has them; each holds --max-model-len tokens.
    #[arg(long, value_name = "COUNT", help_heading = "Batch")]
    #[arg(conflicts_with_all = ["blocks", "block_size", "no_prefix_caching"])]
    slots: Option<usize>,

    /// Faults of every request, as a JSON object; `@FILE` reads it from a file.
    #[arg(long, value_name = "JSON", help_heading = "Faults")]
    faults: Option<String>,
    /// One fault of every request, such as `close_after_bytes=100` or `rates={"503":0.1}`; may be repeated.
    #[arg(long = "fault", value_name = "NAME=VALUE", help_heading = "Faults")]
    fault: Vec<String>,
    /// Seed of the error rates.
    #[arg(long, help_heading = "Faults")]
    seed: Option<u64>,

    /// Requests kept in the recording, the newest ones. [default: 1024]
    #[arg(long, value_name = "COUNT", help_heading = "Recording")]
    record_requests: Option<usize>,
    /// Bytes kept of each recorded body. [default: 65536]
    #[arg(long, value_name = "BYTES", help_heading = "Recording")]
    record_body_bytes: Option<usize>,
    /// Longest body that is held in memory; longer ones are counted and hashed and get a one-word answer.
    /// [default: 268435456]
    #[arg(long, value_name = "BYTES", help_heading = "Recording")]
    hold_body_bytes: Option<usize>,
}

/// Engines whose words the metrics page knows.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Words {
    Vllm,
    Sglang,
    Llamacpp,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    Fifo,
    Priority,
}

/// Kept below 80 columns: clap wraps what is longer in the middle of a table.
const AFTER_HELP: &str = r#"About:
  Plays an inference engine with the API of vLLM: chat and text completions,
  embeddings, models, health, metrics. Needs no GPU and no model: the answers
  are made-up words, the same ones for the same prompt and `seed`. Requests are
  batched, queued and found in a prefix cache as in a real engine, and their
  answers can be made to fail in many ways.

Faults:
  A fault set is a JSON object. It comes from --faults and --fault (for every
  request), from the header `x-sim`, or from a marker anywhere in the prompt:
  @@sim {"stall_after_events":3} @@ also passes gateways that drop headers.
  The header wins over the marker and the marker over the flags, field by
  field; null takes a field back. Times are in microseconds.

  reach                "inference" (POST under /v1/, the default) or "all":
                       which requests the flags' faults touch
  script               [["data: x\n\n", 1000], {"base64": "AAE="}]: the whole
                       body; each piece is one write, after its delay
  framing              "chunked", "chunked-bytes" (a chunk for each byte),
                       "length", "close", or "raw" (the script is the reply,
                       head and all)
  status, body         another status; another body
  headers              [["name", "value"]], in place of those of that name
  body_mib             a body of so many MiB; events when it is a stream
  events               number of content events of each choice
  event_bytes          size of a content event
  delay_us             time between events, outside the batch
  stamp                true: content events carry the time they are sent, as
                       sent_unix_ns (nanoseconds since 1970)
  usage                any JSON, in place of the usage
  usage_at             [[1, {"prompt_tokens": 9}]]: usage on content event 1
  refuse_stream_options   true: 400 to requests with stream_options
  refuse_priority      true: 400 to requests with another priority than 0
  redirect             302 to this location
  rates                {"503": 0.1, "429": 0.05}: shares that fail so
  retry_after_s        Retry-After on 429 and 503
  content_type, content_length   right or wrong ones
  gzip                 "accepted" (by Accept-Encoding) or "forced"
  trailers             [["name", "value"]] after a chunked body
  chunk_extension      ";a=b" behind every chunk size
  first_byte_delay_us  silence before the reply
  stall_after_events   stops after so many events or pieces (the role event
                       counts), for stall_us or until POST /sim/release
  blackhole            true: reads the request and never answers
  close_after_bytes, close_after_events   ends the connection early
  reset                true: by a reset instead of a close
  connection_close     true: announces a close and closes after the reply
  close_after_reply    true: closes without having announced it
  idle_close_us        closes idle connections; wins over --keep-alive-ms
  unready_us           503 from /health and inference, from the start on
  models_empty_us      no models in /v1/models, from the start on

Control routes, for tests; no fault touches them, and whoever reaches the port
may use them:
  GET  /sim/requests   what was received: ?since=SEQ &limit=N &body=none
  GET  /sim/state      connections, running, waiting, totals
  GET  /sim/config     the configuration
  POST /sim/config     {"faults": {}, "faults_overlay": {}, "models": [],
                       "metrics_text": "", "pace": {},
                       "recorded_body_bytes_max": 0}, any of them
  POST /sim/reset      forgets the recording and the cached prefixes
  POST /sim/release    ends all stalls and blackholes

Example:
  llmgw sim-engine --port 8001 --model tiny --tokens-per-second 20
  curl -N http://127.0.0.1:8001/v1/chat/completions \
    -H 'content-type: application/json' \
    -d '{"model":"tiny","stream":true,
         "messages":[{"role":"user","content":"hello"}]}'"#;

/// Serves until the process is ended.
///
/// Shape: exit code 64 for a mistake in the flags, 1 when the address cannot be listened on.
pub(crate) fn run(args: Args) -> ExitCode {
    let addr = SocketAddr::new(args.host, args.port);
    let cfg = match args.into_config() {
        Ok(cfg) => cfg,
        Err(cause) => return fail(EXIT_USAGE, cause),
    };
    let handle = match Engine::start(cfg, addr) {
        Ok(handle) => handle,
        Err(cause) => return fail(1, format!("cannot listen on {addr}: {cause}")),
    };
    let mut stdout = std::io::stdout().lock();
    // Whoever started the engine reads this line; if it cannot be written nobody can find the port.
    if let Err(cause) = writeln!(stdout, "listening on {}", handle.url()).and_then(|()| stdout.flush()) {
        return fail(1, format!("cannot write to standard output: {cause}"));
    }
    drop(stdout);
    handle.join();
    ExitCode::SUCCESS
}

fn fail(code: u8, cause: impl Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "llmgw sim-engine: {cause}");
    ExitCode::from(code)
}

impl Args {
    fn into_config(self) -> Result<EngineConfig, String> {
        let mut cfg = match &self.config {
            Some(path) => {
                let text = read(path)?;
                serde_json::from_str(&text).map_err(|cause| format!("{}: {cause}", path.display()))?
            }
            None => EngineConfig::default(),
        };
        cfg.faults = self.faults_over(&cfg.faults)?;
        if let Some(path) = &self.metrics_file {
            cfg.metrics_text = Some(read(path)?);
        }
        if !self.models.is_empty() {
            cfg.models = self.models;
        }
        if let Some((min, max)) = self.output_tokens {
            (cfg.output_tokens_min, cfg.output_tokens_max) = (min, max);
        }
        cfg.api_key = self.api_key.or(cfg.api_key);
        set(&mut cfg.max_model_len, self.max_model_len);
        set(&mut cfg.stream_interval, self.stream_interval);
        set(&mut cfg.embedding_dims, self.embedding_dims);
        set(&mut cfg.keep_alive_ms, self.keep_alive_ms);
        set(&mut cfg.seed, self.seed);
        set(&mut cfg.recorded_requests_max, self.record_requests);
        set(&mut cfg.recorded_body_bytes_max, self.record_body_bytes);
        set(&mut cfg.body_held_bytes_max, self.hold_body_bytes);
        set(&mut cfg.batch.max_num_seqs, self.max_num_seqs);
        set(&mut cfg.batch.max_num_batched_tokens, self.max_num_batched_tokens);
        set(&mut cfg.batch.pace.tokens_per_second, self.tokens_per_second);
        set(&mut cfg.batch.pace.step_us_per_seq, self.step_us_per_seq);
        set(&mut cfg.batch.pace.prefill_tokens_per_second, self.prefill_tokens_per_second);
        let vocabulary = self.vocabulary.map(|words| match words {
            Words::Vllm => Vocabulary::Vllm,
            Words::Sglang => Vocabulary::Sglang,
            Words::Llamacpp => Vocabulary::Llamacpp,
        });
        set(&mut cfg.vocabulary, vocabulary);
        let policy = self.policy.map(|order| match order {
            Order::Fifo => Policy::Fifo,
            Order::Priority => Policy::Priority,
        });
        set(&mut cfg.batch.policy, policy);
        if let Some(slot_count) = self.slots {
            cfg.batch.memory = Memory::Slots { slot_count, slot_tokens: cfg.max_model_len };
        }
        if let Memory::Blocks { block_count, block_tokens, prefix_caching } = &mut cfg.batch.memory {
            set(block_count, self.blocks);
            set(block_tokens, self.block_size);
            *prefix_caching &= !self.no_prefix_caching;
        }
        Ok(cfg)
    }

    fn faults_over(&self, base: &Faults) -> Result<Faults, String> {
        let mut faults = base.clone();
        if let Some(text) = &self.faults {
            let text = match text.strip_prefix('@') {
                Some(path) => read(&PathBuf::from(path))?,
                None => text.clone(),
            };
            faults = faults.overlaid(&text).map_err(|cause| format!("--faults: {cause}"))?;
        }
        for pair in &self.fault {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("--fault {pair}: write NAME=VALUE"))?;
            // What is no JSON is meant as text.
            let value = match serde_json::from_str::<serde_json::Value>(value) {
                Ok(_) => value.to_owned(),
                Err(_) => serde_json::Value::from(value).to_string(),
            };
            let text = format!("{{{}:{value}}}", serde_json::Value::from(name));
            faults = faults.overlaid(&text).map_err(|cause| format!("--fault {pair}: {cause}"))?;
        }
        Ok(faults)
    }
}

fn set<T>(field: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *field = value;
    }
}

fn read(path: &PathBuf) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|cause| format!("{}: {cause}", path.display()))
}

fn output_tokens(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is no number of tokens"));
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let (min, max) = (number(min)?, number(max)?);
    if min == 0 || min > max {
        return Err("write MIN-MAX with 1 <= MIN <= MAX".to_owned());
    }
    Ok((min, max))
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn config(flags: &[&str]) -> Result<EngineConfig, String> {
        let command = Args::augment_args(Command::new("sim-engine"));
        let words = std::iter::once("sim-engine").chain(flags.iter().copied());
        let matches = command.try_get_matches_from(words).map_err(|cause| cause.to_string())?;
        Args::from_arg_matches(&matches).map_err(|cause| cause.to_string())?.into_config()
    }

    #[test]
    fn flags_reach_the_configuration() {
        let cfg = config(&[
            "--model",
            "a",
            "--model",
            "org/b",
            "--tokens-per-second",
            "0",
            "--output-tokens",
            "3-9",
            "--block-size",
            "32",
            "--vocabulary",
            "sglang",
            "--policy",
            "priority",
            "--fault",
            "close_after_bytes=7",
            "--fault",
            "gzip=forced",
            "--faults",
            r#"{"events":4,"close_after_bytes":1}"#,
        ])
        .unwrap();
        assert_eq!(cfg.models, ["a", "org/b"]);
        assert_eq!((cfg.output_tokens_min, cfg.output_tokens_max), (3, 9));
        assert_eq!(cfg.batch.pace.tokens_per_second, 0.0);
        assert!(matches!(cfg.batch.memory, Memory::Blocks { block_tokens: 32, .. }));
        assert_eq!((cfg.vocabulary, cfg.batch.policy), (Vocabulary::Sglang, Policy::Priority));
        assert_eq!((cfg.faults.events, cfg.faults.close_after_bytes), (Some(4), Some(7)));
        let slots = config(&["--slots", "4", "--max-model-len", "2048"]).unwrap().batch.memory;
        assert_eq!(slots, Memory::Slots { slot_count: 4, slot_tokens: 2048 });
    }

    #[test]
    fn the_help_names_every_fault() {
        let source = include_str!("../../bench/engine/src/faults.rs");
        let fields = source.split("pub struct Faults {").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
        let names: Vec<&str> = fields
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(':'))
            .map(|(name, _)| name)
            .collect();
        assert!(names.len() > 25, "{names:?}");
        for name in names {
            assert!(AFTER_HELP.contains(name), "{name}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (flags, named) in [
            (&["--fault", "no_such=1"][..], "no_such"),
            (&["--fault", "events"], "NAME=VALUE"),
            (&["--faults", "{"], "--faults"),
            (&["--output-tokens", "9-3"], "MIN-MAX"),
            (&["--metrics-file", "/does/not/exist"], "/does/not/exist"),
            (&["--slots", "2", "--blocks", "3"], "--blocks"),
        ] {
            let cause = config(flags).unwrap_err();
            assert!(cause.contains(named), "{flags:?}: {cause}");
        }
    }
}
