//! Tables of bodies that are taken and of bodies that are refused, with the words of the refusal.

use super::*;
use crate::reader::MAX_DEPTH;

fn check(body: &str) -> Scan {
    scan(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn refused(body: impl AsRef<[u8]>) -> (Option<&'static str>, String) {
    let error = scan(body.as_ref()).expect_err("must be refused");
    (error.param, error.message)
}

#[test]
fn bad_bodies_are_refused_with_place_and_remedy() {
    let cases: &[(&[u8], Option<&str>, &str)] = &[
        (b"", None, "the body is empty; expected a JSON object"),
        (b" \r\n", None, "the body is empty; expected a JSON object"),
        (b"[]", None, "the body is not a JSON object: expected `{` at byte 0"),
        (b" \"x\"", None, "the body is not a JSON object: expected `{` at byte 1"),
        (b"{}", Some("model"), "`model` is missing; name the model to use, as in \"model\": \"NAME\""),
        (br#"{"model":7}"#, Some("model"), "`model` at byte 9 must be a string: the name of a model"),
        (br#"{"model":null}"#, Some("model"), "`model` at byte 9 must be a string: the name of a model"),
        (br#"{"model":""}"#, Some("model"), "`model` at byte 9 is empty; name the model to use"),
        (
            br#"{"model":"a\ud800"}"#,
            Some("model"),
            "`model` at byte 9 holds half of a surrogate pair and so is no name; write the whole pair",
        ),
        (br#"{"model":"a"}x"#, None, "the body is not valid JSON at byte 13: found `x`, expected the end of the text"),
        (
            b"\xef\xbb\xbf{\"model\":\"a\"}",
            None,
            "the body begins with a byte order mark (EF BB BF) at byte 0; send the JSON without it",
        ),
        (b"{\"model\":\"a\xff\"}", None, "the body is not valid UTF-8 at byte 11; JSON is sent as UTF-8"),
        (
            b"{\"model\":\"a\nb\"}",
            None,
            "the body is not valid JSON at byte 11: found the control character byte 0x0a in a string, expected an escape such as `\\n`",
        ),
        (
            br#"{"model":"a","x":"\q"}"#,
            None,
            r#"the body is not valid JSON at byte 18: found an unknown escape, expected one of `\" \\ \/ \b \f \n \r \t` or `\u` and four hex digits"#,
        ),
        (
            br#"{"model":"a","#,
            None,
            "the body is not valid JSON at byte 13: found the end of the body, expected a key in double quotes",
        ),
        (br#"{"model":"a" "b":1}"#, None, "the body is not valid JSON at byte 13: found `\"`, expected `,` or `}`"),
        (br#"{"model":"a","b":01}"#, None, "the body is not valid JSON at byte 18: found `1`, expected `,` or `}`"),
        (br#"{"model":"a","b":[1,]}"#, None, "the body is not valid JSON at byte 20: found `]`, expected a value"),
        (br#"{"model":"a","b":1.}"#, None, "the body is not valid JSON at byte 19: found `}`, expected a digit"),
        (
            br#"{"model":"a","b":nul}"#,
            None,
            "the body is not valid JSON at byte 17: found `n`, expected `true`, `false` or `null`",
        ),
        (br#"{"model":"a","stream":"true"}"#, Some("stream"), "`stream` at byte 22 must be true, false or null"),
        (br#"{"model":"a","stream":1}"#, Some("stream"), "`stream` at byte 22 must be true, false or null"),
        (
            br#"{"model":"a","stream_options":[]}"#,
            Some("stream_options"),
            "`stream_options` at byte 30 must be an object or null",
        ),
        (
            br#"{"model":"a","stream_options":{"include_usage":1}}"#,
            Some("stream_options"),
            "`stream_options.include_usage` at byte 47 must be true, false or null",
        ),
    ];
    for (body, param, message) in cases {
        assert_eq!(refused(body), (*param, message.to_string()), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn a_field_that_engines_could_read_differently_is_refused_when_given_twice() {
    for (body, param) in [
        (r#"{"model":"a","model":"b"}"#, "model"),
        (r#"{"model":"a","mod\u0065l":"b"}"#, "model"),
        (r#"{"\u006d\u006f\u0064\u0065\u006c":"a","model":"b"}"#, "model"),
        (r#"{"model":"a","stream":null,"stream":true}"#, "stream"),
        (r#"{"model":"a","stream_options":null,"stream\u005foptions":{}}"#, "stream_options"),
        (r#"{"model":"a","stream_options":{"include_usage":null,"include_usage":true}}"#, "stream_options"),
    ] {
        let (found, message) = refused(body);
        assert_eq!(found, Some(param), "{body}");
        assert!(message.contains("a second time at byte "), "{message}");
    }
}

#[test]
fn an_escaped_key_is_the_same_field_and_an_escaped_name_is_decoded() {
    let body = r#"{"mod\u0065l":"\u6a21\u578b\ud83e\udd80", "\u0073tream" : true, "max\u005ftokens":5}"#;
    let scan = check(body);
    assert_eq!(scan.model(body.as_bytes()), "模型🦀");
    assert!(scan.is_streaming());
    assert_eq!(scan.max_tokens, Some(5));
}

#[test]
fn a_field_inside_another_is_not_ours() {
    let body = r#"{"metadata":{"model":"x","stream":true},"messages":[{"model":"y"}],"model":"a"}"#;
    let scan = check(body);
    assert_eq!((scan.model(body.as_bytes()).as_ref(), scan.stream), ("a", None));
}

#[test]
fn depth_is_bounded_and_refused_at_the_bound() {
    let nested = |levels: usize| format!(r#"{{"model":"a","x":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    check(&nested(MAX_DEPTH as usize - 1));
    let (_, message) = refused(nested(MAX_DEPTH as usize));
    assert_eq!(message, "the body is not valid JSON at byte 144: nested too deeply, expected at most 128 levels");
    let objects = format!(r#"{{"model":"a","x":{}1{}}}"#, r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    assert!(refused(objects).1.contains("nested too deeply"));
    assert!(refused("{\"a\":".repeat(10_000)).1.contains("nested too deeply"));
    assert!(refused("[".repeat(10_000)).1.contains("not a JSON object"));
}

#[test]
fn limits_that_are_not_plain_integers_are_left_to_the_engine() {
    for (value, expected) in [
        ("5", Some(5)),
        ("0", Some(0)),
        ("null", None),
        ("-1", None),
        ("1.0", None),
        ("1e2", None),
        ("\"5\"", None),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("[5]", None),
    ] {
        let scan = check(&format!(r#"{{"model":"a","max_tokens":{value},"n":{value}}}"#));
        assert_eq!((scan.max_tokens, scan.n), (expected, expected), "{value}");
    }
    let scan = check(r#"{"model":"a","max_tokens":5,"max_completion_tokens":9,"max_output_tokens":null}"#);
    assert_eq!(scan.output_limit(), Some(9));
    assert_eq!(check(r#"{"model":"a"}"#).output_limit(), None);
}

#[test]
fn texts_and_spans_are_found_where_they_are() {
    let body = r#" { "model" : "a" , "user":"u\n", "prompt_cache_key":"k","cache_salt":"s","previous_response_id":7,
        "priority" : -3 , "messages": [ 1 ] ,"tools":null,"input":"x"} "#;
    let (scan, bytes) = (check(body), body.as_bytes());
    assert_eq!(scan.user.unwrap().read(bytes), "u\n");
    assert_eq!(scan.prompt_cache_key.unwrap().read(bytes), "k");
    assert_eq!(scan.cache_salt.unwrap().read(bytes), "s");
    assert_eq!(scan.previous_response_id, None);
    assert_eq!(scan.priority.unwrap().of(bytes), b"-3");
    assert_eq!(scan.prompts.messages.unwrap().of(bytes), b"[ 1 ]");
    assert_eq!(scan.prompts.tools, None);
    assert_eq!(scan.prompts.input.unwrap().of(bytes), b"\"x\"");
    assert_eq!((scan.insert_at, scan.is_empty), (2, false));
}

#[test]
fn stream_options_are_read_inside() {
    let on = |body: &str| check(body).asks_for_usage();
    assert!(on(r#"{"model":"a","stream_options":{"x":[],"include_usage":true}}"#));
    assert!(on(r#"{"model":"a","stream_options":{"includ\u0065_usage":true}}"#));
    assert!(!on(r#"{"model":"a","stream_options":{"include_usage":null}}"#));
    assert!(!on(r#"{"model":"a","stream_options":{"x":{"include_usage":true}}}"#));
    assert!(!on(r#"{"model":"a","stream_options":null}"#));
    assert!(!on(r#"{"model":"a"}"#));
}
