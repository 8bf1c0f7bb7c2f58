//! The table of who may ask: every key's digest, what follows from the key's levels, and what those are held to, as one
//! immutable value.
//!
//! Made by the control plane off the cores, checked once, read in place by every core; a newer one replaces it whole.
//! Rows of keys, projects and levels stay their own for the life of the process: what is gone leaves its row behind,
//! so that a number a request carries means the same in every table. Holds no key, only digests.

use rkyv::{Archive, Deserialize, Serialize};

use crate::checked::{Checked, Table};
use crate::ids::{KeyIdx, LevelIdx, OrganizationIdx, ProjectIdx, ShortId};

/// Bytes of a digest: SHA-256.
pub const DIGEST_BYTES: usize = 32;
/// Of a time that never comes. Unix milliseconds.
pub const NEVER: u64 = u64::MAX;

/// A checked table of who may ask.
pub type TenantSnapshot = Checked<TenantTable>;

/// Everything a core needs to know of who may ask. Built with [`TenantTable::with_secrets`].
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct TenantTable {
    /// That of the store it was made from; grows with every change.
    pub generation: u64,
    /// What may be shown, in no order; with `slots`, see [`TenantTable::with_secrets`].
    pub secrets: Vec<Secret>,
    /// Where to look for a digest, by its first eight bytes: 0 for nothing, else 1 more than a row of `secrets`. A
    /// power of two, at least twice as many as secrets; what finds its place taken stands at the next free one.
    pub slots: Vec<u32>,
    /// Keys ([`KeyIdx`]), those that work no more included.
    pub keys: Vec<Key>,
    /// Projects ([`ProjectIdx`]).
    pub projects: Vec<Project>,
    /// What limits hang on ([`LevelIdx`]); one level for each row of limits.
    pub levels: Vec<Level>,
    /// Public names of models, sorted; keys that may use the same share one.
    pub allowlists: Vec<Vec<String>>,
}

/// One secret of a key: that of the day, or an old one that works on.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// SHA-256 of the whole key as it is sent.
    pub digest: [u8; DIGEST_BYTES],
    /// Row of its key.
    pub key: u32,
    /// From when on it works no more, unix milliseconds; [`NEVER`].
    pub ends_at: u64,
}

/// A key, and what follows from its levels.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its id, as in logs and records; at most [`ShortId::BYTES_MAX`] long.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Row of its project.
    pub project: u32,
    /// Whether it was revoked, or is gone.
    pub is_revoked: bool,
    /// When it expires, unix milliseconds; [`NEVER`].
    pub expires_at: u64,
    /// Its own priority band, else its project's.
    pub band: Option<String>,
    /// Its own routing profile, else its project's.
    pub profile: Option<String>,
    /// Whether it may name the replica that is to answer.
    pub may_pin_replica: bool,
    /// Row of the list of models that every one of its levels allows; none: all models.
    pub allowlist: Option<u32>,
    /// Rows of the levels whose limits it is held to, the key's own first and the organisation's last. Those for one
    /// model are among them: see [`Level::model`].
    pub levels: Vec<u32>,
    /// Changes when `levels` does, or anything that one of them is held to. What was granted by another version is
    /// void.
    pub limits_version: u32,
}

impl Key {
    /// A key of the first project that works, for good, and that nothing is said of: no band, no profile, all models,
    /// no limits, no right to name its replica.
    pub fn plain(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: String::new(),
            project: 0,
            is_revoked: false,
            expires_at: NEVER,
            band: None,
            profile: None,
            may_pin_replica: false,
            allowlist: None,
            levels: Vec::new(),
            limits_version: 0,
        }
    }
}

/// What keys are made for.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its id; at most [`ShortId::BYTES_MAX`] long.
    pub id: String,
    /// Names from the top, as `acme/search/chat`.
    pub path: String,
    /// Its organisation's number ([`OrganizationIdx`]): all below it have one owner among the cores.
    pub organization: u32,
}

/// Where limits hang.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[rkyv(derive(Clone, Copy, Debug, PartialEq, Eq))]
pub enum LevelKind {
    Key,
    Project,
    Team,
    Organization,
}

