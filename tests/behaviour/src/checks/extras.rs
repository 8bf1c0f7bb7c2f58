//! What this project's gateway promises beyond a good proxy: errors in OpenAI's shape, its own headers, credentials.

use llmgw_test_kit::raw::{End, Reply};
use llmgw_test_kit::request::Request;
use serde_json::Value;

use crate::check::{Bench, CHAT, Check, Fault, Verdict, body, brief, failed, need, post, stream_body};
use crate::upstream::{STREAM_HEAD, Then};

pub(super) const CHECKS: &[Check] = &[
    Check::new("extra.request-id", "every answer has an x-request-id, which the engine got too", request_id).extra(),
    Check::new("extra.served-by", "an answer names its replica, pool and model", served_by).extra(),
    Check::new("extra.owned-headers", "a client cannot set the gateway's own headers", owned).extra(),
    Check::new("extra.credentials-stay", "a client's credentials do not reach an engine", credentials).extra(),
    Check::new("extra.error-event", "a stream that breaks ends with an error event in valid JSON", error_event)
        .extra()
        .alone(),
    Check::new("extra.no-buffering-asked", "a stream asks proxies in front not to hold it back", unbuffered).extra(),
    Check::new("extra.usage-withheld", "usage that the client did not ask for is asked for and withheld", usage)
        .extra(),
    Check::new("extra.bad-json", "a body that is no JSON is refused here with 400", |b| {
        error(&b.call(&post("{\"model\":"))?, 400, "bad_request")
    })
    .extra(),
    Check::new("extra.no-model", "a body without a model is refused here with 400", |b| {
        error(&b.call(&post("{\"messages\":[]}"))?, 400, "bad_request")
    })
    .extra(),
    Check::new("extra.unknown-model", "a model that nobody serves is a 404 that names those there are", unknown_model)
        .extra(),
    Check::new("extra.unknown-path", "a path that is not served is a 404 in OpenAI's shape", |b| {
        error(&b.call(&Request::new("GET", "/nowhere").bytes())?, 404, "unknown_url")
    })
    .extra(),
    Check::new("extra.wrong-method", "a wrong method is a 405 that says which is right", wrong_method).extra(),
    Check::new("extra.refusal-shape", "a refused head gets an error in OpenAI's shape too", refusal).extra(),
    Check::new(
        "extra.all-down",
        "with every engine down the answer is a 503 with Retry-After that names them",
        all_down,
    )
    .extra()
    .alone(),
    Check::new("extra.foreign-error", "an engine's error of another shape is brought into OpenAI's", foreign).extra(),
    Check::new("extra.engine-refuses-key", "an engine's 401 becomes a 502: the client's key was not refused", key)
        .extra()
        .alone(),
];

/// An error in OpenAI's shape with this status and code.
pub(super) fn error(reply: &Reply, status: u16, code: &str) -> Verdict {
    let text = reply.text();
    let json: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let error = &json["error"];
    need(reply.status == status && error["code"] == code, || format!("{} {}", reply.status, brief(&text)))?;
    need(error["message"].is_string() && error["type"].is_string(), || format!("not the shape: {}", brief(&text)))?;
    need(reply.header("content-type") == Some("application/json"), || "another type".to_owned())?;
    Ok(format!("{status} {code}"))
}

fn request_id(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let reply = bench.ask(&case)?;
    let seen = case.seen();
    let at_engine = seen.first().and_then(|seen| seen.asked.header("x-request-id"));
    let id = reply.header("x-request-id").filter(|id| !id.is_empty());
    need(id.is_some() && id == at_engine, || format!("{id:?} here, {at_engine:?} at the engine"))?;
    Ok("the same on both sides".to_owned())
}

fn served_by(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let reply = bench.ask(&case)?;
    let names = ["x-llmgw-replica", "x-llmgw-pool", "x-llmgw-served-model", "x-llmgw-overhead-us"];
    let missing: Vec<&str> = names.into_iter().filter(|name| reply.header(name).is_none()).collect();
    need(missing.is_empty(), || format!("missing: {}", missing.join(", ")))?;
    Ok(format!("served by {}", reply.header("x-llmgw-replica").unwrap_or_default()))
}

fn owned(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.answer(200, "X-Llmgw-Replica: forged\r\nX-Request-Id: forged\r\n", "{}"));
    let request = Request::new("POST", CHAT).header("X-Request-Id", "mine").header("X-Llmgw-Upstream", "http://x/");
    let reply = bench.call(&request.body("application/json", body(&case)).bytes())?;
    let is_forged = reply.head.headers.iter().any(|(_, value)| value == "forged");
    need(!is_forged, || "an engine's forged header came through".to_owned())?;
    for seen in case.seen() {
        need(seen.asked.header("x-llmgw-upstream").is_none(), || "x-llmgw-upstream reached the engine".to_owned())?;
        need(seen.asked.all("x-request-id").count() == 1, || "several x-request-id at the engine".to_owned())?;
    }
    Ok("replaced on both sides".to_owned())
}

