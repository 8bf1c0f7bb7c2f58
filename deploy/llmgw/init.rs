//! `llmgw init URL…`: asks each engine what it is and serves, and writes a commented `server.yaml`.
//!
//! Called by `main`. Says what it found on standard error, one line an engine; writes nothing unless every engine
//! answered,
//! and never over a file that is there unless told to. What it writes is loaded once before it is put down, so that
//! a file
//! it made can be served.

mod draft;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use llmgw_config::url::EngineUrl;
use llmgw_kit::secret::Secret;
use llmgw_side::trust;

use crate::probe::{self, Findings, KeyVerdict, Question};
use draft::Engine;

/// Write a first server.yaml from engines that are running
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Roots of the engines, for example http://10.0.0.11:8000
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Where the file is written
    #[arg(long, value_name = "FILE", default_value = "server.yaml")]
    output: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// The environment variable that holds the engines' key, where they want one
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
}

/// Exit code for a call that cannot be understood.
const USAGE: u8 = 64;

/// Runs the command; says what it finds, and what is wrong, on standard error.
pub(crate) fn run(args: &Args) -> ExitCode {
    let key = args.api_key_env.as_ref().map(|name| std::env::var(name).unwrap_or_default());
    match init(args, key.as_deref(), &mut io::stderr().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage) => ExitCode::from(USAGE),
        Err(Failure::Start) => ExitCode::FAILURE,
    }
}

/// What was wrong has been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Usage,
    Start,
}

/// Nobody may be reading standard error, and that is no reason to stop.
fn say(log: &mut impl Write, line: &str) {
    let _ = writeln!(log, "{line}");
}

fn init(args: &Args, key: Option<&str>, log: &mut impl Write) -> Result<(), Failure> {
    let urls = roots(&args.urls, log)?;
    let name = args.output.display();
    if args.output.exists() && !args.force {
        say(log, &format!("{name} is there already; --force replaces it, --output FILE writes another"));
        return Err(Failure::Start);
    }
    if let (Some(variable), Some("")) = (&args.api_key_env, key) {
        say(log, &format!("variable {variable} is not set; it should hold the engines' key"));
        return Err(Failure::Start);
    }
    let secret = key.map(Secret::new);
    let mut engines = Vec::new();
    for (url, answer) in urls.iter().zip(ask(&urls, secret.as_ref())) {
        match answer.and_then(|found| Engine::new(url, found, engines.len() + 1)) {
            Ok(engine) => {
                say(log, &format!("{url}: {}", engine.summary()));
                engines.push(engine);
            }
            Err(reason) => say(log, &format!("{url}: {reason}")),
        }
    }
    if engines.len() < urls.len() {
        say(log, "nothing is written; start the engines that are missing, or leave them out");
        return Err(Failure::Start);
    }
    let text = draft::file(&engines, &args.output, args.api_key_env.as_deref());
    let env = args.api_key_env.clone().zip(key.map(str::to_owned));
    if let Err(error) = llmgw_config::from_text(&name.to_string(), &text, env) {
        say(log, &format!("what the engines say makes no configuration; nothing is written:\n{error}"));
        return Err(Failure::Start);
    }
    put(&args.output, args.force, &text).map_err(|error| {
        say(log, &format!("{name} cannot be written: {error}"));
        Failure::Start
    })?;
    say(log, &format!("wrote {name}; next: llmgw server --config {name} --check --probe"));
    Ok(())
}

