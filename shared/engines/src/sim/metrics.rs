//! The simulated engine's names for the contract: vLLM's.

pub(crate) use crate::vllm::VOCABULARY;
