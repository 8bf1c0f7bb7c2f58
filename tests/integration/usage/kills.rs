//! Kills at any moment of a gateway that serves, or that just starts: what is on the record of the answers that had
//! ended.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use llmgw_kit::chance::Chance;
use llmgw_test_kit::raw::{Connection, End};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Launch, chat};

use super::{World, has_row, id, id_of, requests};
use crate::pair::{CHAT, is_full, llmgw};

const CLIENTS: usize = 4;
/// An answer that ended so long before a kill is to be on the record.
const AGE: Duration = Duration::from_millis(20);
/// A kill comes within so many microseconds after clients begin.
const SERVED_US: u32 = 400_000;
/// Of a start that is killed, the same.
const STARTED_US: u32 = 150_000;

/// An answer that a client read to its end, and when.
type Answered = ([u8; 16], Instant);

/// Waits for a moment, to the microsecond as far as the machine lets it.
fn until(moment: Instant) {
    while let Some(left) = moment.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

/// Serves for a while, and is killed in the middle of it. Answer: what ended before, and when it was killed.
fn round(world: &mut World, time: Duration) -> (Vec<Answered>, Instant) {
    let mut gateway = world.gateway.take().expect("a gateway");
    let (addr, answered, is_over) = (gateway.addr(), Mutex::new(Vec::new()), AtomicBool::new(false));
    let mut killed_at = Instant::now();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (answered, is_over) = (&answered, &is_over);
            scope.spawn(move || {
                let chat = chat("hello").max_tokens(3);
                let chat = if client.is_multiple_of(2) { chat.streamed() } else { chat };
                let request = Request::new("POST", CHAT).json(&chat.json()).bytes();
                let Ok(mut connection) = Connection::open(addr) else { return };
                while !is_over.load(Ordering::SeqCst) {
                    let reply = connection.send(&request).and_then(|()| connection.reply());
                    let Ok(reply) = reply else { return };
                    if reply.status != 200 || reply.end != End::Complete {
                        return;
                    }
                    answered.lock().expect("no panic").push((id(&reply), Instant::now()));
                }
            });
        }
        until(Instant::now() + time);
        killed_at = Instant::now();
        gateway.process().kill().expect("killed");
        is_over.store(true, Ordering::SeqCst);
    });
    (answered.into_inner().expect("no panic"), killed_at)
}

/// A start that is killed before it serves, perhaps while it stores what was left.
fn start_in_vain(world: &World, time: Duration) {
    let file = world.place.join("in-vain.yaml");
    std::fs::write(&file, world.builder().yaml()).expect("written");
    let launch = Launch::new(llmgw()).arg("server").arg("--config").arg(&file);
    let mut process = launch.start().expect("started");
    until(Instant::now() + time);
    process.kill().expect("killed");
}

#[test]
#[expect(clippy::print_stdout, reason = "ages are shown, not judged: when a thread runs is the machine's to say")]
fn kills_at_any_moment_leave_each_answer_on_the_record_once() {
    let rounds = if is_full() { 200 } else { 5 };
    let mut chance = Chance::from_system();
    println!("drawn from {}", chance.state());
    let mut micros = |bound: u32| Duration::from_micros(u64::from(chance.below(bound)));
    let mut world = World::start("");
    let (mut answers, mut lost, mut rows, mut unstarted) = (0, Vec::new(), 0, 0);
    for number in 0..rounds {
        let (answered, killed_at) = round(&mut world, micros(SERVED_US));
        if number % 3 == 1 {
            start_in_vain(&world, micros(STARTED_US));
            unstarted += 1;
        }
        // The journal over a ring and by a thread in turn.
        world.driver = if number % 2 == 0 { "epoll" } else { "auto" };
        world.start_again();
        // Not held while the gateway is killed: the next one is to find the file alone.
        let store = world.store();
        answers += answered.len();
        let missing = answered.iter().filter(|(id, _)| !has_row(&store, *id));
        lost.extend(missing.map(|(_, at)| killed_at.saturating_duration_since(*at)));
        // What the kill cut off has a record or not, and none has two: the sums are those of the rows.
        let calls = world.engine.calls();
        let asked: BTreeSet<_> = calls.iter().filter_map(|call| call.header("x-request-id")).map(id_of).collect();
        rows += asked.iter().filter(|id| has_row(&store, **id)).count() as u64;
        assert_eq!(requests(&store), rows, "sums and rows");
        world.engine.reset();
    }
    let late = lost.iter().filter(|age| **age >= AGE).count();
    let oldest = lost.iter().max().copied().unwrap_or_default();
    println!(
        "{rounds} kills while serving and {unstarted} while starting, {answers} answers read, {rows} rows: {} answers \
         not on the record, the oldest ended {oldest:?} before its kill, {late} of {AGE:?} and more",
        lost.len(),
    );
    assert!(lost.len() < answers, "nothing came through");
    world.gateway.take().expect("a gateway").finish(&["holds no whole record"]);
}
