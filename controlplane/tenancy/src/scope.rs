//! The levels below each other: organisation, team, project, key.

use serde::{Deserialize, Serialize};

/// A level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScopeKind {
    Org,
    Team,
    Project,
    Key,
}

impl ScopeKind {
    /// The word for it in tables and answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Org => "org",
            Self::Team => "team",
            Self::Project => "project",
            Self::Key => "key",
        }
    }

    /// The level a word means.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Org, Self::Team, Self::Project, Self::Key].into_iter().find(|kind| kind.word() == word)
    }
}

/// Something that limits can hang on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    pub kind: ScopeKind,
    pub id: String,
}

impl Scope {
    pub fn new(kind: ScopeKind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
    }
}

/// The highest level. Times here and below are unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organization {
    pub id: String,
    /// Unique.
    pub name: String,
    pub created_at: i64,
}

/// A part of an organisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    pub id: String,
    pub org_id: String,
    /// Unique in its organisation.
    pub name: String,
    pub created_at: i64,
}

/// What keys are made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    pub id: String,
    pub team_id: String,
    /// Unique in its team.
    pub name: String,
    /// Of its keys that name none.
    pub band: Option<String>,
    /// Of its keys that name none.
    pub routing_profile: Option<String>,
    pub created_at: i64,
}
