//! Certificates shown to clients: from PEM to what the cores shake hands with, or to what is wrong with which file.
//!
//! Called by `publish` for the cores, by `llmgw server --check`, and by the metrics page for when they expire; never on
//! a core. A pair that has not changed stays the one it is, with its sessions, also when it has expired meanwhile: the
//! rest of the configuration must be able to change then.

use std::sync::Arc;
use std::time::Duration;

use llmgw_config::CertificateConfig;
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{
    ClientHello, ParsedCertificate, ResolvesServerCert, ServerConfig, ServerSessionMemoryCache,
};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};

/// Sessions remembered for clients that know no tickets.
const SESSIONS_MAX: usize = 4096;
/// So long before a certificate expires it is said.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 3600);
const DAY: u64 = 24 * 3600;
/// Certificates of one chain; more are none.
const CHAIN_MAX: usize = 16;

/// Why a certificate and its key cannot be shown to anybody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tls: {file}: {reason}")]
pub struct PairError {
    /// The file that is at fault.
    pub file: String,
    /// In words.
    pub reason: String,
}

/// What is shown to clients, kept as long as it stays the same.
#[derive(Default)]
pub(crate) struct Certificates {
    pairs: Vec<[String; 2]>,
    shown: Option<Arc<ServerConfig>>,
}

impl Certificates {
    /// What the cores shake hands with; nothing where no certificate is configured.
    ///
    /// Errors: a pair that is new and of no use; what was there stays.
    pub(crate) fn follow(&mut self, configured: &[CertificateConfig]) -> Result<Option<Arc<ServerConfig>>, PairError> {
        let text = |pair: &CertificateConfig| [pair.cert_pem.clone(), pair.key_pem.expose().to_owned()];
        let pairs: Vec<_> = configured.iter().map(text).collect();
        if pairs != self.pairs {
            self.shown = config(configured, UnixTime::now())?;
            self.pairs = pairs;
            configured.iter().for_each(|pair| say_when_it_expires(pair, UnixTime::now()));
        }
        Ok(self.shown.clone())
    }
}

/// Whether every pair can be shown to clients at this time.
///
/// Errors: the first that cannot.
pub fn check(configured: &[CertificateConfig]) -> Result<(), PairError> {
    config(configured, UnixTime::now()).map(drop)
}

/// When a certificate expires; nothing where it is none.
pub fn expires_unix_seconds(pair: &CertificateConfig) -> Option<u64> {
    match validity(chain(pair).ok()?.first()?, UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX))) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => Some(not_after.as_secs()),
        _ => None,
    }
}

/// The names a certificate is for, as many as fit a line.
pub fn names(pair: &CertificateConfig) -> Vec<String> {
    let Ok(chain) = chain(pair) else { return Vec::new() };
    let Some(Ok(leaf)) = chain.first().map(ParsedCertificate::try_from) else { return Vec::new() };
    let Ok(nobody) = ServerName::try_from("nobody.invalid") else { return Vec::new() };
    match verify_server_name(&leaf, &nobody) {
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. })) => {
            presented.iter().take(8).map(|name| crate::trust::plain(name)).collect()
        }
        _ => Vec::new(),
    }
}

fn say_when_it_expires(pair: &CertificateConfig, now: UnixTime) {
    let Some(expires) = expires_unix_seconds(pair) else { return };
    let left = expires.saturating_sub(now.as_secs());
    if left < EXPIRES_SOON.as_secs() {
        tracing::warn!(
            certificate = pair.cert_file,
            days_left = left / DAY,
            "a certificate shown to clients expires soon"
        );
    }
}

fn config(configured: &[CertificateConfig], now: UnixTime) -> Result<Option<Arc<ServerConfig>>, PairError> {
    let Some(first) = configured.first() else { return Ok(None) };
    let provider = Arc::new(ring::default_provider());
    let keys = configured.iter().map(|pair| certified(pair, &provider, now).map(Arc::new));
    let by_name = ByName(keys.collect::<Result<_, _>>()?);
    let unusable = |error: Error| PairError { file: first.cert_file.clone(), reason: error.to_string() };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(by_name));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    config.ticketer = ring::Ticketer::new().map_err(unusable)?;
    Ok(Some(Arc::new(config)))
}

fn chain(pair: &CertificateConfig) -> Result<Vec<CertificateDer<'static>>, PairError> {
    let said = |reason| PairError { file: pair.cert_file.clone(), reason };
    let certificates = CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes());
    let chain = certificates.collect::<Result<Vec<_>, _>>().map_err(|error| said(format!("no PEM: {error}")))?;
    match chain.len() {
        0 => Err(said("it holds no certificate in PEM".to_owned())),
        1..=CHAIN_MAX => Ok(chain),
        more => Err(said(format!("it holds {more} certificates; a chain is the server's own and those that sign it"))),
    }
}

