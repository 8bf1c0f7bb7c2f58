//! A simulated inference engine: a pure model of continuous batching behind an OpenAI-compatible front.
