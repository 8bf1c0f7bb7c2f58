//! Properties over generated inputs: any split gives the same result, the scan agrees with another JSON reader, and
//! edits leave everything else alone.

mod common;

use std::collections::BTreeMap;

use common::{edited, relay, split};
use llmgw_openai::scan::scan;
use llmgw_openai::sse::Splitter;
use llmgw_openai::tap::Withhold;
use proptest::prelude::*;
use serde_json::value::RawValue;

/// JSON text of any shape, with odd spacing, number forms and escapes.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?",
        string_text(),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), space())
                .prop_map(|(items, gap)| { format!("[{gap}{}{gap}]", items.join(&format!("{gap},{gap}"))) }),
            (prop::collection::vec((string_text(), inner), 0..5), space()).prop_map(|(members, gap)| {
                let members: Vec<_> = members.iter().map(|(key, value)| format!("{key}{gap}:{gap}{value}")).collect();
                format!("{{{gap}{}{gap}}}", members.join(&format!("{gap},")))
            }),
        ]
    })
}

fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "\r\n\t", "  "])
}

fn string_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ -!#-\\[\\]-~]{0,12}",
        1 => Just("模型🦀é".to_owned()),
        1 => prop::sample::select(vec!["\\n", "\\\"", "\\\\", "\\/", "\\u00e9", "\\ud83e\\udd80", "\\u0000"]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// A request: a model, and other fields around it.
fn request() -> impl Strategy<Value = String> {
    let options = prop::sample::select(vec![
        None,
        Some("null"),
        Some("{}"),
        Some("{ }"),
        Some(r#"{"include_usage":false}"#),
        Some(r#"{"include_usage":true,"x":[]}"#),
        Some(r#"{ "x" : {"include_usage":true} , "continuous_usage_stats" : true }"#),
        Some(r#"{"continuous_usage_stats":true,"include_usage":null}"#),
    ]);
    let others = prop::collection::vec(("\"x[a-z0-9]{1,8}\"", json_text()), 0..5);
    let priority = prop::option::of("-?[1-9][0-9]{0,3}");
    (string_text(), options, others, priority, space()).prop_flat_map(|(model, options, others, priority, gap)| {
        let model = if model == "\"\"" { "\"m\"".to_owned() } else { model };
        let mut members = vec![format!("\"model\"{gap}:{gap}{model}"), format!("\"stream\":{gap}true")];
        members.extend(options.map(|options| format!("\"stream_options\":{options}")));
        members.extend(priority.map(|priority| format!("\"priority\":{priority}")));
        members.extend(others.iter().enumerate().map(|(idx, (key, value))| {
            let key = key.trim_matches('"');
            format!("\"{key}{idx}\"{gap}:{value}")
        }));
        Just(members)
            .prop_shuffle()
            .prop_map(move |members| format!("{gap}{{{gap}{}{gap}}}{gap}", members.join(&format!("{gap},{gap}"))))
    })
}

/// One change to a text, in the middle of it.
fn mutation() -> impl Strategy<Value = (prop::sample::Index, u8, u8)> {
    let byte = prop_oneof![prop::sample::select(b"{}[],:\"\\ \n0-9.eEtfnu\x00\x1f\x7f\xff\xc3".to_vec()), any::<u8>()];
    (any::<prop::sample::Index>(), 0..4u8, byte)
}

/// Whether another reader takes the text for one JSON object in UTF-8.
fn is_json_object(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok()
        && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
        && text.trim_ascii_start().starts_with(b"{")
}

fn agree(text: &[u8]) -> Result<(), TestCaseError> {
    match scan(text) {
        Ok(_) => prop_assert!(is_json_object(text), "taken: {}", String::from_utf8_lossy(text)),
        // An error about a field of ours says nothing on the rest of the text.
        Err(error) if error.param.is_some() => {}
        Err(error) => prop_assert!(!is_json_object(text), "{error}: {}", String::from_utf8_lossy(text)),
    }
    Ok(())
}

/// A stream of pieces that are likely to meet in odd ways.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let piece = prop::sample::select(vec![
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\r\n\r\n",
        "\r\r",
        ": ping",
        "data",
        "data:",
        "data: ",
        ":",
        "\u{feff}",
        "event: error",
        "模",
        "data: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\n\n",
        usage,
        "\"usage\":",
        "{",
        "}",
        "[DONE]",
        "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":9}}\r\n\r\n",
        "data: {\"error\":{}}\r\r",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

/// Events as (start, end, class, data) in the whole stream.
fn events(chunks: &[&[u8]]) -> Vec<(usize, usize, String)> {
    let mut splitter = Splitter::new();
    let mut seen: Vec<(usize, usize, String)> = Vec::new();
    let mut before = 0;
    for chunk in chunks {
        if splitter.begin(chunk) == 1 {
            seen.last_mut().unwrap().1 += 1;
        }
        while let Some(event) = splitter.next_event(chunk) {
            let end = before + event.end;
            let text = format!("{:?} {:?} {:?}", event.class, event.name, event.data);
            seen.push((end - event.bytes.len(), end, text));
        }
        before += chunk.len();
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_scan_takes_every_generated_request(body in request()) {
        prop_assert!(is_json_object(body.as_bytes()));
        let found = scan(body.as_bytes());
        prop_assert!(found.is_ok(), "{:?}: {body}", found);
    }

    #[test]
    fn the_scan_agrees_with_another_reader_on_mutated_requests(
        body in request(), mutations in prop::collection::vec(mutation(), 1..4)
    ) {
        let mut text = body.into_bytes();
        for (place, kind, byte) in mutations {
            let at = place.index(text.len() + 1);
            match kind {
                0 => text.insert(at, byte),
                1 if at < text.len() => text[at] = byte,
                2 if at < text.len() => drop(text.remove(at)),
                _ if byte < 32 => text.truncate(at),
                _ => {}
            }
        }
        agree(&text)?;
    }

    #[test]
    fn the_scan_agrees_with_another_reader_on_loose_tokens(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\\", "\\u", "00e9", " ", "\n", "0", "1", "-", ".", "e", "+", "true", "null", "fals", "é",
        ]), 0..12)
    ) {
        agree(format!("{{\"model\":\"a\",\"x\":{}}}", tokens.concat()).as_bytes())?;
        agree(format!("{{\"model\":\"a\"{}", tokens.concat()).as_bytes())?;
        agree(tokens.concat().as_bytes())?;
    }

    #[test]
    fn edits_change_their_fields_and_nothing_else(body in request(), name in "[ -~模\n]{1,12}", priority: i64) {
        let out = edited(body.as_bytes(), |edits, scan| {
            edits.priority(scan, priority);
            edits.served_model(scan, Box::leak(name.clone().into_boxed_str()));
            edits.include_usage(scan);
        });
        let members = |text: &[u8]| -> BTreeMap<String, String> {
            let members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(text).unwrap();
            members.into_iter().map(|(key, value)| (key, value.get().to_owned())).collect()
        };
        let (mut before, mut after) = (members(body.as_bytes()), members(&out));
        let mut spliced = |name: &str| {
            before.remove(name);
            serde_json::from_str::<serde_json::Value>(&after.remove(name).unwrap()).unwrap()
        };
        prop_assert_eq!(spliced("model"), name);
        prop_assert_eq!(spliced("priority"), priority);
        let options = spliced("stream_options");
        prop_assert_eq!(&options["include_usage"], true);
        prop_assert_ne!(&options["continuous_usage_stats"], true);
        prop_assert_eq!(before, after);
        // The edited body is itself one that the scan takes.
        prop_assert!(scan(&out).unwrap().asks_for_usage());
    }

    #[test]
    fn any_split_gives_the_same_events(stream in stream(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        let whole = events(&[&stream]);
        prop_assert_eq!(&events(&split(&stream, &cuts)), &whole);
        prop_assert_eq!(&events(&stream.chunks(1).collect::<Vec<_>>()), &whole);
        // Events follow each other without a gap.
        let mut from = 0;
        for (start, end, _) in &whole {
            prop_assert_eq!(*start, from);
            from = *end;
        }
    }

    #[test]
    fn any_split_sends_and_learns_the_same(stream in stream(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        let (sent, _) = relay(Withhold::Nothing, split(&stream, &cuts));
        prop_assert_eq!(&sent, &stream);
        for withhold in [Withhold::Nothing, Withhold::UsageEvent] {
            let whole = relay(withhold, [&stream[..]]);
            prop_assert_eq!(&relay(withhold, split(&stream, &cuts)), &whole);
            prop_assert_eq!(&relay(withhold, stream.chunks(1)), &whole);
        }
    }
}
