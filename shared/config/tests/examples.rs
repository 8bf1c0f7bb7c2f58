//! The example files: every key is understood, and what is said of them is exactly this.

use std::time::Duration;

use llmgw_config::{ConfigError, ServerConfig, from_text};
use proptest::prelude::*;

const EXAMPLE: &str = include_str!("../../../deploy/examples/server.yaml");
const EVERYTHING_ON: &str = include_str!("fixtures/everything-on.yaml");

fn load(text: &str, env: &[(&str, &str)]) -> Result<ServerConfig, ConfigError> {
    from_text("server.yaml", text, env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
}

#[test]
fn the_example_with_every_key_loads() {
    let config = load(EXAMPLE, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.endpoints.len(), 2);
    assert_eq!(config.endpoints[0].models[0].served_as, "meta-llama/Llama-3.3-70B-Instruct");
    assert_eq!(config.endpoints[1].models[1].served_as, "tiny");
    assert_eq!(config.router.timeouts.first_token, Duration::from_secs(120));
    assert_eq!(config.router.limits.body_bytes, 64 << 20);
    let names: Vec<&str> = config.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["llama-3.3-70b", "qwen2.5-32b", "tiny"]);
}

#[test]
fn the_example_holds_every_key_and_every_default() {
    // The page names every key as `| `key` |`; each must stand in the example, so that it stays whole.
    let page = llmgw_config::document::page();
    let (page, _) = page.split_once("## `models[].profiles[]`").expect("the models' profiles come last");
    let keys = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(key, _)| key);
    for key in keys.filter(|key| !["min", "max", "temperature"].contains(key)) {
        assert!(EXAMPLE.contains(&format!("{key}:")), "{key} is not in the example");
    }
    let minimal = load("endpoints: [{ url: \"http://h:1\", model: m }]", &[]).expect("a minimal file");
    let example = load(EXAMPLE, &[]).expect("the example");
    assert_eq!(format!("{:?}", minimal.router), format!("{:?}", example.router), "the example shows other defaults");
}

#[test]
fn what_has_no_effect_in_this_version_is_named() {
    let config = load(EXAMPLE, &[]).expect("the example");
    let named: Vec<&str> = config.without_effect.iter().map(|key| key.key.as_str()).collect();
    for key in ["agent_listen", "agent_tls", "fabrics"] {
        assert!(named.contains(&key), "{key} is not named in {named:?}");
    }
    for key in ["endpoints[0].batch_capacity", "endpoints[0].kv_capacity_tokens"] {
        assert!(!named.contains(&key), "{key} has an effect");
    }
    for key in ["listen", "router.scrape_interval", "router.timeouts.connect", "endpoints[0].weight"] {
        assert!(!named.contains(&key), "{key} has an effect");
    }
    let eviction = config.without_effect.iter().find(|key| key.key.ends_with("eviction_interval")).expect("named");
    assert_eq!(eviction.reason, "accepted for old files; nothing needs it");
}

#[test]
fn what_turns_something_on_that_is_not_there_is_refused_and_all_else_is_understood() {
    let secrets = [("LLMGW_ADMIN_TOKEN", "t"), ("VLLM_KEY", "k")];
    let error = load(EVERYTHING_ON, &secrets).expect_err("features that are not there").to_string();
    let expected = "\
server.yaml:8:14: tls.cert: file /etc/llmgw/api.pem cannot be read: No such file or directory (os error 2)
server.yaml:8:39: tls.key: file /etc/llmgw/api-key.pem cannot be read: No such file or directory (os error 2)
server.yaml:9:1: agent_listen is not available in this version; leave it out
server.yaml:10:1: agent_tls is not available in this version; leave it out
server.yaml:11:1: agent_plaintext is not available in this version; leave it out, or write false
server.yaml:13:12: tracing.endpoint is not available in this version; leave it out
server.yaml:32:16: endpoints[0].tls.ca: file /etc/llmgw/engines.pem cannot be read: \
No such file or directory (os error 2)
server.yaml:44:26: router.prefix.kv_events.enabled is not available in this version; leave it out, or write false
server.yaml:52:5: models[0].source is not available in this version; leave it out
server.yaml:54:5: models[0].scaling is not available in this version; leave it out";
    assert_eq!(error, expected);
}

#[test]
fn files_made_to_hurt_are_refused_in_few_words() {
    let endpoints = "  - { url: x, modle: y }\n".repeat(5_000);
    let keys: String = (0..30_000).map(|at| format!("k{at}: 1\n")).collect();
    for text in [
        "[".repeat(1 << 20),
        "- ".repeat(1 << 20),
        "? ".repeat(1 << 20),
        "a: &a [*a, *a]\n".repeat(1000),
        "#".repeat(1 << 20),
        format!("listen: {}", "a".repeat(1 << 19)),
        format!("endpoints:\n{endpoints}"),
        keys,
    ] {
        let said = load(&text, &[]).expect_err("no configuration").to_string();
        assert!(
            said.lines().count() <= 202 && said.len() < 100_000,
            "{} lines, {} bytes",
            said.lines().count(),
            said.len()
        );
    }
}

/// What YAML gives a meaning to, and what has none.
const PUT: &str = "[-:{}\\[\\]&*!|>'\"%@` \t\n#,?~<0-9a-zé\u{0}\u{feff}]{0,12}";

/// Cuts at a character, so that the rest is text.
fn cut(text: &str, at: usize) -> &str {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..at]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_beginning_of_a_file_panics(at in 0..EXAMPLE.len()) {
        let _ = load(cut(EXAMPLE, at), &[]);
        let _ = load(cut(EVERYTHING_ON, at), &[]);
    }

    #[test]
    fn no_change_of_a_file_panics(at in 0..EXAMPLE.len(), length in 0..40_usize, put in PUT) {
        for text in [EXAMPLE, EVERYTHING_ON] {
            let before = cut(text, at);
            let after = text.get(cut(text, before.len() + length).len()..).unwrap_or_default();
            if let Err(error) = load(&format!("{before}{put}{after}"), &[]) {
                prop_assert!(!error.problems().is_empty());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn no_override_panics(path in "[A-Z0-9_]{0,30}", text in "[-:{}\\[\\]&*a-z0-9 ,]{0,20}") {
        let name = format!("LLMGW__{path}");
        let _ = load(EXAMPLE, &[(&name, &text)]);
        let _ = load("", &[(&name, &text)]);
    }

    #[test]
    fn no_text_at_all_panics(text in "\\PC{0,200}") {
        let _ = load(&text, &[]);
    }
}
