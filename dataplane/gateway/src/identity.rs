//! Who asks, and what they may: from the credential in a head to a key of the table, before anything else of a request
//! is looked at.
//!
//! Called by `serve` for everything that needs a key, and by the conventional gateway of bench/stock. Never says which
//! part of a credential was wrong, never keeps one, and takes as long for a wrong one as for a right one.

use llmgw_kit::clock::Wall;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};
use llmgw_types::tenants::{ArchivedKey, Caller, DIGEST_BYTES};
use llmgw_types::{ArchivedTenantTable, KeyIdx};
use ring::digest::{SHA256, digest};

use crate::error::{ApiError, Reason};

/// The longest credential that is looked at; no key is longer. Units: bytes.
const CREDENTIAL_BYTES_MAX: usize = 256;
/// Where to find a key, for those who have none.
const HOW: &str = "send Authorization: Bearer KEY or x-api-key: KEY; keys begin with sk-llmgw-";

/// Why a request is not let in.
#[derive(Debug)]
pub struct Stranger {
    pub error: ApiError,
    /// Whose key it was, where it was one.
    pub caller: Option<Box<Caller>>,
}

impl From<ApiError> for Stranger {
    fn from(error: ApiError) -> Self {
        Self { error, caller: None }
    }
}

/// Who sends a head with these headers.
///
/// Errors: no credential, or two different ones; a key that is not known, has expired or was revoked.
/// Cost: one SHA-256 of what was shown, one lookup; no allocation for a key that works.
pub fn caller<'h>(
    table: &ArchivedTenantTable,
    headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    now: Wall,
) -> Result<Caller, Stranger> {
    let Some(shown) = credential(headers)? else {
        return Err(ApiError::new(Reason::MissingKey, format!("this gateway needs a key: {HOW}")).into());
    };
    let unknown = || ApiError::new(Reason::UnknownKey, format!("this key is not known here; {HOW}"));
    if shown.len() > CREDENTIAL_BYTES_MAX {
        return Err(unknown().into());
    }
    let mut hash = [0; DIGEST_BYTES];
    hash.copy_from_slice(digest(&SHA256, shown).as_ref());
    let secret = table.secret(&hash).ok_or_else(unknown)?;
    let idx = KeyIdx(secret.key.to_native());
    let (key, caller) = table.key(idx).zip(Caller::of(table, idx)).ok_or_else(unknown)?;
    let refused = |reason, message: &'static str| {
        Err(Stranger { error: ApiError::new(reason, message), caller: Some(Box::new(caller)) })
    };
    if key.is_revoked {
        return refused(Reason::RevokedKey, "this key was revoked");
    }
    if key.expires_at.to_native() <= now.0 {
        return refused(Reason::ExpiredKey, "this key has expired");
    }
    if secret.ends_at.to_native() <= now.0 {
        return refused(Reason::ExpiredKey, "this key was rotated, and the time for its old secret is over");
    }
    Ok(caller)
}

/// The credential that the headers show.
///
/// Errors: they show two that differ, or one header stands there twice: whose request it is must not depend on which of
/// them is read, here or by whoever stands in front.
fn credential<'h>(headers: impl Iterator<Item = (&'h [u8], &'h [u8])>) -> Result<Option<&'h [u8]>, ApiError> {
    let mut found: Option<&[u8]> = None;
    let mut seen = [false; 2];
    for (name, value) in headers {
        let (of, shown) = match name.len() {
            13 if name.eq_ignore_ascii_case(b"authorization") => (0, bearer(value)),
            9 if name.eq_ignore_ascii_case(b"x-api-key") => (1, Some(value)),
            _ => continue,
        };
        if std::mem::replace(&mut seen[of], true) {
            let message = "the same header was sent twice to show a key; send it once";
            return Err(ApiError::new(Reason::BadRequest, message));
        }
        let Some(shown) = shown.map(<[u8]>::trim_ascii).filter(|shown| !shown.is_empty()) else { continue };
        if found.is_some_and(|other| other != shown) {
            let message = "two different keys were sent, in Authorization and x-api-key headers; send one";
            return Err(ApiError::new(Reason::BadRequest, message));
        }
        found = Some(shown);
    }
    Ok(found)
}

/// What stands behind `Bearer`; another scheme is no key.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(rest)
}

/// What a caller may, by the table of the moment.
#[derive(Clone, Copy)]
pub struct Rights<'t> {
    table: &'t ArchivedTenantTable,
    pub(crate) key: &'t ArchivedKey,
}

impl<'t> Rights<'t> {
    /// Of a caller. Errors: its key works no more, since it was let in.
    pub fn of(table: &'t ArchivedTenantTable, caller: &Caller) -> Result<Self, ApiError> {
        let key = table.key(caller.key).filter(|key| !key.is_revoked);
        let revoked = || ApiError::new(Reason::RevokedKey, "this key was revoked");
        Ok(Self { table, key: key.ok_or_else(revoked)? })
    }

    pub(crate) fn table(&self) -> &'t ArchivedTenantTable {
        self.table
    }

    /// Whether the model of that public name may be used.
    pub fn allows(&self, model: &str) -> bool {
        self.table.allows(self.key, model)
    }

    /// The band that its requests are in, if one is named.
    pub fn band(&self) -> Option<&'t str> {
        self.key.band.as_deref()
    }

    /// The routing profile of requests that name none.
    pub fn profile(&self) -> Option<&'t str> {
        self.key.profile.as_deref()
    }

    /// Whether it may name the replica that is to answer.
    pub fn may_pin_replica(&self) -> bool {
        self.key.may_pin_replica
    }
}

