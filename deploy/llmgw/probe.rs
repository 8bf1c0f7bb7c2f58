//! Asks an engine what it is: is it ready, which kind and version, which models, are its metrics of use, is the key
//! right.
//!
//! Called by `init` and `check`, which an operator runs; blocking, a few requests an engine, bounded in time and size.
//! Judges nothing by a configuration: that is the callers'. Never prints a key, nor control characters an engine sent.

mod door;

use std::sync::Arc;
use std::time::Duration;

use llmgw_config::url::{EngineUrl, Scheme};
use llmgw_engines::{kind, promtext};
use llmgw_kit::secret::Secret;
use llmgw_kit::units::format_duration;
use llmgw_side::trust::{self, TrustError};
use llmgw_types::endpoint::EngineKind;
use rustls::ClientConfig;
use serde_json::Value;
use ureq::unversioned::resolver::DefaultResolver;

use self::door::Door;

/// The longest one request may take, name lookup and body included.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The largest answer that is read; vLLM's metrics page has 70 KB.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Engines that are asked at the same time.
const AT_ONCE: usize = 16;
/// The most models one engine may list.
const MODEL_COUNT_MAX: usize = 1000;

/// Whom to ask, and where it answers.
#[derive(Clone, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) url: &'a EngineUrl,
    pub(crate) api_key: Option<&'a Secret>,
    pub(crate) health_path: &'a str,
    /// None: it has no metrics page.
    pub(crate) metrics_path: Option<&'a str>,
    /// Of `https`: whom to trust, or why nobody can be.
    pub(crate) trust: Result<Option<Arc<ClientConfig>>, TrustError>,
}

/// What an engine that can be reached said.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Whether its health page says that it is ready; else why not.
    pub(crate) ready: Result<(), String>,
    /// Told by its metrics, its models or its server's name; none: it gives no sign.
    pub(crate) kind: Option<EngineKind>,
    pub(crate) version: Option<String>,
    /// The models it lists, or why there are none.
    pub(crate) models: Result<Vec<ListedModel>, String>,
    /// Its metrics page, or why there is none; none where it was not asked for.
    pub(crate) metrics: Option<Result<Vec<u8>, String>>,
    pub(crate) key: KeyVerdict,
}

/// One model an engine lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedModel {
    pub(crate) id: String,
    /// Other names it answers to.
    pub(crate) aliases: Vec<String>,
}

/// What the engine thinks of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyVerdict {
    /// None was sent and none was asked for.
    NoneNeeded,
    /// One was sent and nothing was refused.
    Accepted,
    /// None was sent, and it answered with that status.
    Missing(u16),
    /// One was sent, and it answered with that status.
    Refused(u16),
}

/// Asks all of them, some at a time; answers come in the order of the questions. The error says why one cannot be
/// reached.
pub(crate) fn probe_all(questions: &[Question<'_>]) -> Vec<Result<Findings, String>> {
    let mut answers = Vec::with_capacity(questions.len());
    for some in questions.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let running: Vec<_> = some.iter().map(|question| scope.spawn(|| probe(question))).collect();
            let gone = |_| Err("the question could not be asked".to_owned());
            answers.extend(running.into_iter().map(|thread| thread.join().unwrap_or_else(gone)));
        });
    }
    answers
}

