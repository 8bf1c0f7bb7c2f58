//! What a target means. Routes are matched whole, never joined to anything: the path an engine sees is ours.
//!
//! [`ROUTES`] is all there is to know of a route that engines answer; the request path asks it and never the path.

use std::borrow::Cow;

use llmgw_openai::stored::is_id;
use llmgw_openai::style::ErrorStyle;

/// Where a request goes by its method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// A POST whose body names a model; forwarded to an engine under the same path.
    Inference(&'static Inference),
    /// A response that an engine holds.
    Stored(Stored<'a>),
    /// `GET /v1/models`.
    Models,
    /// `GET /v1/models/NAME`, decoded.
    Model(Cow<'a, str>),
    /// `GET /me`: whose key this is, and what it may.
    Me,
    /// `GET /healthz`.
    Health,
    /// `GET /readyz`.
    Ready,
    /// The path exists, the method is another.
    WrongMethod {
        /// What the path allows.
        allow: &'static str,
    },
    /// Nothing of ours.
    Unknown,
}

/// A route that engines answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Inference {
    /// Here and at the engine.
    pub path: &'static str,
    pub body: BodyKind,
    pub usage: UsageReport,
    pub errors: ErrorStyle,
    pub streams: Streams,
    /// Whether `stream_options` may be added for a client that did not ask for usage.
    pub injects_usage: bool,
    /// Whether it takes a place in the engine's batch, and so waits for one.
    pub waits: bool,
    /// How an engine that orders its queue by priority is told a request's.
    pub priority: PriorityIn,
    /// Whether the engine may hold the answer for a later request that names it.
    pub stores: bool,
}

/// How a request's body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    Json,
    Multipart,
}

/// What an answer says of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageReport {
    /// Always; where it is missing, that is counted.
    Expected,
    /// Some engines say, others do not.
    IfAny,
    /// Nothing was generated, or the answer is no JSON: what looks like usage there is none.
    Never,
}

/// Where engines look for a request's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityIn {
    /// In the body's `priority`.
    Body,
    /// The body has no such field; some engines take a header.
    Header,
    /// Nowhere: nothing is queued for the model.
    Nowhere,
}

/// Whether an answer may be a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    Never,
    /// Where the body's `stream` says so.
    OnRequest,
}

/// What most routes are.
const JSON: Inference = Inference {
    path: "",
    body: BodyKind::Json,
    usage: UsageReport::Expected,
    errors: ErrorStyle::OpenAi,
    streams: Streams::Never,
    injects_usage: false,
    waits: true,
    priority: PriorityIn::Body,
    stores: false,
};
const GENERATION: Inference = Inference { streams: Streams::OnRequest, ..JSON };
const JUDGEMENT: Inference = Inference { usage: UsageReport::IfAny, ..JSON };
const NO_TOKENS: Inference =
    Inference { usage: UsageReport::Never, waits: false, priority: PriorityIn::Nowhere, ..JSON };
const AUDIO_IN: Inference = Inference {
    body: BodyKind::Multipart,
    usage: UsageReport::IfAny,
    streams: Streams::OnRequest,
    priority: PriorityIn::Header,
    ..JSON
};

/// Every route that engines answer.
pub static ROUTES: [Inference; 16] = [
    Inference { path: "/v1/chat/completions", injects_usage: true, ..GENERATION },
    Inference { path: "/v1/completions", injects_usage: true, ..GENERATION },
    Inference { path: "/v1/responses", stores: true, ..GENERATION },
    Inference { path: "/v1/messages", errors: ErrorStyle::Anthropic, priority: PriorityIn::Header, ..GENERATION },
    Inference { path: "/v1/messages/count_tokens", errors: ErrorStyle::Anthropic, ..NO_TOKENS },
    Inference { path: "/v1/embeddings", ..JSON },
    Inference { path: "/v1/rerank", ..JUDGEMENT },
    Inference { path: "/v2/rerank", ..JUDGEMENT },
    Inference { path: "/rerank", ..JUDGEMENT },
    Inference { path: "/v1/score", ..JUDGEMENT },
    Inference { path: "/score", ..JUDGEMENT },
    Inference { path: "/tokenize", ..NO_TOKENS },
    Inference { path: "/detokenize", ..NO_TOKENS },
    Inference { path: "/v1/audio/transcriptions", ..AUDIO_IN },
    Inference { path: "/v1/audio/translations", ..AUDIO_IN },
    Inference { path: "/v1/audio/speech", waits: true, ..NO_TOKENS },
];

