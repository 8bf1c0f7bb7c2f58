//! What the ring cannot compute of a session, kept by the core that owns it: where it went when its own engine was
//! full, and which engine holds a stored response.
//!
//! Other cores ask for it and add to it by message ([`crate::message::CoreMessage`]); the owner alone reads and writes
//! the table. It is bounded and lossy: in a full set what was used longest ago goes. Then a session is placed anew, and
//! a follow-up goes to any engine. Never sends, never reads a clock.
//!
//! Which sessions are in it is shown on the load board in a coarse way ([`Board::may_know_session`]), so that nobody
//! asks for a session that never left its engine.

use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_types::{BoardSlot, CoreId};

use crate::board::Board;

/// Entries of one set.
const WAYS: usize = 8;
/// Sessions away from their own engine that one core keeps; a number of sets.
pub const SESSIONS_MAX: usize = 1024 * WAYS;
/// Stored responses that one core keeps.
pub const RESPONSES_MAX: usize = 4096 * WAYS;
/// A session that was away and did nothing for so long goes to its own engine again: no cache holds it any more.
pub const SESSION_AWAY: Duration = Duration::from_secs(600);

/// What is asked for, by the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A session of one model, see [`crate::session::in_model`].
    Session(u64),
    /// A stored response, see [`crate::session::key_hash`].
    Response(u64),
}

impl Subject {
    /// What its owner is found by.
    pub fn hash(self) -> u64 {
        match self {
            Self::Session(hash) | Self::Response(hash) => hash,
        }
    }
}

/// An endpoint, not to be mistaken for one that has its slot later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its slot.
    pub slot: BoardSlot,
    /// How many endpoints had the slot before it.
    pub tenure: u32,
}

/// See the module. Owner: one core.
pub struct SessionTable {
    board: Arc<Board>,
    core: CoreId,
    sessions: Ways<{ SESSIONS_MAX }>,
    responses: Ways<{ RESPONSES_MAX }>,
}

impl SessionTable {
    /// The table of `core`: nothing is known.
    pub fn new(board: Arc<Board>, core: CoreId) -> Self {
        Self { board, core, sessions: Ways::default(), responses: Ways::default() }
    }

    /// Who has it, if that is known. Whoever asked looks whether that endpoint is still there
    /// ([`Board::is_current`]). Cost: three cache lines.
    pub fn find(&mut self, now: Mono, subject: Subject) -> Option<Holder> {
        let (Subject::Session(hash) | Subject::Response(hash)) = subject;
        let ways: &mut [Entry] = match subject {
            Subject::Session(_) => self.sessions.set(hash),
            Subject::Response(_) => self.responses.set(hash),
        };
        let entry = ways.iter_mut().find(|entry| entry.is_of(hash))?;
        let is_over = matches!(subject, Subject::Session(_)) && now.since(entry.used_at) > SESSION_AWAY;
        if is_over {
            self.forget(subject);
            return None;
        }
        entry.used_at = used(now);
        Some(entry.holder)
    }

    /// Remembers who has it. Loss: of what was used longest ago, where there is no room.
    pub fn put(&mut self, now: Mono, subject: Subject, holder: Holder) {
        let entry = Entry { key: subject.hash(), holder, used_at: used(now) };
        match subject {
            Subject::Response(_) => {
                self.responses.put(entry);
            }
            Subject::Session(hash) => {
                let replaced = self.sessions.put(entry);
                if replaced.is_none_or(|old| old.key != hash) {
                    self.board.mark_session(self.core, hash, 1);
                    if let Some(old) = replaced {
                        self.board.mark_session(self.core, old.key, -1);
                    }
                }
            }
        }
    }

    /// Forgets it: a session that is back on its own engine, a response that was deleted.
    pub fn forget(&mut self, subject: Subject) {
        match subject {
            Subject::Response(hash) => {
                self.responses.remove(hash);
            }
            Subject::Session(hash) => {
                if self.sessions.remove(hash) {
                    self.board.mark_session(self.core, hash, -1);
                }
            }
        }
    }
}

/// Zero stands for an empty entry.
fn used(now: Mono) -> Mono {
    Mono(now.0.max(1))
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    holder: Holder,
    used_at: Mono,
}

const EMPTY: Entry = Entry { key: 0, holder: Holder { slot: BoardSlot(0), tenure: 0 }, used_at: Mono(0) };

impl Entry {
    fn is_of(&self, key: u64) -> bool {
        self.used_at != Mono(0) && self.key == key
    }
}

/// `MAX` entries in sets by key. Takes its memory with the first entry.
#[derive(Default)]
struct Ways<const MAX: usize>(Vec<Entry>);

impl<const MAX: usize> Ways<MAX> {
    /// Low bits: owners are found by the high ones.
    fn set(&mut self, key: u64) -> &mut [Entry] {
        let at = key as usize % (MAX / WAYS) * WAYS;
        self.0.get_mut(at..at + WAYS).unwrap_or_default()
    }

