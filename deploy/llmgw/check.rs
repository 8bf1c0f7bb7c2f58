//! `llmgw server --check [--probe]`: one line an endpoint, then what the file says without effect.
//!
//! Called by the server role in place of serving, once the configuration has loaded. Exit code 0 when all is well, 1
//! when
//! an engine is not as the file says. Changes nothing anywhere.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use llmgw_config::{CertificateConfig, EndpointConfig, MetricsPath, ServerConfig};
use llmgw_engines::names::Names;
use llmgw_engines::{contract, kind};
use llmgw_kit::clock::Wall;
use llmgw_side::{certificate, trust};
use llmgw_types::endpoint::EngineKind;

use crate::probe::{self, Findings, KeyVerdict, Question};

/// Whether the engines themselves are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The file alone.
    File,
    /// The engines too (`--probe`).
    Engines,
}

/// Prints the report to standard output.
pub(crate) fn run(file: &Path, config: &ServerConfig, depth: Depth) -> ExitCode {
    let file = file.display().to_string();
    match report(&file, config, depth, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        // Nobody reads on; then there is nobody to tell either.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

/// Writes the report; true when all is well.
fn report(file: &str, config: &ServerConfig, depth: Depth, out: &mut impl Write) -> io::Result<bool> {
    let mut is_well = true;
    match depth {
        Depth::File => {
            for endpoint in &config.endpoints {
                writeln!(out, "{}", described(endpoint))?;
            }
        }
        Depth::Engines => {
            let questions: Vec<Question<'_>> = config.endpoints.iter().map(question).collect();
            for (endpoint, answer) in config.endpoints.iter().zip(probe::probe_all(&questions)) {
                let verdict = judge(endpoint, answer);
                is_well &= verdict.troubles.is_empty();
                writeln!(out, "{}", verdict.line(endpoint))?;
            }
        }
    }
    for pair in &config.tls {
        writeln!(out, "tls  {}  for {}{}", pair.cert_file, certificate::names(pair).join(", "), days_left(pair))?;
    }
    let mut has_certificates = true;
    if let Err(error) = certificate::check(&config.tls) {
        has_certificates = false;
        writeln!(out, "failed  {error}")?;
    }
    for key in &config.without_effect {
        writeln!(out, "{}: {}: {}", key.place.in_file(file), key.key, key.reason)?;
    }
    let verdict = match (is_well, has_certificates) {
        (true, true) => "is well",
        (false, true) => "is understood, but not every engine is as it says",
        (_, false) => "is understood, but nobody can be served with its certificates",
    };
    writeln!(out, "{file} {verdict}")?;
    Ok(is_well && has_certificates)
}

fn days_left(pair: &CertificateConfig) -> String {
    let now = Wall::now().unix_seconds();
    match certificate::expires_unix_seconds(pair).map(|expires| expires.saturating_sub(now) / (24 * 3600)) {
        None => String::new(),
        Some(1) => "  1 day left".to_owned(),
        Some(days) => format!("  {days} days left"),
    }
}

fn question(endpoint: &EndpointConfig) -> Question<'_> {
    let engine = kind::engine(endpoint.engine);
    Question {
        url: &endpoint.url,
        api_key: endpoint.api_key.as_ref(),
        health_path: endpoint.health_path.as_deref().unwrap_or(engine.health_path),
        metrics_path: match &endpoint.metrics_path {
            MetricsPath::Default => Some(engine.metrics_path),
            MetricsPath::Path(path) => Some(path),
            MetricsPath::Off => None,
        },
        trust: trust::of(endpoint),
    }
}

/// `vllm-a  http://10.0.0.11:8000  vllm  model llama (served as meta/llama)  pool none/h100-80g`.
fn described(endpoint: &EndpointConfig) -> String {
    let models: Vec<String> = endpoint
        .models
        .iter()
        .map(|model| match model.name == model.served_as {
            true => model.name.clone(),
            false => format!("{} (served as {})", model.name, probe::printable(&model.served_as)),
        })
        .collect();
    let word = if models.len() == 1 { "model" } else { "models" };
    format!(
        "{}  {}  {}  {word} {}  pool {}/{}",
        endpoint.name,
        endpoint.url,
        endpoint.engine,
        models.join(", "),
        endpoint.fabric,
        endpoint.gpu_class
    )
}

/// What is as the file says, and what is not.
#[derive(Debug, Default)]
struct Verdict {
    facts: Vec<String>,
    troubles: Vec<String>,
}

impl Verdict {
    fn line(&self, endpoint: &EndpointConfig) -> String {
        let (word, parts) = match self.troubles.is_empty() {
            true => ("ok    ", self.facts.join(", ")),
            false => ("failed", [self.facts.join(", "), self.troubles.join("; ")].join("; ")),
        };
        format!("{word}  {}  {}: {}", endpoint.name, endpoint.url, parts.trim_start_matches("; "))
    }
}

fn judge(endpoint: &EndpointConfig, answer: Result<Findings, String>) -> Verdict {
    let mut verdict = Verdict::default();
    let found = match answer {
        Ok(found) => found,
        Err(reason) => {
            verdict.troubles.push(format!("cannot be reached: {reason}"));
            return verdict;
        }
    };
    verdict.facts.push(match (found.kind, &found.version) {
        (Some(kind), Some(version)) => format!("{kind} {version}"),
        (Some(kind), None) => format!("{kind}, version not told"),
        (None, _) => "kind not told".to_owned(),
    });
    match &found.ready {
        Ok(()) => verdict.facts.push("ready".to_owned()),
        Err(reason) => verdict.troubles.push(format!("not ready: {reason}")),
    }
    judge_key(endpoint, found.key, &mut verdict);
    judge_models(endpoint, &found, &mut verdict);
    judge_metrics(endpoint, &found, &mut verdict);
    verdict
}

fn judge_key(endpoint: &EndpointConfig, key: KeyVerdict, verdict: &mut Verdict) {
    let source = endpoint.api_key_source.as_deref().unwrap_or("the configuration");
    match key {
        KeyVerdict::NoneNeeded => {}
        KeyVerdict::Accepted => verdict.facts.push(format!("key from {source} accepted")),
        KeyVerdict::Refused(status) => verdict.troubles.push(format!("it refuses the key from {source} ({status})")),
        KeyVerdict::Missing(status) => {
            verdict.troubles.push(format!("it wants a key ({status}); name its variable in api_key_env"));
        }
    }
}

fn judge_models(endpoint: &EndpointConfig, found: &Findings, verdict: &mut Verdict) {
    let listed = match &found.models {
        Ok(listed) => listed,
        // Said once, as the key's trouble.
        Err(_) if matches!(found.key, KeyVerdict::Refused(_) | KeyVerdict::Missing(_)) => return,
        Err(reason) => {
            verdict.troubles.push(reason.clone());
            return;
        }
    };
    let is_listed = |name: &str| listed.iter().any(|model| model.id == name || model.aliases.iter().any(|a| a == name));
    let missing: Vec<String> = endpoint
        .models
        .iter()
        .filter(|model| !is_listed(&model.served_as))
        .map(|model| probe::printable(&format!("{:?}", model.served_as)))
        .collect();
    let ids: Vec<String> = listed.iter().take(20).map(|model| format!("{:?}", model.id)).collect();
    if missing.is_empty() {
        let names: Vec<&str> = endpoint.models.iter().map(|model| model.name.as_str()).collect();
        verdict.facts.push(format!("serves {}", names.join(", ")));
    } else if endpoint.engine == EngineKind::LlamaCpp {
        // It answers to any name with the model it has.
        verdict.facts.push(format!("answers to {} with {}", missing.join(", "), ids.join(", ")));
    } else {
        let (missing, ids) = (missing.join(", "), ids.join(", "));
        verdict.troubles.push(format!("it does not serve {missing} but {ids}; set served_as to what it serves"));
    }
}

fn judge_metrics(endpoint: &EndpointConfig, found: &Findings, verdict: &mut Verdict) {
    let page = match &found.metrics {
        None => {
            verdict.facts.push("metrics off".to_owned());
            return;
        }
        Some(Err(_)) if matches!(found.key, KeyVerdict::Refused(_) | KeyVerdict::Missing(_)) => return,
        Some(Err(reason)) => {
            let flag = kind::engine(endpoint.engine).metrics_flag;
            let right = flag.map_or(String::new(), |flag| format!("start {} with {flag}, or ", endpoint.engine));
            verdict.troubles.push(format!("no metrics: {reason}; {right}set metrics_path: off"));
            return;
        }
        Some(Ok(page)) => page,
    };
    let mut names = Names::of(endpoint.engine);
    for (field, name) in &endpoint.metrics {
        if let Err(error) = names.replace(field, name) {
            verdict.troubles.push(error.to_string());
        }
    }
    match contract::read(page, &names) {
        Ok(_) => verdict.facts.push("contract met".to_owned()),
        Err(violation) => verdict.troubles.push(format!("contract not met: {violation}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tests::{LLAMACPP_METRICS, LLAMACPP_MODELS, VLLM_METRICS, engine, nobody};
    use llmgw_config::url::EngineUrl;

    /// The report on a file with one endpoint, the URL's port put out of the way.
    fn check(url: &EngineUrl, keys: &str, depth: Depth, expected: &str) {
        let text = format!("endpoints: [{{ name: e, url: \"{url}\", {keys} }}]");
        let env = [("RIGHT", "right"), ("WRONG", "wrong")].map(|(name, text)| (name.to_owned(), text.to_owned()));
        let config = llmgw_config::from_text("server.yaml", &text, env).unwrap_or_else(|error| panic!("{error}"));
        let mut out = Vec::new();
        let is_well = report("server.yaml", &config, depth, &mut out).expect("a report");
        let said = String::from_utf8(out).expect("text").replace(&url.to_string(), "URL");
        assert_eq!(said.lines().next(), Some(expected));
        assert_eq!(is_well, !expected.starts_with("failed"), "{said}");
    }

    #[test]
    fn the_file_alone_says_what_each_endpoint_is() {
        let url = EngineUrl::parse("http://h:1").expect("a root");
        check(
            &url,
            "model: m, served_as: x/m, gpu_class: h100",
            Depth::File,
            "e  URL  vllm  model m (served as x/m)  pool none/h100",
        );
    }

    #[test]
    fn an_engine_that_is_as_the_file_says_is_ok() {
        let url = engine(&[
            ("/health", 200, ""),
            ("/v1/models", 401, r#"{"data":[{"id":"a","owned_by":"vllm"}]}"#),
            ("/metrics", 200, VLLM_METRICS),
            ("/version", 200, r#"{"version":"0.32.0"}"#),
        ]);
        check(
            &url,
            "model: m, served_as: a, api_key_env: RIGHT",
            Depth::Engines,
            "ok      e  URL: vllm 0.32.0, ready, key from variable RIGHT accepted, serves m, contract met",
        );
        check(
            &url,
            "model: m, api_key_env: WRONG",
            Depth::Engines,
            "failed  e  URL: vllm 0.32.0, ready, contract met; it refuses the key from variable WRONG (401)",
        );
        check(
            &url,
            "model: m, api_key_env: RIGHT",
            Depth::Engines,
            "failed  e  URL: vllm 0.32.0, ready, key from variable RIGHT accepted, contract met; \
             it does not serve \"m\" but \"a\"; set served_as to what it serves",
        );
        check(
            &url,
            "model: m",
            Depth::Engines,
            "failed  e  URL: vllm 0.32.0, ready, contract met; it wants a key (401); name its variable in api_key_env",
        );
    }

    #[test]
    fn another_engines_metrics_are_recognised() {
        let url = engine(&[
            ("/health", 200, ""),
            ("/v1/models", 200, LLAMACPP_MODELS),
            ("/metrics", 200, LLAMACPP_METRICS),
            ("/props", 200, r#"{"build_info":"b1"}"#),
        ]);
        check(
            &url,
            "model: tiny",
            Depth::Engines,
            "failed  e  URL: llamacpp b1, ready, serves tiny; contract not met: llamacpp metrics where vllm's were \
            expected; \
             set `engine: llamacpp`",
        );
        check(
            &url,
            "model: other, engine: llamacpp",
            Depth::Engines,
            "ok      e  URL: llamacpp b1, ready, answers to \"other\" with \"tiny\", contract met",
        );
        check(
            &url,
            "model: small, engine: llamacpp, metrics_path: off",
            Depth::Engines,
            "ok      e  URL: llamacpp b1, ready, serves small, metrics off",
        );
        check(
            &url,
            "model: tiny, engine: llamacpp, metrics_path: /none",
            Depth::Engines,
            "failed  e  URL: llamacpp b1, ready, serves tiny; no metrics: /none answers 404; \
             start llamacpp with --metrics, or set metrics_path: off",
        );
    }

    #[test]
    fn an_engine_that_is_down_is_said_to_be() {
        check(
            &nobody(),
            "model: m",
            Depth::Engines,
            "failed  e  URL: cannot be reached: connection refused; is it running, and on this port?",
        );
    }

    #[test]
    fn keys_without_effect_are_named_with_their_place() {
        let text = "endpoints: [{ url: \"http://h:1\", model: m }]\nrouter: { endpoint_cache_max_age: 5m }";
        let config = llmgw_config::from_text("server.yaml", text, []).expect("a file");
        let mut out = Vec::new();
        assert!(report("server.yaml", &config, Depth::File, &mut out).expect("a report"));
        let said = String::from_utf8(out).expect("text");
        let named = "server.yaml:2:11: router.endpoint_cache_max_age: not available in this version; \
            the value is checked and not used";
        assert_eq!(said.lines().collect::<Vec<_>>()[1..], [named, "server.yaml is well"]);
    }
}
