-- Who answered a request, and why it failed.

ALTER TABLE usage ADD COLUMN replica TEXT;      -- the endpoint that was asked last; NULL: none was
ALTER TABLE usage ADD COLUMN reason TEXT;       -- in the words of the errors' table; NULL: it did not fail
