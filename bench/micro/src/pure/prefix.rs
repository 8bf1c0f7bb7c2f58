//! Where a prompt is cached: fingerprints, matches and inserts, beside the scan that finds the prompt.

use std::hint::black_box;

use crate::prompts::{Prompts, table};

/// Fingerprints a prompt of about `bytes` bytes, no more.
pub(super) fn fingerprint(bytes: usize) -> impl FnMut() {
    let mut prompts = Prompts::of(bytes);
    move || {
        black_box(prompts.hash());
    }
}

/// Fingerprints a prompt and finds all of it.
pub(super) fn match_known(bytes: usize) -> impl FnMut() {
    let (table, mut prompts) = (table(), Prompts::of(bytes));
    prompts.hash();
    prompts.find(&table);
    prompts.record(&table);
    move || {
        prompts.hash();
        black_box(prompts.find(&table));
    }
}

/// The same, and remembers it again.
pub(super) fn repeat_known(bytes: usize) -> impl FnMut() {
    let (table, mut prompts) = (table(), Prompts::of(bytes));
    move || {
        prompts.hash();
        black_box(prompts.find(&table));
        prompts.record(&table);
    }
}

/// Fingerprints a prompt that nobody has, does not find it, and remembers it.
pub(super) fn insert_new(bytes: usize) -> impl FnMut() {
    let (table, mut prompts) = (table(), Prompts::of(bytes));
    move || {
        prompts.change();
        prompts.hash();
        black_box(prompts.find(&table));
        prompts.record(&table);
    }
}
