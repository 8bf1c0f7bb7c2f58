//! How requests may be written: lengths, chunks, old versions, connections used again.

use std::time::Duration;

use llmgw_test_kit::raw::{Closed, Connection, End};
use llmgw_test_kit::request::Request;

use crate::check::{Bench, CHAT, Check, SOON, Verdict, body, brief, comes_true, framed, need, post, stream_body};
use crate::upstream::Case;

pub(super) const CHECKS: &[Check] = &[
    Check::new("framing.length", "a body with a length arrives whole", length),
    Check::new("framing.chunked", "a chunked body arrives whole", chunked),
    Check::new("framing.chunked-trailers", "chunk extensions and trailers are no trouble", trailers),
    Check::new("framing.byte-by-byte", "a request sent a byte at a time is the same request", byte_by_byte),
    Check::new("framing.leading-empty-line", "an empty line in front of a request is passed over", leading_line),
    Check::new("framing.absolute-target", "a target in absolute form is understood", absolute),
    Check::new("framing.http-1.0", "an HTTP/1.0 client gets a whole answer without chunks, then the end", http10),
    Check::new("framing.http-1.0-stream", "an HTTP/1.0 client gets a stream without chunk framing", http10_stream),
    Check::new("framing.head", "the answer to HEAD has no body, and the connection goes on", head),
    Check::new("framing.keep-alive", "a client's connection serves request after request", keep_alive),
    Check::new("framing.close", "`Connection: close` ends the connection after the answer", close),
    Check::new("framing.pipelining", "requests sent ahead are answered in their order", pipelining),
    Check::new("framing.expect-continue", "a client that waits for 100 gets it, or its final answer", expect),
    Check::new(
        "framing.no-content",
        "an answer without a body by its status leaves the connection in step",
        no_content,
    ),
];

/// Sends these bytes; the engine must have got the case's body, and the client a good answer.
fn arrives(bench: &Bench, case: &Case, bytes: &[u8], want: &[u8]) -> Verdict {
    let reply = bench.call(bytes)?;
    need(reply.status == 200, || format!("status {}: {}", reply.status, brief(&reply.text())))?;
    let seen = case.seen();
    need(seen.len() == 1, || format!("{} requests at the engines", seen.len()))?;
    let got = &seen[0].asked.body;
    need(got == want, || format!("the engine got {} bytes: {}", got.len(), brief(&String::from_utf8_lossy(got))))?;
    Ok(format!("{} bytes arrived", got.len()))
}

fn length(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    arrives(bench, &case, &post(&body), body.as_bytes())
}

fn chunked(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(7).collect();
    arrives(bench, &case, &Request::new("POST", CHAT).chunked("application/json", pieces).bytes(), body.as_bytes())
}

fn trailers(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let rest = format!("{:x};name=value\r\n{body}\r\n0\r\nX-Sum: 1\r\n\r\n", body.len());
    arrives(bench, &case, &framed("Transfer-Encoding: chunked\r\nTrailer: X-Sum", &rest), body.as_bytes())
}

fn byte_by_byte(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let mut connection = bench.connect()?;
    connection.send_byte_by_byte(&post(&body))?;
    let reply = connection.reply()?;
    need(reply.status == 200, || format!("status {}", reply.status))?;
    let seen = case.seen();
    need(seen.len() == 1 && seen[0].asked.body == body.as_bytes(), || "another body arrived".to_owned())?;
    Ok("the same body arrived".to_owned())
}

fn leading_line(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    arrives(bench, &case, &[b"\r\n".as_slice(), &post(&body)].concat(), body.as_bytes())
}

fn absolute(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let bytes = Request::new("POST", &format!("http://llmgw.test{CHAT}")).body("application/json", &body).bytes();
    arrives(bench, &case, &bytes, body.as_bytes())
}

fn old(case: &Case) -> Vec<u8> {
    let request = Request::bare("POST", CHAT, "HTTP/1.0").header("Host", "suite.test");
    request.body("application/json", stream_body(case)).bytes()
}

fn http10(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let mut connection = bench.connect()?;
    connection.send(&old(&case))?;
    let reply = connection.reply()?;
    need(reply.status == 200 && reply.end == End::Complete, || format!("{} {:?}", reply.status, reply.end))?;
    need(reply.header("transfer-encoding").is_none(), || "chunks for HTTP/1.0".to_owned())?;
    let closed = connection.wait_for_close()?;
    Ok(format!("{} bytes, then {closed:?}", reply.body.len()))
}

