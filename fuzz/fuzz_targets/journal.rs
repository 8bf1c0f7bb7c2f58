//! Segments of the journal of usage: any bytes are read without a panic; what is read is a prefix of what was written,
//! whatever was changed of it; what is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_journal::segment::{self, Salt};

fuzz_target!(|bytes: &[u8]| {
    let salt = Salt::of("fuzzed");
    // As a segment, whatever its head is, and as what follows a head.
    let whole = [&segment::head(salt)[..], bytes].concat();
    for segment in [bytes, &whole] {
        let mut again = segment.get(..segment::HEAD_BYTES).unwrap_or_default().to_vec();
        let found = segment::salt_of(segment);
        let mut count = 0;
        let sound = segment::read(segment, |entry| {
            count += 1;
            segment::frame(&entry, found.expect("a segment with a salt"), &mut again);
        });
        assert!(sound <= segment.len());
        // An entry may have grown in a newer version; written again it has what is known of it.
        if again.len() == sound {
            assert_eq!(again, segment[..sound]);
        }
        let mut recount = 0;
        assert!(segment::read(&again, |_| recount += 1) <= again.len());
        assert_eq!(recount, count);
    }
});
