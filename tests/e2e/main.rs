//! The built binary against what it will meet: the official client, curl, Node, and a real engine.
//!
//! Run by `cargo x test e2e`, which looks first whether Python, Node and curl are there; plain `cargo test` leaves this
//! target out. What the suite installs goes to `target/e2e`, or where `LLMGW_E2E_DIR` says. Traffic stays on loopback.

mod anthropic;
mod capacity;
mod clients;
mod compare;
mod engines;
mod install;
mod newcomer;
mod official;
#[cfg(feature = "real-vllm")]
mod priority_vllm;
mod refusals;
mod streams;
#[cfg(feature = "real-vllm")]
mod vllm;

/// The binary under test.
pub(crate) fn llmgw() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_BIN_EXE_llmgw"))
}
