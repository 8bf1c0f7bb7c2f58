//! What a model's engines are chosen by: the router's values, but for those that the model writes itself.

use crate::config::{PlacementConfig, SessionConfig};
use crate::error::Place;
use crate::read::{Field, Reader};
use crate::server::{Prefix, Router};

/// The longest name of a session's header.
const HEADER_NAME_MAX: usize = 64;

/// The values of one model.
pub(super) fn of(router: &Router, prefix: Option<&Prefix>) -> PlacementConfig {
    let affinity = &router.prefix.session_affinity.value;
    let of_model = prefix.map(|prefix| &prefix.session_affinity.value);
    let enabled = own(of_model.map(|affinity| &affinity.enabled), &affinity.enabled);
    let header = own(of_model.map(|affinity| &affinity.header), &affinity.header);
    let factor = own(of_model.map(|affinity| &affinity.load_factor), &affinity.load_factor);
    PlacementConfig {
        session: enabled
            .value
            .then(|| SessionConfig { header: header.to_ascii_lowercase(), load_factor: factor.as_f64() }),
    }
}

/// A session's header must be one that a client can send.
pub(super) fn check_prefix(path: &str, prefix: &Prefix, reader: &mut Reader) {
    let header = &prefix.session_affinity.header;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if header.is_empty() || header.len() > HEADER_NAME_MAX || !header.bytes().all(is_token) {
        let message = format!(
            "{path}.session_affinity.header: {:?} is no header name; use letters, digits and dashes, at most \
             {HEADER_NAME_MAX}",
            header.value
        );
        reader.problem(&header.place, message);
    }
}

/// What the model writes, else what the router has.
pub(super) fn own<'f, T>(of_model: Option<&'f Field<T>>, of_router: &'f Field<T>) -> &'f Field<T> {
    of_model.filter(|field| field.place != Place::Default).unwrap_or(of_router)
}