/// Asks one engine.
fn probe(question: &Question<'_>) -> Result<Findings, String> {
    let asker = Asker::new(question)?;
    let health = asker.ask(question.health_path)?;
    let models_page = asker.ask("/v1/models");
    let metrics_page = question.metrics_path.map(|path| asker.ask(path));
    let mut statuses = vec![health.status];
    statuses.extend(models_page.iter().chain(metrics_page.iter().flatten()).map(|page| page.status));

    let models = models_page.clone().and_then(|page| page.good("/v1/models")).and_then(|body| models_of(&body));
    let metrics = metrics_page.map(|page| page.and_then(|page| page.good(question.metrics_path.unwrap_or_default())));
    let signs = Signs {
        metrics: metrics.as_ref().and_then(|page| page.as_deref().ok()).unwrap_or_default(),
        models: models_page.as_ref().map(|page| page.body.as_slice()).unwrap_or_default(),
        server: &health.server,
    };
    let mut kind = signs.kind();
    let mut version = None;
    for path in kind.map_or(&["/version", "/props"][..], |kind| kind::engine(kind).version_paths) {
        let Ok(page) = asker.ask(path) else { break };
        statuses.push(page.status);
        version = page.good(path).ok().and_then(|body| version_of(&body));
        if version.is_some() {
            break;
        }
    }
    if let Some(simulated) = version.as_deref().and_then(|version| version.strip_prefix("sim-")) {
        kind = kind.filter(|kind| *kind != EngineKind::Vllm).or(Some(EngineKind::Sim));
        version = Some(simulated.to_owned());
    }
    Ok(Findings {
        ready: health.good(question.health_path).map(|_| ()),
        kind,
        version,
        models,
        metrics,
        key: key_verdict(question.api_key.is_some(), &statuses),
    })
}

fn key_verdict(was_sent: bool, statuses: &[u16]) -> KeyVerdict {
    match (was_sent, statuses.iter().find(|status| matches!(status, 401 | 403))) {
        (true, Some(status)) => KeyVerdict::Refused(*status),
        (true, None) => KeyVerdict::Accepted,
        (false, Some(status)) => KeyVerdict::Missing(*status),
        (false, None) => KeyVerdict::NoneNeeded,
    }
}

/// One answer to a `GET`.
#[derive(Clone, Debug)]
struct Page {
    status: u16,
    server: String,
    body: Vec<u8>,
}

impl Page {
    /// The body of a 200.
    fn good(self, path: &str) -> Result<Vec<u8>, String> {
        match self.status {
            200 => Ok(self.body),
            status => Err(format!("{path} answers {status}")),
        }
    }
}

struct Asker<'a> {
    agent: ureq::Agent,
    /// What paths are put behind.
    root: String,
    question: &'a Question<'a>,
}

impl<'a> Asker<'a> {
    fn new(question: &'a Question<'a>) -> Result<Self, String> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_WITHIN))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // An engine is reached directly, whatever the environment says about the web.
            .proxy(None)
            .user_agent(concat!("llmgw/", env!("CARGO_PKG_VERSION")))
            .build();
        let trust = question.trust.as_ref().map_err(ToString::to_string)?;
        let door = match (question.url.scheme, trust) {
            (Scheme::Unix, _) => Some(Door::Unix(question.url.host.clone())),
            (_, Some(trust)) => Some(Door::Tls(trust.clone())),
            (_, None) => None,
        };
        let root = match question.url.scheme {
            Scheme::Unix => "http://127.0.0.1".to_owned(),
            _ => question.url.to_string(),
        };
        let agent = match door {
            Some(door) => ureq::Agent::with_parts(config, door, DefaultResolver::default()),
            None => config.into(),
        };
        Ok(Self { agent, root, question })
    }

    fn ask(&self, path: &str) -> Result<Page, String> {
        let mut request = self.agent.get(format!("{}{path}", self.root));
        if let Some(key) = self.question.api_key {
            request = request.header("authorization", format!("Bearer {}", key.expose()));
        }
        let mut response = request.call().map_err(|error| reason(&error))?;
        let server = response.headers().get("server").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (status, server) = (response.status().as_u16(), server.to_owned());
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        Ok(Page { status, server, body: body.map_err(|error| format!("{path}: {}", reason(&error)))? })
    }
}

