//! A segment's bytes: a head, then frames, each an entry with its length and its checksum. Pure.
//!
//! Invariant: what is read of a segment is a prefix of what was written to it, frame by frame, whatever was cut off,
//! flipped or left over behind; frames of another segment do not count.

use crate::crc::crc32c;
use crate::entry::{ENTRY_BYTES_MAX, Entry};

/// Bytes before the first frame.
pub const HEAD_BYTES: usize = 16;
/// Bytes of a frame before its entry: length and checksum.
pub(crate) const FRAME_HEAD_BYTES: usize = 8;
/// Bytes of the largest frame.
pub const FRAME_BYTES_MAX: usize = FRAME_HEAD_BYTES + ENTRY_BYTES_MAX;
/// What a segment begins with; the last byte is the version of what follows.
const MAGIC: [u8; 8] = *b"llmgwus\x01";

/// Makes a segment's checksums its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(u32);

impl Salt {
    /// A segment's, from its name.
    pub fn of(name: &str) -> Self {
        Self(crc32c(0, &[name.as_bytes()]))
    }
}

/// The head of a segment.
pub fn head(salt: Salt) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let (magic, rest) = head.split_at_mut(8);
    magic.copy_from_slice(&MAGIC);
    let (own, checksum) = rest.split_at_mut(4);
    own.copy_from_slice(&salt.0.to_le_bytes());
    checksum.copy_from_slice(&crc32c(salt.0, &[&MAGIC]).to_le_bytes());
    head
}

/// The salt of a segment that begins with these bytes; nothing where it is none, or of another version.
pub fn salt_of(head: &[u8]) -> Option<Salt> {
    let salt = Salt(u32::from_le_bytes(head.get(8..12)?.try_into().ok()?));
    (head.get(..HEAD_BYTES)? == self::head(salt)).then_some(salt)
}

/// Appends an entry's frame.
pub fn frame(entry: &Entry<'_>, salt: Salt, out: &mut Vec<u8>) {
    let at = out.len();
    frame_without_checksum(entry, out);
    seal(out.get_mut(at..).unwrap_or_default(), salt);
}

/// Appends the frame of an entry that is encoded already.
pub fn frame_of(encoded: &[u8], salt: Salt, out: &mut Vec<u8>) {
    let at = out.len();
    // An entry is far shorter than 2^32.
    out.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(encoded);
    seal(out.get_mut(at..).unwrap_or_default(), salt);
}

/// Appends an entry's frame for a segment that is not known yet.
pub(crate) fn frame_without_checksum(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
    entry.encode(out);
    let entry_bytes = (out.len() - at - FRAME_HEAD_BYTES) as u32;
    if let Some(length) = out.get_mut(at..).and_then(|frame| frame.first_chunk_mut()) {
        *length = entry_bytes.to_le_bytes();
    }
}

/// Appends a frame of another segment, or of none.
pub(crate) fn add_frame(frame: &[u8], salt: Salt, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(frame);
    seal(out.get_mut(at..).unwrap_or_default(), salt);
}

/// Gives a frame its checksum.
fn seal(frame: &mut [u8], salt: Salt) {
    let Some((length, rest)) = frame.split_first_chunk_mut::<4>() else { return };
    let Some((checksum, entry)) = rest.split_first_chunk_mut::<4>() else { return };
    *checksum = crc32c(salt.0, &[length, entry]).to_le_bytes();
}

/// The first of frames that were just made, whatever their checksums are; nothing where there is none.
pub(crate) fn first_frame(frames: &[u8]) -> Option<&[u8]> {
    let length = frames.first_chunk::<4>()?;
    frames.get(..FRAME_HEAD_BYTES + u32::from_le_bytes(*length) as usize)
}

/// What stands where a frame is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A whole frame, and how many bytes it takes.
    Entry(Entry<'a>, usize),
    /// The front of what may be one.
    Part,
    /// Nothing that was written as a frame of this segment.
    Not,
}

