//! Organisations, teams and projects. Each change lets [`Rows::tenancy_generation`] grow.

use llmgw_tenancy::scope::{Organization, Project, Team};
use rusqlite::{OptionalExtension, Params, Row, params};

use crate::error::StoreError;
use crate::store::{Rows, Tx};

const ORGANIZATION: &str = "SELECT id, name, created_at FROM organizations";
const TEAM: &str = "SELECT id, org_id, name, created_at FROM teams";
const PROJECT: &str = "SELECT id, team_id, name, band, routing_profile, created_at FROM projects";

fn organization(row: &Row<'_>) -> rusqlite::Result<Organization> {
    Ok(Organization { id: row.get(0)?, name: row.get(1)?, created_at: row.get(2)? })
}

fn team(row: &Row<'_>) -> rusqlite::Result<Team> {
    Ok(Team { id: row.get(0)?, org_id: row.get(1)?, name: row.get(2)?, created_at: row.get(3)? })
}

fn project(row: &Row<'_>) -> rusqlite::Result<Project> {
    Ok(Project {
        id: row.get(0)?,
        team_id: row.get(1)?,
        name: row.get(2)?,
        band: row.get(3)?,
        routing_profile: row.get(4)?,
        created_at: row.get(5)?,
    })
}

impl Rows<'_> {
    /// A number that grows with every change to who may ask and what they may.
    pub fn tenancy_generation(&self) -> Result<i64, StoreError> {
        let sql = "SELECT value FROM meta WHERE name = 'tenancy_generation'";
        Ok(self.0.query_row(sql, [], |row| row.get(0))?)
    }

    /// All organisations, by name.
    pub fn organizations(&self) -> Result<Vec<Organization>, StoreError> {
        self.list(&format!("{ORGANIZATION} ORDER BY name"), [], organization)
    }

    /// The organisation of an id or a name.
    pub fn organization(&self, wanted: &str) -> Result<Option<Organization>, StoreError> {
        self.one(&format!("{ORGANIZATION} WHERE id = ?1 OR name = ?1 ORDER BY id = ?1 DESC"), [wanted], organization)
    }

    /// All teams, by organisation and name.
    pub fn teams(&self) -> Result<Vec<Team>, StoreError> {
        self.list(&format!("{TEAM} ORDER BY org_id, name"), [], team)
    }

    /// The team of an id.
    pub fn team(&self, id: &str) -> Result<Option<Team>, StoreError> {
        self.one(&format!("{TEAM} WHERE id = ?1"), [id], team)
    }

    /// The team of that name in an organisation.
    pub fn team_named(&self, org_id: &str, name: &str) -> Result<Option<Team>, StoreError> {
        self.one(&format!("{TEAM} WHERE org_id = ?1 AND name = ?2"), [org_id, name], team)
    }

    /// All projects, by team and name.
    pub fn projects(&self) -> Result<Vec<Project>, StoreError> {
        self.list(&format!("{PROJECT} ORDER BY team_id, name"), [], project)
    }

    /// The project of an id.
    pub fn project(&self, id: &str) -> Result<Option<Project>, StoreError> {
        self.one(&format!("{PROJECT} WHERE id = ?1"), [id], project)
    }

    /// The project of that name in a team.
    pub fn project_named(&self, team_id: &str, name: &str) -> Result<Option<Project>, StoreError> {
        self.one(&format!("{PROJECT} WHERE team_id = ?1 AND name = ?2"), [team_id, name], project)
    }

    pub(crate) fn list<T>(
        &self,
        sql: &str,
        params: impl Params,
        of: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.0.prepare(sql)?;
        let rows = statement.query_map(params, of)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(crate) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        of: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.0.query_row(sql, params, of).optional()?)
    }
}

impl Tx<'_> {
    /// Errors: the name is taken.
    pub fn add_organization(&self, row: &Organization) -> Result<(), StoreError> {
        let sql = "INSERT INTO organizations (id, name, created_at) VALUES (?1, ?2, ?3)";
        self.change(sql, params![row.id, row.name, row.created_at])
    }

    /// Errors: the name is taken, or the organisation is not there.
    pub fn add_team(&self, row: &Team) -> Result<(), StoreError> {
        let sql = "INSERT INTO teams (id, org_id, name, created_at) VALUES (?1, ?2, ?3, ?4)";
        self.change(sql, params![row.id, row.org_id, row.name, row.created_at])
    }

    /// Errors: the name is taken, or the team is not there.
    pub fn add_project(&self, row: &Project) -> Result<(), StoreError> {
        let sql = "INSERT INTO projects (id, team_id, name, band, routing_profile, created_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let Project { id, team_id, name, band, routing_profile, created_at } = row;
        self.change(sql, params![id, team_id, name, band, routing_profile, created_at])
    }

    /// Writes the project's name, band and profile. Errors: the name is taken.
    pub fn change_project(&self, row: &Project) -> Result<(), StoreError> {
        let sql = "UPDATE projects SET name = ?2, band = ?3, routing_profile = ?4 WHERE id = ?1";
        self.change(sql, params![row.id, row.name, row.band, row.routing_profile])
    }

    /// Writes the organisation's name. Errors: it is taken.
    pub fn change_organization(&self, row: &Organization) -> Result<(), StoreError> {
        self.change("UPDATE organizations SET name = ?2 WHERE id = ?1", params![row.id, row.name])
    }

    /// Writes the team's name. Errors: it is taken.
    pub fn change_team(&self, row: &Team) -> Result<(), StoreError> {
        self.change("UPDATE teams SET name = ?2 WHERE id = ?1", params![row.id, row.name])
    }

    /// A change to who may ask, and the sign of it in the same transaction.
    pub(crate) fn change(&self, sql: &str, params: impl Params) -> Result<(), StoreError> {
        self.0.execute(sql, params)?;
        self.0.execute("UPDATE meta SET value = value + 1 WHERE name = 'tenancy_generation'", [])?;
        Ok(())
    }
}
