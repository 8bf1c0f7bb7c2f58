//! Lives of processes that write records and hand them on, one after the other over one disk; and what must hold: what
//! was said to be on the disk is in the store in the end, once, as it was; nothing else is there; bounds hold; nothing
//! is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use llmgw_journal::{Cells, Did, Options, Reader, Segment, Tail, Writer, block_on};
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;

use super::disk::{Crash, Disk, ToStore};
use super::{Mutant, record};

/// Bytes that all segments may have.
const BYTES_MAX: u64 = 24 << 10;
/// Turns within which a reader that nothing hinders ends.
const TURNS_MAX: usize = 10_000;

/// What a world went through.
#[derive(Default)]
pub(super) struct Sound {
    counts: BTreeMap<&'static str, u64>,
}

impl Sound {
    fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    pub(super) fn add(&mut self, other: &Self) {
        other.counts.iter().for_each(|(what, by)| self.count(what, *by));
    }
}

impl fmt::Display for Sound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&counts.join(", "))
    }
}

struct World {
    disk: Disk,
    chance: Chance,
    now: Mono,
    made: u128,
    life: u64,
    /// Records that must be in the store in the end.
    owed: BTreeSet<u128>,
    sound: Sound,
}

/// A process.
struct Life {
    writer: Writer<Disk>,
    reader: Reader<Disk, ToStore>,
    tail: Arc<Tail>,
    cells: Arc<Cells>,
    /// Records that it took, in order.
    taken: Vec<u128>,
    refused: u64,
    /// Bytes of segments that it may have: what was left by others is there, however much it is.
    bytes_max: u64,
}

impl Life {
    /// Records that were said to be on the disk, in order.
    fn acknowledged(&self) -> &[u128] {
        let count = usize::try_from(self.cells.journaled.value()).unwrap_or(usize::MAX);
        &self.taken[..count]
    }
}

enum Ended {
    InOrder,
    By(super::disk::Left),
    OutOfSteps,
}

/// Runs a world. Errors: what does not hold.
pub(super) fn run(seed: u64, steps: u64, mutant: Option<Mutant>) -> Result<Sound, String> {
    let mut chance = Chance::seeded(seed);
    let disk = Disk::new(Chance::seeded(chance.next_u64()), mutant);
    let sound = Sound::default();
    let mut world = World { disk, chance, now: Mono(1), made: 0, life: 0, owed: BTreeSet::new(), sound };
    let mut left = steps;
    let mut crash = None;
    while left > 0 {
        world.disk.restart(crash.take());
        let mut life = world.begin();
        match world.live(&mut life, &mut left)? {
            Ended::By(what_is_left) => {
                world.owed.extend(&life.taken[..what_is_left.acknowledged]);
                crash = Some(what_is_left);
            }
            Ended::InOrder | Ended::OutOfSteps => world.owed.extend(life.acknowledged()),
        }
    }
    // The last one finds a sound disk and a free store, and hands everything on.
    world.disk.restart(crash);
    let mut life = world.begin();
    world.finish(&mut life, false)?;
    world.check()
}

impl World {
    fn begin(&mut self) -> Life {
        self.life += 1;
        self.sound.count("lives", 1);
        let (tail, cells) = (Arc::<Tail>::default(), Arc::<Cells>::default());
        self.disk.0.borrow_mut().cells = cells.clone();
        for (name, bytes) in self.disk.files() {
            tail.add(Segment { name, bytes, is_sealed: true, is_orphan: true });
        }
        let options = Options {
            segment_bytes: 1 << (9 + self.chance.below(4)),
            segment_age: Duration::from_millis(400),
            bytes_max: BYTES_MAX,
            waiting_bytes_max: 6 << 10,
            commit_every: Duration::from_millis(self.chance.below(30).into()),
            again_after: Duration::from_millis(20),
        };
        let life = self.life;
        let name = move |number| format!("{life:06}.{number:08}.segment");
        let writer = Writer::new(self.disk.clone(), options, tail.clone(), cells.clone(), name);
        let reader = Reader::new(self.disk.clone(), ToStore::new(&self.disk), tail.clone(), cells.clone());
        let bytes_max = BYTES_MAX.max(tail.bytes());
        Life { writer, reader, tail, cells, taken: Vec::new(), refused: 0, bytes_max }
    }

