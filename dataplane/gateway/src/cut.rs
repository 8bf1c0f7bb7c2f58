//! The end of a core's patience with what still runs: called once, heard by every connection that is being served.
//!
//! Called by `core_main` when the time to drain is over or an operator asked twice; waited for beside engines and
//! clients all along the request path. Never ends anything itself.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use llmgw_http::server::RequestReader;
use llmgw_runtime::{Either, race};

use crate::door::ClientIo;

/// See the module. Owner: one core.
///
/// Bound: one waker a connection.
#[derive(Default)]
pub(crate) struct Cut {
    is_now: Cell<bool>,
    /// The tasks of connections; places are used again.
    tasks: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
}

impl Cut {
    /// Ends the patience.
    pub(crate) fn now(&self) {
        self.is_now.set(true);
        let tasks = self.tasks.take();
        tasks.into_iter().flatten().for_each(Waker::wake);
    }

    /// Has the calling task woken for as long as the answer lives. Cost: one waker a connection, so that waits cost a
    /// look at a flag.
    pub(crate) async fn listen(&self) -> Listening<'_> {
        poll_fn(|cx| {
            let mut tasks = self.tasks.borrow_mut();
            let place = self.free.borrow_mut().pop().unwrap_or(tasks.len());
            if place >= tasks.len() {
                tasks.resize(place + 1, None);
            }
            if let Some(task) = tasks.get_mut(place) {
                *task = Some(cx.waker().clone());
            }
            Poll::Ready(Listening { cut: self, place })
        })
        .await
    }

    /// Resolves once the patience has ended; for tasks that listen.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> {
        poll_fn(|_| if self.is_now.get() { Poll::Ready(()) } else { Poll::Pending })
    }
}

/// Gives the task's place back when dropped.
pub(crate) struct Listening<'a> {
    cut: &'a Cut,
    place: usize,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.cut.tasks.borrow_mut().get_mut(self.place) {
            *task = None;
            self.cut.free.borrow_mut().push(self.place);
        }
    }
}

/// `Left`: the client left. `Right`: this gateway waits no longer.
pub(crate) type Parting = Either<(), ()>;

/// What ends a wait for an engine, or for a client that takes its answer in.
pub(crate) fn parting(cut: &Cut, reader: &mut RequestReader<ClientIo>) -> impl Future<Output = Parting> {
    race(reader.gone(), cut.wait())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ready<F: Future>(future: F, cx: &mut Context<'_>) -> Option<F::Output> {
        match pin!(future).poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn all_that_listen_are_woken_once_and_places_are_used_again() {
        let (cut, count) = (Cut::default(), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        drop(ready(cut.listen(), &mut cx).expect("at once"));
        let listening: Vec<_> = (0..3).map(|_| ready(cut.listen(), &mut cx).expect("at once")).collect();
        assert_eq!(cut.tasks.borrow().len(), 3);
        assert_eq!((ready(cut.wait(), &mut cx), count.0.load(Ordering::Relaxed)), (None, 0));
        cut.now();
        assert_eq!((ready(cut.wait(), &mut cx), count.0.load(Ordering::Relaxed)), (Some(()), 3));
        drop(listening);
        // One that comes after it hears of it at once.
        let _late = ready(cut.listen(), &mut cx).expect("at once");
        assert_eq!(ready(cut.wait(), &mut cx), Some(()));
    }
}