fn credentials(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let names = ["Authorization", "Cookie", "X-Api-Key", "Api-Key", "Proxy-Authorization"];
    let request = names.iter().fold(Request::new("POST", CHAT), |request, name| request.header(name, "secret-1"));
    let reply = bench.call(&request.body("application/json", body(&case)).bytes())?;
    need(reply.status == 200, || format!("status {}", reply.status))?;
    let has_secret = case.seen().iter().any(|seen| seen.asked.head.contains("secret-1"));
    need(!has_secret, || "the engine got them".to_owned())?;
    Ok("none reached the engine".to_owned())
}

fn error_event(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send(STREAM_HEAD)?;
        x.chunk("data: {\"event\":0}\n\n")?;
        Ok(Then::Close)
    });
    let reply = bench.call(&post(&stream_body(&case)))?;
    let events = reply.events();
    let last = events.last().map(|event| event.trim()).unwrap_or_default();
    let data = last.lines().find_map(|line| line.strip_prefix("data:")).unwrap_or_default();
    let json: Value = serde_json::from_str(data).unwrap_or_default();
    need(json["error"]["message"].is_string(), || format!("the last event is {}", brief(last)))?;
    need(reply.end != End::Complete, || "the body ends as a whole one does".to_owned())?;
    Ok(format!("{}", json["error"]["code"]))
}

fn unbuffered(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send(STREAM_HEAD)?;
        x.chunk("data: [DONE]\n\n")?;
        x.end()
    });
    let reply = bench.call(&post(&stream_body(&case)))?;
    let said = (reply.header("x-accel-buffering"), reply.header("cache-control"));
    need(said == (Some("no"), Some("no-cache")), || format!("{said:?}"))?;
    Ok("x-accel-buffering: no, cache-control: no-cache".to_owned())
}

fn usage(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send(STREAM_HEAD)?;
        x.chunk("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")?;
        x.chunk(
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}\n\n",
        )?;
        x.chunk("data: [DONE]\n\n")?;
        x.end()
    });
    let text = body(&case).replacen('{', "{\"stream\":true,", 1);
    let reply = bench.call(&post(&text))?;
    let is_asked = case.seen().iter().any(|seen| String::from_utf8_lossy(&seen.asked.body).contains("include_usage"));
    need(is_asked, || "the engine was not asked for usage".to_owned())?;
    need(!reply.text().contains("usage") && reply.events().len() == 2, || brief(&reply.text()))?;
    Ok("asked for, and withheld".to_owned())
}

fn unknown_model(bench: &Bench) -> Verdict {
    let reply = bench.call(&post("{\"model\":\"nobody\",\"messages\":[]}"))?;
    need(reply.text().contains("test-model"), || format!("it does not say: {}", brief(&reply.text())))?;
    error(&reply, 404, "model_not_found")
}

fn wrong_method(bench: &Bench) -> Verdict {
    let reply = bench.call(&Request::new("GET", CHAT).bytes())?;
    need(reply.header("allow") == Some("POST"), || format!("Allow: {:?}", reply.header("allow")))?;
    error(&reply, 405, "method_not_allowed")
}

fn refusal(bench: &Bench) -> Verdict {
    error(&bench.call(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n")?, 400, "bad_http")
}

fn all_down(bench: &Bench) -> Verdict {
    let all = 0..bench.engines.count();
    all.clone().for_each(|at| bench.engines.down(at));
    let case = bench.case(|x| x.good());
    // The first requests may still find an engine that was thought to be well.
    let found: Result<Reply, Fault> =
        (0..40).map(|_| bench.ask(&case)).find(is_503).unwrap_or_else(|| bench.ask(&case));
    all.clone().try_for_each(|at| bench.engines.up(at))?;
    let reply = found?;
    need(reply.header("retry-after").is_some(), || format!("{} without Retry-After", reply.status))?;
    need(reply.text().contains("engine-0"), || format!("names no engine: {}", brief(&reply.text())))?;
    error(&reply, 503, "no_endpoint")
}

fn is_503(reply: &Result<Reply, Fault>) -> bool {
    std::thread::sleep(std::time::Duration::from_millis(100));
    reply.as_ref().is_ok_and(|reply| reply.status == 503)
}

fn foreign(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.answer(422, "", "{\"detail\":\"no \\\"x\\\"\"}"));
    let reply = bench.ask(&case)?;
    let json: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    need(reply.status == 422 && json["error"]["message"] == "no \"x\"", || brief(&reply.text()))?;
    Ok("422 with the engine's words".to_owned())
}

fn key(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.answer(401, "", "{\"error\":{\"message\":\"bad key\"}}"));
    let reply = bench.ask(&case)?;
    if reply.status == 401 {
        return failed("401: the client will doubt its own key");
    }
    error(&reply, 502, "engine_auth")
}
