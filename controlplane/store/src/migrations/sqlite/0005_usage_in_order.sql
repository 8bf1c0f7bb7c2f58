-- Rows come in the order of their admission, and everything that reads them goes by it. An index by key had a page of
-- its own to write for almost every row, and nobody asked by it.

DROP INDEX usage_by_key;
