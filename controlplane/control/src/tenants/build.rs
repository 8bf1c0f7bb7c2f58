//! From the rows of the store to the table of who may ask.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use llmgw_store::{Rows as StoreRows, Store, StoreError};
use llmgw_tenancy::key::{KeyRow, OldSecret};
use llmgw_tenancy::limits::{LimitsRow, Period as BudgetPeriod, intersection};
use llmgw_tenancy::scope::{Organization, Project as ProjectRow, ScopeKind, Team};
use llmgw_types::snapshot::SnapshotError;
use llmgw_types::tenants::{Budget, Key, Level, LevelKind, Limits, NEVER, Period, Project, Secret};
use llmgw_types::{KeyIdx, ShortId, TenantSnapshot, TenantTable};

use super::book::{Rows, Versions};

/// Makes tables, each with the rows of the one before.
#[derive(Debug, Default)]
pub struct Builder {
    organizations: Rows<String>,
    projects: Rows<String>,
    keys: Rows<String>,
    levels: Rows<LevelName>,
    level_versions: Versions,
    key_versions: Versions,
}

/// What a level is known by, for life: its kind, whose it is and for which model.
type LevelName = (ScopeKind, String, Option<String>);

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
    pub snapshot: TenantSnapshot,
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
            keys: rows.keys()?,
            // Ended ones too: who shows one is told that it has.
            overlaps: rows.overlaps(0)?,
            limits: rows.limits()?,
        })
    }
}

/// What hangs on each scope: rows of levels, and the list of models.
#[derive(Default)]
struct Hanging {
    levels: HashMap<(ScopeKind, String), Vec<u32>>,
    allowed: HashMap<(ScopeKind, String), Vec<String>>,
}

impl Hanging {
    fn levels(&self, kind: ScopeKind, id: &str) -> &[u32] {
        self.levels.get(&(kind, id.to_owned())).map(Vec::as_slice).unwrap_or_default()
    }

    fn allowed(&self, kind: ScopeKind, id: &str) -> Option<&[String]> {
        self.allowed.get(&(kind, id.to_owned())).map(Vec::as_slice)
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
        let (generation, table) = (world.generation, self.table(&world));
        let snapshot = TenantSnapshot::of(&table)?;
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
        Ok(Built { generation, snapshot, key_count, bands, profiles })
    }

    /// The id of the key in that row.
    pub fn key_id(&self, key: KeyIdx) -> Option<&str> {
        self.keys.names().get(key.idx()).map(String::as_str)
    }

    fn table(&mut self, world: &World) -> TenantTable {
        let teams: HashMap<&str, &Team> = world.teams.iter().map(|team| (team.id.as_str(), team)).collect();
        let organizations: HashMap<&str, &Organization> =
            world.organizations.iter().map(|row| (row.id.as_str(), row)).collect();
        let (hanging, levels) = self.levels(world, &teams);
        let mut allowlists = Allowlists::default();
        let mut projects: Vec<Option<Project>> = Vec::new();
        let mut above: HashMap<&str, Above<'_>> = HashMap::new();
        for project in &world.projects {
            let Some(team) = teams.get(project.team_id.as_str()) else { continue };
            let Some(organization) = organizations.get(team.org_id.as_str()) else { continue };
            if is_too_long("project", &project.id) {
                continue;
            }
            let row = self.projects.row(&project.id);
            let path = format!("{}/{}/{}", organization.name, team.name, project.name);
            let number = self.organizations.row(&organization.id);
            put(&mut projects, row, Project { id: project.id.clone(), path, organization: number });
            let chain =
                [(ScopeKind::Project, &project.id), (ScopeKind::Team, &team.id), (ScopeKind::Org, &organization.id)];
            let levels = chain.iter().flat_map(|(kind, id)| hanging.levels(*kind, id)).copied().collect();
            let allowed = intersection(chain.iter().map(|(kind, id)| hanging.allowed(*kind, id)));
            let allowlist = allowed.as_deref().map(|list| allowlists.row(list));
            above.insert(&project.id, Above { row, project, levels, allowed, allowlist });
        }
        let mut keys: Vec<Option<Key>> = Vec::new();
        let mut secrets = Vec::with_capacity(world.keys.len() + world.overlaps.len());
        let mut digests = HashSet::with_capacity(secrets.capacity());
        let mut rows: HashMap<&str, u32> = HashMap::with_capacity(world.keys.len());
        for key in &world.keys {
            let Some(above) = above.get(key.project_id.as_str()) else { continue };
            if is_too_long("key", &key.id) {
                continue;
            }
            let row = self.keys.row(&key.id);
            rows.insert(&key.id, row);
            if digests.insert(key.hash.0) {
                secrets.push(Secret { digest: key.hash.0, key: row, ends_at: NEVER });
            }
            let key = self.key(row, key, above, &hanging, &mut allowlists);
            put(&mut keys, row, key);
        }
        for old in &world.overlaps {
            let Some(row) = rows.get(old.key_id.as_str()) else { continue };
            if digests.insert(old.hash.0) {
                secrets.push(Secret { digest: old.hash.0, key: *row, ends_at: moment(old.expires_at) });
            }
        }
        let table = TenantTable {
            generation: u64::try_from(world.generation).unwrap_or(0),
            keys: filled(keys, &self.keys, |id| Key { is_revoked: true, ..Key::plain(id) }),
            projects: filled(projects, &self.projects, |id| Project {
                id: id.clone(),
                path: String::new(),
                organization: 0,
            }),
            levels: filled(levels, &self.levels, |(kind, scope_id, model)| Level {
                kind: level_kind(*kind),
                scope_id: scope_id.clone(),
                model: model.clone(),
                organization: 0,
                limits: Limits::default(),
            }),
            allowlists: allowlists.lists,
            ..TenantTable::default()
        };
        table.with_secrets(secrets)
    }

