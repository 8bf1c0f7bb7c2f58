//! How and when connections end: by a fault, by idleness, by the client; stalls and silence on the way.

use std::net::Shutdown;

use llmgw_engine_sim::EngineConfig;
use llmgw_engine_sim::record::Outcome;
use proptest::prelude::*;

use crate::support::{Client, Ending, chat, config, faulty, immediate, start, until};

#[test]
fn a_connection_ends_after_so_many_bytes_of_the_body() {
    let engine = immediate();
    let whole = Client::connect(&engine).chat_with("{}", false).body();
    for (reset, ending) in [(false, Ending::Closed), (true, Ending::Reset)] {
        for cut in [0, 1, 100, whole.len() - 1] {
            let mut client = Client::connect(&engine);
            client.start_chat_with(&format!(r#"{{"close_after_bytes":{cut},"reset":{reset}}}"#), false);
            client.head();
            let (body, ended) = client.rest();
            assert_eq!((body.len(), ended), (cut, ending));
        }
    }
    assert!(engine.requests()[1..].iter().all(|request| request.outcome == Outcome::Cut));
}

#[test]
fn a_cut_stream_has_begun_a_chunk_that_it_does_not_finish() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_chat_with(
        r#"{"close_after_bytes":300,"script":["data: {}\n\n","0123456789"],"framing":"chunked"}"#,
        true,
    );
    // The body is shorter than the cut: it is complete.
    assert_eq!(client.reply().body().len(), 20);
    client.start_chat_with(
        r#"{"close_after_bytes":15,"script":["data: {}\n\n","0123456789"],"framing":"chunked"}"#,
        true,
    );
    client.head();
    assert_eq!(client.chunk().as_deref(), Some(&b"data: {}\n\n"[..]));
    assert_eq!(client.rest(), (b"a\r\n01234".to_vec(), Ending::Closed));
}

#[test]
fn a_stream_ends_after_so_many_events_without_done() {
    let engine = immediate();
    for (reset, ending) in [(false, Ending::Closed), (true, Ending::Reset)] {
        let mut client = Client::connect(&engine);
        client.start_chat_with(&format!(r#"{{"close_after_events":4,"reset":{reset}}}"#), true);
        client.head();
        for _ in 0..4 {
            assert!(client.chunk().unwrap().starts_with(b"data: {"));
        }
        assert_eq!(client.rest(), (Vec::new(), ending));
    }
}

#[test]
fn a_reply_can_be_followed_by_a_close_announced_or_not() {
    let engine = immediate();
    for (fault, announced) in [("close_after_reply", None), ("connection_close", Some("close"))] {
        for stream in [false, true] {
            let mut client = Client::connect(&engine);
            let reply = client.chat_with(&format!(r#"{{"{fault}":true}}"#), stream);
            assert_eq!((reply.status, reply.header("connection")), (200, announced));
            assert_eq!(client.rest(), (Vec::new(), Ending::Closed), "{fault}");
        }
    }
    assert!(engine.requests().iter().all(|request| request.outcome == Outcome::Complete));
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let engine = faulty(r#"{"idle_close_us":20000}"#);
    let mut client = Client::connect(&engine);
    // Longer than the idle limit, but not idle.
    let reply = client.chat_with(r#"{"first_byte_delay_us":60000}"#, false);
    assert_eq!(reply.status, 200);
    assert_eq!(client.rest(), (Vec::new(), Ending::Closed));
    let engine = start(EngineConfig { keep_alive_ms: 1, ..config() });
    let mut client = Client::connect(&engine);
    client.get("/health");
    assert_eq!(client.rest(), (Vec::new(), Ending::Closed));
}

#[test]
fn a_stalled_stream_goes_on_when_it_is_released() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_chat_with(r#"{"stall_after_events":3}"#, true);
    client.head();
    let first: Vec<_> = (0..3).map(|_| client.chunk().unwrap()).collect();
    assert_eq!(engine.state().open_requests, 1);
    // Released until the stall has begun and ended.
    until("the stream goes on", || {
        engine.release();
        engine.state().open_requests == 0
    });
    let mut rest = Vec::new();
    while let Some(chunk) = client.chunk() {
        rest.push(chunk);
    }
    assert_eq!(first.len() + rest.len(), 7);
    let reply = Client::connect(&engine).chat_with(r#"{"stall_after_events":0,"stall_us":1}"#, true);
    assert_eq!(reply.chunks.len(), 7);
}

#[test]
fn a_blackhole_reads_and_never_answers() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_chat_with(r#"{"blackhole":true}"#, true);
    until("the request is read", || engine.requests().first().is_some_and(|request| request.body_bytes > 0));
    assert_eq!(engine.requests()[0].bytes_written, 0);
    until("it ends", || {
        engine.release();
        engine.requests()[0].outcome == Outcome::Cut
    });
    assert_eq!(client.rest(), (Vec::new(), Ending::Closed));
}

#[test]
fn a_client_that_leaves_is_noticed_at_once_whatever_the_engine_is_doing() {
    let mut cfg = config();
    cfg.batch.pace.tokens_per_second = 0.001;
    cfg.batch.max_num_seqs = 1;
    let engine = start(cfg);
    // Before the first byte in silence, before it in the batch, waiting for the batch, stalled, and in the blackhole.
    let whole = (r#"{"first_byte_delay_us":3600000000}"#, false);
    let faults = [
        whole,
        ("{}", false),
        ("{}", true),
        (r#"{"events":9,"delay_us":1000000000}"#, true),
        (r#"{"blackhole":true}"#, false),
    ];
    let mut clients = Vec::new();
    for (idx, (faults, stream)) in faults.iter().enumerate() {
        let mut client = Client::connect(&engine);
        client.start_chat_with(faults, *stream);
        until("it has arrived", || {
            let requests = engine.requests();
            requests.len() == idx + 1 && requests[idx].body_bytes > 0
        });
        clients.push(client);
    }
    until("all are under way", || {
        let state = engine.state();
        (state.running, state.waiting, state.self_paced, state.open_requests) == (1, 1, 1, 5)
    });
    for (idx, client) in clients.into_iter().enumerate() {
        let before = engine.now_ns();
        drop(client);
        until("the close is seen", || engine.requests()[idx].outcome == Outcome::ClientClosed);
        let seen = engine.requests()[idx].client_closed_at_ns.unwrap();
        assert!(seen >= before && seen <= engine.now_ns());
    }
    let state = engine.state();
    assert_eq!((state.running, state.waiting, state.self_paced, state.open_requests), (0, 0, 0, 0));
    assert_eq!((state.client_closed_requests, state.totals.aborted), (5, 2));
    until("no connection is left", || engine.state().open_connections == 0);
}

#[test]
fn a_client_that_resets_or_half_closes_or_leaves_in_its_body_is_gone_too() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_chat_with(r#"{"blackhole":true}"#, true);
    client.stream.shutdown(Shutdown::Write).unwrap();
    until("seen", || engine.state().client_closed_requests == 1);

    let mut client = Client::connect(&engine);
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf");
    until("arrived", || engine.requests().len() == 2);
    drop(client);
    until("seen", || engine.state().client_closed_requests == 2);

    // A reply of which nothing was read makes the client's close a reset.
    let mut client = Client::connect(&engine);
    client.start_chat_with(r#"{"stall_after_events":2}"#, true);
    until("written", || engine.requests().get(2).is_some_and(|request| request.bytes_written > 400));
    drop(client);
    until("seen", || engine.state().client_closed_requests == 3);
    assert_eq!(engine.requests()[2].outcome, Outcome::ClientClosed);
}

#[test]
fn a_client_that_stops_reading_stops_the_stream_and_nothing_else() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    client.start_chat_with(r#"{"body_mib":200}"#, true);
    client.head();
    let mut other = Client::connect(&engine);
    assert_eq!(other.chat(&chat(true)).status, 200);
    let written = engine.requests()[0].bytes_written;
    assert!(written < 100 << 20, "{written}");
    drop(client);
    until("seen", || engine.requests()[0].outcome == Outcome::ClientClosed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// However a script is cut into pieces, the body is the same.
    #[test]
    fn any_cut_of_a_script_gives_the_same_body(
        cuts in proptest::collection::vec(1usize..60, 0..6),
        framing in prop_oneof![Just("chunked"), Just("chunked-bytes"), Just("length"), Just("close")],
    ) {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"北京🦀\"}}]}\n\ndata: [DONE]\n\n";
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        let faults = serde_json::json!({ "script": pieces, "framing": framing }).to_string();
        let engine = immediate();
        let body = serde_json::json!({ "messages": [{ "content": format!("@@sim {faults} @@") }] }).to_string();
        let reply = Client::connect(&engine).chat(&body);
        prop_assert_eq!(reply.text(), text);
    }
}
