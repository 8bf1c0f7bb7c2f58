//! Everything a core runs: its listeners, its mailbox, and the housekeeping of its connections.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_router::feed::Feed;
use llmgw_router::message::CoreMessage;
use llmgw_router::tenants::Tenants;
use llmgw_runtime::listener::Listener;
use llmgw_runtime::mailbox::{Latest, Mailbox};
use llmgw_runtime::{Either, race, spawn, timer};

use crate::connection;
use crate::core::Core;
use crate::sessions::Heard;
use crate::setup::CoreSetup;
use crate::snapshot::Tables;

/// How often idle upstream connections are looked at, and counts are copied into cells.
const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// How often a draining core looks whether it is empty.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// What requests that are cut have to tell their clients so.
const CUT_TIME: Duration = Duration::from_millis(1500);

/// Runs a core until it was told to end and its last request has ended, or was cut when the time for that was up.
///
/// Errors: a listening socket or the mailbox could not be tied to this core's driver.
pub async fn run(setup: CoreSetup) -> io::Result<()> {
    let core = Core::new(&setup);
    let CoreSetup { listeners, inbox, post, feed, tenants, .. } = setup;
    core.lanes.open(post);
    if let Some(first) = feed.take() {
        core.swap(Tables::of(first));
    }
    let feeds = Feeds { routes: feed, tenants };
    feeds.take_tenants(&core);
    let listeners = listeners.into_iter().map(Listener::from_std).collect::<io::Result<Vec<_>>>()?;
    let stop = Rc::new(Stop::default());
    for listener in listeners {
        spawn(accept(core.clone(), listener, stop.clone()));
    }
    spawn(keep_house(core.clone()));
    let keeper = core.clone();
    spawn(async move { keeper.admission.keep().await });
    let mut mailbox = inbox.open()?;
    let told = listen(&core, &mut mailbox, &feeds).await;
    stop.now();
    drain(&core, told, listen(&core, &mut mailbox, &feeds)).await;
    Ok(())
}

/// Where publications are put for this core.
struct Feeds {
    routes: Arc<Latest<Feed>>,
    tenants: Option<Arc<Latest<Tenants>>>,
}

impl Feeds {
    fn take_tenants(&self, core: &Core) {
        if let Some(newest) = self.tenants.as_ref().and_then(|tenants| tenants.take()) {
            core.swap_tenants(newest);
        }
    }
}

/// Takes connections until the core drains; then the listening socket is closed.
async fn accept(core: Rc<Core>, listener: Listener, stop: Rc<Stop>) {
    loop {
        match race(listener.accept(), stop.wait()).await {
            Either::Left(io) => spawn(connection::run(core.clone(), io)),
            Either::Right(()) => return,
        }
    }
}

/// What ends a core, by rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Drain,
    Cut,
}

/// Follows messages until one tells it to end.
async fn listen(core: &Rc<Core>, mailbox: &mut Mailbox<CoreMessage>, feeds: &Feeds) -> Told {
    let (mut messages, mut heard) = (Vec::new(), Heard::default());
    loop {
        if heard.is_empty() {
            mailbox.receive(&mut messages).await;
        } else {
            mailbox.look(&mut messages);
        }
        // All of them are heard, and of two that end it the last.
        let told = messages.drain(..).filter_map(|message| hear(core, feeds, &mut heard, message)).max();
        if let Some(told) = told {
            return told;
        }
        heard.ripe().for_each(|(subject, ticket)| core.sessions.answer(subject, ticket));
    }
}

fn hear(core: &Core, feeds: &Feeds, heard: &mut Heard, message: CoreMessage) -> Option<Told> {
    match message {
        CoreMessage::FeedReady => {
            if let Some(newest) = feeds.routes.take() {
                core.swap(Tables::of(newest));
            }
        }
        CoreMessage::TenantsReady => feeds.take_tenants(core),
        CoreMessage::Failure(_)
        | CoreMessage::Success(_)
        | CoreMessage::Eject(_)
        | CoreMessage::MetricsLost(_)
        | CoreMessage::MetricsBack(_) => core.evidence.hear(message, core.cooldown()),
        CoreMessage::Locate(subject, ticket) => heard.push(subject, ticket),
        CoreMessage::Located(ticket, holder) => core.sessions.answered(ticket, holder),
        CoreMessage::Placed(subject, holder) => core.sessions.place(subject, holder),
        CoreMessage::Enqueue(_)
        | CoreMessage::Withdraw(_)
        | CoreMessage::Nudge(_)
        | CoreMessage::Granted(..)
        | CoreMessage::Refused(..) => core.admission.hear(message),
        CoreMessage::ToLimiter(_) | CoreMessage::FromLimiter(_) => core.limiter.hear(message),
        CoreMessage::Settle => core.is_closing.set(true),
        CoreMessage::Drain => {
            core.is_closing.set(true);
            core.admission.drain();
            return Some(Told::Drain);
        }
        CoreMessage::Cut => {
            core.is_closing.set(true);
            core.admission.drain();
            return Some(Told::Cut);
        }
    }
    None
}

async fn keep_house(core: Rc<Core>) {
    loop {
        timer::sleep(HOUSEKEEPING).await;
        core.pool.sweep(Mono::now());
        core.publish_counts();
        core.limiter.tick();
        if let Some(tables) = core.tables() {
            core.evidence.look(tables.routes());
        }
    }
}

/// Waits for the last request, within the time for it and until it is told to wait no longer; then what still runs is
/// cut.
async fn drain(core: &Rc<Core>, told: Told, more: impl Future<Output = Told>) {
    let limit = core.clone().current().settings.timeouts.drain;
    if told == Told::Drain {
        // Whatever it is told now, it says that the wait is over.
        let _ = race(until_idle(core, limit), more).await;
    }
    if core.cells.in_flight.value() > 0 {
        core.cut.now();
        until_idle(core, CUT_TIME).await;
    }
    core.publish_counts();
}

async fn until_idle(core: &Core, limit: Duration) {
    let deadline = Mono::now() + limit;
    while core.cells.in_flight.value() > 0 && Mono::now() < deadline {
        timer::sleep(DRAIN_LOOK).await;
    }
}

/// Tells the accepting tasks of this core to stop.
#[derive(Default)]
struct Stop {
    is_set: std::cell::Cell<bool>,
    wakers: std::cell::RefCell<Vec<std::task::Waker>>,
}

impl Stop {
    fn now(&self) {
        self.is_set.set(true);
        self.wakers.borrow_mut().drain(..).for_each(std::task::Waker::wake);
    }

    async fn wait(&self) {
        std::future::poll_fn(|cx| {
            if self.is_set.get() {
                return std::task::Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            std::task::Poll::Pending
        })
        .await;
    }
}
