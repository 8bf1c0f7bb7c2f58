//! Engines' URLs and listening addresses: text → parts that cannot be wrong, or what would be right.
//!
//! Called by the checks and by the command line for URLs given there. Resolves no names.

use std::net::{Ipv4Addr, SocketAddr};

/// How an engine is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP/1.1 over TCP.
    Http,
    /// The same over TLS.
    Https,
    /// HTTP/1.1 over a UNIX socket.
    Unix,
}

impl Scheme {
    /// The word before the colon.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Unix => "unix",
        }
    }
}

/// An engine's root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineUrl {
    /// How it is reached.
    pub scheme: Scheme,
    /// Name or address in lower case, IPv6 without brackets; of `unix`, the path.
    pub host: String,
    /// TCP port; 0 for `unix`.
    pub port: u16,
}

impl EngineUrl {
    /// Reads `http://host:port`; the error says what would be right, and shows no credentials.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('@') && !text.starts_with("unix:") {
            return Err(
                "a URL may not hold credentials; put the key into a variable and name it in api_key_env".to_owned()
            );
        }
        let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
            return Err(format!("{text:?} has no scheme; write http://{}", text.trim_start_matches('/')));
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "unix" => return unix(text, rest),
            // `localhost:8000` reads as a scheme of its own; what follows tells them apart.
            _ if rest.starts_with(|c: char| c.is_ascii_digit()) => {
                return Err(format!("{text:?} has no scheme; write http://{text}"));
            }
            other => return Err(format!("the scheme {other:?} is not known; expected http, https or unix")),
        };
        let word = scheme.word();
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(format!("{text:?} is not a URL; write {word}://host:port"));
        };
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = host_and_port(text, authority, scheme)?;
        let url = Self { scheme, host, port };
        match path.trim_end_matches('/') {
            "" => Ok(url),
            end if end == "/v1" || end.ends_with("/v1") => {
                Err(format!("{text:?} ends in /v1; engines are named by their root: drop the /v1 and write {url}"))
            }
            _ => {
                Err(format!("{text:?} has more than a root: {path:?}; engines are named by their root, so write {url}"))
            }
        }
    }

    /// `host:port`, IPv6 in brackets; of `unix`, the path.
    pub fn authority(&self) -> String {
        match self.scheme {
            Scheme::Unix => self.host.clone(),
            _ if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    /// The `Host` field of requests: without the port where it is the scheme's own.
    pub fn host_header(&self) -> String {
        let authority = self.authority();
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => {
                authority.rsplit_once(':').map_or(authority.clone(), |(host, _)| host.to_owned())
            }
            (Scheme::Unix, _) => "localhost".to_owned(),
            _ => authority,
        }
    }
}

impl std::fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.scheme {
            Scheme::Unix => write!(f, "unix:{}", self.host),
            _ => write!(f, "{}://{}", self.scheme.word(), self.authority()),
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn unix(text: &str, rest: &str) -> Result<EngineUrl, String> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(format!("{text:?} is not the path of a socket; write unix:/run/engine.sock"));
    }
    Ok(EngineUrl { scheme: Scheme::Unix, host: path.to_owned(), port: 0 })
}

fn host_and_port(text: &str, authority: &str, scheme: Scheme) -> Result<(String, u16), String> {
    let word = scheme.word();
    let wrong = || format!("{text:?} names no host; write for example {word}://10.0.0.11:8000");
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
        }
        None => {
            let (host, port) = match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            };
            if port.is_some_and(|port| port.contains(':')) {
                return Err(format!("{text:?} is not clear; write an IPv6 address in brackets: {word}://[::1]:8000"));
            }
            let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
            if host.is_empty() || host.len() > 253 || !host.bytes().all(is_name) {
                return Err(wrong());
            }
            (host, port)
        }
    };
    let port = match port {
        None => {
            if scheme == Scheme::Https {
                443
            } else {
                80
            }
        }
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("{text:?}: {port:?} is not a port; expected a number from 1 to 65535")),
        },
    };
    Ok((host.to_ascii_lowercase(), port))
}

