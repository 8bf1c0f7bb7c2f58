-- Rows come in the order in which requests end. A table in that order is written at its end alone, however long
-- requests last, and has no index beside it. In which part of it an hour's rows lie, by admission, usage_hours says.

CREATE TABLE usage_by_end (
    ts BIGINT NOT NULL,                         -- when it ended
    record_id BLOB NOT NULL,                    -- its first 48 bits are when the request came
    admitted_at BIGINT NOT NULL,                -- when it was let in; hours and budgets go by it
    key_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    model TEXT NOT NULL,
    served_model TEXT,                          -- another one where a fallback served it; NULL: the one asked for
    pool TEXT,
    replica TEXT,                               -- the endpoint that was asked last; NULL: none was
    status INTEGER NOT NULL,
    reason TEXT,                                -- in the words of the errors' table; NULL: it did not fail
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,              -- of the prompt, by the engine's word
    units_micros BIGINT NOT NULL,               -- millionths of a unit
    is_estimated INTEGER NOT NULL,              -- the engine did not say how many tokens
    ttft_ms BIGINT,
    duration_ms BIGINT NOT NULL,                -- from when it came to ts
    queue_ms BIGINT,
    PRIMARY KEY (ts, record_id)                 -- both are the same in every copy: one that comes again changes nothing
) WITHOUT ROWID;

INSERT INTO usage_by_end
    SELECT ts, record_id, admitted_at, key_id, project_id, model, NULLIF(served_model, model), pool, replica, status,
        reason, prompt_tokens, completion_tokens, cached_tokens, units_micros, is_estimated, ttft_ms, duration_ms,
        queue_ms
    FROM usage;
DROP TABLE usage;
ALTER TABLE usage_by_end RENAME TO usage;

-- For each hour of which there are rows: from when to when they ended, and how long the longest took.
CREATE TABLE usage_hours (
    hour_ts BIGINT NOT NULL PRIMARY KEY,
    first_ts BIGINT NOT NULL,
    last_ts BIGINT NOT NULL,
    longest_ms BIGINT NOT NULL
);

INSERT INTO usage_hours
    SELECT admitted_at - admitted_at % 3600000, MIN(ts), MAX(ts), MAX(duration_ms) FROM usage GROUP BY 1;
