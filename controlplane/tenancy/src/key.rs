//! Keys: how one is written, what of it is kept, and how it is shown.
//!
//! A key is 256 random bits, so a fast hash is as good as a slow one: there is no dictionary of likely keys to try.
//! Only the hash is kept; nothing can give the key again.

use std::fmt;

use llmgw_kit::secret::Secret;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// What every key begins with.
pub const KEY_START: &str = "sk-llmgw-";
/// Random bytes in a key.
pub const KEY_BYTES: usize = 32;
/// Digits of a key that may be shown.
const SHOWN_DIGITS: usize = 4;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key that was just made: the only moment at which it is known.
#[derive(Debug)]
pub struct NewKey {
    /// The key itself, to be shown once.
    pub secret: Secret,
    pub hash: KeyHash,
    /// What tells it from others without giving it away.
    pub prefix: String,
}

impl NewKey {
    /// The key of these random bytes, which must come from the system's own source of secrets.
    pub fn of(random: &[u8; KEY_BYTES]) -> Self {
        let mut text = KEY_START.to_owned();
        base62(random, &mut text);
        let hash = KeyHash::of(text.as_bytes());
        let prefix: String = text.chars().take(KEY_START.len() + SHOWN_DIGITS).chain(['…']).collect();
        Self { secret: Secret::new(text), hash, prefix }
    }
}

/// SHA-256 of a key as it was sent. Prints as its first digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// The hash of what somebody sent.
    pub fn of(sent: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, sent).as_ref());
        Self(bytes)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// A key as it is kept. Times are unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    pub id: String,
    pub hash: KeyHash,
    /// For display, never for a comparison.
    pub prefix: String,
    pub name: String,
    pub project_id: String,
    /// None: its project's.
    pub band: Option<String>,
    /// None: its project's.
    pub routing_profile: Option<String>,
    /// Whether it may name the replica that is to answer it.
    pub may_pin_replica: bool,
    pub created_at: i64,
    /// None: it never expires.
    pub expires_at: Option<i64>,
    /// Kept when it is no longer of use, so that what was recorded of it has a subject.
    pub revoked_at: Option<i64>,
    /// To within a minute.
    pub last_used_at: Option<i64>,
}

/// What a key was before a rotation; it goes on working for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldSecret {
    pub hash: KeyHash,
    pub key_id: String,
    pub prefix: String,
    pub expires_at: i64,
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    Active,
    Expired,
    Revoked,
}

impl KeyRow {
    /// What it is at a moment.
    pub fn state(&self, now: i64) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(at)) if at <= now => KeyState::Expired,
            _ => KeyState::Active,
        }
    }
}

/// Writes bytes as one number in base 62, with as many digits for as many bytes, whatever they are.
pub(crate) fn base62(bytes: &[u8], into: &mut String) {
    // 43 digits for 32 bytes, 17 for 12: log 256 / log 62 is 1.3436.
    let width = (bytes.len() * 13_436).div_ceil(10_000);
    let mut number = bytes.to_vec();
    let mut digits = vec![b'0'; width];
    for place in digits.iter_mut().rev() {
        let mut remainder = 0u32;
        for byte in &mut number {
            let value = remainder << 8 | u32::from(*byte);
            *byte = u8::try_from(value / 62).unwrap_or_default();
            remainder = value % 62;
        }
        *place = DIGITS[remainder as usize];
    }
    into.extend(digits.into_iter().map(char::from));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_has_its_start_and_forty_three_digits() {
        let lowest = NewKey::of(&[0; 32]);
        assert_eq!(lowest.secret.expose(), format!("sk-llmgw-{}", "0".repeat(43)));
        assert_eq!(lowest.prefix, "sk-llmgw-0000…");
        // 2^256 - 1 in base 62, by another program.
        let highest = NewKey::of(&[0xff; 32]);
        assert_eq!(highest.secret.expose(), "sk-llmgw-yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1");
    }

    #[test]
    fn the_hash_is_that_of_the_text_as_it_is_sent() {
        // printf abc | sha256sum
        let hash = KeyHash::of(b"abc");
        assert_eq!(hash.0[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(format!("{hash:?}"), "KeyHash(ba78…)");
    }

    #[test]
    fn a_revoked_key_stays_revoked_after_it_would_have_expired() {
        let key = |expires_at, revoked_at| KeyRow {
            id: String::new(),
            hash: KeyHash([0; 32]),
            prefix: String::new(),
            name: String::new(),
            project_id: String::new(),
            band: None,
            routing_profile: None,
            may_pin_replica: false,
            created_at: 0,
            expires_at,
            revoked_at,
            last_used_at: None,
        };
        assert_eq!(key(None, None).state(9), KeyState::Active);
        assert_eq!(key(Some(10), None).state(9), KeyState::Active);
        assert_eq!(key(Some(9), None).state(9), KeyState::Expired);
        assert_eq!(key(Some(9), Some(3)).state(9), KeyState::Revoked);
    }

    proptest! {
        #[test]
        fn different_bytes_are_different_keys_of_one_length(a: [u8; 32], b: [u8; 32]) {
            let (a_key, b_key) = (NewKey::of(&a), NewKey::of(&b));
            prop_assert_eq!(a_key.secret.expose().len(), 52);
            prop_assert!(a_key.secret.expose().bytes().skip(9).all(|byte| byte.is_ascii_alphanumeric()));
            prop_assert_eq!(a == b, a_key.secret.expose() == b_key.secret.expose());
            // Digits stand in the order of their values, so keys sort as their bytes do.
            prop_assert_eq!(a.cmp(&b), a_key.secret.expose().cmp(b_key.secret.expose()));
            let shown = format!("{a_key:?}");
            prop_assert!(!shown.contains(&a_key.secret.expose()[9 + 4..]));
        }
    }
}
