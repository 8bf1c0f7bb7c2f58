//! Keys, and what they were before a rotation. Only hashes are here.

use llmgw_tenancy::key::{KeyHash, KeyRow, OldSecret};
use rusqlite::{Row, params};

use crate::error::StoreError;
use crate::store::{Rows, Tx};

const KEY: &str = "SELECT id, key_hash, key_prefix, name, project_id, band, routing_profile, may_pin_replica, \
                   created_at, expires_at, revoked_at, last_used_at FROM api_keys";
const OVERLAP: &str = "SELECT key_hash, key_id, key_prefix, expires_at FROM api_key_overlaps";
/// A key's use is written at most this often. Units: milliseconds.
pub const USED_EVERY: i64 = 60_000;

fn key(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    Ok(KeyRow {
        id: row.get(0)?,
        hash: KeyHash(row.get(1)?),
        prefix: row.get(2)?,
        name: row.get(3)?,
        project_id: row.get(4)?,
        band: row.get(5)?,
        routing_profile: row.get(6)?,
        may_pin_replica: row.get(7)?,
        created_at: row.get(8)?,
        expires_at: row.get(9)?,
        revoked_at: row.get(10)?,
        last_used_at: row.get(11)?,
    })
}

fn overlap(row: &Row<'_>) -> rusqlite::Result<OldSecret> {
    Ok(OldSecret { hash: KeyHash(row.get(0)?), key_id: row.get(1)?, prefix: row.get(2)?, expires_at: row.get(3)? })
}

impl Rows<'_> {
    /// All keys, oldest first, revoked and expired ones included.
    pub fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.list(&format!("{KEY} ORDER BY created_at, id"), [], key)
    }

    /// All keys as they lie, in no order: sorting many is a third of reading them.
    pub fn keys_unsorted(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.list(KEY, [], key)
    }

    /// The key of an id.
    pub fn key(&self, id: &str) -> Result<Option<KeyRow>, StoreError> {
        self.one(&format!("{KEY} WHERE id = ?1"), [id], key)
    }

    /// Keys of a name, newest first.
    pub fn keys_named(&self, name: &str) -> Result<Vec<KeyRow>, StoreError> {
        self.list(&format!("{KEY} WHERE name = ?1 ORDER BY created_at DESC, id"), [name], key)
    }

    /// What keys were before a rotation, as far as it still works at `now`.
    pub fn overlaps(&self, now: i64) -> Result<Vec<OldSecret>, StoreError> {
        self.list(&format!("{OVERLAP} WHERE expires_at > ?1 ORDER BY key_id, expires_at"), [now], overlap)
    }
}

impl Tx<'_> {
    /// Errors: the project is not there.
    pub fn add_key(&self, row: &KeyRow) -> Result<(), StoreError> {
        let sql = "INSERT INTO api_keys (id, key_hash, key_prefix, name, project_id, band, routing_profile, \
                   may_pin_replica, created_at, expires_at, revoked_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        let values = params![
            row.id,
            row.hash.0,
            row.prefix,
            row.name,
            row.project_id,
            row.band,
            row.routing_profile,
            row.may_pin_replica,
            row.created_at,
            row.expires_at,
            row.revoked_at,
        ];
        self.change(sql, values)
    }

    /// Writes everything of a key that may change, its hash included.
    pub fn change_key(&self, row: &KeyRow) -> Result<(), StoreError> {
        let sql = "UPDATE api_keys SET key_hash = ?2, key_prefix = ?3, name = ?4, band = ?5, routing_profile = ?6, \
                   may_pin_replica = ?7, expires_at = ?8, revoked_at = ?9 WHERE id = ?1";
        let values = params![
            row.id,
            row.hash.0,
            row.prefix,
            row.name,
            row.band,
            row.routing_profile,
            row.may_pin_replica,
            row.expires_at,
            row.revoked_at,
        ];
        self.change(sql, values)
    }

    /// Lets what a key was go on working until then.
    pub fn add_overlap(&self, row: &OldSecret) -> Result<(), StoreError> {
        let sql = "INSERT INTO api_key_overlaps (key_hash, key_id, key_prefix, expires_at) VALUES (?1, ?2, ?3, ?4)";
        self.change(sql, params![row.hash.0, row.key_id, row.prefix, row.expires_at])
    }

    /// Lets nothing work that a key was before.
    pub fn end_overlaps(&self, key_id: &str) -> Result<(), StoreError> {
        self.change("DELETE FROM api_key_overlaps WHERE key_id = ?1", [key_id])
    }

    /// Notes when a key was used; at most once a minute a key. Not a change to who may ask.
    pub fn key_used(&self, id: &str, at: i64) -> Result<(), StoreError> {
        self.keys_used([(id, at)])
    }

    /// The same of many keys.
    pub fn keys_used<'k>(&self, used: impl IntoIterator<Item = (&'k str, i64)>) -> Result<(), StoreError> {
        let sql = "UPDATE api_keys SET last_used_at = ?2 WHERE id = ?1 AND COALESCE(last_used_at, 0) <= ?2 - ?3";
        let mut used = used.into_iter().peekable();
        if used.peek().is_none() {
            return Ok(());
        }
        let mut update = self.0.prepare(sql)?;
        for (id, at) in used {
            update.execute(params![id, at, USED_EVERY])?;
        }
        Ok(())
    }
}
