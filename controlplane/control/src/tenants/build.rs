//! From the rows of the store to the table of who may ask.

use std::sync::Arc;

use ahash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use llmgw_store::{Rows as StoreRows, Store, StoreError};
use llmgw_tenancy::key::{KeyRow, OldSecret};
use llmgw_tenancy::limits::{Limits as StoreLimits, LimitsRow, Period as BudgetPeriod, intersection};
use llmgw_tenancy::scope::{Organization, Project as ProjectRow, ScopeKind, Team};
use llmgw_types::snapshot::SnapshotError;
use llmgw_types::tenants::{
    ArchivedKey, ArchivedLevel, Budget, DIGEST_BYTES, Key, Level, LevelKind, Limits, NEVER, Period, Project, Secret,
};
use llmgw_types::{ArchivedTenantTable, KeyIdx, ShortId, TenantSnapshot, TenantTable};

use super::book::{Numbers, Rows, Versions};

/// Makes tables, each with the rows of the one before.
///
/// Whose row is which stands in the newest table itself, so that nothing is kept of 100,000 keys beside it but a number
/// for each.
#[derive(Debug, Default)]
pub struct Builder {
    newest: Option<Arc<TenantSnapshot>>,
    organizations: Numbers,
    level_versions: Versions,
    key_versions: Versions,
}

/// What a level is known by, for life: its kind, whose it is and for which model.
type LevelName<'n> = (&'static str, &'n str, Option<&'n str>);

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The table does not fit together: a fault of this program.
    #[error(transparent)]
    Table(#[from] SnapshotError),
}

/// A table that was made.
#[derive(Debug)]
pub struct Built {
    /// The store's generation.
    pub generation: i64,
    pub snapshot: Arc<TenantSnapshot>,
    /// Keys that work, or would if they had not expired.
    pub key_count: usize,
    /// Words that keys and projects name as their bands and profiles: whether they mean anything is the
    /// configuration's to say.
    pub bands: Vec<String>,
    pub profiles: Vec<String>,
}

/// Everything that the store knows of who may ask, at one moment.
struct World {
    generation: i64,
    organizations: Vec<Organization>,
    teams: Vec<Team>,
    projects: Vec<ProjectRow>,
    keys: Vec<KeyRow>,
    overlaps: Vec<OldSecret>,
    limits: Vec<LimitsRow>,
}

impl World {
    fn read(rows: &StoreRows<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            generation: rows.tenancy_generation()?,
            organizations: rows.organizations()?,
            teams: rows.teams()?,
            projects: rows.projects()?,
            keys: rows.keys_unsorted()?,
            // Ended ones too: who shows one is told that it has.
            overlaps: rows.overlaps(0)?,
            limits: rows.limits_unsorted()?,
        })
    }
}

/// What hangs on one scope.
#[derive(Default)]
struct Hung<'w> {
    /// Rows, those for all models first.
    levels: Vec<u32>,
    allowed: Option<&'w [String]>,
}

/// What hangs on each scope.
struct Hanging<'w>(HashMap<(ScopeKind, &'w str), Hung<'w>>);

impl<'w> Hanging<'w> {
    fn on(&self, kind: ScopeKind, id: &'w str) -> (&[u32], Option<&'w [String]>) {
        let Some(hung) = self.0.get(&(kind, id)) else { return (&[], None) };
        (&hung.levels, hung.allowed)
    }
}

/// Who is whose, by ids.
struct Tree<'w> {
    teams: HashMap<&'w str, &'w Team>,
    organizations: HashMap<&'w str, &'w Organization>,
    /// Their teams.
    projects: HashMap<&'w str, &'w str>,
    /// Their projects.
    keys: HashMap<&'w str, &'w str>,
}

impl<'w> Tree<'w> {
    fn of(world: &'w World) -> Self {
        Self {
            teams: world.teams.iter().map(|team| (team.id.as_str(), team)).collect(),
            organizations: world.organizations.iter().map(|row| (row.id.as_str(), row)).collect(),
            projects: world.projects.iter().map(|row| (row.id.as_str(), row.team_id.as_str())).collect(),
            keys: world.keys.iter().map(|key| (key.id.as_str(), key.project_id.as_str())).collect(),
        }
    }

