//! Threads that make calls which may block, for one that must not: where there is no ring to do it.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Builder, Thread};
use std::time::Duration;

use llmgw_kit::clock::Mono;

use crate::files::Syncing;

type Call = Box<dyn FnOnce() + Send>;

/// A thread that makes one call after the other; it begins with the first and ends with this.
#[derive(Debug)]
pub(crate) struct Hand {
    name: &'static str,
    calls: Option<Sender<Call>>,
}

/// How a call ended, and who waits for that.
#[derive(Debug, Default)]
struct Told(Mutex<(Option<io::Result<()>>, Option<Waker>)>);

impl Hand {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, calls: None }
    }

    /// Has a call made. Where there is no thread to be had it is made here, which is slower and the same.
    pub(crate) fn make(&mut self, call: impl FnOnce() -> io::Result<()> + Send + 'static) -> Syncing {
        if self.calls.is_none() {
            self.calls = start(self.name).ok();
        }
        let told = Arc::<Told>::default();
        let teller = told.clone();
        let call: Call = Box::new(move || teller.tell(call()));
        let unmade = match &self.calls {
            Some(calls) => calls.send(call).err().map(|error| error.0),
            None => Some(call),
        };
        if let Some(call) = unmade {
            call();
        }
        Box::pin(poll_fn(move |cx| told.poll(cx)))
    }
}

/// Errors: there is no thread to be had.
fn start(name: &str) -> io::Result<Sender<Call>> {
    let (calls, made) = channel::<Call>();
    Builder::new().name(name.to_owned()).spawn(move || made.into_iter().for_each(|call| call()))?;
    Ok(calls)
}

impl Told {
    fn tell(&self, outcome: io::Result<()>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(outcome);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Runs work to its end on this thread, which sleeps while that waits for another.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let waker = Waker::from(Arc::new(Woken(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match work.as_mut().poll(&mut cx) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// Waits on a thread that [`block_on`] runs on; whatever wakes that is looked after at once.
pub(crate) async fn pause(time: Duration) {
    let until = Mono::now() + time;
    poll_fn(|cx| {
        thread::park_timeout(until.since(Mono::now()));
        if Mono::now() >= until {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Wakes a thread.
struct Woken(Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_made_in_order_by_another_thread_and_their_outcome_is_told() {
        let mut hand = Hand::new("a-hand");
        let made = Arc::new(Mutex::new(Vec::new()));
        let call = |number: u32| {
            let made = made.clone();
            move || {
                made.lock().expect("no panic").push((number, thread::current().name().map(str::to_owned)));
                if number == 1 { Err(io::Error::other("no")) } else { Ok(()) }
            }
        };
        let outcomes: Vec<_> = (0..3).map(|number| hand.make(call(number))).collect();
        let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| block_on(outcome).is_ok()).collect();
        assert_eq!(outcomes, [true, false, true]);
        let expected: Vec<_> = (0..3).map(|number| (number, Some("a-hand".to_owned()))).collect();
        assert_eq!(*made.lock().expect("no panic"), expected);
    }

    #[test]
    fn a_pause_that_is_disturbed_is_made_to_its_end() {
        let began = Mono::now();
        thread::current().unpark();
        block_on(pause(Duration::from_millis(20)));
        assert!(Mono::now().since(began) >= Duration::from_millis(20));
    }
}
