//! Messages between two pinned cores, each with its own runtime: there and back, and one way as fast as it goes.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use llmgw_runtime::cores::{spawn_cores, usable_cpus};
use llmgw_runtime::driver::{DriverChoice, choose};
use llmgw_runtime::mailbox::{Inbox, LANE_CAPACITY, Mailbox, Mesh, Post};
use llmgw_types::CoreId;

use crate::measure::{self, Clock, Plan, Timing};

/// Trips of a round, each with as many messages as are under way at once.
const TRIPS: u64 = 500;
/// Messages of a round one way.
const MESSAGES: u64 = 1_000_000;
/// Ends the other side.
const END: u64 = u64::MAX;

/// What a core of this measurement is given.
struct Setup {
    inbox: Inbox<u64>,
    post: Post<u64>,
    role: Role,
}

#[derive(Clone)]
enum Role {
    /// Sends `at_once` messages and waits until all are back.
    Asks { rounds: usize, at_once: u64, tell: Sender<f64> },
    /// Sends as fast as the lane takes them, and waits for one answer a round.
    Pours { rounds: usize, tell: Sender<f64> },
    /// Sends back whatever comes.
    Echoes,
    /// Answers once a round is complete.
    Counts,
}

/// A message there and back; with `at_once` of them under way, a message's part of that.
pub(super) fn round_trip(plan: Plan, at_once: u64) -> Result<Timing, String> {
    run(|tell| Role::Asks { rounds: plan.rounds, at_once, tell }, Role::Echoes)
}

/// A message one way, as fast as one core can send and another can take.
pub(super) fn one_way(plan: Plan) -> Result<Timing, String> {
    run(|tell| Role::Pours { rounds: plan.rounds, tell }, Role::Counts)
}

fn run(first: impl FnOnce(Sender<f64>) -> Role, second: Role) -> Result<Timing, String> {
    let (driver, _) = choose(DriverChoice::Auto).map_err(|error| error.to_string())?;
    let mesh = Mesh::new(2, 0, LANE_CAPACITY).map_err(|error| error.to_string())?;
    let (tell, told) = channel();
    let setup = |number: u32, role| Setup { inbox: mesh.inbox(CoreId(number)), post: mesh.post(number as usize), role };
    let setups = [setup(0, first(tell)), setup(1, second)];
    let cpus = usable_cpus();
    let two = [cpus[0], cpus[1 % cpus.len()]];
    let cores = spawn_cores(&two, driver, setups, core).map_err(|error| error.to_string())?;
    for core in cores {
        let ended = core.join().map_err(|_| "a core of the measurement panicked".to_owned())?;
        ended.map_err(|error| error.to_string())?;
    }
    Ok(measure::of_rounds(Clock::Wall, told.iter().collect()))
}

async fn core(setup: Setup) -> io::Result<()> {
    let Setup { inbox, mut post, role } = setup;
    let mut mailbox = inbox.open()?;
    let mut got = Vec::new();
    match role {
        Role::Asks { rounds, at_once, tell } => {
            // One more, to warm up.
            for round in 0..=rounds {
                let begin = Instant::now();
                for _ in 0..TRIPS {
                    (0..at_once).for_each(|number| send(&mut post, CoreId(1), number));
                    take(&mut mailbox, &mut got, at_once).await;
                }
                tell_unless_first(round, &tell, begin, TRIPS * at_once);
            }
            send(&mut post, CoreId(1), END);
        }
        Role::Pours { rounds, tell } => {
            for round in 0..=rounds {
                let begin = Instant::now();
                (0..MESSAGES).for_each(|number| send(&mut post, CoreId(1), number));
                take(&mut mailbox, &mut got, 1).await;
                tell_unless_first(round, &tell, begin, MESSAGES);
            }
            send(&mut post, CoreId(1), END);
        }
        Role::Echoes => loop {
            got.clear();
            mailbox.receive(&mut got).await;
            if got.contains(&END) {
                return Ok(());
            }
            got.iter().for_each(|number| send(&mut post, CoreId(0), *number));
        },
        Role::Counts => {
            let mut count = 0;
            loop {
                got.clear();
                mailbox.receive(&mut got).await;
                if got.contains(&END) {
                    return Ok(());
                }
                count += got.len() as u64;
                if count == MESSAGES {
                    send(&mut post, CoreId(0), count);
                    count = 0;
                }
            }
        }
    }
    Ok(())
}

/// Sends, again and again while the lane is full: the measured core has nothing else to do.
fn send(post: &mut Post<u64>, to: CoreId, mut number: u64) {
    while let Err(back) = post.try_send(to, number) {
        number = back;
        std::hint::spin_loop();
    }
}

async fn take(mailbox: &mut Mailbox<u64>, got: &mut Vec<u64>, count: u64) {
    let mut taken = 0;
    while taken < count {
        got.clear();
        mailbox.receive(got).await;
        taken += got.len() as u64;
    }
}

fn tell_unless_first(round: usize, tell: &Sender<f64>, begin: Instant, count: u64) {
    if round > 0 {
        // Nobody listens any more only when the program ends.
        let _ = tell.send(begin.elapsed().as_nanos() as f64 / count as f64);
    }
}
