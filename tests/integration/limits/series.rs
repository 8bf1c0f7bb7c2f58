//! The metrics page: as documented, and of the same length whatever clients send.

use std::collections::BTreeSet;

use llmgw_test_kit::gateway::{MODEL, Metrics};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for_some};

use crate::pair::{CHAT, Pair, WITHIN, is_full};

fn series(metrics: &Metrics) -> BTreeSet<String> {
    metrics.iter().map(|sample| format!("{} {:?}", sample.name, sample.labels)).collect()
}

/// Trial M1.
#[test]
fn nothing_a_client_sends_adds_a_series() {
    let pair = Pair::own();
    let rounds = if is_full() { 100_000 } else { 20_000 };
    assert_eq!(pair.post(CHAT, &chat("hello").json()).status, 200);
    assert_eq!(pair.get("/nowhere").status, 404);
    // A request is counted right behind its answer.
    let counted = |count: usize| {
        wait_for_some(&format!("{count} unknown requests on the page"), WITHIN, || {
            let metrics = pair.gateway.metrics();
            let other = metrics.sum("llmgw_requests_total", &[("model", "other"), ("status", "404")]);
            (other == Some(count as f64)).then_some(metrics)
        })
    };
    let before = series(&counted(1));
    let batch = |lane: usize| {
        let mut connection = pair.connect();
        let (mut left, mut number) = (rounds / 2, lane);
        while left > 0 {
            let mut bytes = Vec::new();
            let count = left.min(20);
            for _ in 0..count {
                number += 2;
                let name = format!("m-{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let request = match number / 2 % 4 {
                    0 => Request::new("POST", CHAT).json(&chat("x").model(&name).json()),
                    1 => Request::new("GET", &format!("/v1/models/{name}")),
                    2 => Request::new("GET", &format!("/{name}/x")).header("X-Session-Id", &name),
                    _ => Request::new(&name.to_ascii_uppercase(), &format!("/v1/{name}?{name}")),
                };
                bytes.extend_from_slice(&request.bytes());
            }
            connection.send(&bytes).expect("sent");
            for _ in 0..count {
                let reply = connection.reply().expect("an answer");
                assert_eq!(reply.status, 404, "{}", reply.text());
            }
            left -= count;
        }
    };
    std::thread::scope(|scope| {
        for lane in 0..2 {
            scope.spawn(move || batch(lane));
        }
    });
    let metrics = counted(rounds + 1);
    let added: Vec<String> = series(&metrics).difference(&before).cloned().collect();
    assert!(added.is_empty(), "{added:?}");
    assert_eq!(metrics.sum("llmgw_panics_total", &[]), Some(0.0));
}

#[test]
fn the_page_shows_what_is_documented_and_nothing_else() {
    let mut documented: BTreeSet<String> = include_str!("../../../docs/reference/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .map(str::to_owned)
        .collect();
    assert!(documented.len() > 10, "{documented:?}");
    // Where certificates are: `tls::certificates`.
    assert!(documented.remove("llmgw_tls_certificate_expires_timestamp_seconds"));
    // One with a capacity of its own, for what is learned shows only when there is something to learn.
    let known = "{ name: known, url: 'http://127.0.0.1:9', model: other-model, batch_capacity: 8 }";
    // Records of what requests used are shown where they are kept.
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("store: {{ path: {} }}\n", folder.path().join("llmgw.db").display());
    let pair = Pair::with(|_| (), |gateway| gateway.endpoint(known).top(&store));
    for body in [chat("hello").json(), chat("hello").streamed().json()] {
        assert_eq!(pair.post(CHAT, &body).status, 200);
    }
    // Sound is shown only of models that hear some.
    let part =
        |name: &str, content: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{content}\r\n");
    let file = format!("; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n{}", "x".repeat(64 << 10));
    let form = [part("model", &format!("\r\n\r\n{MODEL}")), part("file", &file), "--b--\r\n".to_owned()].concat();
    let sound =
        Request::new("POST", "/v1/audio/transcriptions").body("multipart/form-data; boundary=b", form.as_bytes());
    assert_eq!(pair.send(sound.header("Connection", "close")).status, 200);
    // An engine's numbers come with a scrape, those of a request right behind its answer.
    let page = wait_for_some("the engine's own numbers and the sound on the page", WITHIN, || {
        let page = pair.gateway.admin("/metrics").text();
        let names = ["llmgw_endpoint_kv_usage_ratio{", "llmgw_audio_seconds_total{"];
        names.iter().all(|name| page.contains(name)).then_some(page)
    });
    let typed: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(typed, documented);
    let shown: BTreeSet<String> = Metrics::parse(&page).iter().map(|sample| sample.name.clone()).collect();
    for name in &documented {
        let is_shown = shown.contains(name) || shown.contains(&format!("{name}_count"));
        assert!(is_shown, "{name} has no sample");
    }
    for name in &shown {
        let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(documented.contains(name) || documented.contains(bare), "{name} is not documented");
    }
}
