-- What was used: a row a request for as long as rows are kept, and sums by the hour for good. Times are unix
-- milliseconds. No reference to api_keys: a record must find its place even where the keys were restored from before it.

CREATE TABLE usage (
    record_id BLOB NOT NULL PRIMARY KEY,        -- a record that comes again changes nothing
    ts BIGINT NOT NULL,                         -- when it ended
    admitted_at BIGINT NOT NULL,                -- when it began; hours and budgets go by it
    key_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    model TEXT NOT NULL,
    served_model TEXT NOT NULL,                 -- another one where a fallback served it
    pool TEXT,
    status INTEGER NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,              -- of the prompt, by the engine's word
    units_micros BIGINT NOT NULL,               -- millionths of a unit
    is_estimated INTEGER NOT NULL,              -- the engine did not say how many tokens
    ttft_ms BIGINT,
    duration_ms BIGINT NOT NULL,
    queue_ms BIGINT
);
CREATE INDEX usage_by_key ON usage (key_id, admitted_at);
CREATE INDEX usage_by_admission ON usage (admitted_at);

CREATE TABLE usage_rollup (
    hour_ts BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    model TEXT NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    units_micros BIGINT NOT NULL,
    estimated_requests BIGINT NOT NULL,
    PRIMARY KEY (hour_ts, key_id, model)
);
CREATE INDEX usage_rollup_by_key ON usage_rollup (key_id, hour_ts);

-- Hours with rows that are in no sum yet.
CREATE TABLE usage_open_hours (
    hour_ts BIGINT NOT NULL PRIMARY KEY
);
