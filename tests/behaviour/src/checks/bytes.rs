//! Bodies and targets arrive as they were sent, whatever they hold.

use llmgw_test_kit::raw::End;
use llmgw_test_kit::request::Request;

use crate::check::{Bench, CHAT, Check, Verdict, body, brief, need, post, stream_body};
use crate::upstream::{Then, answer};

pub(super) const CHECKS: &[Check] = &[
    Check::new("bytes.odd-json", "odd but legal JSON reaches the engine byte for byte", odd_json),
    Check::new("bytes.stream-request", "a streaming request that asks for usage is not changed", stream_request),
    Check::new("bytes.odd-answer", "an answer reaches the client byte for byte", odd_answer),
    Check::new("bytes.binary-answer", "an answer with every byte value passes with its type", binary),
    Check::new("bytes.compressed-answer", "a compressed answer keeps its bytes and says its coding", compressed),
    Check::new("bytes.query", "the query reaches the engine", query),
    Check::new("bytes.large-request", "a body of 8 MB arrives byte for byte", large_request),
    Check::new("bytes.large-answer", "an answer of 32 MB arrives byte for byte", large_answer),
    Check::new("bytes.fifty-at-once", "50 clients at once each get their own answer", fifty),
];

fn unchanged(bench: &Bench, text: impl Fn(&crate::upstream::Case) -> String) -> Verdict {
    let case = bench.case(|x| x.good());
    let body = text(&case);
    let reply = bench.call(&post(&body))?;
    need(reply.status == 200, || format!("status {}: {}", reply.status, brief(&reply.text())))?;
    let seen = case.seen();
    let got = seen.first().map(|seen| seen.asked.body.as_slice()).unwrap_or_default();
    need(got == body.as_bytes(), || format!("the engine got {}", brief(&String::from_utf8_lossy(got))))?;
    Ok(format!("{} bytes, the same", got.len()))
}

fn odd_json(bench: &Bench) -> Verdict {
    unchanged(bench, |case| {
        format!(
            "\r\n {{ \"seed\" : 9007199254740993,\"t\":1.0,\"e\":1e2, \"x\":-9223372036854775808,\"huge\":1e400,\
             \"messages\":[{{\"content\":\"{}\\u00e9é\\ud800 \\/ 北京🦀\",\"role\":\"user\"}}],\t\"unknown\":{{\"a\":[ ]}},\
             \"model\":\"test-model\",\"n\":null }} \n",
            case.mark()
        )
    })
}

fn stream_request(bench: &Bench) -> Verdict {
    unchanged(bench, stream_body)
}

fn odd_answer(bench: &Bench) -> Verdict {
    const ODD: &str = " {\"choices\" : [ ],\"n\":9007199254740993,\"u\":\"\\u00e9é\",\"usage\":null}\n\n";
    let case = bench.case(|x| x.answer(200, "", ODD));
    let reply = bench.ask(&case)?;
    need(reply.text() == ODD, || brief(&reply.text()))?;
    Ok("the same bytes".to_owned())
}

fn binary(bench: &Bench) -> Verdict {
    let all: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let sent = all.clone();
    let case = bench.case(move |x| {
        x.send(format!("HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: {}\r\n\r\n", sent.len()))?;
        x.send(&sent)?;
        Ok(Then::Keep)
    });
    let reply = bench.ask(&case)?;
    need(reply.header("content-type") == Some("audio/wav"), || format!("type {:?}", reply.header("content-type")))?;
    need(reply.body == all, || format!("{} bytes, others", reply.body.len()))?;
    Ok("10000 bytes, the same".to_owned())
}

fn compressed(bench: &Bench) -> Verdict {
    // Not really compressed: a proxy that unpacks it unasked would fail over it.
    const PACKED: &[u8] = b"\x1f\x8b\x08\x00not really";
    let case = bench.case(|x| {
        x.send(answer(200, "Content-Encoding: gzip\r\n", PACKED))?;
        Ok(Then::Keep)
    });
    let reply = bench.ask(&case)?;
    need(reply.body == PACKED, || format!("another body: {}", brief(&reply.text())))?;
    need(reply.header("content-encoding") == Some("gzip"), || "the coding is not said".to_owned())?;
    Ok("bytes and coding together".to_owned())
}

fn query(bench: &Bench) -> Verdict {
    let case = bench.case(|x| x.good());
    let request = Request::new("POST", &format!("{CHAT}?api-version=1&x=%2F+%25"));
    let reply = bench.call(&request.body("application/json", body(&case)).bytes())?;
    need(reply.status == 200, || format!("status {}", reply.status))?;
    let target = case.seen().first().map(|seen| seen.asked.target().to_owned()).unwrap_or_default();
    need(target.ends_with("?api-version=1&x=%2F+%25"), || format!("target {target}"))?;
    Ok(target)
}

/// Bytes that repeat with no power of two.
fn pattern(count: usize) -> String {
    (0..count).map(|at| char::from(b'a' + u8::try_from(at * 31 % 23).unwrap_or(0))).collect()
}

fn large_request(bench: &Bench) -> Verdict {
    let filler = pattern(8 << 20);
    unchanged(bench, |case| body(case).replacen("\"}]", &format!("\"}}],\"filler\":[\"{filler}\"]"), 1))
}

fn large_answer(bench: &Bench) -> Verdict {
    let text = format!("{{\"data\":\"{}\"}}", pattern(32 << 20));
    let sent = text.clone();
    let case = bench.case(move |x| x.answer(200, "", &sent));
    let reply = bench.ask(&case)?;
    need(reply.end == End::Complete && reply.body == text.as_bytes(), || {
        format!("{} of {} bytes, {:?}", reply.body.len(), text.len(), reply.end)
    })?;
    Ok("the same bytes".to_owned())
}

fn fifty(bench: &Bench) -> Verdict {
    let one = |at: usize| -> Verdict {
        let text = format!("{{\"answer\":{at}}}");
        let sent = text.clone();
        let case = bench.case(move |x| x.answer(200, "", &sent));
        let mut connection = bench.connect()?;
        for _ in 0..10 {
            connection.send(&post(&body(&case)))?;
            let reply = connection.reply()?;
            need(reply.text() == text, || format!("client {at}: {}", brief(&reply.text())))?;
        }
        Ok(String::new())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..50).map(|at| scope.spawn(move || one(at))).collect();
        for one in all {
            one.join().unwrap_or_else(|_| crate::check::failed("a client panicked"))?;
        }
        Ok("500 answers, each its own".to_owned())
    })
}
