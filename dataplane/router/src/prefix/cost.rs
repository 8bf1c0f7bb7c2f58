//! What a request costs an engine, in tokens of prefill.
//!
//! Called by the scorer of cost and by the guard. Arithmetic on its arguments; what weighs what is decided here.

/// What an answer that is being written costs the requests beside it, as tokens of prefill.
pub const DECODE_TOKENS: f32 = 64.0;
/// What each request counts, in the same, that is to wait for its place in the engine's batch: about what prefills in
/// half a second.
pub const WAITING_TOKENS: f32 = 8192.0;
/// What a token that is not cached weighs over one that waits before it, unless a profile says otherwise.
pub const W_OVERLAP: f32 = 4.0;
/// What a token weighs, over one that waits, that an engine was given lately beyond its share: little, so that a prompt
/// leaves its engine only when that one is ahead of the others by many times what is to be prefilled again.
pub const W_BEYOND: f32 = 0.1;

/// What an engine has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Tokens to prefill, of requests without a first token.
    pub queued_tokens: i64,
    /// Requests in flight.
    pub requests: i64,
    /// Those that wait there for their place in the batch, the one at hand included.
    pub waiting: i64,
    /// The engine's share within its pool, above 0.
    pub weight: f32,
}

impl Work {
    /// The time that passes before an engine of weight 1 has prefilled all of it. Units: tokens of prefill.
    pub fn load(&self) -> f32 {
        let decode = DECODE_TOKENS * self.requests.max(0) as f32;
        (self.queued_tokens.max(0) as f32 + decode + WAITING_TOKENS * self.waiting.max(0) as f32) / self.weight
    }

    /// The cost of one more request with so many tokens left to prefill, at an engine that was given `beyond` tokens
    /// more than its share: the lowest is best, and may be below 0. A high `w_overlap` keeps prompts where they are
    /// cached, a low one levels load.
    pub fn cost(&self, w_overlap: f32, tokens_left: u32, beyond: f32) -> f32 {
        (w_overlap * tokens_left as f32 + W_BEYOND * beyond) / self.weight + self.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_prompt_outweighs_load_up_to_its_weight() {
        let work = |queued_tokens, requests| Work { queued_tokens, requests, waiting: 0, weight: 1.0 };
        let at = |queued_tokens, requests, left| work(queued_tokens, requests).cost(W_OVERLAP, left, 0.0);
        assert!(at(30_000, 0, 0) < at(0, 0, 8_000));
        assert!(at(33_000, 0, 0) > at(0, 0, 8_000));
        assert!(at(0, 400, 0) < at(0, 0, 8_000));
        assert!(at(0, 600, 0) > at(0, 0, 8_000));
    }

    #[test]
    fn whoever_would_wait_for_a_place_goes_where_there_is_one_unless_a_long_prompt_is_cached() {
        let at =
            |waiting, left| Work { requests: 32, waiting, weight: 1.0, ..Work::default() }.cost(W_OVERLAP, left, 0.0);
        assert!(at(1, 0) > at(0, 1_000));
        assert!(at(1, 0) < at(0, 8_000));
        assert!(at(4, 0) > at(0, 8_000));
    }

    #[test]
    fn a_larger_engine_is_loaded_less_by_the_same_work() {
        let work = |weight| Work { queued_tokens: 1000, requests: 1, waiting: 2, weight };
        assert_eq!(work(1.0).load(), 2.0 * work(2.0).load());
        assert_eq!(work(1.0).cost(2.0, 500, 100.0), 2.0 * work(2.0).cost(2.0, 500, 100.0));
    }

    #[test]
    fn a_prompt_leaves_an_engine_that_is_ahead_by_many_times_what_is_to_be_prefilled_again() {
        let at = |left, beyond| Work { weight: 1.0, ..Work::default() }.cost(W_OVERLAP, left, beyond);
        assert!(at(500, 100_000.0) < at(3500, -15_000.0));
        assert!(at(500, 110_000.0) > at(3500, -15_000.0));
        assert!(at(500, 1.0) > at(500, 0.0), "of equals, whoever is behind");
    }
}
