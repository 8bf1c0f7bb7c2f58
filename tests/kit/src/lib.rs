//! What the suites share: processes, raw sockets, a simulated engine and a gateway to start in one line.
//!
//! Called by tests only. Everything waits for a condition with a deadline, everything started here ends with its guard,
//! and every read has a timeout, so that a broken product makes a test fail and never hang.
//!
//! ```no_run
//! use llmgw_test_kit::{Engine, Gateway, chat, raw};
//! let llmgw = std::path::Path::new("target/debug/llmgw"); // a test says env!("CARGO_BIN_EXE_llmgw")
//! let engine = Engine::start(llmgw);
//! let gateway = Gateway::builder().engine(&engine).start(llmgw);
//! let reply = raw::post(gateway.addr(), "/v1/chat/completions", &chat("hello").streamed().json());
//! assert_eq!(reply.status, 200);
//! ```

mod chat;
pub mod engine;
pub mod gateway;
mod length;
pub mod logs;
pub mod raw;
pub mod request;
mod wait;

pub use chat::{Chat, chat};
pub use engine::Engine;
pub use gateway::Gateway;
pub use length::full_or;
pub use llmgw_load::process::{self, Launch, Process, Signal};
pub use llmgw_load::quality;
pub use llmgw_load::usage;
pub use wait::{wait_for, wait_for_some};