impl LevelKind {
    /// The word for it in tables and answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Project => "project",
            Self::Team => "team",
            Self::Organization => "org",
        }
    }
}

impl ArchivedLevelKind {
    /// What it is.
    pub const fn kind(self) -> LevelKind {
        match self {
            Self::Key => LevelKind::Key,
            Self::Project => LevelKind::Project,
            Self::Team => LevelKind::Team,
            Self::Organization => LevelKind::Organization,
        }
    }

    /// See [`LevelKind::word`].
    pub const fn word(self) -> &'static str {
        self.kind().word()
    }
}

/// Something with limits of its own: a key, a project, a team or an organisation, for all models together or for one.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// What it is.
    pub kind: LevelKind,
    /// Whose: the id of that key, project, team or organisation.
    pub scope_id: String,
    /// The public name of the model they are for; none: all models together.
    pub model: Option<String>,
    /// Its organisation's number.
    pub organization: u32,
    /// What it is held to. All absent where the limits were taken away.
    pub limits: Limits,
}

/// What a level is held to. None: no limit. 0: nothing gets through.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests a minute.
    pub rpm: Option<u64>,
    /// Tokens a minute.
    pub tpm: Option<u64>,
    /// Requests at once.
    pub parallel: Option<u64>,
    /// Units a period.
    pub budget: Option<Budget>,
}

/// How much may be spent in a period.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Millionths of a unit.
    pub micros: u64,
    /// How long the period is.
    pub period: Period,
    /// Whose calendar it follows: `UTC`, or as `Europe/Berlin`.
    pub time_zone: String,
}

/// A budget's period, by the calendar of its time zone.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[rkyv(derive(Clone, Copy, Debug, PartialEq, Eq))]
pub enum Period {
    Day,
    Month,
}

impl ArchivedPeriod {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Day => Period::Day.word(),
            Self::Month => Period::Month.word(),
        }
    }
}

impl Period {
    /// The word for it in tables and answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

impl TenantTable {
    /// The same with these secrets, of which no two may have one digest.
    #[must_use]
    pub fn with_secrets(self, secrets: Vec<Secret>) -> Self {
        let mut slots = vec![0u32; (secrets.len() * 2).next_power_of_two()];
        let mask = slots.len() - 1;
        for (number, secret) in (1..).zip(&secrets) {
            let mut at = first_slot(&secret.digest, mask);
            // Half of them are free.
            while slots[at] != 0 {
                at = (at + 1) & mask;
            }
            slots[at] = number;
        }
        Self { secrets, slots, ..self }
    }
}

fn first_slot(digest: &[u8; DIGEST_BYTES], mask: usize) -> usize {
    let [a, b, c, d, e, f, g, h, ..] = *digest;
    // What is cut off on narrow machines is above any mask.
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) as usize & mask
}

/// Compares whole digests in a time that tells nothing.
fn is_same(one: &[u8; DIGEST_BYTES], other: &[u8; DIGEST_BYTES]) -> bool {
    let difference = one.iter().zip(other).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

impl ArchivedTenantTable {
    /// The secret of that digest. Cost: two places in memory, whatever number of keys there is.
    pub fn secret(&self, digest: &[u8; DIGEST_BYTES]) -> Option<&ArchivedSecret> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = first_slot(digest, mask);
        loop {
            // A free one always comes: see the check.
            let number = self.slots.get(at)?.to_native();
            let secret = self.secrets.get(number.checked_sub(1)? as usize)?;
            if is_same(&secret.digest, digest) {
                return Some(secret);
            }
            at = (at + 1) & mask;
        }
    }

    /// How many secrets there are.
    pub fn secret_count(&self) -> usize {
        self.secrets.len()
    }

    /// A key by its row.
    pub fn key(&self, key: KeyIdx) -> Option<&ArchivedKey> {
        self.keys.get(key.idx())
    }

    /// A project by its row.
    pub fn project(&self, project: ProjectIdx) -> Option<&ArchivedProject> {
        self.projects.get(project.idx())
    }

    /// The levels that a request of this key for that model is held to, the key's own first.
    pub fn levels_of<'t>(
        &'t self,
        key: &'t ArchivedKey,
        model: &'t str,
    ) -> impl Iterator<Item = (LevelIdx, &'t ArchivedLevel)> {
        let rows = key.levels.iter().map(|row| LevelIdx(row.to_native()));
        let levels = rows.filter_map(|idx| Some((idx, self.levels.get(idx.idx())?)));
        levels.filter(move |(_, level)| level.model.as_ref().is_none_or(|of| of.as_str() == model))
    }

    /// The public names of the models that a key may use, sorted; none: all models.
    pub fn allowlist(&self, key: &ArchivedKey) -> Option<&[rkyv::string::ArchivedString]> {
        let row = key.allowlist.as_ref()?.to_native();
        // The check holds rows within the table; whatever is not there allows nothing.
        Some(self.allowlists.get(row as usize).map(|list| list.as_slice()).unwrap_or_default())
    }

    /// Whether a key may use the model of that public name. Cost: a binary search.
    pub fn allows(&self, key: &ArchivedKey, model: &str) -> bool {
        let list = self.allowlist(key);
        list.is_none_or(|list| list.binary_search_by(|name| name.as_str().cmp(model)).is_ok())
    }
}

