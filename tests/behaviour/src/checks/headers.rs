//! Which headers pass, which end at the connection, what is said once.

use llmgw_test_kit::request::Request;

use crate::check::{Bench, CHAT, Check, Fault, Verdict, body, failed, need};
use crate::upstream::{Asked, Case};

pub(super) const CHECKS: &[Check] = &[
    Check::new("headers.pass-to-engine", "a client's own headers reach the engine, repeated ones too", to_engine),
    Check::new("headers.pass-to-client", "an engine's own headers reach the client, repeated ones too", to_client),
    Check::new("headers.hop-by-hop-request", "what a client says to its connection stops at it", hop_request),
    Check::new("headers.hop-by-hop-response", "what an engine says to its connection stops at it", hop_response),
    Check::new("headers.connection-lists-framing", "`Connection: content-length` removes no framing", lists_framing),
    Check::new("headers.one-host", "the engine gets one Host", one_host),
    Check::new("headers.one-server-and-date", "Server and Date are said once", one_server),
    Check::new("headers.redirect-not-followed", "an engine's redirect is not followed", redirect),
    Check::new("headers.odd-names", "names with every allowed character pass, values with any byte", odd_names),
];

/// Asks with more header lines; what the engine saw.
fn ask(bench: &Bench, case: &Case, headers: &[(&str, &str)]) -> Result<Asked, Fault> {
    let request = headers.iter().fold(Request::new("POST", CHAT), |request, (name, value)| request.header(name, value));
    let reply = bench.call(&request.body("application/json", body(case)).bytes())?;
    match case.seen().pop() {
        Some(seen) if reply.status == 200 => Ok(seen.asked),
        _ => failed(format!("status {}", reply.status)),
    }
}

fn to_engine(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let asked = ask(
        bench,
        &case,
        &[("X-Custom", "a  b"), ("X-Many", "1"), ("X-Many", "2"), ("User-Agent", "suite/1"), ("X-Empty", "")],
    )?;
    let many = asked.all("x-many").collect::<Vec<_>>().join(", ");
    need(asked.header("x-custom") == Some("a  b"), || format!("X-Custom: {:?}", asked.header("x-custom")))?;
    need(many == "1, 2", || format!("X-Many: {many:?}"))?;
    need(asked.header("user-agent") == Some("suite/1"), || "another User-Agent".to_owned())?;
    Ok("as they were sent".to_owned())
}

fn to_client(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.answer(200, "X-Custom: a  b\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n", "{}"));
    let reply = bench.ask(&case)?;
    need(reply.header("x-custom") == Some("a  b"), || format!("X-Custom: {:?}", reply.header("x-custom")))?;
    let cookies: Vec<&str> = reply.head.all("set-cookie").collect();
    need(cookies == ["a=1", "b=2"], || format!("Set-Cookie: {cookies:?}"))?;
    Ok("as they were sent".to_owned())
}

fn hop_request(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let asked = ask(
        bench,
        &case,
        &[
            ("Connection", "keep-alive, X-Hop"),
            ("X-Hop", "1"),
            ("Keep-Alive", "timeout=5"),
            ("TE", "trailers"),
            ("Proxy-Connection", "keep-alive"),
            ("Proxy-Authorization", "Basic eDp5"),
        ],
    )?;
    let names = ["x-hop", "keep-alive", "te", "proxy-connection", "proxy-authorization"];
    let passed: Vec<&str> = names.into_iter().filter(|name| asked.header(name).is_some()).collect();
    need(passed.is_empty(), || format!("reached the engine: {}", passed.join(", ")))?;
    Ok("none reached the engine".to_owned())
}

fn hop_response(bench: &Bench) -> Verdict {
    let lines =
        "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n";
    let case = bench.case(move |x| x.answer(200, lines, "{}"));
    let reply = bench.ask(&case)?;
    let names = ["x-hop", "keep-alive", "proxy-connection"];
    let passed: Vec<&str> = names.into_iter().filter(|name| reply.header(name).is_some()).collect();
    need(passed.is_empty(), || format!("reached the client: {}", passed.join(", ")))?;
    Ok("none reached the client".to_owned())
}

fn lists_framing(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let request = Request::new("POST", CHAT).header("Connection", "Content-Length, Host, Content-Type");
    let reply = bench.call(&request.body("application/json", &body).bytes())?;
    match case.seen().first() {
        None if (400..500).contains(&reply.status) => Ok(format!("refused with {}", reply.status)),
        Some(seen) if seen.asked.body == body.as_bytes() && seen.asked.header("host").is_some() => {
            Ok("the body arrived whole".to_owned())
        }
        _ => failed(format!("status {}, and the engine got another request", reply.status)),
    }
}

fn one_host(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let asked = ask(bench, &case, &[])?;
    let hosts: Vec<&str> = asked.all("host").collect();
    need(hosts.len() == 1, || format!("Host: {hosts:?}"))?;
    Ok(format!("Host: {}", hosts[0]))
}

fn one_server(bench: &Bench) -> Verdict {
    let lines = "Server: uvicorn\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let case = bench.case(move |x| x.answer(200, lines, "{}"));
    let reply = bench.ask(&case)?;
    for name in ["server", "date"] {
        let count = reply.head.all(name).count();
        need(count <= 1, || format!("{name} {count} times"))?;
    }
    Ok(format!("Server: {}", reply.header("server").unwrap_or("(none)")))
}

fn redirect(bench: &Bench) -> Verdict {
    let other = bench.case(|x| x.good());
    let target = format!("http://{}/v1/{}", bench.engines.addrs()[0], other.mark());
    let case = bench.case(move |x| x.answer(302, &format!("Location: {target}\r\n"), "{}"));
    let reply = bench.ask(&case)?;
    need(other.seen().is_empty(), || "it was followed".to_owned())?;
    Ok(format!("status {}, not followed", reply.status))
}

fn odd_names(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let request = Request::new("POST", CHAT).header("X-!#$%&'*+.^`|~", "1").header("X-Bytes", b"caf\xc3\xa9 \x80\xff");
    let reply = bench.call(&request.body("application/json", body(&case)).bytes())?;
    need(reply.status == 200, || format!("status {}", reply.status))?;
    let seen = case.seen();
    let got = seen.first().and_then(|seen| seen.asked.header("x-!#$%&'*+.^`|~"));
    need(got == Some("1"), || format!("the odd name came as {got:?}"))?;
    Ok("passed".to_owned())
}
