//! A core as the owner of queues: who is taken in, who leaves, who is answered.

use llmgw_router::admission::Answer;
use llmgw_router::message::{CoreMessage, Enqueue, Refusal, Ticket};

use super::{Core, request_of};
use crate::fired::Trouble;
use crate::requests::State;
use crate::world::World;

impl Core<'_> {
    pub(super) fn enqueue(&mut self, asked: &Enqueue) {
        let (world, id, tables) = (self.world.clone(), self.id, self.tables.clone());
        let request = request_of(asked.ticket);
        // What the owner's table lacks is gone, unless whoever asks has a newer one.
        if asked.generation <= tables.generation {
            let it = &mut world.requests.borrow_mut()[request];
            it.pools = it.pools.iter().filter(|pool| tables.knows(it.gate, *pool)).collect();
        }
        world.truth.borrow_mut().queues(&world.requests.borrow(), request);
        let answer = |ticket, answer| answered(&world, id, ticket, answer, Some(request));
        self.controller.enqueue(asked, |gate, pool| tables.knows(gate, pool), answer);
        world.truth.borrow_mut().within_bounds(&world.requests.borrow(), asked.gate, world.limits());
    }

    pub(super) fn withdraw(&mut self, ticket: Ticket) {
        self.world.truth.borrow_mut().leaves_queue(request_of(ticket));
        self.controller.withdraw(ticket);
    }

    /// Whether the slot of that ticket is open.
    pub(super) fn waits(&self, ticket: Ticket) -> bool {
        let it = &self.world.requests.borrow()[request_of(ticket)];
        it.state == State::Queued && u64::from(it.asks) == ticket.number >> 32
    }
}

/// The owner answers a ticket; `by` is whose Enqueue it hears.
pub(super) fn answered(world: &World, owner: usize, ticket: Ticket, answer: Answer, by: Option<usize>) {
    let request = request_of(ticket);
    {
        let mut requests = world.requests.borrow_mut();
        requests[request].answers += 1;
        if requests[request].answers > 1 {
            world.breaks(|| format!("request {request} was answered twice, at last {answer:?}"));
        }
    }
    world.log(|| format!("core {owner} answers request {request}: {answer:?}"));
    let mut truth = world.truth.borrow_mut();
    let message = match answer {
        Answer::Granted(pool) => {
            {
                let it = &mut world.requests.borrow_mut()[request];
                (it.holds, it.counts) = (Some(pool), true);
            }
            truth.grants(&world.requests.borrow(), owner, request, pool);
            truth.tries(owner);
            CoreMessage::Granted(ticket, pool)
        }
        Answer::Refused(refusal) => {
            match refusal {
                Refusal::Full => world.count(Trouble::BandFull),
                Refusal::Displaced => world.count(Trouble::Displaced),
                Refusal::Ttl => world.count(Trouble::Expired),
                Refusal::NoEndpoint => world.count(Trouble::PoolGoneInQueue),
                Refusal::ClientGone | Refusal::Overloaded => {}
            }
            truth.refuses(&world.requests.borrow(), request, refusal, (world.now.get(), world.limits()), by);
            CoreMessage::Refused(ticket, refusal)
        }
    };
    world.lanes.borrow_mut().send_or_keep(owner, ticket.core.idx(), message);
}