/// Why there is no answer, in words.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "connection refused; is it running, and on this port?".to_owned()
        }
        ureq::Error::Io(error) => trust::reason(error).unwrap_or_else(|| printable(&error.to_string())),
        ureq::Error::HostNotFound => "the name is not known".to_owned(),
        ureq::Error::Timeout(_) => format!("no answer within {}", format_duration(ANSWER_WITHIN)),
        ureq::Error::BodyExceedsLimit(_) => "the answer is too large".to_owned(),
        other => format!("the answer is not HTTP: {}", printable(&other.to_string())),
    }
}

/// What tells one kind of engine from another.
struct Signs<'a> {
    metrics: &'a [u8],
    models: &'a [u8],
    server: &'a str,
}

impl Signs<'_> {
    fn kind(&self) -> Option<EngineKind> {
        // The simulated engine speaks another's vocabulary, so it comes last.
        let by_metrics = |kind: &EngineKind| {
            let prefix = kind::engine(*kind).vocabulary.prefix;
            promtext::Samples::new(self.metrics).any(|sample| sample.name.starts_with(prefix))
        };
        if let Some(kind) = EngineKind::ALL.into_iter().find(by_metrics) {
            return Some(kind);
        }
        let list: Value = serde_json::from_slice(self.models).unwrap_or_default();
        let owner = list.pointer("/data/0/owned_by").and_then(Value::as_str).unwrap_or_default();
        match (owner, self.server) {
            ("vllm", _) => Some(EngineKind::Vllm),
            ("sglang", _) => Some(EngineKind::Sglang),
            ("llamacpp", _) | (_, "llama.cpp") => Some(EngineKind::LlamaCpp),
            _ => None,
        }
    }
}

/// The list of `/v1/models`; llama.cpp names aliases beside the id.
fn models_of(body: &[u8]) -> Result<Vec<ListedModel>, String> {
    let list: Value = serde_json::from_slice(body).map_err(|_| "/v1/models does not answer in JSON".to_owned())?;
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty() && text.len() <= 1024).map(str::to_owned);
    let items = list.get("data").and_then(Value::as_array).ok_or("/v1/models holds no list")?;
    let models: Vec<ListedModel> = items
        .iter()
        .take(MODEL_COUNT_MAX)
        .filter_map(|item| {
            let id = item.get("id").and_then(text)?;
            let aliases = item.get("aliases").and_then(Value::as_array).into_iter().flatten();
            let aliases = aliases.filter_map(text).filter(|alias| *alias != id).collect();
            Some(ListedModel { id, aliases })
        })
        .collect();
    if models.is_empty() { Err("/v1/models lists no model".to_owned()) } else { Ok(models) }
}

fn version_of(body: &[u8]) -> Option<String> {
    let page: Value = serde_json::from_slice(body).ok()?;
    let text = page.get("version").or_else(|| page.get("build_info"))?.as_str()?;
    Some(printable(text)).filter(|text| !text.is_empty() && text.len() <= 100)
}

