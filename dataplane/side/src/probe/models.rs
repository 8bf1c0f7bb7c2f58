//! An engine's `/v1/models` against what it is configured to serve. Reads bytes, keeps nothing.

use llmgw_config::ServedModel;
use llmgw_types::EngineKind;
use serde::Deserialize;

/// Names shown in a message.
const SHOWN_MAX: usize = 5;
/// Length of a name in a message.
const SHOWN_LENGTH_MAX: usize = 100;

/// What the list says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// Everything is there.
    Listed,
    /// Something is not there (yet); why, for people.
    Absent(String),
    /// It proves nothing; why, for people.
    Doubtful(String),
}

#[derive(Deserialize)]
struct List {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
}

/// Compares the body of a successful answer with what is served.
///
/// llama.cpp answers for its one model whatever name a request carries, so any entry will do there.
pub(crate) fn compare(engine: EngineKind, served: &[ServedModel], body: &[u8]) -> Listing {
    let Ok(list) = serde_json::from_slice::<List>(body) else {
        return Listing::Doubtful("/v1/models is not a list of models".to_owned());
    };
    let absent: Vec<&str> = served
        .iter()
        .map(|model| model.served_as.as_str())
        .filter(|name| !list.data.iter().any(|entry| entry.id == *name))
        .collect();
    if absent.is_empty() {
        return Listing::Listed;
    }
    let names = |names: &mut dyn Iterator<Item = &str>| {
        let shown = names.take(SHOWN_MAX).map(|name| name.chars().take(SHOWN_LENGTH_MAX).collect::<String>());
        shown.collect::<Vec<_>>().join(", ")
    };
    let absent = names(&mut absent.into_iter());
    if list.data.is_empty() {
        return Listing::Absent(format!("/v1/models lists nothing yet; expected {absent}"));
    }
    let listed = names(&mut list.data.iter().map(|entry| entry.id.as_str()));
    let reason =
        format!("/v1/models does not list {absent}; it lists {listed}; set served_as to the engine's own name");
    match engine {
        EngineKind::LlamaCpp => Listing::Doubtful(reason),
        _ => Listing::Absent(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = r#"{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"vllm"},{"id":"lora"}]}"#;

    fn check(engine: EngineKind, served: &[&str], body: &str) -> Listing {
        let served: Vec<_> =
            served.iter().map(|name| ServedModel { name: "m".into(), served_as: (*name).to_owned() }).collect();
        compare(engine, &served, body.as_bytes())
    }

    #[test]
    fn everything_that_is_served_must_be_listed() {
        assert_eq!(check(EngineKind::Vllm, &["tiny"], TINY), Listing::Listed);
        assert_eq!(check(EngineKind::Vllm, &["lora", "tiny"], TINY), Listing::Listed);
        let Listing::Absent(reason) = check(EngineKind::Vllm, &["tiny", "big"], TINY) else { panic!("absent") };
        assert!(
            reason.contains("list big;") && reason.contains("tiny, lora") && reason.contains("served_as"),
            "{reason}"
        );
    }

    #[test]
    fn an_empty_list_is_an_engine_that_still_loads() {
        for engine in EngineKind::ALL {
            assert!(matches!(check(engine, &["tiny"], r#"{"data":[]}"#), Listing::Absent(_)), "{engine}");
        }
    }

    #[test]
    fn llama_cpp_answers_to_any_name() {
        assert!(matches!(check(EngineKind::LlamaCpp, &["big"], TINY), Listing::Doubtful(_)));
        assert_eq!(check(EngineKind::LlamaCpp, &["tiny"], TINY), Listing::Listed);
    }

    #[test]
    fn what_is_no_list_proves_nothing() {
        for body in
            ["", "<html>", "[]", "{}", r#"{"data":{}}"#, r#"{"data":[{"id":1}]}"#, "\u{0}", "{\"data\":[{\"id\":\"a"]
        {
            assert!(matches!(check(EngineKind::Vllm, &["tiny"], body), Listing::Doubtful(_)), "{body}");
        }
    }

    #[test]
    fn a_message_stays_short_whatever_the_engine_lists() {
        let ids: Vec<String> = (0..1000).map(|n| format!("{{\"id\":\"{n}{}\"}}", "x".repeat(500))).collect();
        let Listing::Absent(reason) = check(EngineKind::Sim, &["tiny"], &format!("{{\"data\":[{}]}}", ids.join(",")))
        else {
            panic!("absent")
        };
        assert!(reason.len() < 1000, "{}", reason.len());
    }
}
