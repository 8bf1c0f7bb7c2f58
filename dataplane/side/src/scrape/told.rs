//! How many requests an engine says that it runs at once, outside its metrics: where that is asked, and until when.
//!
//! Called by `poll` before a page is read. No I/O.

use llmgw_engines::kind::CapacitySource;
use serde_json::Value;

/// What is asked of one engine until it has said it, or shown that it does not say.
///
/// Bound: one question for each source between two starts of the engine, more only of one that does not answer or
/// says that it is not ready to.
#[derive(Debug)]
pub(crate) struct Inquiry {
    sources: &'static [CapacitySource],
    at: usize,
}

impl Inquiry {
    /// The sources are tried in their order.
    pub(crate) fn of(sources: &'static [CapacitySource]) -> Self {
        Self { sources, at: 0 }
    }

    /// The path that is to be asked next; none when all is known.
    pub(crate) fn path(&self) -> Option<&'static str> {
        self.sources.get(self.at).map(|source| source.path)
    }

    /// Takes the answer to that question.
    pub(crate) fn hear(&mut self, status: u16, body: &[u8]) -> Option<u32> {
        let source = self.sources.get(self.at)?;
        let said = if (200..300).contains(&status) { read(body, source.fields) } else { None };
        match (said, status) {
            (Some(_), _) => self.at = self.sources.len(),
            // It is starting, or its door is shut for the moment.
            (None, 429 | 500 | 502..=504) => {}
            (None, _) => self.at += 1,
        }
        said
    }

    /// The engine was started again, perhaps otherwise.
    pub(crate) fn again(&mut self) {
        self.at = 0;
    }
}

/// The number under the first field that has one.
fn read(body: &[u8], fields: &[&str]) -> Option<u32> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let found = fields.iter().map(|field| sum(&json, field)).find(|sum| *sum > 0)?;
    u32::try_from(found).ok()
}

/// The sum of the numbers under a path of names; `*` stands for all members of a list, or for the one thing that is
/// there in its place.
fn sum(json: &Value, path: &str) -> u64 {
    let (name, rest) = path.split_once('/').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let inside = |value: &Value| match rest {
        Some(rest) => sum(value, rest),
        None => value.as_u64().unwrap_or(0),
    };
    match (name, json) {
        ("*", Value::Array(members)) => members.iter().map(inside).fold(0, u64::saturating_add),
        ("*", one) => inside(one),
        (name, Value::Object(fields)) => fields.get(name).map_or(0, inside),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use llmgw_engines::kind::engine;
    use llmgw_types::EngineKind;

    use super::*;

    /// What comes of these answers, one after the other, and where it is asked next.
    #[track_caller]
    fn check(kind: EngineKind, answers: &[(u16, &str)], expected: (Option<u32>, Option<&str>)) {
        let mut inquiry = Inquiry::of(engine(kind).capacity);
        let said = answers.iter().map(|(status, body)| inquiry.hear(*status, body.as_bytes())).last().flatten();
        assert_eq!((said, inquiry.path()), expected, "{kind} {answers:?}");
    }

    // The bodies are cut from what llama.cpp 0.10434.0 and SGLang 0.5 answer.
    #[test]
    fn engines_say_it_in_their_own_words() {
        let props = r#"{"default_generation_settings":{"n_ctx":2048},"total_slots":4,"model_alias":"tiny"}"#;
        check(EngineKind::LlamaCpp, &[(200, props)], (Some(4), None));
        let info = r#"{"max_running_requests":null,"internal_states":[{"effective_max_running_requests_per_dp":128},
            {"effective_max_running_requests_per_dp":128}],"version":"0.5"}"#;
        check(EngineKind::Sglang, &[(200, info)], (Some(256), None));
        let one = r#"{"max_running_requests":64,"internal_states":{"effective_max_running_requests_per_dp":52}}"#;
        check(EngineKind::Sglang, &[(200, one)], (Some(52), None));
        check(EngineKind::Sglang, &[(404, ""), (200, r#"{"max_running_requests":64}"#)], (Some(64), None));
    }

    #[test]
    fn one_that_does_not_say_is_asked_no_more_until_it_starts_again() {
        for nothing in
            [(404, "{}"), (401, "{}"), (501, ""), (200, "{}"), (200, "no JSON"), (200, r#"{"total_slots":-1}"#)]
        {
            check(EngineKind::LlamaCpp, &[nothing], (None, None));
        }
        for later in [(503, "{}"), (500, ""), (429, "")] {
            check(EngineKind::LlamaCpp, &[later, later], (None, Some("/props")));
        }
        let mut inquiry = Inquiry::of(engine(EngineKind::LlamaCpp).capacity);
        inquiry.hear(404, b"");
        inquiry.again();
        assert_eq!(inquiry.path(), Some("/props"));
        check(EngineKind::Vllm, &[], (None, None));
    }

    #[test]
    fn no_answer_is_too_odd() {
        let deep = "[".repeat(100_000);
        for body in [deep.as_str(), "{\"total_slots\":1e999}", "{\"total_slots\":18446744073709551615}", "[4]", "\"x\""]
        {
            assert_eq!(read(body.as_bytes(), &["total_slots", "*/x/*"]), None);
        }
    }
}
