//! Forms as clients write them, forms that are refused, and forms of any content.

use proptest::prelude::*;

use super::*;

const B: &str = "X7-b";

fn part(name: &str, content: &str) -> String {
    format!("--{B}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
}

fn file(content: &str) -> String {
    format!(
        "--{B}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n{content}\r\n"
    )
}

fn whole(parts: &[String]) -> String {
    format!("{}--{B}--\r\n", parts.concat())
}

#[track_caller]
fn check(body: &str, model: &str, is_streaming: bool) {
    let form = form(body.as_bytes(), B.as_bytes()).unwrap_or_else(|error| panic!("{error}: {body}"));
    assert_eq!((form.model(body.as_bytes()), form.is_streaming), (model, is_streaming), "{body}");
}

#[track_caller]
fn refused(body: &str, param: Option<&str>, part: &str) {
    let error = form(body.as_bytes(), B.as_bytes()).expect_err(body);
    assert_eq!(error.param, param, "{error}");
    assert!(error.message.contains(part), "{error}");
}

#[test]
fn the_model_is_found_wherever_it_stands() {
    let audio = "RIFF\0\0\r\n--X7\r\n--X7-bb\r\n-- \0\u{1}\r\n";
    check(&whole(&[part("model", "whisper"), file(audio)]), "whisper", false);
    check(&whole(&[file(audio), part("language", "en"), part("model", "org/w:7b")]), "org/w:7b", false);
    check(&whole(&[file(""), part("stream", "true"), part("model", "模型")]), "模型", true);
    check(&whole(&[part("stream", "false"), part("model", " w "), part("prompt", "")]), " w ", false);
    check(&format!("\r\n{}an epilogue\r\n--{B}\r\n", whole(&[part("model", "w")])), "w", false);
    let spelled = format!("--{B}\r\ncontent-disposition:form-data;NAME=model\r\nX-Y: z\r\n\r\nw\r\n--{B}--");
    check(&spelled, "w", false);
    let escaped = part("a", "").replace("\"a\"", r#""a\"b"; filename="C:\dir\x\\""#);
    check(&whole(&[escaped, part("model", "w")]), "w", false);
    // A word in another part, or in a file's name, is no model.
    let decoy = file("x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nno").replace("a.wav", "name=model");
    check(&whole(&[decoy, part("model", "yes")]), "yes", false);
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    refused(&whole(&[file("x")]), Some("model"), "missing");
    refused(&whole(&[part("model", "a"), part("model", "b")]), Some("model"), "second time");
    refused(&whole(&[part("model", "a"), part("stream", "1"), part("stream", "0")]), Some("stream"), "second time");
    refused(&whole(&[part("model", "")]), Some("model"), "empty");
    refused(&whole(&[file("x").replace("\"file\"", "\"model\"")]), Some("model"), "file");
    let encoded = part("model", "YQ==").replace("\r\n\r\n", "\r\nContent-Transfer-Encoding: base64\r\n\r\n");
    refused(&whole(&[encoded]), Some("model"), "encoding");
    refused(&whole(&[part("model", "a").replace("name=\"model\"", "name*=UTF-8''model")]), None, "extended");
    refused(&whole(&[part("model", "a").replace("name=", "name=x; name=")]), None, "twice");
    refused(&whole(&[part("model", "a").replace("form-data;", "attachment;")]), None, "not form-data");
    refused(&whole(&[part("model", "a").replace("; name=\"model\"", "")]), None, "no name");
    refused(&whole(&[part("model", "a").replace("\"model\"", "\"model")]), None, "cannot be read");
    let twice = part("model", "a").replace("\r\n\r\n", "\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n");
    refused(&whole(&[twice]), None, "twice");
    refused(&whole(&[part("model", "a").replacen("X7-b\r\n", "X7-b \r\n", 1)]), None, "blanks");
    refused(&format!("preamble\r\n{}", whole(&[part("model", "a")])), None, "begin");
    refused(&whole(&[part("model", "a")]).replace("Content-Disposition", "\nContent-Disposition"), None, "no header");
    refused(&format!("--{B}\r\n\r\nx\r\n--{B}--"), None, "no Content-Disposition");
    refused(&format!("--{B}\r\nX: {}\r\n\r\nx\r\n--{B}--", "y".repeat(PART_HEAD_BYTES)), None, "longer");
    refused(&whole(&vec![part("a", "b"); PARTS_MAX + 1]), None, "more than");
    refused("", None, "begin");
    refused("{\"model\":\"m\"}", None, "begin");
}

#[test]
fn as_many_parts_as_the_bound_says_pass() {
    let mut parts = vec![part("a", "b"); PARTS_MAX - 1];
    parts.push(part("model", "w"));
    check(&whole(&parts), "w", false);
}

#[test]
fn a_form_cut_anywhere_before_its_end_is_refused() {
    let body = whole(&[part("model", "w"), file("abc")]);
    let end = body.len() - "\r\n".len();
    for cut in 0..end {
        assert!(form(&body.as_bytes()[..cut], B.as_bytes()).is_err(), "{cut}: {}", &body[..cut]);
    }
    assert!(form(&body.as_bytes()[..end], B.as_bytes()).is_ok());
}

#[test]
fn boundaries_are_read_as_clients_write_them() {
    for (value, expected) in [
        ("multipart/form-data; boundary=----WebKitFormBoundary7MA4", "----WebKitFormBoundary7MA4"),
        ("Multipart/Form-Data;charset=utf-8; BOUNDARY=\"a b:c\" ;", "a b:c"),
        ("multipart/form-data;boundary=0123", "0123"),
    ] {
        assert_eq!(boundary(value.as_bytes()).unwrap().as_ref(), expected.as_bytes(), "{value}");
    }
    let long = format!("multipart/form-data; boundary={}", "x".repeat(BOUNDARY_BYTES + 1));
    for value in [
        "",
        "application/json",
        "multipart/mixed; boundary=a",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"a",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a b",
        "multipart/form-data; boundary=\"a\u{e9}\"",
        &long,
    ] {
        assert!(boundary(value.as_bytes()).is_err(), "{value}");
    }
}

fn spliced(body: &[u8], form: &Form, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for segment in form.with_model(body.len(), name) {
        match segment {
            Segment::Keep(range) => out.extend_from_slice(&body[range]),
            Segment::Insert(bytes) => out.extend_from_slice(bytes),
        }
    }
    out
}

proptest! {
    #[test]
    fn any_content_passes_and_only_the_name_is_spliced(
        before in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..4),
        after in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..4),
        model in "[a-zA-Z0-9/:._-]{1,24}",
        other in "[a-zA-Z0-9/:._-]{1,24}",
    ) {
        let delimiter = format!("\r\n--{B}");
        let raw = |name: &str, content: &[u8]| {
            let head = format!("--{B}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            [head.as_bytes(), content, b"\r\n"].concat()
        };
        for content in before.iter().chain(&after) {
            prop_assume!(memchr::memmem::find(&[b"\r\n", &content[..], b"\r\n"].concat(), delimiter.as_bytes()).is_none());
        }
        let with = |name: &str| {
            let mut body: Vec<u8> = before.iter().flat_map(|content| raw("file", content)).collect();
            body.extend(raw("model", name.as_bytes()));
            body.extend(after.iter().flat_map(|content| raw("x", content)));
            body.extend_from_slice(format!("--{B}--\r\n").as_bytes());
            body
        };
        let body = with(&model);
        let form = form(&body, B.as_bytes()).unwrap();
        prop_assert_eq!(form.model(&body), &model);
        prop_assert_eq!(spliced(&body, &form, &other), with(&other));
    }

    #[test]
    fn no_bytes_make_the_reader_fail(body in prop::collection::vec(any::<u8>(), 0..512), head in any::<Vec<u8>>()) {
        let _ = boundary(&head);
        let _ = form(&[format!("--{B}\r\n").as_bytes(), &body].concat(), B.as_bytes());
    }
}
