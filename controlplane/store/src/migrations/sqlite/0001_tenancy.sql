-- Who may ask: the levels, the keys, and the limits on each. Times are unix milliseconds.

CREATE TABLE organizations (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

CREATE TABLE teams (
    id TEXT NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, name)
);

CREATE TABLE projects (
    id TEXT NOT NULL PRIMARY KEY,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    band TEXT,
    routing_profile TEXT,
    created_at BIGINT NOT NULL,
    UNIQUE (team_id, name)
);

CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    key_hash BLOB NOT NULL UNIQUE,              -- SHA-256 of the key; nothing else of it is kept
    key_prefix TEXT NOT NULL,                   -- for display, never for a comparison
    name TEXT NOT NULL,
    project_id TEXT NOT NULL REFERENCES projects (id),
    band TEXT,                                  -- NULL: the project's
    routing_profile TEXT,                       -- NULL: the project's
    may_pin_replica INTEGER NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,                          -- NULL: never
    revoked_at BIGINT,                          -- the row stays, so that what was recorded of the key has a subject
    last_used_at BIGINT,                        -- to within a minute
    CHECK (length(key_hash) = 32)
);
CREATE INDEX api_keys_by_project ON api_keys (project_id);

-- What a key was before a rotation. It is the same key: its limits, its usage and its revocation hold for both.
CREATE TABLE api_key_overlaps (
    key_hash BLOB NOT NULL PRIMARY KEY,
    key_id TEXT NOT NULL REFERENCES api_keys (id),
    key_prefix TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    CHECK (length(key_hash) = 32)
);
CREATE INDEX api_key_overlaps_by_key ON api_key_overlaps (key_id);

-- NULL: no limit at this level; 0: none at all. A limit hangs on a level, and none is repeated below it.
CREATE TABLE limits (
    scope_type TEXT NOT NULL,                   -- org, team, project, key
    scope_id TEXT NOT NULL,
    model TEXT NOT NULL,                        -- '': all models together
    rpm BIGINT,
    tpm BIGINT,
    parallel BIGINT,
    budget_micros BIGINT,                       -- a period, in millionths of a unit
    budget_period TEXT,                         -- day, month
    time_zone TEXT,                             -- whose calendar; NULL: UTC
    allowed_models TEXT,                        -- JSON array; NULL: all; empty: none
    PRIMARY KEY (scope_type, scope_id, model),
    CHECK (scope_type IN ('org', 'team', 'project', 'key')),
    CHECK (budget_period IN ('day', 'month'))
);

-- Counts that belong to no row. tenancy_generation grows with every change to the tables above.
CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO meta (name, value) VALUES ('tenancy_generation', 1), ('usage_kept_from', 0);
