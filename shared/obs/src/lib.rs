//! How metrics and logs are recorded, not what is recorded.
