//! Whom to trust when an engine is reached within TLS: certificate authorities from files, as the cores and the probes
//! use them.
//!
//! Called by `publish` for the cores and by `probe` for itself; never on a core. Endpoints that trust the same
//! authorities share one configuration, and with it the sessions that spare a second handshake, also over reloads. What
//! a failed handshake means is put into words here, with the names that were expected and found.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use llmgw_config::url::{EngineUrl, Scheme};
use llmgw_config::{Authorities, EndpointConfig};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// Authorities by the text that holds them; none: the system's. What nobody uses any more is forgotten.
static KNOWN: Mutex<Option<HashMap<Option<String>, Weak<ClientConfig>>>> = Mutex::new(None);

/// Why an endpoint's authorities are of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{engine}: tls.ca: {file}: {reason}")]
pub struct TrustError {
    /// Its URL.
    pub engine: String,
    /// Where the authorities are from.
    pub file: String,
    /// In words.
    pub reason: String,
}

/// The endpoint's TLS settings; none where it is not reached within TLS.
///
/// Errors: its file of authorities holds none. Cost: the first time, files are read.
pub fn of(endpoint: &EndpointConfig) -> Result<Option<Arc<ClientConfig>>, TrustError> {
    of_url(&endpoint.url, endpoint.tls_ca.as_ref())
}

/// The same for an engine that has no name yet.
pub fn of_url(url: &EngineUrl, ca: Option<&Authorities>) -> Result<Option<Arc<ClientConfig>>, TrustError> {
    if url.scheme != Scheme::Https {
        return Ok(None);
    }
    let said = |reason| {
        let file = ca.map_or("the system's authorities", |ca| ca.file.as_str()).to_owned();
        TrustError { engine: url.to_string(), file, reason }
    };
    config(ca.map(|ca| ca.pem.as_str())).map(Some).map_err(said)
}

/// TLS settings that trust the authorities in `pem`, or the system's.
fn config(pem: Option<&str>) -> Result<Arc<ClientConfig>, String> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    known.retain(|_, config| config.strong_count() > 0);
    let key = pem.map(str::to_owned);
    if let Some(config) = known.get(&key).and_then(Weak::upgrade) {
        return Ok(config);
    }
    let roots = match pem {
        Some(pem) => from_text(pem)?,
        None => from_system(),
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    known.insert(key, Arc::downgrade(&config));
    Ok(config)
}

fn from_text(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("no certificates in PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("a certificate of no use: {error}"))?;
    }
    if roots.is_empty() { Err("it holds no certificate".to_owned()) } else { Ok(roots) }
}

/// The system's authorities, as far as they can be read. A system without any is said, and trusts nobody.
fn from_system() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        tracing::warn!(reason, "this system has no certificate authorities; name them in tls.ca of https engines");
    }
    roots
}

/// A failed handshake in words, for the log: with the names that were expected and found, and what to do about it.
pub fn reason(error: &std::io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => format!(
            "its certificate is for another name: expected {}, found {}",
            expected.to_str(),
            if presented.is_empty() { "none".to_owned() } else { names(presented) }
        ),
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is signed by no authority that is trusted here; name the authority in tls.ca".to_owned()
        }
        Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after }) => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            format!("its certificate has expired, {days} days ago")
        }
        Error::InvalidCertificate(CertificateError::NotValidYetContext { .. }) => {
            "its certificate is not valid yet; are the clocks right?".to_owned()
        }
        Error::InvalidMessage(_) => "it does not speak TLS; is it an http engine?".to_owned(),
        other => other.to_string(),
    })
}

/// A certificate's names, as many as fit a line.
fn names(presented: &[String]) -> String {
    let shown: Vec<String> = presented.iter().take(8).map(|name| plain(name)).collect();
    shown.join(", ")
}

/// `DnsName("engine.local")` as `engine.local`; control characters a certificate may hold do not reach the log.
pub(crate) fn plain(name: &str) -> String {
    let inner = name.split_once('"').and_then(|(_, rest)| rest.split_once('"')).map_or(name, |(inner, _)| inner);
    inner.chars().filter(|c| !c.is_control()).take(253).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> String {
        let key = rcgen::KeyPair::generate().expect("a key");
        rcgen::CertificateParams::new(vec!["ca".to_owned()]).and_then(|ca| ca.self_signed(&key)).expect("signed").pem()
    }

    #[test]
    fn the_same_authorities_are_one_configuration_and_others_another() {
        let (one, other) = (ca(), ca());
        let first = config(Some(&one)).expect("trust");
        assert!(Arc::ptr_eq(&first, &config(Some(&one)).expect("trust")));
        assert!(!Arc::ptr_eq(&first, &config(Some(&other)).expect("trust")));
        assert_eq!(first.alpn_protocols, [b"http/1.1".to_vec()]);
    }

    #[test]
    fn a_file_without_authorities_is_refused_with_the_reason() {
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, expected) in [("", "holds no certificate"), (broken, "a certificate of no use")] {
            let error = config(Some(pem)).expect_err("refused");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn names_of_a_certificate_are_shown_without_what_a_log_cannot_take() {
        let found = names(&["DnsName(\"engine.local\")".to_owned(), "Ip\u{1b}Address".to_owned()]);
        assert_eq!(found, "engine.local, IpAddress");
    }
}