/// Reads a listening address: `:8080` (all IPv4 interfaces), `127.0.0.1:9090`, `[::]:8080`.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').or_else(|| text.strip_prefix("*:"));
    if let Some(Ok(port)) = port.map(str::parse::<u16>) {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let right = if text.parse::<u16>().is_ok() {
        format!("write \":{text}\"")
    } else if let Some(port) = text.strip_prefix("localhost:") {
        format!("names are not looked up; write 127.0.0.1:{port}")
    } else if text.parse::<std::net::IpAddr>().is_ok() {
        "the port is missing; write for example 10.0.0.1:8080".to_owned()
    } else {
        "write for example \":8080\", 127.0.0.1:8080 or \"[::]:8080\"".to_owned()
    };
    Err(format!("{text:?} is not an address with a port; {right}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_taken_apart() {
        for (text, scheme, host, port, header) in [
            ("http://10.0.0.11:8000", Scheme::Http, "10.0.0.11", 8000, "10.0.0.11:8000"),
            ("HTTP://Engine-1.Local:8000/", Scheme::Http, "engine-1.local", 8000, "engine-1.local:8000"),
            ("http://h", Scheme::Http, "h", 80, "h"),
            ("https://h", Scheme::Https, "h", 443, "h"),
            ("https://h:80", Scheme::Https, "h", 80, "h:80"),
            ("http://[::1]:8000", Scheme::Http, "::1", 8000, "[::1]:8000"),
            ("http://[::1]", Scheme::Http, "::1", 80, "[::1]"),
            ("unix:/run/e.sock", Scheme::Unix, "/run/e.sock", 0, "localhost"),
            ("unix:///run/e.sock", Scheme::Unix, "/run/e.sock", 0, "localhost"),
        ] {
            let url = EngineUrl::parse(text).expect(text);
            assert_eq!((url.scheme, url.host.as_str(), url.port), (scheme, host, port), "{text}");
            assert_eq!(url.host_header(), header, "{text}");
            assert_eq!(EngineUrl::parse(&url.to_string()).as_ref(), Ok(&url), "{text}");
        }
    }

    #[test]
    fn what_is_no_root_is_told_what_would_be_right() {
        for (text, expected) in [
            (
                "http://h:8000/v1",
                "\"http://h:8000/v1\" ends in /v1; engines are named by their root: drop the /v1 and write \
                http://h:8000",
            ),
            (
                "http://h:8000/api/v1/",
                "\"http://h:8000/api/v1/\" ends in /v1; engines are named by their root: drop the /v1 and write \
                http://h:8000",
            ),
            (
                "http://h:8000/openai",
                "\"http://h:8000/openai\" has more than a root: \"/openai\"; engines are named by their root, so \
                write http://h:8000",
            ),
            (
                "http://h:8000?x=1",
                "\"http://h:8000?x=1\" has more than a root: \"?x=1\"; engines are named by their root, so write \
                http://h:8000",
            ),
            ("10.0.0.11:8000", "\"10.0.0.11:8000\" has no scheme; write http://10.0.0.11:8000"),
            ("localhost:8000", "\"localhost:8000\" has no scheme; write http://localhost:8000"),
            ("//h:1", "\"//h:1\" has no scheme; write http://h:1"),
            ("ftp://h", "the scheme \"ftp\" is not known; expected http, https or unix"),
            ("http:h", "\"http:h\" is not a URL; write http://host:port"),
            ("http://", "\"http://\" names no host; write for example http://10.0.0.11:8000"),
            ("http://a b:1", "\"http://a b:1\" names no host; write for example http://10.0.0.11:8000"),
            (
                "http://::1:8000",
                "\"http://::1:8000\" is not clear; write an IPv6 address in brackets: http://[::1]:8000",
            ),
            ("http://h:0", "\"http://h:0\": \"0\" is not a port; expected a number from 1 to 65535"),
            ("http://h:99999", "\"http://h:99999\": \"99999\" is not a port; expected a number from 1 to 65535"),
            ("unix:run/x", "\"unix:run/x\" is not the path of a socket; write unix:/run/engine.sock"),
            (
                "http://user:hunter2@h:1",
                "a URL may not hold credentials; put the key into a variable and name it in api_key_env",
            ),
        ] {
            assert_eq!(EngineUrl::parse(text).expect_err(text), expected);
        }
    }

    #[test]
    fn a_listening_address_may_leave_out_the_interface() {
        assert_eq!(parse_listen(":8080"), Ok(SocketAddr::from(([0, 0, 0, 0], 8080))));
        assert_eq!(parse_listen("[::1]:0"), Ok(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0))));
        for (text, right) in [
            ("8080", "write \":8080\""),
            ("localhost:9090", "names are not looked up; write 127.0.0.1:9090"),
            ("10.0.0.1", "the port is missing; write for example 10.0.0.1:8080"),
            (":99999", "write for example \":8080\", 127.0.0.1:8080 or \"[::]:8080\""),
            ("", "write for example \":8080\", 127.0.0.1:8080 or \"[::]:8080\""),
        ] {
            assert_eq!(parse_listen(text), Err(format!("{text:?} is not an address with a port; {right}")));
        }
    }
}