    fn live(&mut self, life: &mut Life, steps: &mut u64) -> Result<Ended, String> {
        while *steps > 0 {
            *steps -= 1;
            self.now = self.now + Duration::from_millis(self.chance.below(40).into());
            match self.chance.below(20) {
                0..6 => self.make(life),
                6..12 => block_on(life.writer.turn(self.now)),
                12..17 => {
                    life.reader.turn(self.now);
                }
                17 => self.trouble(),
                18 if self.chance.below(4) == 0 => {
                    let crash = if self.chance.below(3) == 0 { Crash::Kill } else { Crash::Power };
                    let ops = self.chance.below(12).into();
                    self.disk.0.borrow_mut().crash_in = Some((ops, crash));
                }
                19 if self.chance.below(8) == 0 => {
                    let is_hurried = self.chance.below(3) == 0;
                    if !is_hurried {
                        self.disk.restart(None);
                    }
                    self.finish(life, is_hurried)?;
                    self.sound.count("ended in order", 1);
                    return Ok(Ended::InOrder);
                }
                _ => {}
            }
            if life.tail.bytes() > life.bytes_max {
                return Err(format!("{} bytes in segments, {} at most", life.tail.bytes(), life.bytes_max));
            }
            let left = self.disk.0.borrow_mut().left.take();
            if let Some(left) = left {
                self.sound.count("crashes", 1);
                return Ok(Ended::By(left));
            }
        }
        Ok(Ended::OutOfSteps)
    }

    fn make(&mut self, life: &mut Life) {
        for _ in 0..self.chance.below(8) {
            self.made += 1;
            self.sound.count("records", 1);
            if life.writer.take(&record(self.made)) {
                life.taken.push(self.made);
            } else {
                life.refused += 1;
                self.sound.count("records refused", 1);
            }
        }
    }

    fn trouble(&mut self) {
        let mut state = self.disk.0.borrow_mut();
        match self.chance.below(6) {
            0 => state.is_store_locked = true,
            1 => state.is_faulty = true,
            2 => state.bytes_max = self.chance.below(BYTES_MAX as u32) as usize,
            _ => (state.is_store_locked, state.is_faulty, state.bytes_max) = (false, false, usize::MAX),
        }
    }

    /// Ends a process in order.
    fn finish(&mut self, life: &mut Life, is_hurried: bool) -> Result<(), String> {
        block_on(life.writer.end(self.now));
        // What a disk that failed to the end, or a full journal, did not take is counted as lost.
        let lost = life.cells.lost.value() - life.refused;
        if life.acknowledged().len() as u64 + lost != life.taken.len() as u64 {
            return Err(format!("{} taken, {} on the disk, {lost} lost", life.taken.len(), life.acknowledged().len()));
        }
        if is_hurried {
            life.tail.hurry();
        }
        for _ in 0..TURNS_MAX {
            match life.reader.turn(self.now) {
                Did::Ended => return Ok(()),
                Did::Something => {}
                Did::Wait(time) => self.now = self.now + time,
            }
        }
        Err(format!("the reader does not come to an end in {TURNS_MAX} turns"))
    }

    fn check(mut self) -> Result<Sound, String> {
        let disk = Rc::clone(&self.disk.0);
        let state = disk.borrow();
        if let Some(id) = self.owed.iter().find(|id| !state.rows.contains_key(id)) {
            return Err(format!("record {id} was on the disk and is not in the store"));
        }
        if let Some((id, _)) = state.rows.iter().find(|(_, is_right)| !**is_right) {
            return Err(format!("record {id} is not what was written"));
        }
        if let Some((id, _)) = state.rows.iter().find(|(id, _)| **id == 0 || **id > self.made) {
            return Err(format!("record {id} was never made"));
        }
        self.sound.count("stored", state.rows.len() as u64);
        self.sound.count("failed operations", state.failed_ops);
        drop(state);
        match self.disk.files().first() {
            Some((name, _)) => Err(format!("segment {name} is left behind")),
            None => Ok(self.sound),
        }
    }
}