    /// The organisation of a scope; none for what hangs on nothing that is there.
    fn organization(&self, kind: ScopeKind, id: &'w str) -> Option<&'w str> {
        let team_of = |project: &str| self.projects.get(project).copied();
        let team = match kind {
            ScopeKind::Org => return Some(id),
            ScopeKind::Team => id,
            ScopeKind::Project => team_of(id)?,
            ScopeKind::Key => team_of(self.keys.get(id)?)?,
        };
        self.teams.get(team).map(|team| team.org_id.as_str())
    }
}

/// What follows for every key of a project.
struct Above<'w> {
    row: u32,
    project: &'w ProjectRow,
    levels: Vec<u32>,
    allowed: Option<Vec<String>>,
    allowlist: Option<u32>,
}

/// Lists of models, each kept once.
#[derive(Default)]
struct Allowlists {
    rows: HashMap<Vec<String>, u32>,
    lists: Vec<Vec<String>>,
}

impl Allowlists {
    fn row(&mut self, list: &[String]) -> u32 {
        if let Some(row) = self.rows.get(list) {
            return *row;
        }
        let row = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        self.rows.insert(list.to_vec(), row);
        self.lists.push(list.to_vec());
        row
    }
}

impl Builder {
    /// The table of the store as it is at this moment. Cost: 100,000 keys about half a second; never on a core.
    ///
    /// Errors: the store cannot be read.
    pub fn build(&mut self, store: &Store) -> Result<Built, BuildError> {
        let world = store.read(World::read)?;
        let table = self.table(&world);
        let words = |of_key: fn(&KeyRow) -> &Option<String>, of_project: fn(&ProjectRow) -> &Option<String>| {
            let keys = world.keys.iter().filter(|key| key.revoked_at.is_none()).filter_map(|key| of_key(key).as_ref());
            let all = keys.chain(world.projects.iter().filter_map(|project| of_project(project).as_ref()));
            let mut words: Vec<String> = all.collect::<HashSet<_>>().into_iter().cloned().collect();
            words.sort();
            words
        };
        let bands = words(|key| &key.band, |project| &project.band);
        let profiles = words(|key| &key.routing_profile, |project| &project.routing_profile);
        let key_count = world.keys.iter().filter(|key| key.revoked_at.is_none()).count();
        let generation = world.generation;
        // Its memory is the snapshot's.
        drop(world);
        let snapshot = Arc::new(TenantSnapshot::of(&table)?);
        self.newest = Some(snapshot.clone());
        Ok(Built { generation, snapshot, key_count, bands, profiles })
    }

    /// The id of the key in that row.
    pub fn key_id(&self, key: KeyIdx) -> Option<&str> {
        Some(self.newest.as_ref()?.table().key(key)?.id.as_str())
    }

    fn table(&mut self, world: &World) -> TenantTable {
        let newest = self.newest.clone();
        let before = newest.as_ref().map(|snapshot| snapshot.table());
        let tree = Tree::of(world);
        let (hanging, levels) = self.levels(world, &tree, before);
        let mut allowlists = Allowlists::default();
        let known = before.map(|table| table.projects.iter().map(|project| project.id.as_str()));
        let mut rows = Rows::of(known, world.projects.len());
        let mut projects: Vec<Option<Project>> = Vec::with_capacity(rows.room());
        let mut above: HashMap<&str, Above<'_>> = HashMap::new();
        for project in &world.projects {
            let Some(team) = tree.teams.get(project.team_id.as_str()) else { continue };
            let Some(organization) = tree.organizations.get(team.org_id.as_str()) else { continue };
            if is_too_long("project", &project.id) {
                continue;
            }
            let row = rows.row(&project.id);
            let path = format!("{}/{}/{}", organization.name, team.name, project.name);
            let number = self.organizations.of(&organization.id);
            put(&mut projects, row, Project { id: project.id.clone(), path, organization: number });
            let chain =
                [(ScopeKind::Project, &project.id), (ScopeKind::Team, &team.id), (ScopeKind::Org, &organization.id)];
            let chain = chain.map(|(kind, id)| hanging.on(kind, id));
            let levels = chain.iter().flat_map(|(levels, _)| *levels).copied().collect();
            let allowed = intersection(chain.iter().map(|(_, allowed)| *allowed));
            let allowlist = allowed.as_deref().map(|list| allowlists.row(list));
            above.insert(&project.id, Above { row, project, levels, allowed, allowlist });
        }
        let (keys, secrets) = self.keys(world, &above, &hanging, &mut allowlists, before);
        let table = TenantTable {
            generation: u64::try_from(world.generation).unwrap_or(0),
            keys,
            projects: filled(projects, before.map(|table| table.projects.as_slice()), |gone| Project {
                id: gone.id.as_str().to_owned(),
                path: String::new(),
                organization: 0,
            }),
            levels,
            allowlists: allowlists.lists,
            ..TenantTable::default()
        };
        table.with_secrets(secrets)
    }

