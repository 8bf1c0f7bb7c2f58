//! Which headers pass, in both directions, by the gateway's own lists.

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};
use llmgw_gateway::forward::{is_for_us, is_owned, is_trace};
use llmgw_http::limits::CONNECTION_OPTIONS_MAX;
use llmgw_http::name::is_ours;

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const X_REPLICA: HeaderName = HeaderName::from_static("x-llmgw-replica");
pub(crate) const X_POOL: HeaderName = HeaderName::from_static("x-llmgw-pool");
pub(crate) const X_SERVED_MODEL: HeaderName = HeaderName::from_static("x-llmgw-served-model");
pub(crate) const X_OVERHEAD: HeaderName = HeaderName::from_static("x-llmgw-overhead-us");
pub(crate) const X_CACHE_DECISION: HeaderName = HeaderName::from_static("x-llmgw-cache-decision");
pub(crate) const X_EXPLAIN: HeaderName = HeaderName::from_static("x-llmgw-explain");
pub(crate) const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// What an engine gets of a client's headers; ours are added by the caller.
pub(crate) fn to_engine(client: &HeaderMap) -> HeaderMap {
    let mut passed = HeaderMap::with_capacity(client.len() + 4);
    let nominated = Nominated::of(client);
    let one_trace = {
        let mut traces = client.get_all("traceparent").iter();
        traces.next().is_some() && traces.next().is_none()
    };
    for (name, value) in client {
        let word = name.as_str().as_bytes();
        let stays = is_ours(word) || is_for_us(word) || nominated.has(name) || (is_trace(word) && !one_trace);
        if !stays {
            passed.append(name, value.clone());
        }
    }
    passed.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    passed
}

/// Takes out of an engine's headers what is not for a client.
pub(crate) fn to_client(headers: &mut HeaderMap) {
    let nominated = Nominated::of(headers);
    let stays = |name: &HeaderName| {
        let word = name.as_str().as_bytes();
        is_ours(word) || is_owned(word) || nominated.has(name)
    };
    let gone: Vec<HeaderName> = headers.keys().filter(|name| stays(name)).cloned().collect();
    drop(nominated);
    for name in gone {
        headers.remove(name);
    }
}

/// The headers that a message's `Connection` lines speak of.
struct Nominated(Vec<HeaderName>);

impl Nominated {
    /// Cost: nothing where there is no such line.
    fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(header::CONNECTION).iter();
        let words = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
        let names = words.filter_map(|word| HeaderName::from_bytes(word.trim_ascii()).ok());
        Self(names.take(CONNECTION_OPTIONS_MAX).collect())
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        lines.fold(HeaderMap::new(), |mut map, (name, value)| {
            map.append(name, value);
            map
        })
    }

    #[test]
    fn what_is_not_for_the_other_side_stays_here() {
        let client = map(&[
            ("host", "a"),
            ("authorization", "Bearer x"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("x-many", "1"),
            ("x-many", "2"),
            ("te", "trailers"),
            ("content-length", "3"),
            ("traceparent", "00-1"),
            ("traceparent", "00-2"),
        ]);
        assert_eq!(to_engine(&client), map(&[("x-many", "1"), ("x-many", "2"), ("accept-encoding", "identity")]));
        let mut engine = map(&[
            ("server", "uvicorn"),
            ("x-request-id", "forged"),
            ("x-llmgw-replica", "forged"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ]);
        to_client(&mut engine);
        assert_eq!(engine, map(&[("server", "uvicorn"), ("set-cookie", "a=1"), ("set-cookie", "b=2")]));
    }
}