/// Which of a model's fallbacks may not stand in for it, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withheld(u64);

/// The last place stands for itself and all behind it.
const LAST: usize = 63;

impl Withheld {
    /// What `rights` withhold of a model's fallbacks; without keys nothing is.
    pub fn of(rights: Option<Rights<'_>>, table: &ArchivedRouteTable, model: &ArchivedModelRoute) -> Self {
        let Some(rights) = rights else { return Self::default() };
        let rows = model.fallbacks.iter().enumerate();
        let withheld = rows.filter(|(_, row)| {
            let fallback = table.models.get(row.to_native() as usize);
            !fallback.is_some_and(|fallback| rights.allows(&fallback.name))
        });
        Self(withheld.fold(0, |bits, (at, _)| bits | 1 << at.min(LAST)))
    }

    /// Whether the fallback at that place is withheld.
    pub fn has(self, at: usize) -> bool {
        self.0 & 1 << at.min(LAST) != 0
    }
}

/// A number of its own for each project, to be mixed into what projects must not share; 0 without keys.
pub fn scope(caller: Option<&Caller>) -> u64 {
    // Odd, so that no two projects meet.
    caller.map_or(0, |caller| (u64::from(caller.project.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use llmgw_types::tenants::{Key, NEVER, Project, Secret};
    use llmgw_types::{TenantSnapshot, TenantTable};

    use super::*;

    fn snapshot() -> TenantSnapshot {
        let key = |id: &str, is_revoked, expires_at| Key { is_revoked, expires_at, ..Key::plain(id) };
        let secret = |text: &str, key, ends_at| {
            let mut hash = [0; DIGEST_BYTES];
            hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
            Secret { digest: hash, key, ends_at }
        };
        let table = TenantTable {
            keys: vec![key("key-a", false, NEVER), key("key-b", true, NEVER), key("key-c", false, 1000)],
            projects: vec![Project { id: "proj-1".into(), path: "a/b/c".into(), organization: 0 }],
            ..TenantTable::default()
        };
        let secrets = vec![
            secret("sk-llmgw-a", 0, NEVER),
            secret("sk-llmgw-old", 0, 1000),
            secret("sk-llmgw-b", 1, NEVER),
            secret("sk-llmgw-c", 2, NEVER),
        ];
        TenantSnapshot::of(&table.with_secrets(secrets)).expect("a table")
    }

    /// What a head comes to at a moment: the key's id, or the reason why it is not let in and whose key it was.
    fn check(headers: &[(&str, &str)], now: u64, expected: Result<&str, (&str, Option<&str>)>) {
        let snapshot = snapshot();
        let headers_of = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let caller = caller(snapshot.table(), headers_of, Wall(now));
        let seen = match &caller {
            Ok(caller) => Ok(caller.key_id.as_str()),
            Err(Stranger { error, caller }) => {
                Err((error.reason.code(), caller.as_ref().map(|caller| caller.key_id.as_str())))
            }
        };
        assert_eq!(seen, expected, "{headers:?} at {now}");
    }

    #[test]
    fn a_key_is_taken_from_either_header_and_two_that_differ_from_neither() {
        let right = "Bearer sk-llmgw-a";
        check(&[("Authorization", right)], 0, Ok("key-a"));
        check(&[("authorization", "bearer  sk-llmgw-a ")], 0, Ok("key-a"));
        check(&[("X-Api-Key", "sk-llmgw-a")], 0, Ok("key-a"));
        check(&[("accept", "*/*"), ("x-api-key", "sk-llmgw-a"), ("authorization", right)], 0, Ok("key-a"));
        check(&[("authorization", "Basic c2s6"), ("x-api-key", "sk-llmgw-a")], 0, Ok("key-a"));
        for (name, value) in [("x-api-key", "sk-llmgw-b"), ("authorization", "Bearer sk-llmgw-b")] {
            check(&[("authorization", right), (name, value)], 0, Err(("bad_request", None)));
        }
    }

    #[test]
    fn whoever_is_not_let_in_is_told_why() {
        for nothing in [&[][..], &[("authorization", "Bearer ")], &[("x-api-key", " ")], &[("authorization", "sk")]] {
            check(nothing, 0, Err(("missing_api_key", None)));
        }
        let long = "a".repeat(CREDENTIAL_BYTES_MAX + 1);
        for unknown in ["sk-llmgw-x", "sk-llmgw-a ä", "sk-llmgw-", &long] {
            check(&[("x-api-key", unknown)], 0, Err(("invalid_api_key", None)));
        }
        check(&[("x-api-key", "sk-llmgw-b")], 0, Err(("revoked_api_key", Some("key-b"))));
        check(&[("x-api-key", "sk-llmgw-c")], 999, Ok("key-c"));
        check(&[("x-api-key", "sk-llmgw-c")], 1000, Err(("expired_api_key", Some("key-c"))));
        check(&[("x-api-key", "sk-llmgw-old")], 999, Ok("key-a"));
        check(&[("x-api-key", "sk-llmgw-old")], 1000, Err(("expired_api_key", Some("key-a"))));
    }

    #[test]
    fn projects_have_numbers_of_their_own_and_no_keys_have_none() {
        let snapshot = snapshot();
        let caller = Caller::of(snapshot.table(), KeyIdx(0)).expect("a caller");
        assert_eq!(scope(None), 0);
        assert_ne!(scope(Some(&caller)), 0);
    }
}
