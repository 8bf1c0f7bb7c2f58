-- Who changed what, as it was before and as it was after. Written in the transaction of the change itself.

CREATE TABLE audit (
    seq BIGINT NOT NULL PRIMARY KEY,            -- 1, 2, 3, without a gap
    ts BIGINT NOT NULL,                         -- unix milliseconds
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target_type TEXT NOT NULL,
    target_id TEXT NOT NULL,
    before TEXT,                                -- JSON; NULL: it was not there
    after TEXT                                  -- JSON; NULL: it is there no more
);
CREATE INDEX audit_by_target ON audit (target_id, seq);
