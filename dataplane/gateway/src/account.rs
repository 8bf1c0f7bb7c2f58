//! What a request used, and whether that goes on the record.
//!
//! Filled by `finish` while the request runs, read once when it ends. The engine's word is what counts; where it says
//! nothing, or what it said is not all, the gateway's own count stands in and is marked so. Nothing is charged before
//! an engine's answer began. The conventional gateway of bench/stock counts with the same.

use std::time::Duration;

use llmgw_kit::clock::{Mono, Wall};
use llmgw_openai::usage::Usage;
use llmgw_types::Tokens;
use llmgw_types::snapshot::Units;
use llmgw_types::tenants::Caller;

use crate::route::{Inference, Streams, UsageReport};

/// Bytes of an answer that stand for one token where nothing better is known.
const BYTES_PER_TOKEN: u64 = 4;

/// What is known of a request's use so far.
#[derive(Default)]
pub struct Account {
    /// Who asks; none where keys are off.
    pub caller: Option<Caller>,
    /// When it was let in, where that is not when it came.
    pub admitted_at: Option<Wall>,
    /// Set from when it is on the record.
    pub asked: Option<Recorded>,
    /// The price of the model that serves it.
    units: Units,
    /// When it was sent to the engine that was asked last.
    sent_at: Option<Mono>,
    /// The engine's answer is one, and has begun.
    is_answered: bool,
    /// Tokens that were seen passing; none where nobody looked for them.
    seen: Option<u64>,
    /// The answer came to its end.
    has_ended: bool,
}

/// What a request that is on the record asks for.
#[derive(Clone, Copy)]
pub struct Recorded {
    /// Metric row of the model.
    pub row: u32,
    /// Its prompt as it is estimated.
    pub prompt_tokens: u32,
    /// The most that all its answers may have together, where that is known.
    output_tokens_max: Option<u64>,
    /// Whether engines count tokens on its route.
    counts: bool,
    /// Whether the answers of its route are generated.
    generates: bool,
}

impl Recorded {
    /// A request on that route to the model of that metric row.
    pub fn on(route: &Inference, row: u32, prompt_tokens: u32) -> Self {
        let (counts, generates) = (route.usage != UsageReport::Never, route.streams == Streams::OnRequest);
        Self { row, prompt_tokens, output_tokens_max: None, counts, generates }
    }

    /// With the most tokens that all its answers may have together.
    pub fn at_most(self, output_tokens_max: Option<u64>) -> Self {
        Self { output_tokens_max, ..self }
    }

    /// Whether an engine says that it generated more than it may have.
    pub fn is_exceeded(self, reported: &Usage) -> bool {
        self.generates && reported.completion.zip(self.output_tokens_max).is_some_and(|(said, most)| said > most)
    }
}

/// What a request used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub tokens: Tokens,
    pub units_micros: u64,
    pub is_estimated: bool,
}

impl Account {
    /// It is being sent to an engine, whose use costs that much.
    pub fn attempt(&mut self, units: Units, now: Mono) {
        (self.units, self.sent_at) = (units, Some(now));
    }

    /// The engine's answer has begun, and is no refusal.
    pub fn answering(&mut self) {
        self.is_answered = true;
    }

    /// So many tokens passed, where they were looked for; whether the answer came to its end.
    pub fn seen(&mut self, tokens: Option<u64>, has_ended: bool) {
        (self.seen, self.has_ended) = (tokens, has_ended);
    }

    /// What it used. `reported` is the engine's word; `sent_bytes` of answer went to the client.
    pub fn used(&self, reported: &Usage, sent_bytes: u64, now: Mono) -> Used {
        let Some(asked) = self.asked.filter(|_| self.is_answered) else { return Used::default() };
        let busy = self.sent_at.map_or(Duration::ZERO, |sent_at| now.since(sent_at));
        let (tokens, is_estimated) =
            if asked.counts { self.tokens(asked, reported, sent_bytes) } else { (Tokens::default(), false) };
        Used { tokens, units_micros: self.units.price(&tokens, busy), is_estimated }
    }

