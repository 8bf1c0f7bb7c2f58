//! Chats of many turns, made up from a seed: sessions come at random, share one of a few beginnings, and each turn
//! repeats what was said before. Pure.

use std::time::Duration;

use llmgw_kit::chance::Chance;

use super::workload::{Call, Workload};

/// What chats are like.
#[derive(Debug, Clone, Copy)]
pub struct Chats {
    pub seed: u64,
    pub time: Duration,
    pub sessions_per_second: f64,
    /// Different beginnings (system prompts with their tools), and the blocks of each.
    pub head_count: u32,
    pub head_blocks: u32,
    /// A first message has from one to so many blocks, most of them few.
    pub first_blocks_max: u32,
    /// Turns of a session: at random, so many in the mean.
    pub turns_mean: f64,
    /// Between an answer and the next turn, in the mean.
    pub think: Duration,
}

impl Default for Chats {
    fn default() -> Self {
        Self {
            seed: 1,
            time: Duration::from_secs(1800),
            sessions_per_second: 0.8,
            head_count: 8,
            head_blocks: 6,
            first_blocks_max: 100,
            turns_mean: 6.0,
            think: Duration::from_secs(150),
        }
    }
}

/// Turns of a session, at most.
const TURNS_MAX: u32 = 40;
/// What an answer is taken to need before the next turn can begin: its prefill, and each of its tokens.
const ANSWER_SECONDS: f64 = 2.0;
const TOKEN_SECONDS: f64 = 0.03;

impl Chats {
    /// The same seed makes the same chats.
    #[must_use]
    pub fn workload(&self) -> Workload {
        let mut chance = Chance::seeded(self.seed);
        let mut next_block = u64::from(self.head_count) * u64::from(self.head_blocks);
        let (mut calls, mut begins, mut session) = (Vec::new(), 0.0, 0);
        while begins < self.time.as_secs_f64() {
            begins += exponential(&mut chance, 1.0 / self.sessions_per_second);
            session += 1;
            self.session(session, begins, &mut chance, &mut next_block, &mut calls);
        }
        calls.retain(|call| call.at < self.time);
        calls.sort_by_key(|call| call.at);
        let first = calls.first().map_or(Duration::ZERO, |call| call.at);
        calls.iter_mut().for_each(|call| call.at -= first);
        Workload { name: format!("chats-{}", self.seed), calls, is_whole: true }
    }

    fn session(&self, session: u64, begins: f64, chance: &mut Chance, next_block: &mut u64, calls: &mut Vec<Call>) {
        let mut at = begins;
        let head = u64::from(chance.below(self.head_count)) * u64::from(self.head_blocks);
        let mut blocks: Vec<u64> = (head..head + u64::from(self.head_blocks)).collect();
        let mut say = |blocks: &mut Vec<u64>, count: u32| {
            blocks.extend(*next_block..*next_block + u64::from(count));
            *next_block += u64::from(count);
        };
        say(&mut blocks, f64::from(self.first_blocks_max).powf(chance.unit()) as u32);
        for _ in 0..TURNS_MAX {
            let output_tokens = 50 + u64::from(chance.below(500));
            calls.push(Call { at: Duration::from_secs_f64(at), blocks: blocks.clone(), output_tokens, session });
            if chance.unit() < 1.0 / self.turns_mean {
                return;
            }
            // The answer, and what is asked next.
            say(&mut blocks, 1 + chance.below(3));
            at += ANSWER_SECONDS + output_tokens as f64 * TOKEN_SECONDS;
            at += exponential(chance, self.think.as_secs_f64());
        }
    }
}

fn exponential(chance: &mut Chance, mean: f64) -> f64 {
    -mean * (1.0 - chance.unit()).ln()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_turn_repeats_what_was_said_and_a_seed_repeats_its_chats() {
        let workload = Chats::default().workload();
        assert_eq!(workload, Chats::default().workload());
        assert_ne!(workload.calls, Chats { seed: 2, ..Chats::default() }.workload().calls);
        assert!(workload.calls.is_sorted_by_key(|call| call.at) && workload.calls.len() > 2000);
        let mut said: HashMap<u64, &[u64]> = HashMap::new();
        for call in &workload.calls {
            let before = said.insert(call.session, &call.blocks).unwrap_or(&[]);
            assert!(call.blocks.len() > before.len() && call.blocks.starts_with(before), "{call:?}");
        }
        assert!(said.len() > 400, "{} sessions", said.len());
        assert_eq!(workload.calls[0].at, Duration::ZERO);
    }

    #[test]
    fn one_cache_is_too_small_for_them_and_all_together_are_not_by_far() {
        let workload = Chats::default().workload();
        let [one, all, endless] = [2_000, 16_000, usize::MAX].map(|blocks| workload.pooled_hit_percent(blocks));
        assert!(one + 10.0 < all && all < endless, "{one:.1} {all:.1} {endless:.1}");
    }
}
