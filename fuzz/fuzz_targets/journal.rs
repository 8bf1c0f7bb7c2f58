//! Segments of the journal of usage: any bytes are read without a panic, and what is read says the same when it is
//! written again; so does any entry in a sound frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_journal::Entry;
use llmgw_journal::segment::{self, Salt};

/// Longer texts are cut when they are written.
const TEXT_BYTES_MAX: usize = 512;

fn is_short(entry: &Entry<'_>) -> bool {
    let Entry { key_id, project_id, model, served_model, pool, replica, reason, .. } = entry;
    [key_id, project_id, model, served_model, pool, replica, reason].iter().all(|text| text.len() <= TEXT_BYTES_MAX)
}

fuzz_target!(|bytes: &[u8]| {
    let salt = Salt::of("fuzzed");
    // As a segment, whatever its head is; as what follows a head; and as entries whose frames are sound.
    let whole = [&segment::head(salt)[..], bytes].concat();
    let mut framed = segment::head(salt).to_vec();
    bytes.split(|byte| *byte == b'\n').for_each(|entry| segment::frame_of(entry, salt, &mut framed));
    let mut alone = segment::head(salt).to_vec();
    segment::frame_of(bytes, salt, &mut alone);
    for segment in [bytes, &whole, &framed, &alone] {
        let mut again = segment.get(..segment::HEAD_BYTES).unwrap_or_default().to_vec();
        let found = segment::salt_of(segment);
        let mut entries = Vec::new();
        let sound = segment::read(segment, |entry| {
            segment::frame(&entry, found.expect("a segment with a salt"), &mut again);
            entries.push(entry);
        });
        assert!(sound <= segment.len());
        let mut reread = Vec::new();
        assert_eq!(segment::read(&again, |entry| reread.push(entry)), if found.is_some() { again.len() } else { 0 });
        assert_eq!(reread.len(), entries.len());
        for (entry, reread) in entries.iter().zip(&reread).filter(|(entry, _)| is_short(entry)) {
            assert_eq!(entry, reread);
        }
    }
});
