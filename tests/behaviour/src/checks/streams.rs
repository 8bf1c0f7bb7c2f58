//! Event streams: each event at once, every byte as it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use llmgw_test_kit::raw::End;

use crate::check::{Bench, Check, SOON, Verdict, comes_true, failed, need, post, stream_body};
use crate::upstream::{STREAM_HEAD, Then};

pub(super) const CHECKS: &[Check] = &[
    Check::new("streams.at-once", "each event reaches the client before the engine sends the next", at_once),
    Check::new("streams.comments-at-once", "comments that keep a stream alive pass at once", comments),
    Check::new("streams.exact-bytes", "any line ends, a BOM and events in pieces pass byte for byte", exact),
    Check::new("streams.until-close", "a stream that ends with its connection ends well for the client", until_close),
    Check::new("streams.type", "a stream keeps its type and gets no length", kind),
    Check::new("streams.large-event", "an event of 4 MB passes whole", large_event),
    Check::new("streams.hundred-at-once", "100 streams at once each bring their own events", hundred),
    Check::new("streams.error-before-stream", "a refusal of a streaming request comes as it is", refusal),
    Check::new("streams.longer-than-limits", "a stream may be longer than the limit between its events", long),
];

/// The engine sends each piece when the client has the one before.
fn lock_step(bench: &Bench, pieces: &'static [&'static str]) -> Verdict {
    let received = Arc::new(AtomicUsize::new(0));
    let known = received.clone();
    let case = bench.case(move |x| {
        x.send(STREAM_HEAD)?;
        for (at, piece) in pieces.iter().enumerate() {
            let want = pieces.iter().take(at).map(|piece| piece.len()).sum::<usize>();
            if !comes_true(Duration::from_secs(2), || known.load(Ordering::SeqCst) >= want) {
                return Ok(Then::Reset);
            }
            x.chunk(piece)?;
        }
        x.end()
    });
    let mut connection = bench.connect()?;
    connection.send(&post(&stream_body(&case)))?;
    let head = connection.head()?;
    need(head.status == 200, || format!("status {}", head.status))?;
    let mut body = connection.body(&head);
    while let Some(piece) = body.piece()? {
        received.fetch_add(piece.len(), Ordering::SeqCst);
    }
    let (got, want) = (received.load(Ordering::SeqCst), pieces.concat().len());
    need(body.end() == End::Complete && got == want, || {
        format!("held back: {got} of {want} bytes came while the engine waited for them to arrive")
    })?;
    Ok(format!("{} pieces, each before the next", pieces.len()))
}

const EVENTS: &[&str] = &[
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
];

fn at_once(bench: &Bench) -> Verdict {
    lock_step(bench, EVENTS)
}

fn comments(bench: &Bench) -> Verdict {
    lock_step(
        bench,
        &[": ping\n\n", ": ping\n\n", ":\n\n", "data: {\"choices\":[]}\n\n", ": ping\n\n", "data: [DONE]\n\n"],
    )
}

fn exact(bench: &Bench) -> Verdict {
    let text = "\u{feff}data: {\"a\":1}\r\n\r\ndata:{\"b\":\"北京🦀\"}\r\rid: 7\nevent: x\ndata: {\"c\":\ndata: 2}\n\n: note\n\n\
                data: {\"choices\":[],\"usage\":null}\n\nretry: 5\n\ndata: [DONE]\n\n";
    let case = bench.case(move |x| {
        x.send(STREAM_HEAD)?;
        for piece in text.as_bytes().chunks(3) {
            x.chunk(piece)?;
        }
        x.end()
    });
    let reply = bench.call(&post(&stream_body(&case)))?;
    need(reply.body == text.as_bytes() && reply.end == End::Complete, || {
        format!("{} of {} bytes, {:?}", reply.body.len(), text.len(), reply.end)
    })?;
    Ok(format!("{} bytes, the same", text.len()))
}

