//! The stamp table behind an owner core, to compare with the shared one: what a request waits for its match when it has
//! to ask another core for it.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use llmgw_router::prefix::{Fingerprint, StampTable};
use llmgw_runtime::cores::{spawn_cores, usable_cpus};
use llmgw_runtime::driver::{DriverChoice, choose};
use llmgw_runtime::mailbox::{Inbox, LANE_CAPACITY, Mesh, Post};
use llmgw_types::CoreId;

use crate::measure::{self, Clock, Plan, Timing};
use crate::prompts::{self, Prompts};

/// Trips of a round.
const TRIPS: u64 = 500;

/// A question or its answer; nothing ends the other side.
type Message = Option<Box<Fingerprint>>;

struct Setup {
    inbox: Inbox<Message>,
    post: Post<Message>,
    role: Role,
}

enum Role {
    Asks { rounds: usize, prompt: Box<Fingerprint>, tell: Sender<f64> },
    Owns(StampTable),
}

/// A prompt's fingerprint to the owner of the table, found and remembered there, and back. What the owner's wake-up and
/// the lanes add, the search being the same.
pub(super) fn behind_an_owner(plan: Plan, bytes: usize) -> Result<Timing, String> {
    let (driver, _) = choose(DriverChoice::Auto).map_err(|error| error.to_string())?;
    let mesh = Mesh::new(2, 0, LANE_CAPACITY).map_err(|error| error.to_string())?;
    let (tell, told) = channel();
    let asks = Role::Asks { rounds: plan.rounds, prompt: Box::new(Prompts::of(bytes).into_fingerprint()), tell };
    let setup = |number: u32, role| Setup { inbox: mesh.inbox(CoreId(number)), post: mesh.post(number as usize), role };
    let setups = [setup(0, asks), setup(1, Role::Owns(prompts::table()))];
    let cpus = usable_cpus();
    let cores = spawn_cores(&[cpus[0], cpus[1 % cpus.len()]], driver, setups, core);
    for core in cores.map_err(|error| error.to_string())? {
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
        Role::Asks { rounds, prompt, tell } => {
            let mut prompt = Some(prompt);
            // One more, to warm up.
            for round in 0..=rounds {
                let begin = Instant::now();
                for _ in 0..TRIPS {
                    send(&mut post, CoreId(1), prompt.take());
                    while prompt.is_none() {
                        got.clear();
                        mailbox.receive(&mut got).await;
                        prompt = got.drain(..).flatten().next();
                    }
                }
                if round > 0 {
                    // Nobody listens any more only when the program ends.
                    let _ = tell.send(begin.elapsed().as_nanos() as f64 / TRIPS as f64);
                }
            }
            send(&mut post, CoreId(1), None);
        }
        Role::Owns(table) => {
            let mut matches = prompts::matches();
            loop {
                got.clear();
                mailbox.receive(&mut got).await;
                for message in got.drain(..) {
                    let Some(prompt) = message else { return Ok(()) };
                    prompts::find(&table, &prompt, &mut matches);
                    prompts::record(&table, &prompt, &matches);
                    send(&mut post, CoreId(0), Some(prompt));
                }
            }
        }
    }
    Ok(())
}

/// Sends, again and again while the lane is full.
fn send(post: &mut Post<Message>, to: CoreId, mut message: Message) {
    while let Err(back) = post.try_send(to, message) {
        message = back;
        std::hint::spin_loop();
    }
}
