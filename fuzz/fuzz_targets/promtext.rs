//! Reader of engines' metrics pages: a page is read as its lines are, a sample that is written out again is read back
//! as it was, and no page stops the contract.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_engines::contract;
use llmgw_engines::names::Names;
use llmgw_engines::promtext::{Sample, Samples};
use llmgw_types::EngineKind;

fuzz_target!(|page: &[u8]| {
    let mut whole = Samples::new(page);
    let samples: Vec<Sample<'_>> = whole.by_ref().collect();

    let (mut by_line, mut skipped_lines) = (Vec::new(), 0);
    for line in page.split(|byte| *byte == b'\n') {
        let mut alone = Samples::new(line);
        by_line.extend(alone.by_ref());
        skipped_lines += alone.skipped_lines();
    }
    assert_eq!(whole.skipped_lines(), skipped_lines);
    assert_eq!(samples.len(), by_line.len());
    for (sample, alone) in samples.iter().zip(&by_line) {
        assert!(is_same(sample, alone), "{sample:?} is {alone:?} on its own");
    }

    for sample in &samples {
        let written = write(sample);
        let read: Vec<Sample<'_>> = Samples::new(written.as_bytes()).collect();
        assert_eq!(read.len(), 1, "{sample:?} is written as {written:?}");
        assert!(is_same(sample, &read[0]), "{sample:?} is read back as {:?}", read[0]);
    }

    for kind in EngineKind::ALL {
        let _ = contract::read(page, &Names::of(kind));
    }
});

fn is_same(a: &Sample<'_>, b: &Sample<'_>) -> bool {
    let numbers = a.value.to_bits() == b.value.to_bits() || a.value.is_nan() && b.value.is_nan();
    let labels = a.labels.iter().map(|label| (label.name, label.value()));
    a.name == b.name && numbers && labels.eq(b.labels.iter().map(|label| (label.name, label.value())))
}

/// The sample with quoted names, the form that takes any name, and with the escapes that its values need.
fn write(sample: &Sample<'_>) -> String {
    let mut line = format!("{{\"{}\"", sample.name);
    for label in sample.labels.iter() {
        let value = label.value().replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
        line += &format!(",\"{}\"=\"{value}\"", label.name);
    }
    format!("{line}}} {:?}", sample.value)
}