/// Who asks, as a request carries it from its head to its record. Says nothing of what it may: that is in the table of
/// the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub key: KeyIdx,
    pub project: ProjectIdx,
    pub organization: OrganizationIdx,
    /// For logs and records.
    pub key_id: ShortId,
    /// For logs and records.
    pub project_id: ShortId,
}

impl Caller {
    /// The caller whose key is in that row.
    pub fn of(table: &ArchivedTenantTable, key: KeyIdx) -> Option<Self> {
        let row = table.key(key)?;
        let project = ProjectIdx(row.project.to_native());
        let of = table.project(project)?;
        Some(Self {
            key,
            project,
            organization: OrganizationIdx(of.organization.to_native()),
            key_id: ShortId::of(&row.id)?,
            project_id: ShortId::of(&of.id)?,
        })
    }
}

impl Table for TenantTable {
    const NAME: &'static str = "tenant table";

    fn fits_together(table: &ArchivedTenantTable) -> Result<(), String> {
        let is_row = |row: u32, count: usize| (row as usize) < count;
        let (slots, secrets) = (table.slots.len(), table.secrets.len());
        if secrets > 0 && (!slots.is_power_of_two() || slots < 2 * secrets) {
            return Err(format!("{slots} slots are not right for {secrets} secrets"));
        }
        if table.slots.iter().filter(|slot| slot.to_native() != 0).count() > table.secrets.len() {
            return Err("more slots are taken than there are secrets".to_owned());
        }
        for secret in table.secrets.iter() {
            if !is_row(secret.key.to_native(), table.keys.len()) {
                return Err("a secret is of a key that is not there".to_owned());
            }
            if !table.secret(&secret.digest).is_some_and(|found| std::ptr::eq(found, secret)) {
                return Err("a secret is not to be found, or there twice".to_owned());
            }
        }
        for key in table.keys.iter() {
            if key.id.len() > ShortId::BYTES_MAX {
                return Err(format!("the id of key {} is longer than {} bytes", key.id, ShortId::BYTES_MAX));
            }
            if !is_row(key.project.to_native(), table.projects.len()) {
                return Err(format!("key {} is of a project that is not there", key.id));
            }
            if key.levels.iter().any(|level| !is_row(level.to_native(), table.levels.len())) {
                return Err(format!("key {} is held to a level that is not there", key.id));
            }
            if key.allowlist.as_ref().is_some_and(|list| !is_row(list.to_native(), table.allowlists.len())) {
                return Err(format!("key {} has a list of models that is not there", key.id));
            }
        }
        if let Some(project) = table.projects.iter().find(|project| project.id.len() > ShortId::BYTES_MAX) {
            return Err(format!("the id of project {} is longer than {} bytes", project.id, ShortId::BYTES_MAX));
        }
        let is_sorted = |list: &[rkyv::string::ArchivedString]| list.is_sorted_by(|a, b| a.as_str() < b.as_str());
        if !table.allowlists.iter().all(|list| is_sorted(list)) {
            return Err("a list of models is not sorted or names one twice".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(of: u8) -> [u8; DIGEST_BYTES] {
        let mut digest = [7; DIGEST_BYTES];
        // All begin at one place.
        digest[9] = of;
        digest
    }

    fn secret(of: u8, key: u32) -> Secret {
        Secret { digest: digest(of), key, ends_at: NEVER }
    }

    fn table() -> TenantTable {
        let key = |id: &str, allowlist, levels| Key { name: "alice".into(), allowlist, levels, ..Key::plain(id) };
        let level = |model: Option<&str>| Level {
            kind: LevelKind::Team,
            scope_id: "team-1".into(),
            model: model.map(str::to_owned),
            organization: 0,
            limits: Limits { rpm: Some(1), ..Limits::default() },
        };
        let table = TenantTable {
            generation: 4,
            keys: vec![key("key-a", None, vec![]), key("key-b", Some(0), vec![0, 1])],
            projects: vec![Project { id: "proj-1".into(), path: "a/b/c".into(), organization: 0 }],
            levels: vec![level(Some("m")), level(None)],
            allowlists: vec![vec!["m".into(), "n".into()]],
            ..TenantTable::default()
        };
        table.with_secrets((0..20).map(|of| secret(of, u32::from(of % 2))).collect())
    }

    #[test]
    fn every_secret_is_found_and_nothing_else_is() {
        let snapshot = TenantSnapshot::of(&table()).expect("a table");
        let table = snapshot.table();
        for of in 0..20 {
            let found = table.secret(&digest(of)).expect("there");
            assert_eq!(found.key.to_native(), u32::from(of % 2));
        }
        assert!(table.secret(&digest(20)).is_none());
        assert!(table.secret(&[0; DIGEST_BYTES]).is_none());
        let empty = TenantSnapshot::of(&TenantTable::default()).expect("a table");
        assert!(empty.table().secret(&digest(0)).is_none());
    }

    #[test]
    fn a_key_is_held_to_the_levels_for_its_model_and_may_use_what_its_list_names() {
        let snapshot = TenantSnapshot::of(&table()).expect("a table");
        let table = snapshot.table();
        let [all, some] = [KeyIdx(0), KeyIdx(1)].map(|key| table.key(key).expect("a key"));
        let levels = |model: &str| table.levels_of(some, model).map(|(idx, _)| idx.0).collect::<Vec<_>>();
        assert_eq!((levels("m"), levels("n")), (vec![0, 1], vec![1]));
        assert!(table.allows(all, "x") && table.allows(some, "n") && !table.allows(some, "x"));
        let caller = Caller::of(table, KeyIdx(1)).expect("a caller");
        assert_eq!((caller.key_id.as_str(), caller.project_id.as_str()), ("key-b", "proj-1"));
        assert!(Caller::of(table, KeyIdx(2)).is_none());
    }

    #[test]
    fn tables_that_do_not_fit_together_are_refused() {
        let check = |change: fn(&mut TenantTable), says: &str| {
            let mut bad = table();
            change(&mut bad);
            let error = TenantSnapshot::of(&bad).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        };
        check(|t| t.secrets[3].key = 2, "a key that is not there");
        check(|t| t.secrets[3].digest = digest(4), "there twice");
        check(|t| t.slots.truncate(32), "32 slots are not right");
        check(|t| t.slots.push(0), "65 slots are not right");
        check(|t| t.slots.fill(0), "not to be found");
        check(|t| t.slots.fill(1), "more slots are taken");
        check(|t| t.keys[1].id = "x".repeat(32), "longer than");
        check(|t| t.keys[1].project = 1, "a project that is not there");
        check(|t| t.keys[1].levels.push(2), "a level that is not there");
        check(|t| t.keys[1].allowlist = Some(1), "a list of models that is not there");
        check(|t| t.allowlists[0].reverse(), "not sorted");
        check(|t| t.projects[0].id = "x".repeat(32), "longer than");
    }
}
