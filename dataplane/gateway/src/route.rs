//! What a target means. Routes are matched whole, never joined to anything: the path an engine sees is ours.

use std::borrow::Cow;

/// Where a request goes by its method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// A POST with a JSON body that names a model; forwarded to an engine under the same path.
    Inference(Inference),
    /// `GET /v1/models`.
    Models,
    /// `GET /v1/models/NAME`, decoded.
    Model(Cow<'a, str>),
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

/// Routes that engines answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inference {
    ChatCompletions,
    Completions,
    Embeddings,
}

impl Inference {
    /// The path, here and at the engine.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
        }
    }

    const ALL: [Self; 3] = [Self::ChatCompletions, Self::Completions, Self::Embeddings];
}

impl Route<'_> {
    /// A fixed word for logs.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Inference(route) => route.path(),
            Self::Models => "/v1/models",
            Self::Model(_) => "/v1/models/{model}",
            Self::Health => "/healthz",
            Self::Ready => "/readyz",
            Self::WrongMethod { .. } | Self::Unknown => "other",
        }
    }
}

/// Splits a target into path and query; the query keeps its question mark.
pub(crate) fn split_query(target: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'?', target) {
        Some(at) => target.split_at(at),
        None => (target, b""),
    }
}

/// Finds the route of a method and path. One slash at the end means nothing; anything else that is not exactly a route
/// of ours (`//`, `..`, escapes outside a model's name) is unknown.
pub(crate) fn route<'a>(method: &[u8], path: &'a [u8]) -> Route<'a> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if let Some(found) = Inference::ALL.into_iter().find(|route| route.path().as_bytes() == path) {
        return if method == b"POST" { Route::Inference(found) } else { Route::WrongMethod { allow: "POST" } };
    }
    let read = match path {
        b"/v1/models" => Route::Models,
        b"/healthz" => Route::Health,
        b"/readyz" => Route::Ready,
        _ => match path.strip_prefix(b"/v1/models/").and_then(model_name) {
            Some(name) => Route::Model(name),
            None => return Route::Unknown,
        },
    };
    if matches!(method, b"GET" | b"HEAD") { read } else { Route::WrongMethod { allow: "GET, HEAD" } }
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

    #[test]
    fn routes_are_found_with_a_query_and_with_one_slash_at_the_end() {
        let chat = || Route::Inference(Inference::ChatCompletions);
        check("POST", "/v1/chat/completions", chat());
        check("POST", "/v1/chat/completions/", chat());
        check("POST", "/v1/chat/completions?api-version=1", chat());
        check("POST", "/v1/embeddings?", Route::Inference(Inference::Embeddings));
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
