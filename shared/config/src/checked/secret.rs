//! Secrets named by `*_env` and `*_file` keys.
//!
//! Called for the admin token and for engines' keys. Messages name the source, never the secret.

use std::io::Read;

use llmgw_kit::secret::Secret;

use crate::environment::Environment;
use crate::read::{Field, Reader};

/// The longest secret, in bytes.
const SECRET_BYTES_MAX: usize = 16 << 10;

/// The two keys that may name a secret's source.
pub(super) struct Keys<'t> {
    /// The path without its ending: `endpoints[0].api_key`.
    pub(super) name: &'t str,
    pub(super) variable: &'t Field<Option<String>>,
    pub(super) file: &'t Field<Option<String>>,
}

/// A secret, and where it came from for messages.
pub(super) struct Found {
    pub(super) secret: Secret,
    pub(super) source: String,
}

/// Fetches the secret, if one is named.
pub(super) fn check(keys: &Keys<'_>, environment: &Environment, reader: &mut Reader) -> Option<Found> {
    let name = keys.name;
    let (place, key, source, fetched) = match (&keys.variable.value, &keys.file.value) {
        (None, None) => return None,
        (Some(_), Some(_)) => {
            reader.problem(&keys.file.place, format!("{name}_env and {name}_file are both given; keep one"));
            return None;
        }
        (Some(variable), None) => {
            let fetched = environment.get(variable).cloned().ok_or_else(|| format!("variable {variable} is not set"));
            (&keys.variable.place, format!("{name}_env"), format!("variable {variable}"), fetched)
        }
        (None, Some(file)) => {
            let fetched = read_file(file, SECRET_BYTES_MAX as u64 + 1);
            (&keys.file.place, format!("{name}_file"), format!("file {file}"), fetched)
        }
    };
    let checked = fetched.and_then(|text| {
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            Err(format!("{source} is empty"))
        } else if text.len() > SECRET_BYTES_MAX || !text.bytes().all(|b| b.is_ascii_graphic()) {
            Err(format!("{source} holds spaces or characters that cannot be sent as a key"))
        } else {
            Ok(Secret::new(text))
        }
    });
    match checked {
        Ok(secret) => Some(Found { secret, source }),
        Err(message) => {
            reader.problem(place, format!("{key}: {message}"));
            None
        }
    }
}

/// The first bytes of a file, as text.
pub(super) fn read_file(path: &str, bytes_max: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(bytes_max).read_to_end(&mut bytes))
        .map_err(|error| format!("file {path} cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|_| format!("file {path} is not text"))
}
