//! What is done with keys, by a gateway that asks for them: who is let in, what a key may, what engines see of it.

use std::net::SocketAddr;

use llmgw_test_kit::raw::{Connection, Reply};
use llmgw_test_kit::request::Request;

use super::extras::error;
use crate::check::{Bench, CHAT, Check, Fault, Verdict, body, brief, need};
use crate::gateway::Keyed;
use crate::upstream::Case;

pub(super) const CHECKS: &[Check] = &[
    Check::new("keys.missing", "without a key the answer is a 401, and no engine is asked", missing).extra(),
    Check::new("keys.unknown", "a key that nobody made gets a 401 that does not repeat it", unknown).extra(),
    Check::new("keys.two", "two keys that differ get a 400: nobody guesses whose request it is", two).extra(),
    Check::new("keys.let-in", "a key lets in by either header, and no engine sees it", let_in).extra(),
    Check::new("keys.models", "a key that may not use a model finds it neither listed nor served", models).extra(),
    Check::new("keys.public", "whether the gateway is well is told without a key", public).extra(),
    Check::new("keys.before-body", "who is not let in is told so before the body is sent", before_body).extra(),
];

fn keyed(bench: &Bench) -> Result<&Keyed, Fault> {
    let none = || Fault::NotApplicable("only a gateway that the suite starts itself has keys it knows".to_owned());
    bench.keyed.as_ref().ok_or_else(none)
}

fn call(addr: SocketAddr, request: Request) -> Result<Reply, Fault> {
    let mut connection = Connection::open(addr)?;
    connection.send(&request.bytes())?;
    Ok(connection.reply()?)
}

fn chat(case: &Case, headers: &[(&str, &str)]) -> Request {
    let request = Request::new("POST", CHAT);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    request.body("application/json", body(case))
}

/// A chat with these headers is refused with this status and code, and no engine hears of it.
fn refused(bench: &Bench, headers: &[(&str, &str)], status: u16, code: &str) -> Verdict {
    let case = bench.case(|x| x.good());
    let reply = call(keyed(bench)?.gateway.addr(), chat(&case, headers))?;
    need(case.seen().is_empty(), || "an engine was asked".to_owned())?;
    error(&reply, status, code)
}

fn missing(bench: &Bench) -> Verdict {
    refused(bench, &[("Authorization", "Basic c2VjcmV0"), ("X-Api-Key", "")], 401, "missing_api_key")?;
    refused(bench, &[], 401, "missing_api_key")
}

fn unknown(bench: &Bench) -> Verdict {
    let wrong = format!("{}x", keyed(bench)?.key);
    let case = bench.case(|x| x.good());
    let reply = call(keyed(bench)?.gateway.addr(), chat(&case, &[("X-Api-Key", &wrong)]))?;
    need(!reply.text().contains(&wrong), || "the answer repeats it".to_owned())?;
    refused(bench, &[("Authorization", &format!("Bearer {wrong}"))], 401, "invalid_api_key")
}

fn two(bench: &Bench) -> Verdict {
    let Keyed { key, narrow, .. } = keyed(bench)?;
    refused(bench, &[("Authorization", &format!("Bearer {key}")), ("X-Api-Key", narrow)], 400, "bad_request")
}

fn let_in(bench: &Bench) -> Verdict {
    let Keyed { gateway, key, .. } = keyed(bench)?;
    for (name, value) in [("Authorization", format!("Bearer {key}")), ("X-Api-Key", key.clone())] {
        let case = bench.case(|x| x.good());
        let reply = call(gateway.addr(), chat(&case, &[(name, &value)]))?;
        need(reply.status == 200, || format!("{name}: {} {}", reply.status, brief(&reply.text())))?;
        let seen = case.seen();
        let has_key = seen.iter().any(|seen| seen.asked.head.contains(key.as_str()));
        need(seen.len() == 1 && !has_key, || format!("{name}: {} engines, the key at one: {has_key}", seen.len()))?;
    }
    Ok("by Authorization and by X-Api-Key".to_owned())
}

fn models(bench: &Bench) -> Verdict {
    let Keyed { gateway, key, narrow, .. } = keyed(bench)?;
    let get = |key: &str, path: &str| {
        call(gateway.addr(), Request::new("GET", path).header("Authorization", format!("Bearer {key}")))
    };
    let (all, none) = (get(key, "/v1/models")?, get(narrow, "/v1/models")?);
    need(all.status == 200 && all.text().contains("test-model"), || brief(&all.text()))?;
    need(none.status == 200 && !none.text().contains("test-model"), || brief(&none.text()))?;
    error(&get(narrow, "/v1/models/test-model")?, 404, "model_not_found")?;
    refused(bench, &[("Authorization", &format!("Bearer {narrow}"))], 404, "model_not_found")
}

fn public(bench: &Bench) -> Verdict {
    let addr = keyed(bench)?.gateway.addr();
    for path in ["/healthz", "/readyz"] {
        let reply = call(addr, Request::new("GET", path))?;
        need(reply.status == 200, || format!("{path}: {} {}", reply.status, brief(&reply.text())))?;
    }
    Ok("/healthz and /readyz".to_owned())
}

fn before_body(bench: &Bench) -> Verdict {
    let mut connection = Connection::open(keyed(bench)?.gateway.addr())?;
    let head = "Host: suite.test\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n";
    connection.send(format!("POST {CHAT} HTTP/1.1\r\n{head}Expect: 100-continue\r\n\r\n").as_bytes())?;
    error(&connection.reply()?, 401, "missing_api_key")
}
