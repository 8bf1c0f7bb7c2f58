//! What cores tell each other of sessions that are away from their own engine and of stored responses.
//!
//! Each is owned by one core, by its hash, which alone keeps it ([`SessionTable`]); other cores ask for it and tell of
//! it over their lanes. A request whose own core is the owner asks nobody. One without a stored response asks nobody
//! either while the board shows that its session never left its engine, so ordinary traffic stays on its core.
//!
//! Called by the request path, and by the core for what others ask and answer. A question has a bound on its wait;
//! without an answer the request goes on as for something unknown.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_router::Board;
use llmgw_router::message::{CoreMessage, Ticket};
use llmgw_router::metrics::CoreCells;
use llmgw_router::session_table::{Holder, SessionTable, Subject};
use llmgw_runtime::timer::timeout;
use llmgw_types::{BoardSlot, CoreId};

use crate::lanes::Lanes;

/// How long an owner's answer is waited for. An engine needs longer for the prompt that a wrong guess costs; a core
/// that does not come to its mailbox for so long is in trouble of its own.
const ANSWER_TIME: Duration = Duration::from_millis(250);
/// Questions that one core has open; a request beyond them asks nobody.
const OPEN_MAX: usize = 1024;

/// What came of a question or a notice: places in [`llmgw_router::metrics::SESSION_OUTCOMES`].
#[derive(Clone, Copy)]
enum Outcome {
    Found = 0,
    Unknown = 1,
    Unanswered = 2,
    NotAsked = 3,
    Told = 4,
    NotTold = 5,
}

/// A question that is open.
enum Question {
    Waiting(Option<Waker>),
    Answered(Option<Holder>),
}

/// See the module. Owner: one core.
pub(crate) struct Sessions {
    lanes: Rc<Lanes>,
    board: Arc<Board>,
    cells: Arc<CoreCells>,
    table: RefCell<SessionTable>,
    open: RefCell<HashMap<u64, Question>>,
    next_number: Cell<u64>,
}

impl Sessions {
    pub(crate) fn new(lanes: Rc<Lanes>, board: Arc<Board>, cells: Arc<CoreCells>) -> Self {
        let table = RefCell::new(SessionTable::new(board.clone(), lanes.core));
        Self { lanes, board, cells, table, open: RefCell::default(), next_number: Cell::new(0) }
    }

    /// Who has it, as far as its owner knows. The endpoint may be gone: see [`Board::is_current`].
    ///
    /// Cost: for what this core owns, and for a session that never left its engine, no message and no wait.
    pub(crate) async fn locate(&self, subject: Subject) -> Option<Holder> {
        let owner = self.lanes.owner_of(subject.hash());
        if owner == self.lanes.core {
            return self.table.borrow_mut().find(Mono::now(), subject);
        }
        match subject {
            Subject::Session(hash) if !self.board.may_know_session(owner, hash) => None,
            _ => self.ask(owner, subject).await,
        }
    }

    async fn ask(&self, owner: CoreId, subject: Subject) -> Option<Holder> {
        let number = self.next_number.get();
        self.next_number.set(number.wrapping_add(1));
        let ticket = Ticket { core: self.lanes.core, number };
        let has_room = self.open.borrow().len() < OPEN_MAX;
        if !has_room || !self.lanes.send(owner, CoreMessage::Locate(subject, ticket)) {
            self.count(subject, Outcome::NotAsked);
            return None;
        }
        self.open.borrow_mut().insert(number, Question::Waiting(None));
        let answer = timeout(ANSWER_TIME, Answer { open: &self.open, number }).await;
        self.count(
            subject,
            match answer {
                Ok(Some(_)) => Outcome::Found,
                Ok(None) => Outcome::Unknown,
                Err(_) => Outcome::Unanswered,
            },
        );
        answer.ok().flatten()
    }

    /// Tells the owner who has it; `None` when it is to be forgotten.
    pub(crate) fn tell(&self, subject: Subject, slot: Option<BoardSlot>) {
        let holder = slot.map(|slot| self.board.holder(slot));
        let owner = self.lanes.owner_of(subject.hash());
        if owner == self.lanes.core {
            return self.place(subject, holder);
        }
        let is_told = self.lanes.send(owner, CoreMessage::Placed(subject, holder));
        self.count(subject, if is_told { Outcome::Told } else { Outcome::NotTold });
    }

    /// Another core tells of something that this one owns.
    pub(crate) fn place(&self, subject: Subject, holder: Option<Holder>) {
        let mut table = self.table.borrow_mut();
        match holder {
            Some(holder) => table.put(Mono::now(), subject, holder),
            None => table.forget(subject),
        }
    }

    /// Another core asks for something that this one owns. Call when everything was heard that was sent before the
    /// question.
    pub(crate) fn answer(&self, subject: Subject, ticket: Ticket) {
        let holder = self.table.borrow_mut().find(Mono::now(), subject);
        // A full lane: whoever asked waits for so long and no longer.
        let _ = self.lanes.send(ticket.core, CoreMessage::Located(ticket, holder));
    }

    /// An answer has come, perhaps too late.
    pub(crate) fn answered(&self, ticket: Ticket, holder: Option<Holder>) {
        if let Some(question) = self.open.borrow_mut().get_mut(&ticket.number)
            && let Question::Waiting(waker) = std::mem::replace(question, Question::Answered(holder))
            && let Some(waker) = waker
        {
            waker.wake();
        }
    }

    fn count(&self, subject: Subject, outcome: Outcome) {
        let about = match subject {
            Subject::Session(_) => 0,
            Subject::Response(_) => 1,
        };
        if let Some(cell) = self.cells.session_messages.get(about).and_then(|cells| cells.get(outcome as usize)) {
            cell.increment();
        }
    }
}

/// Waits for the answer to one question, which is closed when this is dropped.
struct Answer<'a> {
    open: &'a RefCell<HashMap<u64, Question>>,
    number: u64,
}

impl Future for Answer<'_> {
    type Output = Option<Holder>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.open.borrow_mut().get_mut(&self.number) {
            Some(Question::Answered(holder)) => Poll::Ready(*holder),
            Some(Question::Waiting(waker)) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        self.open.borrow_mut().remove(&self.number);
    }
}

/// Questions that were heard and wait until everything is heard that was sent before them.
///
/// A client may read a response's id and ask about it over another core while the notice of it is still in its lane.
/// The notice was sent before the question, so one more look at all lanes finds it.
#[derive(Default)]
pub(crate) struct Heard {
    questions: Vec<(Subject, Ticket)>,
    /// Of those, the ones from before the newest look.
    ripe_count: usize,
}

impl Heard {
    pub(crate) fn push(&mut self, subject: Subject, ticket: Ticket) {
        self.questions.push((subject, ticket));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Everything of a look was pushed: hands out the questions of the look before.
    pub(crate) fn ripe(&mut self) -> impl Iterator<Item = (Subject, Ticket)> + '_ {
        let count = std::mem::replace(&mut self.ripe_count, self.questions.len());
        self.ripe_count -= count;
        self.questions.drain(..count)
    }
}

#[cfg(test)]
mod tests;
