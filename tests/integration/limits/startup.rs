//! A start that cannot succeed: it ends, and says where, what, and what would be right.

use std::process::ExitStatus;

use llmgw_test_kit::Launch;

use crate::pair::{Pair, WITHIN, llmgw};

/// Runs `llmgw server` on this configuration to its end; its status and all it wrote.
#[track_caller]
fn run(config: &str, args: &[&str]) -> (ExitStatus, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.yaml");
    std::fs::write(&path, config).expect("written");
    let launch = Launch::new(llmgw()).dir(folder.path()).args(["server", "--config", "server.yaml"]).args(args);
    let mut process = launch.start().expect("started");
    let status = process.wait(WITHIN).expect("it ends");
    let text: Vec<String> = process.lines().into_iter().map(|line| line.text).collect();
    (status, text.join("\n"))
}

/// Trial H19.
#[test]
fn a_second_gateway_on_the_same_address_ends_and_names_it() {
    let pair = Pair::own();
    for (key, addr) in [("listen", pair.gateway.addr()), ("admin_listen", pair.gateway.admin_addr())] {
        let other = if key == "listen" { "admin_listen" } else { "listen" };
        let config = format!(
            "{key}: \"{addr}\"\n{other}: \"127.0.0.1:0\"\ncores: 1\n\
             endpoints: [{{ name: e, url: \"{}\", model: test-model, engine: sim }}]\n",
            pair.engine.url()
        );
        let (status, text) = run(&config, &[]);
        assert!(!status.success(), "{key}: {status}");
        assert!(text.contains(&addr.to_string()), "{key}: {text}");
    }
    assert_eq!(pair.get("/v1/models").status, 200, "the first one serves on");
}

#[test]
fn a_check_says_where_the_file_is_wrong_what_is_and_what_would_be_right() {
    let ok = "endpoints:\n  - { name: e, url: \"http://127.0.0.1:9\", model: m }\n";
    let (status, text) = run(ok, &["--check"]);
    assert!(status.success() && text.contains('e'), "{text}");
    let cases: [(&str, &[&str]); 9] = [
        ("listen: \":8080\"\nenpoints: []\n", &["server.yaml:2:1", "\"enpoints\"", "did you mean \"endpoints\""]),
        (
            "endpoints:\n  - { name: e, url: \"http://127.0.0.1:9/v1\", model: m }\n",
            &["server.yaml:2:", "/v1", "http://127.0.0.1:9"],
        ),
        ("endpoints:\n  - { name: e, url: \"http://127.0.0.1:9\" }\n", &["server.yaml:2:", "model"]),
        (
            "endpoints:\n  - { name: e, url: \"http://127.0.0.1:9\", model: m, engine: vlm }\n",
            &["server.yaml:2:", "vlm", "vllm"],
        ),
        ("router:\n  timeouts:\n    connect: soon\n", &["server.yaml:3:14", "soon", "timeouts.connect"]),
        ("router:\n  scrape_intervall: 2s\n", &["server.yaml:2:3", "scrape_intervall", "scrape_interval\""]),
        ("cores: many\n", &["server.yaml:1:8", "many", "auto"]),
        (
            "endpoints:\n  - { name: a, url: \"http://127.0.0.1:9\", model: m }\n  - { name: a, url: \"http://127.0.0.1:8\", model: m }\n",
            &["server.yaml:3:", "name"],
        ),
        ("listen: [\":8080\"\n", &["server.yaml:"]),
    ];
    for (config, expected) in cases {
        let (status, text) = run(config, &["--check"]);
        assert!(!status.success(), "{config}\n{text}");
        for words in expected {
            assert!(text.contains(words), "no {words} for\n{config}\n{text}");
        }
        let (status, text) = run(config, &[]);
        assert!(!status.success() && text.contains(expected[0]), "a start says the same: {text}");
    }
}

#[test]
fn all_errors_of_a_file_are_shown_at_once() {
    let config = "liste: \":1\"\ncores: x\nendpoints:\n  - { url: \"ftp://a\", model: m, engin: sim }\n";
    let (_, text) = run(config, &["--check"]);
    for place in ["server.yaml:1:", "server.yaml:2:", "server.yaml:4:"] {
        assert!(text.contains(place), "{text}");
    }
}