    /// All keys, and what of them may be shown.
    fn keys<'w>(
        &mut self,
        world: &'w World,
        above: &HashMap<&str, Above<'_>>,
        hanging: &Hanging<'w>,
        allowlists: &mut Allowlists,
        before: Option<&ArchivedTenantTable>,
    ) -> (Vec<Key>, Vec<Secret>) {
        let known = before.map(|table| table.keys.iter().map(|key| key.id.as_str()));
        let mut rows = Rows::of(known, world.keys.len());
        let mut keys: Vec<Option<Key>> = Vec::with_capacity(rows.room());
        let mut secrets = Vec::with_capacity(world.keys.len() + world.overlaps.len());
        for key in &world.keys {
            let Some(above) = above.get(key.project_id.as_str()) else { continue };
            if is_too_long("key", &key.id) {
                continue;
            }
            let row = rows.row(&key.id);
            // The store holds no two keys of one digest.
            secrets.push(Secret { digest: key.hash.0, key: row, ends_at: NEVER });
            let key = self.key(row, key, above, hanging, allowlists);
            put(&mut keys, row, key);
        }
        let mut digests: HashSet<[u8; DIGEST_BYTES]> = HashSet::new();
        if !world.overlaps.is_empty() {
            digests.extend(secrets.iter().map(|secret| secret.digest));
        }
        for old in &world.overlaps {
            let Some(row) = rows.known(&old.key_id) else { continue };
            let is_there = keys.get(row as usize).is_some_and(Option::is_some);
            if is_there && digests.insert(old.hash.0) {
                secrets.push(Secret { digest: old.hash.0, key: row, ends_at: moment(old.expires_at) });
            }
        }
        let gone = |gone: &ArchivedKey| Key { is_revoked: true, ..Key::plain(gone.id.as_str()) };
        (filled(keys, before.map(|table| table.keys.as_slice()), gone), secrets)
    }

    fn levels<'w>(
        &mut self,
        world: &'w World,
        tree: &Tree<'w>,
        before: Option<&'w ArchivedTenantTable>,
    ) -> (Hanging<'w>, Vec<Level>) {
        let name = |level: &'w ArchivedLevel| -> LevelName<'w> {
            (level.kind.word(), level.scope_id.as_str(), level.model.as_ref().map(|model| model.as_str()))
        };
        let mut rows = Rows::of(before.map(|table| table.levels.iter().map(name)), world.limits.len());
        let mut hanging = Hanging(HashMap::with_capacity(world.limits.len()));
        let mut levels: Vec<Option<Level>> = Vec::with_capacity(rows.room());
        for LimitsRow { scope, model, limits } in &world.limits {
            let Some(organization) = tree.organization(scope.kind, &scope.id) else { continue };
            let hung = hanging.0.entry((scope.kind, &scope.id)).or_default();
            if let Some(allowed) = &limits.allowed_models {
                hung.allowed = Some(allowed);
            }
            let held = held(limits);
            if held == Limits::default() {
                continue;
            }
            let kind = level_kind(scope.kind);
            let row = rows.row((kind.word(), &scope.id, model.as_deref()));
            self.level_versions.of_level(row, &held);
            let place = if model.is_none() { 0 } else { hung.levels.len() };
            hung.levels.insert(place, row);
            let organization = self.organizations.of(organization);
            let level = Level { kind, scope_id: scope.id.clone(), model: model.clone(), organization, limits: held };
            put(&mut levels, row, level);
        }
        let gone = |gone: &ArchivedLevel| Level {
            kind: gone.kind.kind(),
            scope_id: gone.scope_id.as_str().to_owned(),
            model: gone.model.as_ref().map(|model| model.as_str().to_owned()),
            organization: 0,
            limits: Limits::default(),
        };
        (hanging, filled(levels, before.map(|table| table.levels.as_slice()), gone))
    }

    fn key<'w>(
        &mut self,
        row: u32,
        key: &'w KeyRow,
        above: &Above<'_>,
        hanging: &Hanging<'w>,
        allowlists: &mut Allowlists,
    ) -> Key {
        let (own_levels, own) = hanging.on(ScopeKind::Key, &key.id);
        let allowlist = match own {
            None => above.allowlist,
            Some(own) => {
                let both = intersection([Some(own), above.allowed.as_deref()].into_iter());
                both.as_deref().map(|list| allowlists.row(list))
            }
        };
        let levels = [own_levels, &above.levels].concat();
        let limits_version = self.key_versions.of_key(row, &levels, |level| self.level_versions.newest(level));
        Key {
            id: key.id.clone(),
            name: key.name.clone(),
            project: above.row,
            is_revoked: key.revoked_at.is_some(),
            expires_at: key.expires_at.map_or(NEVER, moment),
            band: key.band.clone().or_else(|| above.project.band.clone()),
            profile: key.routing_profile.clone().or_else(|| above.project.routing_profile.clone()),
            may_pin_replica: key.may_pin_replica,
            allowlist,
            levels,
            limits_version,
        }
    }
}