fn until_close(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
        x.send(EVENTS.concat())?;
        Ok(Then::Close)
    });
    let reply = bench.call(&post(&stream_body(&case)))?;
    need(reply.end == End::Complete, || format!("{:?}", reply.end))?;
    need(reply.body == EVENTS.concat().as_bytes(), || format!("{} bytes, others", reply.body.len()))?;
    Ok("the whole stream".to_owned())
}

fn kind(bench: &Bench) -> Verdict {
    let case = bench.case(|x| {
        x.send(STREAM_HEAD.replacen("event-stream", "event-stream; charset=utf-8", 1))?;
        x.chunk(EVENTS.concat())?;
        x.end()
    });
    let reply = bench.call(&post(&stream_body(&case)))?;
    let kind = reply.header("content-type").unwrap_or("");
    need(kind == "text/event-stream; charset=utf-8", || format!("type {kind:?}"))?;
    need(reply.header("content-length").is_none(), || "it has a length".to_owned())?;
    Ok(kind.to_owned())
}

fn large_event(bench: &Bench) -> Verdict {
    let event = format!("data: {{\"choices\":[],\"x\":\"{}\"}}\n\n", "y".repeat(4 << 20));
    let (sent, want) = (event.clone(), format!("{event}data: [DONE]\n\n"));
    let case = bench.case(move |x| {
        x.send(STREAM_HEAD)?;
        x.chunk(&sent)?;
        x.chunk("data: [DONE]\n\n")?;
        x.end()
    });
    let reply = bench.call(&post(&stream_body(&case)))?;
    need(reply.body == want.as_bytes(), || format!("{} of {} bytes", reply.body.len(), want.len()))?;
    Ok("the same bytes".to_owned())
}

fn hundred(bench: &Bench) -> Verdict {
    let one = |at: usize| -> Verdict {
        let case = bench.case(move |x| {
            x.send(STREAM_HEAD)?;
            for event in 0..20 {
                x.chunk(format!("data: {{\"stream\":{at},\"event\":{event}}}\n\n"))?;
                std::thread::sleep(Duration::from_millis(5));
            }
            x.chunk("data: [DONE]\n\n")?;
            x.end()
        });
        let reply = bench.call(&post(&stream_body(&case)))?;
        let events = reply.events();
        let own = events.iter().filter(|event| event.starts_with(&format!("data: {{\"stream\":{at},"))).count();
        need(events.len() == 21 && own == 20 && reply.end == End::Complete, || format!("{} events", events.len()))?;
        Ok(String::new())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..100).map(|at| scope.spawn(move || one(at))).collect();
        for one in all {
            one.join().unwrap_or_else(|_| failed("a client panicked"))?;
        }
        Ok("2000 events, each in its own stream".to_owned())
    })
}

fn refusal(bench: &Bench) -> Verdict {
    let error = r#"{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}"#;
    let case = bench.case(move |x| x.answer(400, "", error));
    let reply = bench.call(&post(&stream_body(&case)))?;
    need(reply.status == 400 && reply.text() == error, || format!("{} {}", reply.status, reply.text()))?;
    need(reply.header("content-type") == Some("application/json"), || "another type".to_owned())?;
    Ok("400 with the engine's body".to_owned())
}

fn long(bench: &Bench) -> Verdict {
    let step = bench.limits.engine.unwrap_or(SOON) / 3;
    let case = bench.case(move |x| {
        x.send(STREAM_HEAD)?;
        for event in 0..5 {
            x.chunk(format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{event}\"}}}}]}}\n\n"))?;
            std::thread::sleep(step);
        }
        x.chunk("data: [DONE]\n\n")?;
        x.end()
    });
    let reply = bench.call(&post(&stream_body(&case)))?;
    let count = reply.events().len();
    need(count == 6 && reply.end == End::Complete, || format!("{count} events, {:?}", reply.end))?;
    Ok(format!("5 events, {step:?} apart"))
}
