//! Who may use the admin API: whoever shows the admin token, where there is one; else only programs on this machine.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use llmgw_kit::secret::Secret;

use super::refusal;

/// What to answer to somebody who may not; nothing for somebody who may.
pub(super) fn refused(headers: &HeaderMap, token: Option<&Secret>, is_loopback: bool) -> Option<Response<Full<Bytes>>> {
    match token {
        Some(token) if shows(headers, token) => None,
        Some(_) => {
            let message = "the admin API needs the admin token: Authorization: Bearer TOKEN";
            let mut response = refusal(StatusCode::UNAUTHORIZED, "admin_token", message);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            Some(response)
        }
        None if !is_loopback => {
            let message = "this address can be reached from other machines and no admin token is configured";
            Some(refusal(StatusCode::FORBIDDEN, "admin_token", message))
        }
        // A page of any site can make a browser on this machine ask; programs send no Origin.
        None if headers.contains_key(ORIGIN) => {
            Some(refusal(StatusCode::FORBIDDEN, "admin_token", "browsers need an admin token"))
        }
        None => None,
    }
}

fn shows(headers: &HeaderMap, token: &Secret) -> bool {
    let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let Some((scheme, shown)) = shown.split_at_checked(7) else { return false };
    scheme.eq_ignore_ascii_case(b"bearer ") && is_same(shown, token.expose().as_bytes())
}

/// Compares in a time that tells nothing but the length of what was shown.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let mut difference = shown.len() ^ token.len();
    for (at, byte) in shown.iter().enumerate() {
        let expected = token.get(at % token.len().max(1)).copied().unwrap_or_default();
        difference |= usize::from(std::hint::black_box(byte ^ expected));
    }
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(authorization: Option<&str>, token: Option<&str>, is_loopback: bool, expected: u16) {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).expect("a header"));
        }
        let token = token.map(Secret::new);
        let status = refused(&headers, token.as_ref(), is_loopback).map_or(200, |response| response.status().as_u16());
        assert_eq!(status, expected, "{authorization:?} {token:?} {is_loopback}");
    }

    #[test]
    fn the_token_is_needed_where_there_is_one_and_elsewhere_only_this_machine_is_let_in() {
        check(None, None, true, 200);
        check(None, None, false, 403);
        check(Some("Bearer t"), None, false, 403);
        for is_loopback in [true, false] {
            check(Some("Bearer secret"), Some("secret"), is_loopback, 200);
            check(Some("bearer secret"), Some("secret"), is_loopback, 200);
            for wrong in ["Bearer secre", "Bearer secrets", "Bearer Secret", "Basic secret", "secret", "Bearer ", ""] {
                check(Some(wrong), Some("secret"), is_loopback, 401);
            }
            check(Some("Bearer secretsecret"), Some("secret"), is_loopback, 401);
            check(None, Some("secret"), is_loopback, 401);
        }
    }

    #[test]
    fn a_browser_is_not_let_in_without_a_token() {
        let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("http://elsewhere"))]);
        let refused = refused(&headers, None, true).expect("refused");
        assert_eq!(refused.status(), 403);
    }
}