fn http10_stream(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send(crate::upstream::STREAM_HEAD)?;
        for at in 0..5 {
            x.chunk(format!("data: {{\"at\":{at}}}\n\n"))?;
        }
        x.chunk("data: [DONE]\n\n")?;
        x.end()
    });
    let reply = bench.call(&old(&case))?;
    need(reply.header("transfer-encoding").is_none(), || "chunk framing for HTTP/1.0".to_owned())?;
    let events = reply.events();
    need(reply.end == End::Complete && events.len() == 6, || format!("{} events, {:?}", events.len(), reply.end))?;
    Ok("6 events until the end of the connection".to_owned())
}

fn head(bench: &Bench) -> Verdict {
    let mut connection = bench.connect()?;
    connection.send(&Request::new("HEAD", "/v1/models").bytes())?;
    let reply = connection.reply_to_head()?;
    need(reply.status == 200, || format!("status {}", reply.status))?;
    again(&mut connection, bench)?;
    Ok("no body, and the next request is answered".to_owned())
}

/// One more request on a connection.
fn again(connection: &mut Connection, bench: &Bench) -> Result<(), crate::check::Fault> {
    let case = bench.case(|x| x.good());
    connection.send(&post(&body(&case)))?;
    let reply = connection.reply()?;
    need(reply.status == 200, || format!("the next request: status {}", reply.status))
}

fn keep_alive(bench: &Bench) -> Verdict {
    let mut connection = bench.connect()?;
    for _ in 0..10 {
        again(&mut connection, bench)?;
    }
    Ok("10 answers on one connection".to_owned())
}

fn close(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let mut connection = bench.connect()?;
    let request = Request::new("POST", CHAT).header("Connection", "close").body("application/json", body(&case));
    connection.send(&request.bytes())?;
    let reply = connection.reply()?;
    need(reply.header("connection") == Some("close"), || "the answer does not say close".to_owned())?;
    match connection.wait_for_close()? {
        Closed::Fin | Closed::Untold => Ok("answered and closed".to_owned()),
        Closed::Reset => crate::check::failed("closed with a reset"),
    }
}

fn pipelining(bench: &Bench) -> Verdict {
    // The first is slow, so that a proxy which asks for all at once has its chance to mix them up.
    let cases: Vec<Case> = (0..4)
        .map(|at| {
            bench.case(move |x| {
                std::thread::sleep(Duration::from_millis(if at == 0 { 150 } else { 0 }));
                x.answer(200, "", format!("{{\"answer\":{at}}}"))
            })
        })
        .collect();
    let bytes: Vec<u8> = cases.iter().flat_map(|case| post(&body(case))).collect();
    let mut connection = bench.connect()?;
    connection.send(&bytes)?;
    for at in 0..4 {
        let reply = connection.reply()?;
        need(reply.text() == format!("{{\"answer\":{at}}}"), || format!("answer {at} is {}", brief(&reply.text())))?;
    }
    Ok("4 answers in order".to_owned())
}

fn expect(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = body(&case);
    let request = Request::new("POST", CHAT).header("Expect", "100-continue").body("application/json", &body);
    let mut connection = bench.connect()?.patience(SOON);
    connection.send(&request.head_bytes())?;
    let first = connection.head()?;
    if first.status != 100 {
        return crate::check::failed(format!("{} in place of 100", first.status));
    }
    connection.send(request.body_bytes())?;
    let reply = connection.reply()?;
    need(reply.status == 200, || format!("after 100: status {}", reply.status))?;
    need(comes_true(SOON, || case.seen().len() == 1), || "no engine saw it".to_owned())?;
    Ok("100, then 200".to_owned())
}

fn no_content(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send("HTTP/1.1 204 No Content\r\n\r\n")?;
        Ok(crate::upstream::Then::Keep)
    });
    let mut connection = bench.connect()?;
    connection.send(&post(&body(&case)))?;
    let reply = connection.reply()?;
    need(reply.status == 204 && reply.body.is_empty(), || format!("{} {}", reply.status, brief(&reply.text())))?;
    again(&mut connection, bench)?;
    Ok("204, and the next request is answered".to_owned())
}
