//! Certificates: chosen by name, changed while the gateway runs, refused with the file and what is wrong with it.

use std::fs;
use std::path::Path;

use llmgw_test_kit::raw::{self, Connection, Trust};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, Launch, chat, wait_for};
use rcgen::{CertificateParams, date_time_ymd};
use serde_json::json;

use super::rig::{NAME, Pair, Rig, ask};
use crate::streams::rig::{CHAT, WITHIN, builder, finish, finish_expecting, llmgw};

const EXPIRED: fn(&mut CertificateParams) = |params| params.not_after = date_time_ymd(2020, 1, 1);

#[test]
fn the_certificate_is_chosen_by_the_name_a_client_asks_for_and_the_first_is_for_the_others() {
    let (engine, pairs) = (Engine::local(), ["one.test", "*.two.test"].map(Pair::new));
    let list = format!("tls: [{}, {}]", pairs[0].flow(), pairs[1].flow());
    let gateway = builder("").top(&list).engine(&engine).start(llmgw());
    let check = |name: &str, shown: &Pair| {
        let mut connection = Connection::open_tls(gateway.addr(), &shown.trusted(), name).expect(name);
        assert_eq!(ask(&mut connection, &chat("hello")).status, 200);
    };
    check("one.test", &pairs[0]);
    check("a.two.test", &pairs[1]);
    check("b.two.test", &pairs[1]);
    // It is refused by the client, and for the name: so it was the first that was shown.
    let other = Connection::open_tls(gateway.addr(), &pairs[0].trusted(), "three.test").expect_err("another name");
    assert!(other.to_string().contains("not valid for name"), "{other}");
    finish(gateway);
}

#[test]
fn a_renewed_certificate_is_shown_to_whoever_comes_and_open_connections_stay() {
    let mut rig = Rig::start();
    let before = rig.pair.trusted();
    let mut open = rig.open_as(&before);
    open.send(&Request::new("POST", CHAT).json(&endless()).bytes()).expect("sent");
    let head = open.head().expect("a head");
    let mut stream = open.body(&head);
    assert_eq!(stream.events(3).expect("events").len(), 3);
    let reloads = |rig: &mut Rig, text: &str| {
        rig.gateway.process().lines().into_iter().filter(|line| line.text.contains(text)).count()
    };

    // Only the files of the certificate change, as whoever renews it does.
    rig.pair.renew(NAME, |_| {});
    let after = rig.pair.trusted();
    let is_shown = |trust: &Trust| Connection::open_tls(rig.gateway.addr(), trust, NAME).is_ok();
    wait_for("the new certificate", WITHIN, || is_shown(&after));
    assert!(!is_shown(&before), "who trusts the old one alone is shown the new one, too");
    assert_eq!(ask(&mut rig.open(), &chat("hello")).status, 200);
    assert_eq!(stream.events(50).expect("events").len(), 50, "the stream goes on");
    assert_eq!(reloads(&mut rig, "configuration reloaded"), 1);

    // One of no use changes nothing, and is said.
    rig.pair.renew(NAME, EXPIRED);
    wait_for("a refusal", WITHIN, || reloads(&mut rig, "the certificate has expired") == 1);
    assert!(Connection::open_tls(rig.gateway.addr(), &after, NAME).is_ok());

    // Nor do other changes fail for it once it is mended.
    rig.pair.renew(NAME, |_| {});
    let mended = rig.pair.trusted();
    wait_for("the mended certificate", WITHIN, || Connection::open_tls(rig.gateway.addr(), &mended, NAME).is_ok());
    drop(open);
    finish_expecting(rig.gateway, &["configuration not reloaded"]);
}

fn endless() -> serde_json::Value {
    chat("long").streamed().faults(json!({ "events": 100_000, "delay_us": 1_000 })).json()
}

#[test]
fn tls_is_turned_on_and_off_for_whoever_comes() {
    let (engine, pair) = (Engine::local(), Pair::new(NAME));
    let gateway = builder("").engine(&engine).start(llmgw());
    let plain = fs::read_to_string(gateway.config_path()).expect("read");
    let reload = |text: &str| {
        fs::write(gateway.config_path(), text).expect("written");
        let request =
            Request::new("POST", "/api/v1/reload").header("Connection", "close").header("Content-Length", "0");
        let reply = raw::call(gateway.admin_addr(), &request.bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.text()
    };
    let ask_plain = || raw::post(gateway.addr(), CHAT, &chat("hello").json()).status;
    assert_eq!(ask_plain(), 200);
    let told = reload(&format!("{plain}tls: {}\n", pair.flow()));
    assert!(told.contains("tls") && !told.contains("PRIVATE KEY"), "{told}");
    wait_for("TLS", WITHIN, || Connection::open_tls(gateway.addr(), &pair.trusted(), NAME).is_ok());
    assert_eq!(ask_plain(), 400);
    reload(&plain);
    wait_for("plain HTTP", WITHIN, || ask_plain() == 200);
    finish_expecting(gateway, &["clients speak plain HTTP"]);
}

#[test]
fn a_pair_of_no_use_ends_the_start_with_its_file_and_what_is_wrong() {
    let (one, other, expired) = (Pair::new(NAME), Pair::new(NAME), Pair::with(NAME, EXPIRED));
    let folder = tempfile::tempdir().expect("a folder");
    let nothing = folder.path().join("nothing.pem");
    fs::write(&nothing, "nothing\n").expect("written");
    let pem = |cert: &Path, key: &Path| format!("{{ cert: \"{}\", key: \"{}\" }}", cert.display(), key.display());
    for (tls, file, reason) in [
        (pem(&one.cert(), &other.key()), other.key(), "the key is not that of the certificate in"),
        (expired.flow(), expired.cert(), "the certificate has expired"),
        (pem(&nothing, &one.key()), nothing.clone(), "holds no certificate in PEM"),
        (pem(&one.cert(), &nothing), nothing.clone(), "holds no private key in PEM"),
        (pem(&one.cert(), &one.cert()), one.cert(), "holds no private key in PEM"),
        (pem(&folder.path().join("absent.pem"), &one.key()), folder.path().join("absent.pem"), "cannot be read"),
    ] {
        let yaml = Gateway::builder().url("http://127.0.0.1:9").top(&format!("tls: {tls}")).yaml();
        let config = folder.path().join("server.yaml");
        fs::write(&config, yaml).expect("written");
        for check in [false, true] {
            let launch = Launch::new(llmgw()).arg("server").arg("--config").arg(&config);
            let mut process = if check { launch.arg("--check") } else { launch }.start().expect("started");
            assert_eq!(process.wait(WITHIN).expect("it ends").code(), Some(1), "{reason}");
            let lines: Vec<String> = process.lines().into_iter().map(|line| line.text).collect();
            let is_said = |line: &String| line.contains(&file.display().to_string()) && line.contains(reason);
            assert!(lines.iter().any(is_said), "{reason}: {lines:?}");
            assert!(!lines.concat().contains("PRIVATE KEY--"), "{lines:?}");
        }
    }
}

#[test]
fn when_a_certificate_expires_is_on_the_metrics_page() {
    let rig = Rig::start();
    let file = rig.pair.cert().display().to_string();
    let expires =
        rig.gateway.metrics().sum("llmgw_tls_certificate_expires_timestamp_seconds", &[("certificate", &file)]);
    // The year 4096, where nothing else is said.
    assert_eq!(expires, Some(67_090_118_400.0));
    finish(rig.gateway);
}
