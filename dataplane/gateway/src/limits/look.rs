//! What is used of limits, asked of the cores that count it.
//!
//! Called for `GET /me` alone.

use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use llmgw_router::limiter::message::Look;
use llmgw_router::limiter::{Standing, ToOwner};
use llmgw_runtime::timer::timeout;

use super::Limits;

/// How long what an owner counts is waited for, level by level.
const LOOK_WAIT: Duration = Duration::from_millis(250);

/// A question about what is used of a level.
#[derive(Default)]
pub(super) struct Looking {
    number: u64,
    answer: Option<Standing>,
    waker: Option<Waker>,
}

impl Limits {
    /// What is used of the levels above a key, by row: those whose owner says so in time.
    pub(crate) async fn standings(&self, key: u32) -> Vec<(u32, Standing)> {
        let places = self.table.borrow().places_of(key);
        let mut standings = Vec::with_capacity(places.len());
        for (row, chain, nth) in places {
            let Some(org) = self.table.borrow().chain(chain).map(|chain| chain.org) else { continue };
            if let Some(standing) = self.standing(org, chain, nth).await {
                standings.push((row, standing));
            }
        }
        standings
    }

    /// What is used of one level of a chain, by its owner's books; `None` where it does not say in time.
    async fn standing(&self, org: u64, chain: u32, nth: u8) -> Option<Standing> {
        let number = self.next_look.get();
        self.next_look.set(number.wrapping_add(1));
        self.looking.borrow_mut().push(Looking { number, ..Looking::default() });
        let question = LookGuard { limits: self, number };
        let look = ToOwner::Look(Look { home: self.lanes.core, number, chain, nth });
        if !self.say(org, look) {
            return None;
        }
        self.pump();
        let answer = poll_fn(|cx| {
            let mut looking = self.looking.borrow_mut();
            let Some(own) = looking.iter_mut().find(|looking| looking.number == number) else {
                return Poll::Ready(None);
            };
            match own.answer.take() {
                Some(standing) => Poll::Ready(Some(standing)),
                None => {
                    own.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        let answer = timeout(LOOK_WAIT, answer).await.ok().flatten();
        drop(question);
        answer
    }

    /// Takes an owner's answer; one that nobody waits for any more is nothing.
    pub(super) fn looked(&self, standing: &Standing) {
        let mut looking = self.looking.borrow_mut();
        if let Some(own) = looking.iter_mut().find(|looking| looking.number == standing.number) {
            own.answer = Some(*standing);
            own.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// A question about a level, forgotten when this is dropped.
struct LookGuard<'a> {
    limits: &'a Limits,
    number: u64,
}

impl Drop for LookGuard<'_> {
    fn drop(&mut self) {
        self.limits.looking.borrow_mut().retain(|looking| looking.number != self.number);
    }
}
