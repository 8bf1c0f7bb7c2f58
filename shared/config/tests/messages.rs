//! What users read when something is wrong: a table of snippets and the exact text.

use std::io::Write as _;

use llmgw_config::from_text;

const ENDPOINT: &str = "endpoints: [{ url: \"http://h:1\", model: m }]\n";

fn said(text: &str, env: &[(&str, &str)]) -> String {
    let env = env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    match from_text("server.yaml", text, env) {
        Ok(_) => "fine".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(said(text, &[]), expected, "for {text:?}");
}

/// The snippet stands after a good endpoint, from line 2 on.
#[track_caller]
fn check_after_endpoint(text: &str, expected: &str) {
    check(&format!("{ENDPOINT}{text}"), expected);
}

/// The keys stand in the one endpoint there is.
#[track_caller]
fn check_endpoint(keys: &str, expected: &str) {
    check(&format!("endpoints:\n  - {}\n", keys.replace('\n', "\n    ")), expected);
}

#[test]
fn unknown_keys_are_named_with_a_hint_where_one_is_near() {
    check_after_endpoint("listn: \":1\"", "server.yaml:2:1: unknown key \"listn\"; did you mean \"listen\"?");
    check_endpoint("url: http://h:1\nmodle: m", "server.yaml:3:5: unknown key \"modle\"; did you mean \"model\"?");
    check_after_endpoint(
        "router: { limits: { speed: 1 } }",
        "server.yaml:2:21: unknown key \"speed\" in router.limits; known here: body, header, headers",
    );
    check_after_endpoint(
        "router: { scrape-interval: 2s }",
        "server.yaml:2:11: unknown key \"scrape-interval\"; did you mean \"scrape_interval\"?",
    );
}

#[test]
fn values_of_another_kind_say_what_would_be_right() {
    for (keys, message) in [
        (
            "scrape_interval: fast",
            "scrape_interval: \"fast\" is not a duration: write for example 2s, 5m, 100ms or 1h30m",
        ),
        ("scrape_interval: 0s", "scrape_interval: must be longer than 0; write for example 2s, 5m or 100ms"),
        (
            "scrape_interval: [2s]",
            "scrape_interval: a list is written here; expected a duration, for example 2s, 5m or 100ms",
        ),
        ("inject_usage: yes", "inject_usage: \"yes\" is not known here; expected true or false"),
        ("retries: -1", "retries: \"-1\" is not a whole number from 0 to 65535"),
        ("retries: 2.5", "retries: \"2.5\" is not a whole number from 0 to 65535"),
        ("limits: 3", "limits: expected keys, found \"3\""),
        ("timeouts: [1]", "timeouts: expected keys, found a list"),
        ("default_profile: chta", "default_profile: no routing profile is called \"chta\"; did you mean \"chat\"?"),
    ] {
        let column = keys.find(": ").unwrap_or_default() + 5;
        check_after_endpoint(&format!("router:\n  {keys}"), &format!("server.yaml:3:{column}: router.{message}"));
    }
    check_after_endpoint(
        "router: { admission: { kv_ceiling: 1.5 } }",
        "server.yaml:2:36: router.admission.kv_ceiling: \"1.5\" is not a number above 0, up to 1",
    );
    check_after_endpoint(
        "router: { admission: { heartbeat: 5ms } }",
        "server.yaml:2:35: router.admission.heartbeat: must be 100ms or more, or 0s for none",
    );
    check_after_endpoint(
        "cores: many",
        "server.yaml:2:8: cores: \"many\" is neither auto nor a number of CPUs up to 1024",
    );
    check_after_endpoint("cores: 0", "server.yaml:2:8: cores: at least 1 is needed; write a number, or auto");
    check_after_endpoint(
        "router: { limits: { body: 64M } }",
        "server.yaml:2:27: router.limits.body: \"64M\" is not clear: write 64MiB (1024) or 64MB (1000)",
    );
    check_after_endpoint(
        "router: { limits: { header: 10 } }",
        "server.yaml:2:29: router.limits.header: must be from 1KiB to 1MiB",
    );
    check("endpoints: here", "server.yaml:1:12: endpoints: expected a list: [ … ], or lines that begin with \"- \"");
    check("- a", "server.yaml:1:1: expected keys, found a list");
}

#[test]
fn files_that_are_no_yaml_are_told_where() {
    check("a: 1\na: 2", "server.yaml:2:1: \"a\" is written twice (first on line 1); keep one");
    check(
        "endpoints:\n\t- url: x",
        "server.yaml:2:2: this is not YAML: tabs disallowed within this context (block indentation)",
    );
    let empty = "server.yaml: no endpoints; name at least one engine under endpoints, or let \"llmgw init URL…\" \
    write this file";
    check("", empty);
    check("# nothing but a comment\n", empty);
}

#[test]
fn endpoints_are_named_by_their_root_and_once() {
    check_endpoint(
        "url: http://h:8000/v1\nmodel: m",
        "server.yaml:2:10: endpoints[0].url: \"http://h:8000/v1\" ends in /v1; engines are named by their root: \
        drop the /v1 and write http://h:8000",
    );
    check_endpoint("model: m", "server.yaml:2:5: endpoints[0].url is missing");
    check_endpoint(
        "url: http://h\nmodel: m\ntls: { ca: /x.pem }",
        "server.yaml:4:10: endpoints[0].tls: http://h:80 is reached without TLS; write https://… or leave tls out",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\nengine: vlm",
        "server.yaml:4:13: endpoints[0].engine: \"vlm\" is not known here; did you mean \"vllm\"?",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\nweight: 0",
        "server.yaml:4:13: endpoints[0].weight: 0 would never be chosen; write 1 or more, or leave the endpoint out",
    );
    check_endpoint(
        "url: http://h:1\nmodel: my model",
        "server.yaml:3:12: endpoints[0].model: \"my model\" is not a name; use 1 to 256 bytes of printable characters \
        without spaces",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\nserved_as: \"a\\r\\nx: y\"",
        "server.yaml:4:16: endpoints[0].served_as: \"a\\r\\nx: y\" is not a name; use 1 to 256 bytes without control \
        characters, as the engine's /v1/models lists it",
    );
    check_endpoint(
        "url: http://h:1\nmodels: [{ name: m, served_as: \"a\\0\" }]",
        "server.yaml:3:36: endpoints[0].models[0].served_as: \"a\\0\" is not a name; use 1 to 256 bytes without control \
        characters, as the engine's /v1/models lists it",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\nhealth_path: health",
        "server.yaml:4:18: endpoints[0].health_path: \"health\" is not a path; write for example /health",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\nmetrics: { running: off }",
        "server.yaml:4:25: endpoints[0].metrics.running: cannot be off; an engine without it cannot be judged by \
        its metrics, so set metrics_path: off",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\nmetrics: { runing: x }",
        "server.yaml:4:16: unknown key \"runing\"; did you mean \"running\"?",
    );
    check(
        "endpoints:\n  - { url: \"http://h:1\", model: a }\n  - { url: \"http://H:1/\", model: b }\n",
        "server.yaml:3:12: endpoints[1].url: http://h:1 is endpoints[0] already (line 2); one URL is one endpoint, \
        with several models under models",
    );
    check(
        "endpoints:\n  - { name: a, url: \"http://h:1\", model: m }\n  - { name: a, url: \"http://h:2\", model: m }\n",
        "server.yaml:3:13: endpoints[1].name: \"a\" is the name of endpoints[0] already (line 2); names are unique",
    );
}

#[test]
fn an_endpoint_says_its_model_or_its_models() {
    check_endpoint(
        "url: http://h:1",
        "server.yaml:2:5: endpoints[0]: no model is named; write model: NAME, or models: [{ name: NAME }] for several",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\nmodels: [{ name: n }]",
        "server.yaml:4:13: endpoints[0]: model and models are both given; keep one",
    );
    check_endpoint(
        "url: http://h:1\nserved_as: x\nmodels: [{ name: n }]",
        "server.yaml:3:16: endpoints[0].served_as: belongs to model; under models each entry has its own served_as",
    );
    check_endpoint(
        "url: http://h:1\nmodels: [{ name: n }, { name: n }]",
        "server.yaml:3:35: endpoints[0].models[1].name: \"n\" is there already; keep one",
    );
    check_endpoint(
        "url: http://h:1\nmodels: [{ served_as: n }]",
        "server.yaml:3:14: endpoints[0].models[0].name is missing",
    );
}

#[test]
fn keys_come_from_variables_and_files_and_never_appear() {
    check_endpoint(
        "url: http://h:1\nmodel: m\napi_key_env: VLLM_KEY",
        "server.yaml:4:18: endpoints[0].api_key_env: variable VLLM_KEY is not set",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\napi_key_file: /nonexistent/key",
        "server.yaml:4:19: endpoints[0].api_key_file: file /nonexistent/key cannot be read: No such file or \
        directory (os error 2)",
    );
    check_endpoint(
        "url: http://h:1\nmodel: m\napi_key_env: A\napi_key_file: b",
        "server.yaml:5:19: endpoints[0].api_key_env and endpoints[0].api_key_file are both given; keep one",
    );
    let file = "endpoints: [{ url: \"http://h:1\", model: m, api_key_env: K }]";
    let bad = said(file, &[("K", "sk-hunter2 \u{7}")]);
    assert_eq!(
        bad,
        "server.yaml:1:57: endpoints[0].api_key_env: variable K holds spaces or characters that cannot be sent as a key"
    );
    assert_eq!(said(file, &[("K", "")]), "server.yaml:1:57: endpoints[0].api_key_env: variable K is empty");
    let url = "endpoints: [{ url: \"http://me:hunter2@h:1\", model: m }]";
    assert_eq!(
        said(url, &[]),
        "server.yaml:1:20: endpoints[0].url: a URL may not hold credentials; put the key into a variable and name \
        it in api_key_env"
    );

    let mut key = tempfile::NamedTempFile::new().expect("temporary file");
    writeln!(key, "sk-hunter2").expect("written");
    let file = format!("endpoints: [{{ url: \"http://h:1\", model: m, api_key_file: {:?} }}]", key.path());
    let config = from_text("server.yaml", &file, []).expect("a key in a file");
    assert_eq!(config.endpoints[0].api_key.as_ref().map(|key| key.expose()), Some("sk-hunter2"));
    assert!(!format!("{config:?}").contains("hunter2"), "a key shows in Debug");
}

#[test]
fn the_admin_address_is_guarded() {
    check_after_endpoint(
        "admin_listen: \":9090\"",
        "server.yaml:2:15: admin_listen: 0.0.0.0:9090 can be reached from other machines; set admin_token_env or \
        admin_token_file, or listen on 127.0.0.1:9090",
    );
    check_after_endpoint("admin_token_env: TOKEN", "server.yaml:2:18: admin_token_env: variable TOKEN is not set");
    check_after_endpoint(
        "admin_listen: 127.0.0.1:8080",
        "server.yaml:2:15: admin_listen: 127.0.0.1:8080 is taken by listen (0.0.0.0:8080); use another port",
    );
    let guarded = format!("{ENDPOINT}admin_listen: \":9090\"\nadmin_token_env: TOKEN");
    assert_eq!(said(&guarded, &[("TOKEN", "t")]), "fine");
    assert_eq!(said(&guarded, &[]), "server.yaml:3:18: admin_token_env: variable TOKEN is not set");
    check_after_endpoint("listen: [\":1\", \":1\"]", "server.yaml:2:16: listen: 0.0.0.0:1 is written twice; keep one");
}

#[test]
fn no_band_is_held_tighter_than_a_lower_one() {
    let bands = |bands: &str| format!("router: {{ admission: {{ bands: [{bands}] }} }}");
    check_after_endpoint(
        &bands("{ name: a, priority: 2, saturation_ceiling: 0.3 }, { name: b, priority: 1, saturation_ceiling: 0.6 }"),
        "server.yaml:2:76: router.admission.bands: saturation_ceiling of a (0.3) is under that of b (0.6); it may \
        not fall as priority rises, so write 0.6 or more",
    );
    check_after_endpoint(
        &bands(
            "{ name: a, priority: 2, saturation_ceiling: 1, capacity_share: 0.5 }, { name: b, priority: 1, \
            saturation_ceiling: 1 }",
        ),
        "server.yaml:2:95: router.admission.bands: capacity_share of a (0.5) is under that of b (1); it may not \
        fall as priority rises, so write 1 or more",
    );
    check_after_endpoint(
        &bands("{ name: a, priority: 1, saturation_ceiling: 1 }, { name: b, priority: 1, saturation_ceiling: 1 }"),
        "server.yaml:2:102: router.admission.bands: priority 1 is another band's; priorities are unique",
    );
    check_endpoint(
        "url: http://h:8000\nmodel: m\nengine: llamacpp\nscheduling: priority",
        "server.yaml:5:17: endpoints[0].scheduling: llamacpp takes its queue in order of arrival only; write fifo",
    );
    let profiles = |profiles: &str| format!("models: [{{ name: m, profiles: [{profiles}] }}]");
    check_after_endpoint(
        &profiles("{ name: p, gpu_class: unknown, admission: { queue_ttl: 3s } }"),
        "server.yaml:2:87: models[0].profiles[0].admission.queue_ttl: the model's profiles share one queue; write it \
        in models[].admission, and here only target_waiting_per_replica, kv_ceiling and kv_by_band",
    );
    check_after_endpoint(
        &profiles("{ name: p, gpu_class: h100, admission: { kv_ceiling: 0.5 } }"),
        "server.yaml:2:54: models[0].profiles[0].gpu_class: no endpoint of the model is on \"h100\"; expected unknown",
    );
    check_after_endpoint(
        &bands(""),
        "server.yaml:2:31: router.admission.bands: at least one band is needed; leave bands out for \
        the four usual ones",
    );
    check_after_endpoint(
        &bands(
            "{ name: a, priority: 1, saturation_ceiling: 1000 }, { name: b, priority: 2, saturation_ceiling: 1000 }",
        ),
        "fine",
    );
}

#[test]
fn profiles_name_what_there_is() {
    let profile = |profile: &str| format!("router: {{ profiles: {{ mine: {profile} }} }}");
    for (written, expected) in [
        ("{ picker: { type: max-score } }", "fine"),
        ("{ scorers: { inflight: 2, queue: 0 } }", "fine"),
        (
            "{ scorers: { que: 1 } }",
            "server.yaml:2:42: router.profiles.mine.scorers: no scorer is called \"que\"; did you mean \"queue\"?",
        ),
        (
            "{ scorers: { lora: 1 } }",
            "server.yaml:2:42: router.profiles.mine.scorers: \"lora\" is not available in this version; leave it \
            out, or give it the weight 0",
        ),
        (
            "{ picker: { type: best } }",
            "server.yaml:2:47: router.profiles.mine.picker.type: \"best\" is not known here; expected p2c, \
            max-score, softmax or round-robin",
        ),
        ("{ picker: { type: round-robin } }", "fine"),
        ("{ scorers: { queue: 3, kv: 1, load: 1, session: 2, pool-priority: 1, prefix: 2 } }", "fine"),
        ("{ cost: { w_overlap: 8 }, picker: { type: softmax, temperature: 0.1 } }", "fine"),
        (
            "{ picker: { temperature: 1 } }",
            "server.yaml:2:54: router.profiles.mine.picker.temperature: only softmax has one; leave it out",
        ),
        (
            "{ cost: { w_overlap: 4 }, scorers: { inflight: 1 } }",
            "server.yaml:2:64: router.profiles.mine: cost and scorers are both given; keep one",
        ),
    ] {
        check_after_endpoint(&profile(written), expected);
    }
    check_after_endpoint(
        "router: { profiles: { chat: { picker: { type: p2c }, scorers: { inflight: 1.0, kv: 1.0, queue: 1.0, \
        prefix: 3.0 } } } }",
        "fine",
    );
    check_after_endpoint("router: { default_profile: debug }", "fine");
    check_after_endpoint(
        "router: { prefix: { session_affinity: { header: 'x session' } } }",
        "server.yaml:2:49: router.prefix.session_affinity.header: \"x session\" is no header name; use letters, digits \
        and dashes, at most 64",
    );
    check_after_endpoint(
        "router: { default_profile: nothing }",
        "server.yaml:2:28: router.default_profile: no routing profile is called \"nothing\"; expected chat, batch, \
        long-context or debug",
    );
}

#[test]
fn every_name_of_the_catalog_means_one_model() {
    check_after_endpoint("models: [{ name: n }]", "server.yaml:2:18: models[0].name: no endpoint serves \"n\"");
    check_after_endpoint(
        "models: [{ name: m }, { name: m }]",
        "server.yaml:2:31: models[1].name: \"m\" is in the catalog already; keep one",
    );
    check_after_endpoint(
        "models: [{ name: m, aliases: [m] }]",
        "server.yaml:2:31: models[0].aliases[0]: \"m\" is the model \"m\" already; choose another name",
    );
    check_after_endpoint(
        "models: [{ name: m, aliases: [a, a] }]",
        "server.yaml:2:34: models[0].aliases[1]: \"a\" is an alias of \"m\" already; choose another name",
    );
    check_after_endpoint(
        "models: [{ name: m, routing_profile: chatt }]",
        "server.yaml:2:38: models[0].routing_profile: no routing profile is called \"chatt\"; did you mean \"chat\"?",
    );
    let two = "endpoints: [{ url: \"http://h:1\", models: [{ name: llama-3.3-70b }, { name: qwen }] }]\n";
    check(
        &format!("{two}models: [{{ name: lama-3.3-70b }}]"),
        "server.yaml:2:18: models[0].name: no endpoint serves \"lama-3.3-70b\"; did you mean \"llama-3.3-70b\"?",
    );
    check(
        &format!("{two}models: [{{ name: qwen, budget_fallback: lama-3.3-70b }}]"),
        "server.yaml:2:41: models[0].budget_fallback: no model is called \"lama-3.3-70b\"; did you mean \"llama-3.3-70b\"?",
    );
    let said = said(&format!("{two}models: [{{ name: qwen, fallbacks: [lama-3.3-70b, qwen] }}]"), &[]);
    assert!(
        said.contains("models[0].fallbacks[0]: no model is called \"lama-3.3-70b\"; did you mean \"llama-3.3-70b\"?"),
        "{said}"
    );
    assert!(said.contains("models[0].fallbacks[1]: a model cannot stand in for itself; name another"), "{said}");
}

#[test]
fn overrides_are_explained_by_their_variable() {
    assert_eq!(
        said(ENDPOINT, &[("LLMGW__ROUTER__RETRYS", "3"), ("LLMGW__ROUTER__SCRAPE_INTERVAL", "soon")]),
        "LLMGW__ROUTER__RETRYS: unknown key \"retrys\"; did you mean \"retries\"?\n\
         LLMGW__ROUTER__SCRAPE_INTERVAL: router.scrape_interval: \"soon\" is not a duration: \
         write for example 2s, 5m, 100ms or 1h30m"
    );
    assert_eq!(
        said(ENDPOINT, &[("LLMGW__ENDPOINTS__0__URL", "http://h:1/v1")]),
        "LLMGW__ENDPOINTS__0__URL: endpoints[0].url: \"http://h:1/v1\" ends in /v1; engines are named by their \
        root: drop the /v1 and write http://h:1"
    );
    assert_eq!(said("", &[("LLMGW__ENDPOINTS", "[{ url: 'http://h:1', model: m }]"), ("LLMGW__LISTEN", ":1")]), "fine");
}

#[test]
fn certificates_are_read_with_their_keys_and_what_is_missing_is_said() {
    let pem = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        write!(file, "-----BEGIN {text}-----\nAAAA\n-----END {text}-----\n").expect("written");
        file
    };
    let (cert, key, locked) = (pem("CERTIFICATE"), pem("PRIVATE KEY"), pem("ENCRYPTED PRIVATE KEY"));
    let path = |file: &tempfile::NamedTempFile| file.path().display().to_string();
    let (cert, key, locked) = (path(&cert), path(&key), path(&locked));
    check_after_endpoint("tls: { cert: '', key: '' }", "fine");
    check_after_endpoint(
        "tls: { cert: /nowhere.pem }",
        "server.yaml:2:6: tls.key: write the file that holds it, as /etc/llmgw/api-key.pem\n\
         server.yaml:2:14: tls.cert: file /nowhere.pem cannot be read: No such file or directory (os error 2)",
    );
    check_after_endpoint("tls: []", "server.yaml:2:6: tls: no certificate is named; leave tls out for plain HTTP");
    let list = |second: &str| format!("tls: [{{ cert: {cert}, key: {key} }}, {second}]");
    let at = list("").len() - 1;
    check_after_endpoint(
        &list(&format!("{{ cert: {cert}, key: {locked} }}")),
        &format!(
            "server.yaml:2:{}: tls[1].key: file {locked} holds a key behind a passphrase; write it without one, \
             readable by this user alone",
            at + "{ cert: , key: ".len() + cert.len() + 1
        ),
    );
}
