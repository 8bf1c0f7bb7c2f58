//! Engines that say `[DONE]` and then do not end their answer as HTTP wants it.

use llmgw_test_kit::raw::End;
use serde_json::json;

use crate::streams::rig::{DONE, Rig, event, scripted_as};
use crate::streams::sse;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[test]
fn a_client_that_got_the_end_marker_gets_a_proper_end_however_the_engine_goes_on() {
    let rig = Rig::start();
    let whole = [event("first"), DONE.to_owned()].concat();
    let cases = [
        ("the connection closes without the last chunk", json!([HEAD, chunk(&whole)])),
        ("nothing more comes", json!([HEAD, chunk(&whole), ["0\r\n\r\n", 120_000_000]])),
        ("what follows is no chunk", json!([HEAD, chunk(&whole), ["zz\r\n", 20_000]])),
    ];
    for (name, script) in cases {
        let reply = rig.ask(scripted_as("raw", script));
        assert_eq!((reply.status, reply.end), (200, End::Complete), "{name}: {}", reply.text());
        assert_eq!(sse::data(&reply.body).len(), 2, "{name}: {}", reply.text());
        assert!(reply.text().ends_with(DONE), "{name}: {}", reply.text());
        rig.wait_until_idle();
    }
    assert_eq!(rig.count("llmgw_broken_streams_total", &[]), 0);
    rig.finish();
}