/// The limits of a row, without its list of models.
fn held(limits: &StoreLimits) -> Limits {
    Limits {
        rpm: limits.rpm,
        tpm: limits.tpm,
        parallel: limits.parallel,
        budget: limits.budget_micros.zip(limits.budget_period).map(|(micros, period)| Budget {
            micros,
            period: match period {
                BudgetPeriod::Day => Period::Day,
                BudgetPeriod::Month => Period::Month,
            },
            time_zone: limits.time_zone.clone().unwrap_or_else(|| "UTC".to_owned()),
        }),
    }
}

/// An id that the store did not make: whoever wrote it there by hand is told why it is not used.
fn is_too_long(what: &str, id: &str) -> bool {
    let is_too_long = id.len() > ShortId::BYTES_MAX;
    if is_too_long {
        tracing::warn!(id, "this {what}'s id is longer than {} bytes; it is not used", ShortId::BYTES_MAX);
    }
    is_too_long
}

fn moment(unix_ms: i64) -> u64 {
    u64::try_from(unix_ms).unwrap_or(0)
}

const fn level_kind(kind: ScopeKind) -> LevelKind {
    match kind {
        ScopeKind::Key => LevelKind::Key,
        ScopeKind::Project => LevelKind::Project,
        ScopeKind::Team => LevelKind::Team,
        ScopeKind::Org => LevelKind::Organization,
    }
}

fn put<T>(rows: &mut Vec<Option<T>>, row: u32, value: T) {
    let at = row as usize;
    if rows.len() <= at {
        rows.resize_with(at + 1, || None);
    }
    if let Some(place) = rows.get_mut(at) {
        *place = Some(value);
    }
}

/// All rows; those of what the table before has and that is gone as `gone` says.
fn filled<T, A>(mut rows: Vec<Option<T>>, before: Option<&[A]>, gone: impl Fn(&A) -> T) -> Vec<T> {
    let before = before.unwrap_or_default();
    rows.resize_with(rows.len().max(before.len()), || None);
    // A row that is new has a value.
    let all = rows.into_iter().enumerate();
    all.filter_map(|(at, row)| row.or_else(|| before.get(at).map(&gone))).collect()
}