    fn tokens(&self, asked: Recorded, reported: &Usage, sent_bytes: u64) -> (Tokens, bool) {
        // What is heard is counted as time, and that is all there is to say.
        let is_told = reported.prompt.is_some() || reported.audio_ms.is_some();
        let prompt = reported.prompt.unwrap_or(if is_told { 0 } else { asked.prompt_tokens.into() });
        let own = self.seen.unwrap_or(sent_bytes / BYTES_PER_TOKEN);
        let (completion, is_counted) = match reported.completion {
            _ if !asked.generates => (reported.completion.unwrap_or(0), true),
            Some(completion) if self.has_ended => (completion, true),
            // What was reported on the way may be less than what passed since.
            Some(completion) => (completion.max(self.seen.unwrap_or(0)), false),
            None if reported.audio_ms.is_some() => (0, true),
            None => (own, false),
        };
        let cached = reported.cached.unwrap_or(0).min(prompt);
        (Tokens { prompt, cached, completion }, !(is_told && is_counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::ROUTES;

    const MS: u64 = 1_000_000;

    fn account(path: &str) -> Account {
        let route = ROUTES.iter().find(|route| route.path == path).expect("a route");
        let mut account = Account { asked: Some(Recorded::on(route, 3, 40)), ..Account::default() };
        account.attempt(Units::default(), Mono(MS));
        account
    }

    fn usage(prompt: Option<u64>, completion: Option<u64>) -> Usage {
        Usage { prompt, completion, ..Usage::default() }
    }

    #[track_caller]
    fn check(account: &Account, reported: Usage, sent_bytes: u64, expected: (u64, u64, bool)) {
        let used = account.used(&reported, sent_bytes, Mono(5 * MS));
        assert_eq!((used.tokens.prompt, used.tokens.completion, used.is_estimated), expected);
        assert_eq!(used.units_micros, (expected.0 + expected.1) * 1_000_000);
    }

    #[test]
    fn the_engines_word_counts_and_its_silence_is_filled_and_marked() {
        let mut chat = account("/v1/chat/completions");
        // Nobody answered: nothing was used.
        check(&chat, Usage::default(), 0, (0, 0, false));
        chat.answering();
        chat.seen(Some(7), true);
        check(&chat, usage(Some(100), Some(9)), 900, (100, 9, false));
        check(&chat, usage(None, None), 900, (40, 7, true));
        check(&chat, usage(None, Some(9)), 900, (40, 9, true));
        check(&chat, usage(Some(100), None), 900, (100, 7, true));
        // An answer in one piece, without usage.
        chat.seen(None, true);
        check(&chat, usage(None, None), 80, (40, 20, true));
    }

    #[test]
    fn a_stream_that_was_cut_is_counted_as_far_as_it_came() {
        let mut chat = account("/v1/chat/completions");
        chat.answering();
        chat.seen(Some(30), false);
        check(&chat, usage(None, None), 900, (40, 30, true));
        check(&chat, usage(Some(100), Some(1)), 900, (100, 30, true));
        check(&chat, usage(Some(100), Some(31)), 900, (100, 31, true));
        // Before its first token: the event that names the role is none.
        chat.seen(Some(0), false);
        check(&chat, usage(None, None), 240, (40, 0, true));
    }

    #[test]
    fn an_engine_that_says_more_than_was_asked_for_is_found_out() {
        let route = |path: &str| ROUTES.iter().find(|route| route.path == path).expect("a route");
        let asked = |path: &str, most| Recorded::on(route(path), 3, 40).at_most(most);
        let chat = asked("/v1/chat/completions", Some(9));
        assert!(!chat.is_exceeded(&usage(Some(1000), Some(9))));
        assert!(chat.is_exceeded(&usage(Some(1), Some(10))));
        assert!(!chat.is_exceeded(&usage(Some(1000), None)));
        assert!(!asked("/v1/chat/completions", None).is_exceeded(&usage(None, Some(1000))));
        assert!(!asked("/v1/embeddings", Some(9)).is_exceeded(&usage(None, Some(1000))), "nothing is generated");
    }

    #[test]
    fn what_generates_nothing_has_no_completion_and_what_counts_nothing_has_no_tokens() {
        let mut embedding = account("/v1/embeddings");
        embedding.answering();
        embedding.seen(None, true);
        check(&embedding, usage(Some(12), None), 9000, (12, 0, false));
        check(&embedding, usage(None, None), 9000, (40, 0, true));
        let mut tokenize = account("/tokenize");
        tokenize.answering();
        check(&tokenize, usage(Some(12), None), 9000, (0, 0, false));
        let mut speech = account("/v1/audio/transcriptions");
        speech.answering();
        speech.seen(None, true);
        check(&speech, Usage { audio_ms: Some(900), ..Usage::default() }, 400, (0, 0, false));
    }

    #[test]
    fn cached_tokens_are_part_of_the_prompt_and_time_counts_from_the_sending() {
        let mut chat = account("/v1/chat/completions");
        let units = Units { prompt_micros: 0, cached_micros: 5, completion_micros: 0, gpu_second_micros: 1000 };
        chat.attempt(units, Mono(MS));
        chat.answering();
        chat.seen(Some(1), true);
        let used = chat.used(&Usage { cached: Some(500), ..usage(Some(100), Some(1)) }, 0, Mono(3001 * MS));
        assert_eq!((used.tokens.cached, used.units_micros), (100, 500 + 3000));
    }
}
