//! Certificates shown to clients, and their keys: read from the files the tree names.
//!
//! Whether a key belongs to its certificate is seen by whoever puts them to use. Messages name files, never a key.

use llmgw_kit::secret::Secret;

use super::secret;
use crate::config::CertificateConfig;
use crate::read::{Field, Reader};
use crate::server::ServerTree;

/// A certificate's file, and a key's. Units: bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;
/// Certificates in the list.
const CERTIFICATES_MAX: usize = 256;

/// What is wrong with a file's text, if anything is.
type Fault = fn(&str) -> Option<&'static str>;

/// Reads every pair.
pub(super) fn check(tree: &ServerTree, reader: &mut Reader) -> Vec<CertificateConfig> {
    let Some(pairs) = tree.tls.value.as_ref() else { return Vec::new() };
    if pairs.0.is_empty() {
        reader.problem(&tree.tls.place, "tls: no certificate is named; leave tls out for plain HTTP".to_owned());
    }
    if pairs.0.len() > CERTIFICATES_MAX {
        let message = format!("tls: {} certificates; at most {CERTIFICATES_MAX}", pairs.0.len());
        reader.problem(&tree.tls.place, message);
        return Vec::new();
    }
    let is_empty = |field: &Field<Option<String>>| field.value.as_deref().is_none_or(str::is_empty);
    if let [pair] = &*pairs.0
        && is_empty(&pair.cert)
        && is_empty(&pair.private_key)
    {
        return Vec::new();
    }
    let mut checked = Vec::new();
    for (at, pair) in pairs.0.iter().enumerate() {
        let path = if pairs.0.len() == 1 { "tls".to_owned() } else { format!("tls[{at}]") };
        let mut pem = |what: &str, field: &Field<Option<String>>, example: &str, fault: Fault| {
            let Some(file) = field.value.clone().filter(|file| !file.is_empty()) else {
                let message = format!("{path}.{what}: write the file that holds it, as {example}");
                reader.problem(&pair.place, message);
                return None;
            };
            let read = secret::read_file(&file, PEM_BYTES_MAX).and_then(|pem| match fault(&pem) {
                None => Ok(pem),
                Some(fault) => Err(format!("file {file} {fault}")),
            });
            match read {
                Ok(pem) => Some((file, pem)),
                Err(message) => {
                    reader.problem(&field.place, format!("{path}.{what}: {message}"));
                    None
                }
            }
        };
        let cert = pem("cert", &pair.cert, "/etc/llmgw/api.pem", certificate_fault);
        let key = pem("key", &pair.private_key, "/etc/llmgw/api-key.pem", key_fault);
        if let (Some((cert_file, cert_pem)), Some((key_file, key_pem))) = (cert, key) {
            checked.push(CertificateConfig { cert_file, cert_pem, key_file, key_pem: Secret::new(key_pem) });
        }
    }
    checked
}

fn certificate_fault(pem: &str) -> Option<&'static str> {
    (!pem.contains("-----BEGIN CERTIFICATE-----")).then_some("holds no certificate in PEM")
}

fn key_fault(pem: &str) -> Option<&'static str> {
    if pem.contains("-----BEGIN ENCRYPTED") || pem.contains("4,ENCRYPTED") {
        Some("holds a key behind a passphrase; write it without one, readable by this user alone")
    } else if !pem.contains("PRIVATE KEY-----") {
        Some("holds no private key in PEM")
    } else {
        None
    }
}