/// A request about a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Made of letters, digits, `_` and `-` alone.
    pub id: &'a str,
    pub act: Act,
}

/// What is to happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Read,
    Delete,
    Cancel,
}

impl Route<'_> {
    /// Whether it is for callers with a key alone, where keys are on.
    pub fn needs_key(&self) -> bool {
        match self {
            Self::Inference(_) | Self::Stored(_) | Self::Models | Self::Model(_) | Self::Me => true,
            Self::Health | Self::Ready | Self::WrongMethod { .. } | Self::Unknown => false,
        }
    }

    /// A fixed word for logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Inference(route) => route.path,
            Self::Stored(Stored { act: Act::Cancel, .. }) => "/v1/responses/{id}/cancel",
            Self::Stored(_) => "/v1/responses/{id}",
            Self::Models => "/v1/models",
            Self::Model(_) => "/v1/models/{model}",
            Self::Me => "/me",
            Self::Health => "/healthz",
            Self::Ready => "/readyz",
            Self::WrongMethod { .. } | Self::Unknown => "other",
        }
    }
}

/// Splits a target into path and query; the query keeps its question mark.
pub fn split_query(target: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'?', target) {
        Some(at) => target.split_at(at),
        None => (target, b""),
    }
}

/// Finds the route of a method and path. One slash at the end means nothing; anything else that is not exactly a route
/// of ours (`//`, `..`, escapes outside a model's name) is unknown.
pub fn route<'a>(method: &[u8], path: &'a [u8]) -> Route<'a> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if let Some(found) = ROUTES.iter().find(|route| route.path.as_bytes() == path) {
        return if method == b"POST" { Route::Inference(found) } else { Route::WrongMethod { allow: "POST" } };
    }
    if let Some(rest) = path.strip_prefix(b"/v1/responses/") {
        return stored(method, rest);
    }
    let read = match path {
        b"/v1/models" => Route::Models,
        b"/me" => Route::Me,
        b"/healthz" => Route::Health,
        b"/readyz" => Route::Ready,
        _ => match path.strip_prefix(b"/v1/models/").and_then(model_name) {
            Some(name) => Route::Model(name),
            None => return Route::Unknown,
        },
    };
    if matches!(method, b"GET" | b"HEAD") { read } else { Route::WrongMethod { allow: "GET, HEAD" } }
}

/// In which shape errors of a path are, whether or not it is served.
pub fn error_style(path: &[u8]) -> ErrorStyle {
    match path.strip_prefix(b"/v1/messages") {
        Some([] | [b'/', ..]) => ErrorStyle::Anthropic,
        _ => ErrorStyle::OpenAi,
    }
}

/// `ID` or `ID/cancel`. What cannot be an id is none of ours: it never becomes part of a path.
fn stored<'a>(method: &[u8], rest: &'a [u8]) -> Route<'a> {
    let (id, is_cancel) = match rest.strip_suffix(b"/cancel") {
        Some(id) => (id, true),
        None => (rest, false),
    };
    let Some(id) = std::str::from_utf8(id).ok().filter(|id| is_id(id.as_bytes())) else { return Route::Unknown };
    let act = match (method, is_cancel) {
        (b"POST", true) => Act::Cancel,
        (_, true) => return Route::WrongMethod { allow: "POST" },
        (b"GET", false) => Act::Read,
        (b"DELETE", false) => Act::Delete,
        _ => return Route::WrongMethod { allow: "GET, DELETE" },
    };
    Route::Stored(Stored { id, act })
}

