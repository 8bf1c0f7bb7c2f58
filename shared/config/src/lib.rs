//! server.yaml: parse, check, explain.
