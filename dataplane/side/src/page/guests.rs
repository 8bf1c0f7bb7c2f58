//! The admin address's open connections: no more than a bound, and nobody holds the door shut by saying nothing.
//!
//! At the bound the one that has waited longest for a request gives way to one that comes; a request that is being
//! answered never does. Used by `page` alone. Never reads or writes a socket.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use llmgw_kit::clock::Mono;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

/// In place of a time: a request is being answered.
const ANSWERING: u64 = 0;

/// What a connection is at. Owner: its task; read by [`Guests`].
pub(super) struct Turn {
    /// Since when it waits for a request, or [`ANSWERING`].
    waits_since: AtomicU64,
    /// Told when an answer has ended.
    has_ended: Arc<Notify>,
}

impl Turn {
    /// Runs an answer, during which the connection stays.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        self.waits_since.store(ANSWERING, Ordering::Relaxed);
        let answer = answer.await;
        self.waits_since.store(now(), Ordering::Relaxed);
        self.has_ended.notify_one();
        answer
    }
}

/// The connections. Bound: `MAX`.
#[derive(Default)]
pub(super) struct Guests<const MAX: usize> {
    tasks: JoinSet<()>,
    seats: Vec<(Arc<Turn>, AbortHandle)>,
    has_ended: Arc<Notify>,
}

impl<const MAX: usize> Guests<MAX> {
    /// Waits for room, which there is unless all are being answered.
    pub(super) async fn make_room(&mut self) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.seats.retain(|(_, task)| !task.is_finished());
            if self.seats.len() < MAX {
                return;
            }
            let waits = |at: &usize| self.seats.get(*at).map(|(turn, _)| turn.waits_since.load(Ordering::Relaxed));
            let longest = (0..self.seats.len()).filter(|at| waits(at) != Some(ANSWERING)).min_by_key(waits);
            if let Some(at) = longest {
                self.seats.swap_remove(at).1.abort();
                return;
            }
            tokio::select! {
                _ = self.tasks.join_next() => {}
                () = self.has_ended.notified() => {}
            }
        }
    }

    /// Takes one in, for which there is room.
    pub(super) fn seat<F>(&mut self, guest: impl FnOnce(Arc<Turn>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let turn = Arc::new(Turn { waits_since: AtomicU64::new(now()), has_ended: self.has_ended.clone() });
        let task = self.tasks.spawn(guest(turn.clone()));
        self.seats.push((turn, task));
    }
}

fn now() -> u64 {
    Mono::now().0.max(ANSWERING + 1)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn at_the_bound_the_one_that_waits_longest_goes_and_one_that_is_answered_stays() {
        let mut guests = Guests::<3>::default();
        let mut ends = Vec::new();
        let (answer, answered) = oneshot::channel::<()>();
        let mut answered = Some(answered);
        for number in 0..3 {
            guests.make_room().await;
            let (alive, end) = oneshot::channel::<()>();
            ends.push(end);
            let answered = answered.take();
            guests.seat(|turn| async move {
                let _alive = alive;
                if number == 0
                    && let Some(answered) = answered
                {
                    let _ = turn.answer(answered).await;
                }
                std::future::pending::<()>().await;
            });
            // The first one is at its answer before the next comes.
            tokio::task::yield_now().await;
        }
        guests.make_room().await;
        assert!((&mut ends[1]).await.is_err(), "the second waits longest");
        assert!(ends[0].try_recv() == Err(oneshot::error::TryRecvError::Empty), "the first is being answered");
        assert!(ends[2].try_recv() == Err(oneshot::error::TryRecvError::Empty));
        guests.seat(|turn| async move { turn.answer(std::future::pending::<()>()).await });
        tokio::task::yield_now().await;
        answer.send(()).expect("it listens");
        guests.make_room().await;
        assert!((&mut ends[2]).await.is_err(), "the first waits since its answer only");
    }
}