/// Reads the frame at the front of the bytes.
#[inline]
pub fn next(bytes: &[u8], salt: Salt) -> Next<'_> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Next::Part };
    let entry_bytes = u32::from_le_bytes(*length) as usize;
    if entry_bytes == 0 || entry_bytes > ENTRY_BYTES_MAX {
        return Next::Not;
    }
    let Some((checksum, rest)) = rest.split_first_chunk::<4>() else { return Next::Part };
    let Some(entry) = rest.get(..entry_bytes) else { return Next::Part };
    if crc32c(salt.0, &[length, entry]) != u32::from_le_bytes(*checksum) {
        return Next::Not;
    }
    match Entry::decode(entry) {
        Some(entry) => Next::Entry(entry, FRAME_HEAD_BYTES + entry_bytes),
        None => Next::Not,
    }
}

/// Every entry of a whole segment up to the first place where none stands. Answer: how many bytes are sound.
pub fn read<'a>(bytes: &'a [u8], mut each: impl FnMut(Entry<'a>)) -> usize {
    let Some(salt) = salt_of(bytes) else { return 0 };
    let mut at = HEAD_BYTES;
    while let Next::Entry(entry, length) = next(bytes.get(at..).unwrap_or_default(), salt) {
        each(entry);
        at += length;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::tests::entry;

    /// A segment of so many entries, and where each frame ends.
    fn segment(count: u64, name: &str) -> (Vec<u8>, Vec<usize>) {
        let salt = Salt::of(name);
        let mut bytes = head(salt).to_vec();
        let mut ends = Vec::new();
        for number in 0..count {
            frame(&entry(number), salt, &mut bytes);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn ids(bytes: &[u8]) -> (Vec<u128>, usize) {
        let mut ids = Vec::new();
        let sound = read(bytes, |entry| ids.push(entry.record_id));
        (ids, sound)
    }

    fn first(count: usize) -> Vec<u128> {
        (0..count as u64).map(|number| entry(number).record_id).collect()
    }

    #[test]
    fn a_whole_segment_is_read_whole() {
        let (bytes, _) = segment(20, "a");
        assert_eq!(ids(&bytes), (first(20), bytes.len()));
        assert_eq!(ids(&[]), (vec![], 0));
        assert_eq!(ids(&head(Salt::of("a"))), (vec![], HEAD_BYTES));
    }

    #[test]
    fn what_a_disk_leaves_behind_the_end_is_no_record() {
        let (whole, _) = segment(3, "a");
        let (other, _) = segment(5, "b");
        for behind in [vec![0; 4096], vec![0xff; 4096], other[HEAD_BYTES..].to_vec(), b"text of another file".to_vec()]
        {
            let bytes = [&whole[..], &behind].concat();
            assert_eq!(ids(&bytes), (first(3), whole.len()));
        }
    }

    #[test]
    fn frames_are_taken_apart_and_framed_for_another_segment() {
        let (bytes, _) = segment(3, "a");
        let mut other = head(Salt::of("b")).to_vec();
        let mut frames = &bytes[HEAD_BYTES..];
        while let Some(frame) = first_frame(frames) {
            add_frame(frame, Salt::of("b"), &mut other);
            frames = &frames[frame.len()..];
        }
        assert_eq!(other, segment(3, "b").0);
    }

    #[test]
    fn a_segment_of_another_version_is_left_alone() {
        let (mut bytes, _) = segment(3, "a");
        bytes[7] += 1;
        assert_eq!(ids(&bytes), (vec![], 0));
    }

    proptest! {
        #[test]
        fn any_cut_leaves_the_frames_before_it(cut in 0usize..5000) {
            let (bytes, ends) = segment(20, "a");
            let cut = cut % (bytes.len() + 1);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let (found, sound) = ids(&bytes[..cut]);
            prop_assert_eq!(found, first(whole));
            prop_assert!(sound <= cut);
        }

        #[test]
        fn any_flipped_bit_leaves_the_frames_before_it(at in 0usize..5000, bit in 0u8..8) {
            let (mut bytes, ends) = segment(20, "a");
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let whole = if at < HEAD_BYTES { 0 } else { ends.iter().filter(|end| **end <= at).count() };
            prop_assert_eq!(ids(&bytes).0, first(whole));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), is_ours: bool) {
            let mut all = if is_ours { head(Salt::of("a")).to_vec() } else { Vec::new() };
            all.extend(bytes);
            prop_assert!(read(&all, |_| ()) <= all.len());
        }
    }
}
