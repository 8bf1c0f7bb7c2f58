//! Header names: which ones end at this connection, and which ones say how a body is framed.
//!
//! Asked by both head parsers and by the head drafts, so that no other place needs a list. Changes when HTTP grows
//! another connection-bound header. Never looks at values.

/// Says whether a header belongs to one connection and must not be passed on.
///
/// Knows the misspelt `Trailers`. Names nominated by `Connection` are known to the parsed heads, not here.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    match name.len() {
        2 => is("te"),
        7 => is("trailer") || is("upgrade"),
        8 => is("trailers"),
        10 => is("connection") || is("keep-alive"),
        14 => is("http2-settings"),
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        18 => is("proxy-authenticate"),
        19 => is("proxy-authorization"),
        25 => is("proxy-authentication-info"),
        _ => false,
    }
}

/// Says whether a header is set by this crate alone: hop-by-hop ones and `Content-Length`.
pub fn is_ours(name: &[u8]) -> bool {
    is_hop_by_hop(name) || name.eq_ignore_ascii_case(b"content-length")
}

/// The words of a comma-separated header value, trimmed, empty ones left out.
pub(crate) fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_bound_names_are_known_in_any_case() {
        for name in [
            "Connection",
            "KEEP-ALIVE",
            "te",
            "Trailer",
            "Trailers",
            "Upgrade",
            "Transfer-Encoding",
            "Proxy-Connection",
            "proxy-authorization",
            "Proxy-Authenticate",
        ] {
            assert!(is_hop_by_hop(name.as_bytes()), "{name}");
        }
        for name in ["content-length", "content-type", "authorization", "trailing", "x-te", ""] {
            assert!(!is_hop_by_hop(name.as_bytes()), "{name}");
        }
        assert!(is_ours(b"Content-length"));
    }
}
