//! Requests as bytes: a chat call with a prompt of a chosen size, and the instruction a simulated engine looks for in
//! it.
//!
//! The instruction is `@@sim {json} @@` inside the prompt, so that it passes any gateway in between untouched.

use serde_json::{Value, json};

use crate::target::Target;

/// A chat call to be sent many times.
#[derive(Debug, Clone)]
pub struct Chat {
    pub model: String,
    /// Size of the prompt's text without the instruction.
    pub prompt_bytes: usize,
    pub max_tokens: Option<u64>,
    pub delivery: Delivery,
    /// Stands before the prompt's words: what an engine's recording is searched for.
    pub tag: String,
    /// Tells a simulated engine how to answer.
    pub instruction: Option<Value>,
    /// Makes the prompt differ from another's of the same size.
    pub seed: u64,
    pub headers: Vec<(String, String)>,
}

/// How the answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Whole,
    Streamed,
    /// Streamed, with the event that tells the usage.
    StreamedWithUsage,
}

impl Default for Chat {
    fn default() -> Self {
        Self {
            model: "test-model".to_owned(),
            prompt_bytes: 256,
            max_tokens: None,
            delivery: Delivery::Whole,
            tag: String::new(),
            instruction: None,
            seed: 0,
            headers: Vec::new(),
        }
    }
}

impl Chat {
    /// Head and body for a target.
    #[must_use]
    pub fn bytes(&self, target: &Target) -> Vec<u8> {
        let mut text = self.tag.clone();
        text.push_str(&words(self.prompt_bytes, self.seed));
        if let Some(instruction) = &self.instruction {
            text.push_str(&format!(" @@sim {instruction} @@"));
        }
        let mut body = json!({ "model": self.model, "messages": [{ "role": "user", "content": text }] });
        if let (Some(fields), Some(count)) = (body.as_object_mut(), self.max_tokens) {
            fields.insert("max_tokens".to_owned(), count.into());
        }
        if let (Some(fields), true) = (body.as_object_mut(), self.delivery != Delivery::Whole) {
            fields.insert("stream".to_owned(), true.into());
            if self.delivery == Delivery::StreamedWithUsage {
                fields.insert("stream_options".to_owned(), json!({ "include_usage": true }));
            }
        }
        let more: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        post(target, &body.to_string(), &more)
    }
}

/// A POST of a JSON body.
#[must_use]
pub fn post(target: &Target, body: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let Target { host, path, .. } = target;
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: llmgw-load\r\nContent-Type: application/json\r\n\
         {more}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A GET.
#[must_use]
pub fn get(target: &Target) -> Vec<u8> {
    let Target { host, path, .. } = target;
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: llmgw-load\r\n\r\n").into_bytes()
}

/// Text of a size, made of short words; another seed gives other words from the first on.
#[must_use]
pub fn words(bytes: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(bytes + 8);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for idx in 0..2 + (state >> 60) % 6 {
            text.push(char::from(b'a' + u8::try_from((state >> (idx * 5)) % 26).unwrap_or(0)));
        }
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

/// Text of so many tokens, each a blank and letters, for an engine that takes every such word for one token (as the
/// simulated one does, up to four bytes); another seed gives other words.
pub fn tokens(count: usize, bytes_per_token: usize, seed: u64, text: &mut String) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(' ');
        for idx in 1..bytes_per_token {
            text.push(char::from(b'a' + u8::try_from((state >> (idx * 7)) % 26).unwrap_or(0)));
        }
    }
}

/// So many sizes from one to another, evenly spread by their ratio and not in their order: most prompts are short, and
/// long ones come between.
#[must_use]
pub fn sizes(from: usize, to: usize, count: u64) -> Vec<usize> {
    let (from, to) = (from.max(1) as f64, to.max(1) as f64);
    // Steps of the golden ratio fill the span evenly, however many there are.
    let step = 0.618_033_988_749_895;
    (0..count).map(|idx| (from * (to / from).powf((idx as f64 * step).fract())).round() as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_right_and_the_instruction_is_in_the_prompt() {
        let target = Target::parse("http://127.0.0.1:9/x").expect("a URL");
        let chat = Chat { delivery: Delivery::Streamed, instruction: Some(json!({ "events": 3 })), ..Chat::default() };
        let bytes = String::from_utf8(Chat { prompt_bytes: 1000, ..chat }.bytes(&target)).expect("text");
        let (head, body) = bytes.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("POST /x HTTP/1.1\r\nHost: 127.0.0.1:9\r\n"));
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
        let body: Value = serde_json::from_str(body).expect("JSON");
        let content = body["messages"][0]["content"].as_str().expect("text");
        assert_eq!(content.find(" @@sim {\"events\":3} @@"), Some(1000));
        assert_eq!(body["stream"], true);
    }

    #[test]
    fn sizes_fill_their_span() {
        assert_eq!(sizes(300, 300, 3), [300, 300, 300]);
        let spread = sizes(100, 10_000, 100);
        assert!(spread.iter().all(|size| (100..=10_000).contains(size)));
        let short = spread.iter().filter(|size| **size < 1000).count();
        assert!((45..=55).contains(&short), "{short} of 100 below the middle");
    }

    #[test]
    fn tokens_are_words_of_one_length() {
        let made = |seed| {
            let mut text = String::new();
            tokens(512, 4, seed, &mut text);
            text
        };
        let text = made(5);
        assert_eq!((text.len(), text.split(' ').filter(|word| word.len() == 3).count()), (2048, 512));
        assert!(text == made(5) && text[..40] != made(6)[..40]);
    }

    #[test]
    fn a_seed_gives_the_same_words_again_and_another_seed_others() {
        assert_eq!(words(500, 7), words(500, 7));
        assert_ne!(words(20, 7), words(20, 8));
        assert_eq!(words(0, 1), "");
        assert_eq!(words(77, 3).len(), 77);
    }
}
