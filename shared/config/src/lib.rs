//! server.yaml: parse, check, explain.
//!
//! `load` takes a file and an environment to a [`ServerConfig`] or to everything that is wrong with it. Called once at
//! start by the roles of the binary. Never opens a connection; reads no file but the one named and the secrets it
//! names.

mod availability;
mod checked;
mod config;
pub mod diff;
pub mod document;
mod environment;
pub mod error;
pub mod load;
mod read;
pub mod server;
pub mod url;
pub mod values;
mod yaml;

pub use config::{
    AdmissionConfig, Authorities, BandConfig, CertificateConfig, EndpointConfig, LimitsConfig, MetricsPath,
    ModelConfig, PickerConfig, PlacementConfig, PrefixConfig, RouterConfig, RoutingProfileConfig, ScoreConfig,
    ServedModel, ServerConfig, SessionConfig, ThresholdsConfig, TimeoutsConfig,
};
pub use error::{ConfigError, WithoutEffect};
pub use load::{from_process_env, from_text, load};
pub use read::Field;
pub use values::CoreCount;