/// A text an engine sent, fit for a terminal and for a comment.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(300).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    pub(crate) const LLAMACPP_MODELS: &str =
        r#"{"object":"list","data":[{"id":"tiny","aliases":["tiny","small"],"object":"model","owned_by":"llamacpp"}]}"#;
    pub(crate) const VLLM_METRICS: &str = "vllm:num_requests_running{engine=\"0\"} 0.0\n\
         vllm:num_requests_waiting{engine=\"0\"} 0.0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.0\n";
    pub(crate) const LLAMACPP_METRICS: &str = "llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n";

    /// Answers on a port of its own as the table says, and 404 to all else; until the process ends.
    pub(crate) fn engine(pages: &'static [(&'static str, u16, &'static str)]) -> EngineUrl {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
                let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let path = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
                let (_, status, body) = pages.iter().find(|(page, ..)| *page == path).unwrap_or(&("", 404, ""));
                // `401` pages ask for the key "right".
                let has_key = head.iter().any(|line| line.eq_ignore_ascii_case("authorization: Bearer right"));
                let status = if *status == 401 && has_key { 200 } else { *status };
                let length = body.len();
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all((head + body).as_bytes());
            }
        });
        EngineUrl::parse(&format!("http://{address}")).expect("a root")
    }

    /// A port where nobody listens.
    pub(crate) fn nobody() -> EngineUrl {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        EngineUrl::parse(&format!("http://{}", listener.local_addr().expect("its address"))).expect("a root")
    }

    fn ask(url: &EngineUrl, key: Option<&str>) -> Result<Findings, String> {
        let key = key.map(Secret::new);
        let question = Question {
            url,
            api_key: key.as_ref(),
            health_path: "/health",
            metrics_path: Some("/metrics"),
            trust: trust::of_url(url, None),
        };
        probe_all(&[question]).pop().expect("one answer")
    }

    #[test]
    fn an_engine_is_known_by_its_metrics() {
        let url = engine(&[
            ("/health", 200, ""),
            ("/v1/models", 200, r#"{"data":[{"id":"a","owned_by":"vllm"},{"id":"b"}]}"#),
            ("/metrics", 200, VLLM_METRICS),
            ("/version", 200, r#"{"version":"0.32.0"}"#),
        ]);
        let found = ask(&url, None).expect("it answers");
        assert_eq!((found.kind, found.version.as_deref()), (Some(EngineKind::Vllm), Some("0.32.0")));
        assert_eq!(found.models.expect("models").len(), 2);
        assert_eq!((found.ready, found.key), (Ok(()), KeyVerdict::NoneNeeded));
    }

    #[test]
    fn an_engine_without_metrics_is_known_by_what_it_lists() {
        let url = engine(&[
            ("/health", 503, ""),
            ("/v1/models", 200, LLAMACPP_MODELS),
            ("/props", 200, r#"{"build_info":"b10991-\u001b7"}"#),
        ]);
        let found = ask(&url, None).expect("it answers");
        assert_eq!((found.kind, found.version.as_deref()), (Some(EngineKind::LlamaCpp), Some("b10991-?7")));
        let models = found.models.expect("models");
        assert_eq!(models, [ListedModel { id: "tiny".to_owned(), aliases: vec!["small".to_owned()] }]);
        assert_eq!(found.ready, Err("/health answers 503".to_owned()));
        assert_eq!(found.metrics, Some(Err("/metrics answers 404".to_owned())));
    }

    #[test]
    fn a_simulated_engine_is_known_by_its_version() {
        let url = engine(&[("/metrics", 200, VLLM_METRICS), ("/version", 200, r#"{"version":"sim-0.1.0"}"#)]);
        let found = ask(&url, None).expect("it answers");
        assert_eq!((found.kind, found.version.as_deref()), (Some(EngineKind::Sim), Some("0.1.0")));
    }

    #[test]
    fn a_key_is_judged_by_any_page_that_wants_one() {
        let url = engine(&[("/health", 200, ""), ("/v1/models", 200, LLAMACPP_MODELS), ("/props", 401, "{}")]);
        for (key, verdict) in [
            (None, KeyVerdict::Missing(401)),
            (Some("wrong"), KeyVerdict::Refused(401)),
            (Some("right"), KeyVerdict::Accepted),
        ] {
            assert_eq!(ask(&url, key).expect("it answers").key, verdict);
        }
    }

    #[test]
    fn what_cannot_be_reached_says_why() {
        let refused = ask(&nobody(), None).expect_err("nobody listens");
        assert_eq!(refused, "connection refused; is it running, and on this port?");
    }

    #[test]
    fn odd_answers_are_no_models() {
        for (body, expected) in [
            ("", "/v1/models does not answer in JSON"),
            ("[]", "/v1/models holds no list"),
            (r#"{"data":[]}"#, "/v1/models lists no model"),
            (r#"{"data":[{"id":7},{"id":""}]}"#, "/v1/models lists no model"),
        ] {
            assert_eq!(models_of(body.as_bytes()), Err(expected.to_owned()));
        }
    }
}