    /// Answer: what had its place before.
    fn put(&mut self, entry: Entry) -> Option<Entry> {
        if self.0.is_empty() {
            self.0 = vec![EMPTY; MAX];
        }
        let set = self.set(entry.key);
        let own = set.iter().position(|old| old.is_of(entry.key));
        // An empty one was used before all others.
        let place = own.or_else(|| set.iter().enumerate().min_by_key(|(_, old)| old.used_at).map(|(at, _)| at))?;
        let old = std::mem::replace(set.get_mut(place)?, entry);
        (old.used_at != Mono(0)).then_some(old)
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.set(key).iter_mut().find(|entry| entry.is_of(key));
        found.map(|entry| *entry = EMPTY).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::key_hash;

    const NOW: Mono = Mono(1_000_000_000_000);
    const CORE: CoreId = CoreId(1);

    fn table() -> (Arc<Board>, SessionTable) {
        let board = Arc::new(Board::new(2, 8));
        (board.clone(), SessionTable::new(board, CORE))
    }

    fn hash(at: u64) -> u64 {
        key_hash(&at.to_le_bytes())
    }

    fn holder(slot: u32) -> Holder {
        Holder { slot: BoardSlot(slot), tenure: 0 }
    }

    #[test]
    fn what_was_put_last_is_found_until_it_is_forgotten_and_kinds_are_apart() {
        for kind in [Subject::Session as fn(u64) -> Subject, Subject::Response] {
            let (_, mut table) = table();
            assert_eq!(table.find(NOW, kind(hash(1))), None);
            table.forget(kind(hash(1)));
            table.put(NOW, kind(hash(1)), holder(3));
            table.put(NOW, kind(hash(2)), holder(4));
            table.put(NOW, kind(hash(1)), holder(5));
            assert_eq!(table.find(NOW, kind(hash(1))), Some(holder(5)));
            table.forget(kind(hash(1)));
            assert_eq!((table.find(NOW, kind(hash(1))), table.find(NOW, kind(hash(2)))), (None, Some(holder(4))));
        }
        let (_, mut table) = table();
        table.put(NOW, Subject::Session(7), holder(1));
        assert_eq!(table.find(NOW, Subject::Response(7)), None);
    }

    #[test]
    fn a_full_set_loses_what_was_used_longest_ago() {
        let (_, mut table) = table();
        let key = |at: usize| Subject::Response((at * RESPONSES_MAX) as u64 + 5);
        let at = |step: usize| NOW + Duration::from_secs(step as u64);
        (0..WAYS).for_each(|step| table.put(at(step), key(step), holder(1)));
        assert_eq!(table.find(at(WAYS), key(0)), Some(holder(1)), "it is in use");
        table.put(at(WAYS + 1), key(WAYS), holder(2));
        let known: Vec<usize> = (0..=WAYS).filter(|step| table.find(at(20), key(*step)).is_some()).collect();
        assert_eq!(known, [0, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_session_that_is_idle_for_long_goes_home_and_a_response_stays() {
        let (board, mut table) = table();
        let late = NOW + SESSION_AWAY + Duration::from_secs(1);
        for subject in [Subject::Session(1), Subject::Response(1)] {
            table.put(NOW, subject, holder(1));
        }
        assert!(table.find(NOW + SESSION_AWAY, Subject::Session(1)).is_some(), "and is used again");
        assert!(table.find(late + SESSION_AWAY / 2, Subject::Session(1)).is_some());
        assert_eq!(table.find(late + SESSION_AWAY * 3, Subject::Session(1)), None);
        assert!(table.find(late + SESSION_AWAY * 3, Subject::Response(1)).is_some());
        assert!(!board.may_know_session(CORE, 1), "nobody asks for it any more");
    }

    #[test]
    fn the_board_shows_every_session_that_is_known_and_in_the_end_none() {
        let (board, mut table) = table();
        let keys: Vec<u64> = (0..3 * SESSIONS_MAX as u64).map(hash).collect();
        for (step, key) in keys.iter().enumerate() {
            table.put(NOW + Duration::from_nanos(step as u64), Subject::Session(*key), holder(2));
        }
        let known: Vec<u64> =
            keys.iter().copied().filter(|key| table.find(NOW, Subject::Session(*key)).is_some()).collect();
        assert!(known.len() > SESSIONS_MAX * 9 / 10 && known.len() <= SESSIONS_MAX, "{}", known.len());
        assert!(known.iter().all(|key| board.may_know_session(CORE, *key)));
        assert!(!known.iter().all(|key| board.may_know_session(CoreId(0), *key)), "each core shows its own");
        known.iter().for_each(|key| table.forget(Subject::Session(*key)));
        assert!(keys.iter().all(|key| !board.may_know_session(CORE, *key)));
    }
}
