//! Streams, each cut at every byte, against what a client must understand of them.

use super::*;

#[derive(Debug, PartialEq, Clone)]
struct Seen {
    bytes: String,
    class: Class,
    data: String,
    name: String,
}

/// The events of a stream that comes in `chunks`, and its incomplete tail.
fn events(chunks: &[&[u8]]) -> (Vec<Seen>, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut splitter = Splitter::new();
    let mut seen: Vec<Seen> = Vec::new();
    for chunk in chunks {
        let lead = splitter.begin(chunk);
        if lead > 0 {
            seen.last_mut().unwrap().bytes.push('\n');
        }
        while let Some(Event { bytes, class, data, name, .. }) = splitter.next_event(chunk) {
            seen.push(Seen { bytes: text(bytes), class, data: text(&data), name: text(name) });
        }
    }
    (seen, text(splitter.tail()))
}

#[test]
fn line_ends_comments_names_and_data_are_read_as_clients_read_them() {
    use Class::{Comment, Data, Done};
    /// The stream; per event its bytes, class, data and name; the tail.
    type Case = (&'static str, &'static [(&'static str, Class, &'static str, &'static str)], &'static str);
    let cases: &[Case] = &[
        (
            "data: a\n\ndata: [DONE]\n\n",
            &[("data: a\n\n", Data, "a", ""), ("data: [DONE]\n\n", Done, "[DONE]", "")],
            "",
        ),
        ("data: a\r\n\r\ndata:b\r\n\r\n", &[("data: a\r\n\r\n", Data, "a", ""), ("data:b\r\n\r\n", Data, "b", "")], ""),
        ("data: a\r\rdata: b\r\r", &[("data: a\r\r", Data, "a", ""), ("data: b\r\r", Data, "b", "")], ""),
        ("data: a\n\r\ndata: b\r\n\n", &[("data: a\n\r\n", Data, "a", ""), ("data: b\r\n\n", Data, "b", "")], ""),
        ("data: a\r\n\rdata: b\n\r", &[("data: a\r\n\r", Data, "a", ""), ("data: b\n\r", Data, "b", "")], ""),
        (
            "data: {\"a\":1,\r\ndata: \"usage\":{}}\r\n\r\n",
            &[("data: {\"a\":1,\r\ndata: \"usage\":{}}\r\n\r\n", Data, "{\"a\":1,\n\"usage\":{}}", "")],
            "",
        ),
        (
            "\u{feff}data: a\n\n\u{feff}data: b\n\n",
            &[("\u{feff}data: a\n\n", Data, "a", ""), ("\u{feff}data: b\n\n", Comment, "", "")],
            "",
        ),
        (
            ": ping\n\n:\n\ndata: a\n\n",
            &[(": ping\n\n", Comment, "", ""), (":\n\n", Comment, "", ""), ("data: a\n\n", Data, "a", "")],
            "",
        ),
        (
            "event: done\nid: 7\ndata:  a \n: c\n\n",
            &[("event: done\nid: 7\ndata:  a \n: c\n\n", Data, " a ", "done")],
            "",
        ),
        ("event: ping\n\n", &[("event: ping\n\n", Comment, "", "ping")], ""),
        ("data\ndata\n\n", &[("data\ndata\n\n", Data, "\n", "")], ""),
        ("database: x\n\ndata:\n\n", &[("database: x\n\n", Comment, "", ""), ("data:\n\n", Data, "", "")], ""),
        (
            "\n\r\n\rdata: a\n\n\n",
            &[
                ("\n", Comment, "", ""),
                ("\r\n", Comment, "", ""),
                ("\r", Comment, "", ""),
                ("data: a\n\n", Data, "a", ""),
                ("\n", Comment, "", ""),
            ],
            "",
        ),
        ("data: 北京🦀\n\ndata: x\n", &[("data: 北京🦀\n\n", Data, "北京🦀", "")], "data: x\n"),
        ("data: a\n\ndata: [DO", &[("data: a\n\n", Data, "a", "")], "data: [DO"),
        ("", &[], ""),
    ];
    for (stream, expected, tail) in cases {
        let expected: Vec<Seen> = expected
            .iter()
            .map(|&(bytes, class, data, name)| Seen {
                bytes: bytes.into(),
                class,
                data: data.into(),
                name: name.into(),
            })
            .collect();
        // The tail can hold half a character in mid-cut, but never at the end of these streams.
        let check = |chunks: &[&[u8]]| assert_eq!(events(chunks), (expected.clone(), tail.to_string()), "{chunks:?}");
        let bytes = stream.as_bytes();
        check(&[bytes]);
        check(&bytes.chunks(1).collect::<Vec<_>>());
        for cut in 0..=bytes.len() {
            check(&[&bytes[..cut], &[], &bytes[cut..]]);
        }
    }
}

#[test]
fn an_event_too_large_to_keep_is_bounded_and_the_next_one_is_whole() {
    let large = format!("data: {}\n\n", "x".repeat(3 * KEPT_EVENT_BYTES));
    let stream = large.clone() + "data: [DONE]\n\n";
    let mut splitter = Splitter::new();
    let mut seen = Vec::new();
    for chunk in stream.as_bytes().chunks(1000) {
        splitter.begin(chunk);
        while let Some(event) = splitter.next_event(chunk) {
            seen.push((event.bytes.len(), event.is_cut, event.class));
        }
        assert!(splitter.tail().len() <= KEPT_EVENT_BYTES);
    }
    assert_eq!(seen, [(KEPT_EVENT_BYTES, true, Class::Data), (14, false, Class::Done)]);
}

#[test]
fn an_end_without_a_blank_line_is_still_an_event() {
    let mut splitter = Splitter::new();
    let chunk = b"data: a\n\ndata: [DONE]";
    splitter.begin(chunk);
    assert!(splitter.next_event(chunk).is_some());
    assert!(splitter.next_event(chunk).is_none());
    assert_eq!(splitter.end().unwrap().class, Class::Done);
    assert!(splitter.end().is_none());
}

#[test]
fn our_own_error_event_is_valid_whatever_its_message_holds() {
    let message = "engine said \"no\"\nand\r\n\r\nleft \u{0} 模型";
    let mut out = Vec::new();
    error_event(&mut out, &ErrorBody { message, kind: "server_error", param: None, code: Some("upstream_closed") });
    let (seen, tail) = events(&[&out]);
    assert_eq!((seen.len(), tail.as_str()), (1, ""));
    let value: serde_json::Value = serde_json::from_str(&seen[0].data).unwrap();
    assert_eq!(value["error"]["message"], message);
    assert_eq!(value["error"]["code"], "upstream_closed");
}

#[test]
fn our_own_comment_is_one_comment() {
    let mut out = Vec::new();
    comment(&mut out, "still\n\nqueued");
    assert_eq!(out, b": still  queued\n\n");
}