/// Asks without the key first, so that only engines that want one are shown it.
fn ask(urls: &[EngineUrl], key: Option<&Secret>) -> Vec<Result<Findings, String>> {
    let question = |url, api_key| Question {
        url,
        api_key,
        health_path: "/health",
        metrics_path: Some("/metrics"),
        trust: trust::of_url(url, None),
    };
    let questions: Vec<Question<'_>> = urls.iter().map(|url| question(url, None)).collect();
    let mut answers = probe::probe_all(&questions);
    if key.is_some() {
        let wants_key = |answer: &Result<Findings, String>| {
            answer.as_ref().is_ok_and(|found| matches!(found.key, KeyVerdict::Missing(_)))
        };
        let again: Vec<usize> = (0..answers.len()).filter(|at| wants_key(&answers[*at])).collect();
        let questions: Vec<Question<'_>> = again.iter().map(|at| question(&urls[*at], key)).collect();
        for (at, answer) in again.into_iter().zip(probe::probe_all(&questions)) {
            answers[at] = answer;
        }
    }
    answers
}

/// The URLs as roots, each once.
fn roots(texts: &[String], log: &mut impl Write) -> Result<Vec<EngineUrl>, Failure> {
    let mut urls: Vec<EngineUrl> = Vec::new();
    let mut is_understood = true;
    for text in texts {
        let root = text.trim_end_matches('/').strip_suffix("/v1").unwrap_or(text);
        match EngineUrl::parse(root) {
            Ok(url) if urls.contains(&url) => say(log, &format!("{url} is named twice; once is enough")),
            Ok(url) => {
                if root.len() < text.len() {
                    say(log, &format!("{text}: engines are named by their root; {url} is used"));
                }
                urls.push(url);
            }
            Err(message) => {
                say(log, &message);
                is_understood = false;
            }
        }
    }
    if is_understood { Ok(urls) } else { Err(Failure::Usage) }
}