    fn levels(&mut self, world: &World, teams: &HashMap<&str, &Team>) -> (Hanging, Vec<Option<Level>>) {
        let projects: HashMap<&str, &str> =
            world.projects.iter().map(|project| (project.id.as_str(), project.team_id.as_str())).collect();
        let keys: HashMap<&str, &str> =
            world.keys.iter().map(|key| (key.id.as_str(), key.project_id.as_str())).collect();
        let (mut hanging, mut levels) = (Hanging::default(), Vec::new());
        for LimitsRow { scope, model, limits } in &world.limits {
            let project = if scope.kind == ScopeKind::Key { keys.get(scope.id.as_str()).copied() } else { None };
            let project = project.or((scope.kind == ScopeKind::Project).then_some(scope.id.as_str()));
            let team = project.and_then(|id| projects.get(id)).copied();
            let team = team.or((scope.kind == ScopeKind::Team).then_some(scope.id.as_str()));
            let organization = team.and_then(|id| teams.get(id)).map(|team| team.org_id.as_str());
            let organization = organization.or((scope.kind == ScopeKind::Org).then_some(scope.id.as_str()));
            // What hangs on nothing that is there holds nobody.
            let Some(organization) = organization else { continue };
            let at = || (scope.kind, scope.id.clone());
            if let Some(allowed) = &limits.allowed_models {
                hanging.allowed.insert(at(), allowed.clone());
            }
            let held = Limits {
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
            };
            if held == Limits::default() {
                continue;
            }
            let row = self.levels.row(&(scope.kind, scope.id.clone(), model.clone()));
            self.level_versions.of_level(row, &held);
            hanging.levels.entry(at()).or_default().push(row);
            let level = Level {
                kind: level_kind(scope.kind),
                scope_id: scope.id.clone(),
                model: model.clone(),
                organization: self.organizations.row(&organization.to_owned()),
                limits: held,
            };
            put(&mut levels, row, level);
        }
        (hanging, levels)
    }

    fn key(
        &mut self,
        row: u32,
        key: &KeyRow,
        above: &Above<'_>,
        hanging: &Hanging,
        allowlists: &mut Allowlists,
    ) -> Key {
        let own = hanging.allowed(ScopeKind::Key, &key.id);
        let allowlist = match own {
            None => above.allowlist,
            Some(own) => {
                let both = intersection([Some(own), above.allowed.as_deref()].into_iter());
                both.as_deref().map(|list| allowlists.row(list))
            }
        };
        let levels = [hanging.levels(ScopeKind::Key, &key.id), &above.levels].concat();
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

/// All rows; those of what is gone as `gone` says.
fn filled<T, N: Clone + Hash + Eq>(mut rows: Vec<Option<T>>, book: &Rows<N>, gone: impl Fn(&N) -> T) -> Vec<T> {
    rows.resize_with(book.names().len(), || None);
    rows.into_iter().zip(book.names()).map(|(row, name)| row.unwrap_or_else(|| gone(name))).collect()
}
