//! Ids of what an operator makes: a word for the kind and random digits, never used again.

use crate::key::base62;

/// Random bytes of an id: enough that no two ever meet.
pub const ID_BYTES: usize = 12;

/// An id of a kind (`org`, `team`, `proj`, `key`) from random bytes.
pub fn id(kind: &str, random: [u8; ID_BYTES]) -> String {
    let mut text = format!("{kind}-");
    base62(&random, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::id;

    #[test]
    fn an_id_says_its_kind_and_has_always_the_same_length() {
        assert_eq!(id("org", [0; 12]), "org-00000000000000000");
        assert_eq!(id("key", [0xff; 12]).len(), "key-".len() + 17);
    }
}
