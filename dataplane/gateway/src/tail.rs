//! The end of an answer that passes, kept to find its usage in. Filled by whoever relays an answer that is no stream.

use llmgw_openai::usage::{Reading, of_body};

/// How much of an answer's end is kept.
pub const TAIL_BYTES: usize = 32 * 1024;

/// The end of an answer, as much as usage is looked for in.
#[derive(Default)]
pub struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

/// Usage of an answer that is at hand whole. Cost: no copy of a small one.
pub fn usage_of(answer: &[u8]) -> Reading {
    if answer.len() <= TAIL_BYTES {
        return of_body(answer);
    }
    let mut tail = Tail::default();
    tail.add(answer);
    tail.usage()
}

impl Tail {
    /// Takes the next piece of the answer.
    pub fn add(&mut self, payload: &[u8]) {
        if payload.len() >= TAIL_BYTES {
            self.is_cut |= !self.bytes.is_empty() || payload.len() > TAIL_BYTES;
            self.bytes.clear();
            self.bytes.extend_from_slice(payload.get(payload.len() - TAIL_BYTES..).unwrap_or_default());
            return;
        }
        let over = (self.bytes.len() + payload.len()).saturating_sub(TAIL_BYTES);
        if over > 0 {
            self.is_cut = true;
            self.bytes.drain(..over);
        }
        self.bytes.extend_from_slice(payload);
    }

    /// Usage of the whole answer, or of one whose front is gone: then it is looked for in the last field of that name.
    pub fn usage(&self) -> Reading {
        if !self.is_cut {
            return of_body(&self.bytes);
        }
        match memchr::memmem::rfind(&self.bytes, b"\"usage\"") {
            Some(at) => of_body(&[b"{", self.bytes.get(at..).unwrap_or_default()].concat()),
            None => Reading::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_found_at_the_end_of_an_answer_of_any_length_and_cut() {
        let usage = r#""usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9},"extra":{"a":[1]}}"#;
        for filler in [0, 10, TAIL_BYTES - 200, TAIL_BYTES, 3 * TAIL_BYTES + 1] {
            let body = format!("{{\"data\":\"{}\",{usage}", "x".repeat(filler));
            for step in [1usize << 20, 1000, 33] {
                assert_eq!(usage_of(body.as_bytes()).usage.prompt, Some(7));
                let mut tail = Tail::default();
                body.as_bytes().chunks(step).for_each(|piece| tail.add(piece));
                let reading = tail.usage();
                assert_eq!((reading.usage.prompt, reading.usage.completion), (Some(7), Some(2)), "{filler} {step}");
                assert_eq!(reading.absurd_count, 0);
                assert!(tail.bytes.len() <= TAIL_BYTES);
            }
        }
        let mut tail = Tail::default();
        tail.add(br#"{"data":[1,2,3]}"#);
        assert!(tail.usage().usage.is_empty());
    }
}
