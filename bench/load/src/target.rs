//! Where requests go: an `http://host:port/path` taken apart once, and whom to trust where they go within TLS.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// A server and a path on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub addr: SocketAddr,
    /// The `Host` header's value.
    pub host: String,
    /// Begins with a slash.
    pub path: String,
    /// Within TLS, and whom to trust there; only the driver goes there.
    pub trust: Option<Trust>,
}

/// Whom to trust within TLS. The same as another only where it is a copy of it.
#[derive(Debug, Clone)]
pub struct Trust(Arc<ClientConfig>);

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Trust {}

impl Trust {
    /// One authority, or a certificate that signed itself.
    ///
    /// Errors: it is none.
    pub fn only(certificate: &CertificateDer<'static>) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone())?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}

impl Target {
    /// Reads a URL and resolves its name; a URL without a path means the chat route.
    ///
    /// Errors: a message that says what would be right.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| format!("{url:?} is no http:// URL; say http://127.0.0.1:8080/v1/chat/completions"))?;
        let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
        let with_port =
            if host.rsplit(']').next().unwrap_or(host).contains(':') { host.to_owned() } else { format!("{host}:80") };
        let mut found =
            with_port.to_socket_addrs().map_err(|error| format!("cannot resolve {host:?} of {url:?}: {error}"))?;
        let addr = found.next().ok_or_else(|| format!("{host:?} of {url:?} has no address"))?;
        let path = match path {
            None | Some("") => "/v1/chat/completions".to_owned(),
            Some(path) => format!("/{path}"),
        };
        Ok(Self { addr, host: host.to_owned(), path, trust: None })
    }

    /// The same within TLS.
    #[must_use]
    pub fn within_tls(self, trust: Trust) -> Self {
        Self { trust: Some(trust), ..self }
    }

    /// Another path on the same server.
    #[must_use]
    pub fn at(&self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expect: Result<(&str, &str), &str>) {
        let parsed = Target::parse(url);
        match (parsed, expect) {
            (Ok(target), Ok((addr, path))) => {
                assert_eq!((target.addr.to_string().as_str(), target.path.as_str()), (addr, path))
            }
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (parsed, _) => panic!("{url}: {parsed:?}"),
        }
    }

    #[test]
    fn a_url_is_taken_apart_and_a_wrong_one_explained() {
        check("http://127.0.0.1:8080", Ok(("127.0.0.1:8080", "/v1/chat/completions")));
        check("http://127.0.0.1:8080/", Ok(("127.0.0.1:8080", "/v1/chat/completions")));
        check("http://127.0.0.1/x?y=1", Ok(("127.0.0.1:80", "/x?y=1")));
        check("http://[::1]:9/x", Ok(("[::1]:9", "/x")));
        check("http://[::1]/x", Ok(("[::1]:80", "/x")));
        check("127.0.0.1:8080", Err("say http://"));
        check("https://127.0.0.1", Err("no http:// URL"));
        check("http://127.0.0.1:x/", Err("cannot resolve"));
    }
}
