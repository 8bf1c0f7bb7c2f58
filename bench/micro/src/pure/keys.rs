//! Keys: the digest of what a request shows, the look-up among a hundred thousand, and what a new table of them costs a
//! core.

use std::hint::black_box;
use std::sync::Arc;

use llmgw_kit::chance::Chance;
use llmgw_router::tenants::{Kept, Tenants};
use llmgw_runtime::mailbox::Latest;
use llmgw_types::tenants::{DIGEST_BYTES, Key, NEVER, Project, Secret};
use llmgw_types::{TenantSnapshot, TenantTable};
use ring::digest::{SHA256, digest};

/// A key as it is sent: as long as they are.
const SHOWN: &[u8] = b"sk-llmgw-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg";
/// Digests that are looked up in turn: far more than a processor guesses.
const ASKED: usize = 1 << 16;

fn random(chance: &mut Chance) -> [u8; DIGEST_BYTES] {
    let mut bytes = [0; DIGEST_BYTES];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&chance.next_u64().to_le_bytes());
    }
    bytes
}

/// A table of `count` keys, and their digests.
///
/// # Panics
/// When the table of this program does not fit together.
#[expect(clippy::expect_used, reason = "the table is a constant of this program")]
fn table(count: u32) -> (TenantSnapshot, Vec<[u8; DIGEST_BYTES]>) {
    let mut chance = Chance::seeded(7);
    let digests: Vec<_> = (0..count).map(|_| random(&mut chance)).collect();
    let key = |row: u32| Key {
        name: format!("user-{row}"),
        band: Some("gold".into()),
        ..Key::plain(format!("key-{row:017}"))
    };
    let table = TenantTable {
        keys: (0..count).map(key).collect(),
        projects: vec![Project { id: "proj-00000000000000000".into(), path: "a/b/c".into(), organization: 0 }],
        ..TenantTable::default()
    };
    let secret = |(key, digest): (u32, &[u8; DIGEST_BYTES])| Secret { digest: *digest, key, ends_at: NEVER };
    let secrets = (0..count).zip(&digests).map(secret).collect();
    (TenantSnapshot::of(&table.with_secrets(secrets)).expect("a table that fits together"), digests)
}

/// The digest of what is shown.
pub(super) fn hash() -> impl FnMut() {
    move || {
        black_box(digest(&SHA256, black_box(SHOWN)));
    }
}

/// The look-up of a key among `count`, another one each time.
pub(super) fn known(count: u32) -> impl FnMut() {
    let (snapshot, digests) = table(count);
    let mut chance = Chance::seeded(8);
    let asked: Vec<[u8; DIGEST_BYTES]> =
        (0..ASKED).map(|_| digests[(chance.next_u64() % u64::from(count)) as usize]).collect();
    looked_up(snapshot, asked)
}

/// The look-up of what is no key among `count`.
pub(super) fn unknown(count: u32) -> impl FnMut() {
    let (snapshot, _) = table(count);
    let mut chance = Chance::seeded(9);
    looked_up(snapshot, (0..ASKED).map(|_| random(&mut chance)).collect())
}

fn looked_up(snapshot: TenantSnapshot, asked: Vec<[u8; DIGEST_BYTES]>) -> impl FnMut() {
    let mut at = 0;
    move || {
        at = (at + 1) % ASKED;
        black_box(snapshot.table().secret(black_box(&asked[at])));
    }
}

/// What a publication of `count` keys costs a core: the newest is taken, and a request finds its key in it. Tables come
/// in turn, so that the look-up meets one that the core has not touched; the old one is kept by whoever published it.
pub(super) fn swap(count: u32) -> impl FnMut() {
    let mut kept = Kept::new(1);
    let (tables, digests): (Vec<_>, Vec<_>) = (0..4).map(|_| table(count)).unzip();
    let publications: Vec<Arc<Tenants>> =
        tables.into_iter().map(|table| kept.publication(table, Arc::default())).collect();
    let place = Latest::default();
    let mut newest = publications[0].clone();
    let (digests, mut at) = (digests.into_iter().next().unwrap_or_default(), 0);
    move || {
        at += 1;
        place.put(publications[at % publications.len()].clone());
        let Some(taken) = place.take() else { return };
        drop(std::mem::replace(&mut newest, taken));
        black_box(newest.snapshot.table().secret(black_box(&digests[at * 7919 % digests.len()])));
    }
}
