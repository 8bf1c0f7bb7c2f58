//! The engine's own tokenizer and the words it answers with.
//!
//! Called by the front and the model. A piece is at most four bytes and starts anew at every blank, so that text which
//! the engine wrote is cut the same way when it comes back in the next turn of a chat. Never the router's code: what a
//! router guesses about tokens can be checked against it.

use crate::mix::{fold, hash_bytes, mix};

/// Longest piece, in bytes.
const PIECE_BYTES_MAX: usize = 4;
/// Ids are below this.
pub const VOCABULARY: u32 = 128_000;
/// Bytes of every word the engine answers with: a blank and three letters.
pub const WORD_BYTES: usize = 4;

/// Appends the token ids of `text`.
///
/// Cost: one pass, four bytes a token at most.
pub fn encode(text: &[u8], ids: &mut Vec<u32>) {
    pieces(text, |piece| ids.push(id_of(piece)));
}

/// Number of tokens in `text`.
pub fn count(text: &[u8]) -> usize {
    let mut total = 0;
    pieces(text, |_| total += 1);
    total
}

/// Calls `each` with every piece of `text`, in order; together they are `text`.
pub fn pieces<'a>(text: &'a [u8], mut each: impl FnMut(&'a [u8])) {
    let mut start = 0;
    for (at, &byte) in text.iter().enumerate() {
        // A piece ends only where a character does, so that a piece of valid UTF-8 is valid UTF-8.
        let boundary = byte & 0xc0 != 0x80;
        if at > start && boundary && (byte <= b' ' || at - start >= PIECE_BYTES_MAX) {
            each(&text[start..at]);
            start = at;
        }
    }
    if start < text.len() {
        each(&text[start..]);
    }
}

fn id_of(piece: &[u8]) -> u32 {
    (hash_bytes(0x70, piece) % u64::from(VOCABULARY)) as u32
}

/// The word at position `idx` of the answer that `seed` stands for: ASCII, needs no escape in JSON, one token.
pub fn word(seed: u64, idx: u32) -> [u8; WORD_BYTES] {
    const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
    const VOWELS: &[u8; 4] = b"aeio";
    let draw = mix(fold(seed, u64::from(idx)));
    let pick = |letters: &[u8], shift: u32| letters[(draw >> shift) as usize % letters.len()];
    [b' ', pick(CONSONANTS, 0), pick(VOWELS, 8), pick(CONSONANTS, 16)]
}

/// Token id of [`word`].
pub fn word_id(seed: u64, idx: u32) -> u32 {
    id_of(&word(seed, idx))
}

/// The seed of an answer: the same prompt, request seed and choice give the same words.
pub fn answer_seed(prompt: &[u32], request_seed: u64, choice: u32) -> u64 {
    let hash = prompt.iter().fold(fold(0, request_seed), |hash, &id| fold(hash, u64::from(id)));
    fold(hash, u64::from(choice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        encode(text.as_bytes(), &mut out);
        out
    }

    #[test]
    fn pieces_put_together_are_the_text() {
        for text in ["", "a", "hello world", "  two", "北京🦀 and more", "abcdefghij\nk", "   "] {
            let mut joined = Vec::new();
            pieces(text.as_bytes(), |piece| {
                assert!(std::str::from_utf8(piece).is_ok(), "{text}");
                joined.extend_from_slice(piece);
            });
            assert_eq!(joined, text.as_bytes());
            assert_eq!(ids(text).len(), count(text.as_bytes()));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_cut_too() {
        assert_eq!(count(&[0xff; 9]), 3);
        assert_eq!(count(&[0x80; 9]), 1);
    }

    #[test]
    fn an_answer_is_cut_the_same_way_when_it_comes_back() {
        let mut text = "<|assistant|>".to_owned();
        let mut expected = ids(&text);
        for idx in 0..40 {
            text.push_str(std::str::from_utf8(&word(9, idx)).unwrap());
            expected.push(word_id(9, idx));
        }
        assert_eq!(ids(&text), expected);
    }

    #[test]
    fn answers_differ_by_prompt_seed_and_choice() {
        let base = answer_seed(&[1, 2, 3], 0, 0);
        for other in [answer_seed(&[1, 3, 2], 0, 0), answer_seed(&[1, 2, 3], 1, 0), answer_seed(&[1, 2, 3], 0, 1)] {
            assert_ne!(base, other);
        }
        assert_eq!(base, answer_seed(&[1, 2, 3], 0, 0));
    }
}