fn certified(pair: &CertificateConfig, provider: &CryptoProvider, now: UnixTime) -> Result<CertifiedKey, PairError> {
    let chain = chain(pair)?;
    let of_cert = |reason: String| PairError { file: pair.cert_file.clone(), reason };
    let of_key = |reason: String| PairError { file: pair.key_file.clone(), reason };
    let leaf = chain.first().ok_or_else(|| of_cert("it holds no certificate in PEM".to_owned()))?;
    ParsedCertificate::try_from(leaf).map_err(|error| of_cert(format!("a certificate of no use: {error}")))?;
    match validity(leaf, now) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            let days = now.as_secs().saturating_sub(not_after.as_secs()) / DAY;
            return Err(of_cert(format!("the certificate has expired, {days} days ago; no client would take it")));
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { .. })) => {
            return Err(of_cert("the certificate is not valid yet; are the clocks right?".to_owned()));
        }
        // Who signed it is for clients to judge.
        _ => {}
    }
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.expose().as_bytes())
        .map_err(|_| of_key("it holds no private key in PEM that can be read".to_owned()))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            of_key(format!("the key is not that of the certificate in {}", pair.cert_file))
        }
        other => of_key(format!("a private key of no use: {other}")),
    })
}

/// Whether the certificate is valid at a time. Any other error says that it is: validity is looked at first.
fn validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let leaf = ParsedCertificate::try_from(certificate)?;
    verify_server_cert_signed_by_trust_anchor(&leaf, &RootCertStore::empty(), &[], now, algorithms)
}

/// The certificate for the name that a client asks for; the first one for those that ask for none, or for another.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let Self(all) = self;
        let (first, name) = match hello.server_name().map(|name| ServerName::try_from(name.to_owned())) {
            Some(Ok(name)) if all.len() > 1 => (all.first()?, name),
            _ => return all.first().cloned(),
        };
        let is_for = |key: &&Arc<CertifiedKey>| {
            let leaf = key.cert.first().map(ParsedCertificate::try_from);
            leaf.and_then(Result::ok).is_some_and(|leaf| verify_server_name(&leaf, &name).is_ok())
        };
        // Of two for one name, one that this client can check.
        let is_known = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let mut named = all.iter().filter(is_for);
        let best = named.clone().find(is_known).or_else(|| named.next());
        Some(best.unwrap_or(first).clone())
    }
}

#[cfg(test)]
mod tests {
    use llmgw_kit::secret::Secret;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn pair(name: &str, change: fn(&mut CertificateParams)) -> CertificateConfig {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        change(&mut params);
        CertificateConfig {
            cert_file: "cert.pem".to_owned(),
            cert_pem: params.self_signed(&key).expect("signed").pem(),
            key_file: "key.pem".to_owned(),
            key_pem: Secret::new(key.serialize_pem()),
        }
    }

    fn refused(pair: CertificateConfig) -> String {
        check(&[pair]).expect_err("refused").to_string()
    }

    #[test]
    fn a_pair_of_no_use_is_named_with_its_file_and_what_is_wrong() {
        let good = || pair("a.test", |_| {});
        assert_eq!(check(&[good()]), Ok(()));
        let mixed = CertificateConfig { key_pem: good().key_pem, ..good() };
        assert_eq!(refused(mixed), "tls: key.pem: the key is not that of the certificate in cert.pem");
        let expired = refused(pair("a.test", |params| params.not_after = date_time_ymd(2020, 1, 1)));
        assert!(expired.starts_with("tls: cert.pem: the certificate has expired, "), "{expired}");
        let early = refused(pair("a.test", |params| params.not_before = date_time_ymd(2090, 1, 1)));
        assert!(early.contains("not valid yet"), "{early}");
        let none = refused(CertificateConfig { cert_pem: "nothing".to_owned(), ..good() });
        assert!(none.contains("cert.pem: it holds no certificate"), "{none}");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
        assert!(refused(CertificateConfig { cert_pem: broken, ..good() }).contains("of no use"));
        let no_key = CertificateConfig { key_pem: Secret::new("nothing"), ..good() };
        assert!(refused(no_key).contains("key.pem: it holds no private key"));
    }

    #[test]
    fn names_and_the_end_of_a_certificate_are_read_from_it() {
        let pair = pair("api.example.test", |params| params.not_after = date_time_ymd(2031, 1, 1));
        assert_eq!(expires_unix_seconds(&pair), Some(1_924_992_000));
        assert_eq!(names(&pair), ["api.example.test"]);
    }

    #[test]
    fn what_has_not_changed_stays_with_its_sessions_and_what_is_wrong_changes_nothing() {
        let mut certificates = Certificates::default();
        assert!(certificates.follow(&[]).expect("plain text").is_none());
        let (one, other) = (pair("a.test", |_| {}), pair("a.test", |_| {}));
        let one = [one];
        let first = certificates.follow(&one).expect("a pair").expect("TLS");
        let again = certificates.follow(&one).expect("a pair").expect("TLS");
        assert!(Arc::ptr_eq(&first, &again));
        let expired = pair("a.test", |params| params.not_after = date_time_ymd(2020, 1, 1));
        assert!(certificates.follow(&[expired]).is_err());
        assert!(Arc::ptr_eq(&first, &certificates.follow(&one).expect("a pair").expect("TLS")));
        assert!(!Arc::ptr_eq(&first, &certificates.follow(&[other]).expect("a pair").expect("TLS")));
        assert_eq!(first.alpn_protocols, [b"http/1.1".to_vec()]);
    }
}
