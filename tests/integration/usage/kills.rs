//! Kills at any moment of a gateway that serves: what is on the record of the answers that had ended.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use llmgw_test_kit::raw::{Connection, End};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for};

use super::{World, id};
use crate::pair::{CHAT, WITHIN, is_full};

const CLIENTS: usize = 4;
/// An answer that ended so long before a kill is to be on the record.
const AGE: Duration = Duration::from_millis(20);

/// An answer that a client read to its end, and when.
type Answered = ([u8; 16], Instant);

/// Serves until so many answers have ended, and is killed in the middle of the next ones. Answer: those that ended, and
/// when it was killed.
fn round(world: &mut World, count: usize) -> (Vec<Answered>, Instant) {
    let mut gateway = world.gateway.take().expect("a gateway");
    let (addr, answered) = (gateway.addr(), Mutex::new(Vec::new()));
    let (ended, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut killed_at = Instant::now();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (answered, ended, is_over) = (&answered, &ended, &is_over);
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
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        wait_for("answers", WITHIN, || ended.load(Ordering::SeqCst) >= count);
        killed_at = Instant::now();
        gateway.process().kill().expect("killed");
        is_over.store(true, Ordering::SeqCst);
    });
    (answered.into_inner().expect("no panic"), killed_at)
}

#[test]
#[expect(clippy::print_stdout, reason = "an age is shown, not judged: it depends on what else the machine does")]
fn kills_at_any_moment_leave_each_answer_on_the_record_at_most_once() {
    let rounds = if is_full() { 200 } else { 5 };
    let mut world = World::start("");
    let (mut answers, mut kills) = (Vec::new(), Vec::new());
    for number in 0..rounds {
        // Counts that are not in step with anything.
        let (answered, killed_at) = round(&mut world, 5 + (number * 37) % 150);
        answers.extend(answered.into_iter().map(|(id, at)| (id, killed_at.saturating_duration_since(at))));
        kills.push(killed_at);
        world.start_again();
    }
    let store = world.store();
    let is_there = |id: [u8; 16]| store.read(|rows| rows.usage_row(id)).expect("a look").is_some();
    let lost: Vec<Duration> = answers.iter().filter(|(id, _)| !is_there(*id)).map(|(_, age)| *age).collect();
    let late = lost.iter().filter(|age| **age >= AGE).count();
    let oldest = lost.iter().max().copied().unwrap_or_default();
    println!(
        "{rounds} kills, {} answers read: {} not on the record, the oldest of them {oldest:?} before the kill, \
         {late} of {AGE:?} and more",
        answers.len(),
        lost.len(),
    );
    // What the kill cut off has a record too, so there may be more than was read; but nothing that was never asked.
    let totals = store.read(|rows| rows.used_since(0)).expect("sums");
    let requests: u64 = totals.iter().map(|total| total.requests).sum();
    let (least, most) = (answers.len() - lost.len(), answers.len() + rounds * 2 * CLIENTS);
    assert!((least as u64..=most as u64).contains(&requests), "{requests} records, {least} to {most} are right");
    assert!(lost.len() < answers.len(), "nothing came through");
    world.gateway.take().expect("a gateway").finish(&[]);
}
