//! What a request can be sent to, in words that configuration, side runtime and router share.
//!
//! Never knows how to connect or how to choose.

use rkyv::{Archive, Deserialize, Serialize};

/// The kind of inference engine behind an endpoint: decides paths, metric names and small habits.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[rkyv(derive(Clone, Copy, Debug, PartialEq, Eq))]
pub enum EngineKind {
    /// vLLM, `engine: vllm`.
    Vllm,
    /// SGLang, `engine: sglang`.
    Sglang,
    /// llama.cpp's `llama-server`, `engine: llamacpp`.
    LlamaCpp,
    /// The simulated engine, `engine: sim`; speaks vLLM's vocabulary.
    Sim,
}

impl EngineKind {
    /// All kinds, in the order in which messages list them.
    pub const ALL: [Self; 4] = [Self::Vllm, Self::Sglang, Self::LlamaCpp, Self::Sim];

    /// The name used in configuration and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llamacpp",
            Self::Sim => "sim",
        }
    }

    /// The kind with that configuration name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl std::fmt::Display for EngineKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What makes endpoints one pool: the same model on the same fabric and GPU class.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    /// The model's public name.
    pub model: String,
    /// The fabric's name, `none` without one.
    pub fabric: String,
    /// The GPU class, `unknown` unless configured.
    pub gpu_class: String,
}

impl PoolKey {
    /// The pool's name in headers and metric labels: `fabric/gpu_class` (the model has a label of its own).
    pub fn label(&self) -> String {
        format!("{}/{}", self.fabric, self.gpu_class)
    }
}

#[cfg(test)]
mod tests {
    use super::EngineKind;

    #[test]
    fn every_engine_kind_is_found_by_its_own_name() {
        for kind in EngineKind::ALL {
            assert_eq!(EngineKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(EngineKind::from_name("vLLM"), None);
    }
}
