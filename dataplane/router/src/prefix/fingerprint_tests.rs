//! Which prompts share their beginning, however they come in pieces.

use proptest::prelude::*;

use super::*;

const PLAIN: Salt<'static> = Salt { model: "m", lora: "", cache_salt: None };

fn scratch() -> Fingerprint {
    Fingerprint::new(&Seed::drawn(&mut Chance::seeded(3)))
}

fn hashes(salt: &Salt<'_>, pieces: &[&[u8]]) -> Vec<u64> {
    let mut fingerprint = scratch();
    fingerprint.begin(salt);
    pieces.iter().for_each(|piece| fingerprint.text(piece));
    fingerprint.finish();
    fingerprint.prompts().flatten().copied().collect()
}

fn shared(one: &[u64], other: &[u64]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

proptest! {
    #[test]
    fn any_split_into_pieces_gives_the_same_fingerprint(
        text in prop::collection::vec(any::<u8>(), 0..4000),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            pieces.push(&text[from..cut]);
            from = cut;
        }
        prop_assert_eq!(hashes(&PLAIN, &pieces), hashes(&PLAIN, &[&text]));
    }

    #[test]
    fn what_goes_on_from_the_same_head_shares_its_whole_blocks_and_no_more(
        head in prop::collection::vec(any::<u8>(), 0..3000),
        one in prop::collection::vec(any::<u8>(), 0..1200),
        other in prop::collection::vec(any::<u8>(), 0..1200),
    ) {
        let same = head.len() + one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        let (of_one, of_other) = (hashes(&PLAIN, &[&head, &one]), hashes(&PLAIN, &[&head, &other]));
        let expected = if one == other { of_one.len() } else { same / BLOCK_BYTES };
        prop_assert_eq!(shared(&of_one, &of_other), expected);
    }

    #[test]
    fn equal_prompts_with_other_salts_adapters_or_models_share_nothing(
        text in prop::collection::vec(any::<u8>(), 1..2000),
        names in ("[ab]{0,2}", "[ab]{0,2}", prop::option::of("[ab]{0,2}")),
        others in ("[ab]{0,2}", "[ab]{0,2}", prop::option::of("[ab]{0,2}")),
    ) {
        let salt = |(model, lora, cache_salt): &(String, String, Option<String>)| {
            let cache_salt = cache_salt.clone();
            (model.clone(), lora.clone(), cache_salt.map(String::into_bytes))
        };
        let of = |(model, lora, cache_salt): &(String, String, Option<Vec<u8>>)| {
            hashes(&Salt { model, lora, cache_salt: cache_salt.as_deref() }, &[&text])
        };
        let (one, other) = (of(&salt(&names)), of(&salt(&others)));
        let expected = if names == others { one.len() } else { 0 };
        prop_assert_eq!(shared(&one, &other), expected);
    }
}

#[test]
fn a_long_head_with_different_ends_differs_however_long_it_is() {
    for length in [10, BLOCK_BYTES, 100_000, (BLOCKS_MAX + 5) * BLOCK_BYTES + 7] {
        let head = vec![b'x'; length];
        let (one, other) = (hashes(&PLAIN, &[&head, b"one"]), hashes(&PLAIN, &[&head, b"two"]));
        assert_ne!(one, other, "{length}");
        assert_eq!(shared(&one, &other), (length / BLOCK_BYTES).min(BLOCKS_MAX), "{length}");
        assert!(one.len() <= BLOCKS_MAX + 1);
    }
}

#[test]
fn prompts_of_one_request_are_chains_of_their_own() {
    let mut fingerprint = scratch();
    let mut several = |prompts: &[&[u8]]| {
        fingerprint.begin(&PLAIN);
        for (at, prompt) in prompts.iter().enumerate() {
            if at > 0 {
                fingerprint.next_prompt();
            }
            fingerprint.text(prompt);
        }
        fingerprint.finish();
        fingerprint.prompts().map(<[u64]>::to_vec).collect::<Vec<_>>()
    };
    let (long, short) = (vec![b'l'; 1300], b"s".as_slice());
    let expected = vec![hashes(&PLAIN, &[&long]), hashes(&PLAIN, &[short]), hashes(&PLAIN, &[&long])];
    assert_eq!(several(&[&long, short, &long]), expected);
    assert_eq!(several(&[short]), vec![hashes(&PLAIN, &[short])]);
    assert_eq!(several(&[]), vec![Vec::<u64>::new()]);
    // More prompts than there is room for are one block more.
    let many = vec![short; BLOCKS_MAX + 100];
    let fingerprints = several(&many);
    assert_eq!(fingerprints.iter().map(Vec::len).sum::<usize>(), BLOCKS_MAX + 1);
}

#[test]
fn media_are_known_by_their_content() {
    let with = |data: &[u8]| {
        let mut fingerprint = scratch();
        fingerprint.begin(&PLAIN);
        fingerprint.text(&[b'a'; 600]);
        fingerprint.media(data);
        fingerprint.text(&[b'b'; 600]);
        fingerprint.finish();
        assert!(fingerprint.has_media());
        (fingerprint.bytes(), fingerprint.prompts().flatten().copied().collect::<Vec<u64>>())
    };
    let (one, other) = (vec![1; 100_000], vec![2; 100_000]);
    assert_eq!(with(&one), with(&one));
    assert_eq!(with(&one).0, 600 + 16 + 600);
    assert_eq!(shared(&with(&one).1, &with(&other).1), 1);
}