/// A model's name in a path: it may hold slashes as they are or escaped, and is only looked up, never part of a path of
/// ours.
fn model_name(raw: &[u8]) -> Option<Cow<'_, str>> {
    if raw.is_empty() {
        return None;
    }
    if !raw.contains(&b'%') {
        return std::str::from_utf8(raw).ok().map(Cow::Borrowed);
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        decoded.push(hex(*high)? << 4 | hex(*low)?);
        rest = after;
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, target: &str, want: Route<'_>) {
        let (path, _) = split_query(target.as_bytes());
        assert_eq!(route(method.as_bytes(), path), want, "{method} {target}");
    }

    fn inference(path: &str) -> Route<'static> {
        Route::Inference(ROUTES.iter().find(|route| route.path == path).expect("a route"))
    }

    #[test]
    fn routes_are_found_with_a_query_and_with_one_slash_at_the_end() {
        check("POST", "/v1/chat/completions", inference("/v1/chat/completions"));
        check("POST", "/v1/chat/completions/", inference("/v1/chat/completions"));
        check("POST", "/v1/chat/completions?api-version=1", inference("/v1/chat/completions"));
        check("POST", "/v1/embeddings?", inference("/v1/embeddings"));
        check("POST", "/v1/messages?beta=true", inference("/v1/messages"));
        check("GET", "/v1/models", Route::Models);
        check("HEAD", "/v1/models/", Route::Models);
        check("GET", "/healthz", Route::Health);
        assert_eq!(split_query(b"/v1/models?beta=true"), (&b"/v1/models"[..], &b"?beta=true"[..]));
    }

    #[test]
    fn a_wrong_method_says_which_is_right() {
        check("GET", "/v1/completions", Route::WrongMethod { allow: "POST" });
        check("DELETE", "/v1/models/m", Route::WrongMethod { allow: "GET, HEAD" });
    }

    #[test]
    fn every_route_is_found_by_its_path_and_by_no_other_method_than_post() {
        for route in &ROUTES {
            check("POST", route.path, Route::Inference(route));
            check("GET", route.path, Route::WrongMethod { allow: "POST" });
            assert_eq!(route.errors, error_style(route.path.as_bytes()), "{}", route.path);
            // An option in a body that does not know it is a 400 at best.
            let takes_options = matches!(route.path, "/v1/chat/completions" | "/v1/completions");
            assert_eq!(route.injects_usage, takes_options, "{}", route.path);
            assert_eq!(ROUTES.iter().filter(|other| other.path == route.path).count(), 1, "{}", route.path);
        }
    }

    #[test]
    fn stored_responses_are_known_by_ids_that_mean_nothing_in_a_path() {
        let stored = |act| Route::Stored(Stored { id: "resp_a-1", act });
        check("GET", "/v1/responses/resp_a-1", stored(Act::Read));
        check("GET", "/v1/responses/resp_a-1/?stream=true", stored(Act::Read));
        check("DELETE", "/v1/responses/resp_a-1", stored(Act::Delete));
        check("POST", "/v1/responses/resp_a-1/cancel", stored(Act::Cancel));
        check("POST", "/v1/responses/resp_a-1", Route::WrongMethod { allow: "GET, DELETE" });
        check("GET", "/v1/responses/resp_a-1/cancel", Route::WrongMethod { allow: "POST" });
        for id in ["..", "a%2fb", "a/b", "a/b/cancel", "/cancel", "a.b", "é"] {
            check("GET", &format!("/v1/responses/{id}"), Route::Unknown);
        }
    }

    #[test]
    fn errors_below_messages_are_anthropics() {
        for (path, style) in [
            ("/v1/messages", ErrorStyle::Anthropic),
            ("/v1/messages/", ErrorStyle::Anthropic),
            ("/v1/messages/batches", ErrorStyle::Anthropic),
            ("/v1/messagesx", ErrorStyle::OpenAi),
            ("/v1/chat/completions", ErrorStyle::OpenAi),
            ("", ErrorStyle::OpenAi),
        ] {
            assert_eq!(error_style(path.as_bytes()), style, "{path}");
        }
    }

    #[test]
    fn model_names_may_hold_slashes_and_escapes() {
        check("GET", "/v1/models/org/m:7b@q4", Route::Model("org/m:7b@q4".into()));
        check("GET", "/v1/models/org%2Fm%3a7b%40q4", Route::Model("org/m:7b@q4".into()));
        check("GET", "/v1/models/%E6%A8%A1%E5%9E%8B", Route::Model("模型".into()));
        check("GET", "/v1/models/模型", Route::Model("模型".into()));
        check("GET", "/v1/models/a%252Fb", Route::Model("a%2Fb".into()));
    }

    #[test]
    fn what_is_not_exactly_a_route_is_unknown() {
        for target in [
            "/",
            "",
            "/v1",
            "/v1//chat/completions",
            "/v1/chat/completions//",
            "/v1/./completions",
            "/v1/%63ompletions",
            "/v1//evil/x",
            "/v1/%2e%2e/metrics",
            "/metrics",
            "/v1/models//",
            "/v1/models/%zz",
            "/v1/models/%2",
            "/v1/models/%ff",
            "\\v1\\models",
            "/V1/models",
        ] {
            check("GET", target, Route::Unknown);
        }
        // A traversal in a model's place is only a name that nobody has.
        check("GET", "/v1/models/..%2f..%2fadmin", Route::Model("../../admin".into()));
    }
}
