//! What an engine's answer may look like, and what must not come of one that is broken.

use std::time::Duration;

use llmgw_test_kit::raw::End;

use crate::check::{Bench, Check, Fault, Verdict, body, brief, failed, need, post};
use crate::upstream::{Exchange, GOOD, Then, answer};

pub(super) const CHECKS: &[Check] = &[
    Check::new("responses.until-close", "an answer that ends with its connection arrives whole", until_close),
    Check::new("responses.chunked-trailers", "chunk extensions and trailers of an engine are no trouble", trailers),
    Check::new("responses.tiny-chunks", "an answer in chunks of one byte arrives whole", tiny),
    Check::new("responses.interim", "interim answers of an engine are not taken for the answer", interim).alone(),
    Check::new("responses.slow-head", "an engine's head that comes byte by byte is one head", slow_head),
    Check::new("responses.length-and-chunked", "an answer framed twice is not passed on framed twice", two_framings)
        .alone(),
    Check::new("responses.two-lengths", "an answer with two lengths is an error of the engine", |b| {
        broken(b, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello!!")
    })
    .alone(),
    Check::new("responses.not-http", "an answer that is no HTTP is an error of the engine", |b| {
        broken(b, "SSH-2.0-OpenSSH_9.2\r\n\r\n")
    })
    .alone(),
    Check::new("responses.head-too-large", "an engine's endless head is an error of the engine", huge_head).alone(),
    Check::new("responses.extra-bytes", "bytes behind an answer are never another client's answer", extra_bytes)
        .alone(),
    Check::new("responses.before-the-body", "an answer that comes before the body was read arrives", early),
];

/// The client must get exactly the good body.
fn whole(bench: &Bench, script: fn(&mut Exchange<'_>) -> std::io::Result<Then>) -> Verdict {
    let case = bench.case(script);
    let mut connection = bench.connect()?;
    for _ in 0..2 {
        connection.send(&post(&body(&case)))?;
        let reply = connection.reply()?;
        need(reply.status == 200 && reply.end == End::Complete, || format!("{} {:?}", reply.status, reply.end))?;
        need(reply.text() == GOOD, || format!("another body: {}", brief(&reply.text())))?;
    }
    Ok("twice the whole body".to_owned())
}

fn until_close(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{GOOD}"))?;
        Ok(Then::Close)
    });
    let reply = bench.ask(&case)?;
    need(reply.end == End::Complete && reply.text() == GOOD, || format!("{:?} {}", reply.end, brief(&reply.text())))?;
    Ok("the whole body".to_owned())
}

fn trailers(bench: &Bench) -> Verdict {
    whole(bench, |x| {
        let size = GOOD.len();
        x.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
             {size:x};a=b\r\n{GOOD}\r\n0\r\nX-Trailer: 1\r\n\r\n"
        ))?;
        Ok(Then::Keep)
    })
}

fn tiny(bench: &Bench) -> Verdict {
    whole(bench, |x| {
        x.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        for byte in GOOD.as_bytes() {
            x.chunk([*byte])?;
        }
        x.end()
    })
}

fn interim(bench: &Bench) -> Verdict {
    whole(bench, |x| {
        x.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")?;
        x.good()
    })
}

fn slow_head(bench: &Bench) -> Verdict {
    whole(bench, |x| {
        for byte in answer(200, "", GOOD.as_bytes()) {
            x.send([byte])?;
        }
        Ok(Then::Keep)
    })
}

fn early(bench: &Bench) -> Verdict {
    // The engine reads all of it in any case; what is looked at is that a refusal with close comes through.
    let case = bench.case(|x| {
        x.answer(400, "Connection: close\r\n", r#"{"error":{"message":"no"}}"#)?;
        Ok(Then::Close)
    });
    let large = body(&case).replacen("\"}", &format!("{}\"}}", "x".repeat(1 << 20)), 1);
    let reply = bench.call(&post(&large))?;
    need(reply.status == 400 && reply.text().contains("\"no\""), || format!("{}", reply.status))?;
    Ok("400 with its body".to_owned())
}

fn two_framings(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\nTransfer-Encoding: \
             chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        )?;
        Ok(Then::Close)
    });
    let reply = bench.ask(&case)?;
    let is_twice = reply.header("content-length").is_some() && reply.header("transfer-encoding").is_some();
    need(!is_twice, || "both framings came through".to_owned())?;
    need(reply.status >= 500 || reply.text() == "{}", || format!("{} {}", reply.status, brief(&reply.text())))?;
    Ok(format!("status {}", reply.status))
}

fn broken(bench: &Bench, bytes: &'static str) -> Verdict {
    let case = bench.case(move |x| {
        x.send(bytes)?;
        Ok(Then::Close)
    });
    let reply = bench.ask(&case)?;
    need(matches!(reply.status, 502..=504), || format!("status {}: {}", reply.status, brief(&reply.text())))?;
    Ok(format!("status {}, engines asked {} times", reply.status, case.seen().len()))
}

fn huge_head(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send("HTTP/1.1 200 OK\r\n")?;
        for at in 0..4096 {
            x.send(format!("X-{at}: {}\r\n", "x".repeat(1000)))?;
        }
        x.good()
    });
    let reply = bench.ask(&case)?;
    need(matches!(reply.status, 502..=504), || format!("status {} after a head of 4 MB", reply.status))?;
    Ok(format!("status {}", reply.status))
}

fn extra_bytes(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        let mut bytes = answer(200, "", b"{\"mine\":1}");
        bytes.extend(answer(200, "", b"{\"poison\":1}"));
        x.send(bytes)?;
        Ok(Then::Keep)
    });
    let good = bench.case(|x| {
        std::thread::sleep(Duration::from_millis(20));
        x.good()
    });
    let mut connection = bench.connect()?;
    for _ in 0..6 {
        connection.send(&post(&body(&case)))?;
        let reply = connection.reply()?;
        need(reply.text() == "{\"mine\":1}", || format!("its own answer is {}", brief(&reply.text())))?;
        for _ in 0..3 {
            connection.send(&post(&body(&good)))?;
            let reply = connection.reply().map_err(Fault::from)?;
            if reply.text().contains("poison") {
                return failed("the bytes behind one answer became the next request's answer");
            }
            need(reply.status == 200, || format!("the next request: status {}", reply.status))?;
        }
    }
    Ok("each request got its own answer".to_owned())
}