/// Puts the file down whole, or not at all.
fn put(path: &Path, may_replace: bool, text: &str) -> io::Result<()> {
    if !may_replace {
        return OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tests::{LLAMACPP_METRICS, LLAMACPP_MODELS, VLLM_METRICS, engine, nobody};

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn args(&self, urls: &[String]) -> Args {
            Args { urls: urls.to_vec(), output: self.0.path().join("server.yaml"), force: false, api_key_env: None }
        }
    }

    /// What is said, with the outcome; ports and folders put out of the way.
    fn said(args: &Args, key: Option<&str>) -> (String, Result<(), Failure>) {
        let mut log = Vec::new();
        let outcome = init(args, key, &mut log);
        let mut said = String::from_utf8(log).expect("text").replace(&args.output.display().to_string(), "FILE");
        for (at, text) in args.urls.iter().enumerate() {
            let root = text.trim_end_matches('/').trim_end_matches("/v1");
            said = said.replace(root, &format!("URL{at}"));
        }
        (said, outcome)
    }

    fn vllm() -> EngineUrl {
        engine(&[
            ("/health", 200, ""),
            ("/v1/models", 200, r#"{"data":[{"id":"meta-llama/Llama-3.3-70B","owned_by":"vllm"},{"id":"no"}]}"#),
            ("/metrics", 200, VLLM_METRICS),
            ("/version", 200, r#"{"version":"0.32.0"}"#),
        ])
    }

    #[test]
    fn engines_are_asked_and_written_down() {
        let llama = engine(&[
            ("/health", 200, ""),
            ("/v1/models", 200, LLAMACPP_MODELS),
            ("/props", 200, r#"{"build_info":"b1"}"#),
        ]);
        let folder = Folder::new();
        let urls = [format!("{}/v1", vllm()), llama.to_string(), format!("{llama}/")];
        let args = folder.args(&urls);
        let (said, outcome) = said(&args, None);
        assert_eq!(
            said,
            "URL0/v1: engines are named by their root; URL0 is used\n\
             URL1 is named twice; once is enough\n\
             URL0: vllm 0.32.0, serves meta-llama/Llama-3.3-70B, no\n\
             URL1: llamacpp b1, serves tiny; no metrics: /metrics answers 404; \
             start it with --metrics for better placing\n\
             wrote FILE; next: llmgw server --config FILE --check --probe\n"
        );
        assert_eq!(outcome, Ok(()));
        let text = fs::read_to_string(&args.output).expect("the file");
        let (_, endpoints) = text.split_once("endpoints:\n").expect("endpoints");
        let root = |at: usize| urls[at].trim_end_matches("/v1").to_owned();
        assert_eq!(
            endpoints,
            format!(
                "  # vllm 0.32.0\n  - name: vllm-1\n    url: {}\n    engine: vllm\n    models:\n      \
                 - {{ name: meta-llama/Llama-3.3-70B }}\n      - {{ name: \"no\" }}\n  \
                 # llamacpp b1\n  - name: llamacpp-2\n    url: {}\n    engine: llamacpp\n    model: tiny\n    \
                 metrics_path: off  # it has none; start it with --metrics for better placing\n",
                root(0),
                root(1)
            )
        );
        let config = llmgw_config::from_text("server.yaml", &text, []).expect("it can be served");
        assert_eq!(config.endpoints.len(), 2);
    }

    #[test]
    fn a_file_that_is_there_stays_unless_it_may_be_replaced() {
        let folder = Folder::new();
        let mut args = folder.args(&[vllm().to_string()]);
        fs::write(&args.output, "mine").expect("a file");
        let (told, outcome) = said(&args, None);
        assert_eq!(told, "FILE is there already; --force replaces it, --output FILE writes another\n");
        assert_eq!(outcome, Err(Failure::Start));
        assert_eq!(fs::read_to_string(&args.output).expect("the file"), "mine");
        args.force = true;
        assert_eq!(said(&args, None).1, Ok(()));
        assert!(fs::read_to_string(&args.output).expect("the file").contains("vllm-1"));
        assert_eq!(fs::read_dir(folder.0.path()).expect("the folder").count(), 1, "a file is left beside it");
    }

    #[test]
    fn an_engine_that_cannot_be_reached_is_said_and_nothing_is_written() {
        let folder = Folder::new();
        let args = folder.args(&[vllm().to_string(), nobody().to_string()]);
        let (said, outcome) = said(&args, None);
        assert_eq!(
            said,
            "URL0: vllm 0.32.0, serves meta-llama/Llama-3.3-70B, no\n\
             URL1: connection refused; is it running, and on this port?\n\
             nothing is written; start the engines that are missing, or leave them out\n"
        );
        assert_eq!(outcome, Err(Failure::Start));
        assert!(!args.output.exists());
    }

    #[test]
    fn an_engine_with_a_key_is_asked_with_it_and_only_its_variable_is_written() {
        let url =
            engine(&[("/health", 200, ""), ("/v1/models", 401, LLAMACPP_MODELS), ("/metrics", 401, LLAMACPP_METRICS)]);
        let folder = Folder::new();
        let mut args = folder.args(&[url.to_string()]);
        assert!(
            said(&args, None)
                .0
                .contains("URL0: it wants a key (401); put it into a variable and add --api-key-env NAME")
        );
        args.api_key_env = Some("ENGINE_KEY".to_owned());
        assert!(said(&args, Some("wrong")).0.contains("URL0: it refuses the key (401)"));
        assert!(said(&args, Some("")).0.contains("variable ENGINE_KEY is not set"));
        assert_eq!(said(&args, Some("right")).1, Ok(()));
        let text = fs::read_to_string(&args.output).expect("the file");
        assert!(
            text.contains("    api_key_env: \"ENGINE_KEY\"\n") || text.contains("    api_key_env: ENGINE_KEY\n"),
            "{text}"
        );
        assert!(!text.contains("right"), "the key is written down: {text}");
    }

    #[test]
    fn what_is_no_url_is_a_usage_error() {
        let folder = Folder::new();
        let (said, outcome) = said(&folder.args(&["10.0.0.1:8000".to_owned(), "ftp://h".to_owned()]), None);
        assert!(said.contains("has no scheme; write http://"), "{said}");
        assert!(said.contains("the scheme \"ftp\" is not known; expected http, https or unix"), "{said}");
        assert_eq!(outcome, Err(Failure::Usage));
    }
}
