//! Request bodies that have broken other gateways: refused with reason, or passed on byte for byte.

mod common;

use common::edited;
use llmgw_openai::patch::Edits;
use llmgw_openai::scan::scan;

const MIB: usize = 1024 * 1024;

#[test]
fn a_bad_body_names_the_field_or_the_place() {
    let deep = format!(r#"{{"model":"a","x":{}"#, "[".repeat(10_000));
    let cases: &[(&[u8], Option<&str>)] = &[
        (b"", None),
        (b"[]", None),
        (br#"{"model":7}"#, Some("model")),
        (br#"{"messages":[]}"#, Some("model")),
        (deep.as_bytes(), None),
        (br#"{"model":"a"} trailing"#, None),
        (br#"{"model":"a"}{"model":"b"}"#, None),
        (b"\xef\xbb\xbf{\"model\":\"a\"}", None),
        (b"{\"model\":\"\xc3\x28\"}", None),
        (b"\x00", None),
    ];
    for (body, param) in cases {
        let error = scan(body).expect_err("must be refused");
        assert_eq!(error.param, *param, "{error}");
        let says_where = error.message.contains("at byte ") || error.message.contains("empty");
        assert!(says_where || *param == Some("model"), "{error}");
    }
}

#[test]
fn lone_surrogate_escapes_are_legal_text_and_pass_untouched() {
    let body = format!(r#"{{"model":"a","stream":true,"prompt":"{}"}}"#, r"\ud800".repeat(MIB / 6));
    let out = edited(body.as_bytes(), |edits, scan| edits.served_model(scan, "b"));
    assert_eq!(out, body.replacen(r#""a""#, r#""b""#, 1).as_bytes());
}

/// Thirty tools, odd spacing, unknown fields, numbers and escapes in forms that a rebuilt body would lose.
fn odd_body() -> String {
    let tools: Vec<String> = (0..30)
        .map(|idx| {
            format!(r#"{{"type" : "function","function":{{ "name":"t{idx}","parameters":{{"z":1.0,"a":1e2,"é":"\u00e9"}} }} }}"#)
        })
        .collect();
    format!(
        "{{\r\n\t\"zeta\" : [ 1.0 , 1e2,1E+2, -0, -0.0, 1e400 ] ,\"seed\":9007199254740993,\n \"tools\":[{}] , \"model\" :\t\"alias\" , \
         \"arguments\":-9223372036854775808,\"stream\":true, \"a\":{{ }} }} \n",
        tools.join(" ,\n")
    )
}

#[test]
fn only_the_spliced_fields_differ_from_what_the_client_sent() {
    let body = odd_body();
    assert_eq!(edited(body.as_bytes(), |_, _| {}), body.as_bytes());
    let out = edited(body.as_bytes(), |edits, scan| {
        edits.include_usage(scan);
        edits.served_model(scan, "org/m:7b@q4");
    });
    let expected = body.replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1).replacen(
        "\"alias\"",
        "\"org/m:7b@q4\"",
        1,
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn large_integers_and_exponents_keep_every_digit() {
    let body = odd_body();
    let out = edited(body.as_bytes(), |edits, scan| edits.served_model(scan, "m"));
    let out = String::from_utf8(out).unwrap();
    for number in ["9007199254740993", "-9223372036854775808", "1e400", "-0.0", "1E+2"] {
        assert_eq!(out.matches(number).count(), body.matches(number).count(), "{number}");
    }
}

#[test]
fn every_form_of_prompt_is_forwarded_and_counted() {
    for (field, value) in [
        ("prompt", r#""a string of text""#),
        ("prompt", r#"["two","strings"]"#),
        ("prompt", "[1,2,3,40000]"),
        ("prompt", "[[1,2],[3,4]]"),
        ("input", r#""a string""#),
        ("input", r#"["a","b"]"#),
        ("input", "[1,2]"),
        ("input", "[[1],[2]]"),
        ("input", r#"[{"role":"user","content":[{"type":"input_text","text":"x"}]}]"#),
        ("messages", r#"[{"role":"user","content":"x"}]"#),
        ("system", r#""s""#),
        ("instructions", r#""s""#),
        ("tools", r#"[{"type":"function"}]"#),
    ] {
        let body = format!(r#"{{"model":"a","{field}":{value}}}"#);
        let scan = scan(body.as_bytes()).unwrap();
        let spans: Vec<_> = scan.prompts.each().map(|span| span.of(body.as_bytes())).collect();
        assert_eq!(spans, [value.as_bytes()], "{body}");
        assert_eq!(scan.prompt_tokens_estimate(), value.len().div_ceil(4) as u64, "{body}");
    }
    assert_eq!(scan(br#"{"model":"a"}"#).unwrap().prompt_tokens_estimate(), 0);
}

#[test]
fn null_is_absent_and_what_is_not_used_is_not_judged() {
    let body = r#"{"model":"a","stream":null,"logprobs":null,"stream_options":null,"max_tokens":null,"n":null,"user":null,
        "tools":[{"type":"function","function":{"name":"f"}}],"min_tokens":0,"temperature":"hot","messages":null,"user":7}"#;
    let scan = scan(body.as_bytes()).unwrap();
    assert_eq!((scan.stream, scan.max_tokens, scan.n), (None, None, None));
    assert!(scan.user.is_none() && scan.prompts.messages.is_none() && !scan.asks_for_usage());
    let mut edits = Edits::new();
    edits.include_usage(&scan);
    assert!(edits.is_empty());
}
