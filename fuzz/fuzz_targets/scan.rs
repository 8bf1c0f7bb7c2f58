//! Request scan and edits: agrees with another reader on what is JSON, and edits leave a body that is taken again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_openai::error::{Wrapping, wrap};
use llmgw_openai::patch::{Edits, Segment};
use llmgw_openai::scan::scan;
use llmgw_openai::usage::of_body;

fuzz_target!(|body: &[u8]| {
    let is_object = std::str::from_utf8(body).is_ok()
        && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
        && body.trim_ascii_start().first() == Some(&b'{');
    let mut wrapped = Vec::new();
    if wrap(body, 500, &mut wrapped) == Wrapping::Written {
        assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&wrapped).is_ok(), "a wrapped error is JSON");
    }
    of_body(body);
    let scan = match scan(body) {
        Ok(scan) => scan,
        Err(error) => {
            // A refusal of a field, or of depth, says nothing on the text as a whole.
            let is_on_text = error.param.is_none() && !error.message.contains("nested too deeply");
            assert!(!(is_on_text && is_object), "refused: {error}");
            return;
        }
    };
    assert!(is_object, "taken, but not JSON");
    assert!(!scan.model(body).is_empty());
    for span in scan.prompts.each().chain(scan.priority) {
        assert!(serde_json::from_slice::<serde::de::IgnoredAny>(span.of(body)).is_ok(), "a span is a value");
    }
    let mut edits = Edits::new();
    edits.served_model(&scan, "a \"served\" model");
    edits.include_usage(&scan);
    edits.priority(&scan, i64::MIN);
    let mut out = Vec::new();
    edits.apply_to(body, &mut out);
    assert_eq!(out.len(), edits.len_after(body.len()));
    let mut from = 0;
    for segment in edits.segments(body.len()) {
        if let Segment::Keep(range) = segment {
            assert!(from <= range.start && range.start < range.end && range.end <= body.len());
            from = range.end;
        }
    }
    let again = llmgw_openai::scan::scan(&out).expect("an edited body is taken again");
    assert_eq!(again.model(&out), "a \"served\" model");
    assert!(again.asks_for_usage() || !scan.is_streaming());
    assert_eq!(again.stream, scan.stream);
});
