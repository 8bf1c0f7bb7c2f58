//! A connection without a network, for tests: gives scripted bytes, keeps what is written.
//!
//! Used by the tests of this crate and of its callers. It also watches the rule of the ring: a second read beside a
//! pending one, or a pending read dropped on an open connection, is counted as a fault. Never used in production.

use std::any::Any;
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use llmgw_runtime::driver::{Driver, block_on};
use llmgw_runtime::io::{Io, IoBuf};

/// Runs a test's future. Nothing of it waits for the kernel but its timers, so the cheaper driver will do.
///
/// # Panics
/// When no runtime can be built.
#[expect(clippy::expect_used, reason = "a test without a runtime cannot go on")]
pub fn run<F: Future>(future: F) -> F::Output {
    block_on(Driver::Epoll, future).expect("a runtime")
}

/// One thing the peer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Sends bytes. A read takes as much of them as its buffer has room for.
    Bytes(Vec<u8>),
    /// Is silent for one poll.
    Pause,
    /// Ends its side.
    Eof,
    /// Resets the connection.
    Reset,
}

#[derive(Default)]
struct Script {
    steps: VecDeque<Step>,
    written: Vec<u8>,
    write_count: usize,
    is_closed: bool,
    writes_fail: bool,
    writes_wait: bool,
    answers: VecDeque<Vec<u8>>,
    pending_reads: usize,
    faults: Vec<&'static str>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A handle on a scripted connection; clones name the same one. After its last step the peer is silent.
#[derive(Clone, Default)]
pub struct Scripted(Rc<RefCell<Script>>);

impl Scripted {
    /// A peer that does `steps` as it is read from.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let this = Self::default();
        this.script().steps.extend(steps);
        this
    }

    /// A peer that sends `raw` cut at `cuts` (taken modulo its length), with a pause before each piece, then is silent.
    pub fn split(raw: &[u8], cuts: &[usize]) -> Self {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (raw.len() + 1)).chain([raw.len()]).collect();
        ends.sort_unstable();
        ends.dedup();
        let this = Self::default();
        let mut start = 0;
        for end in ends {
            if let Some(piece) = raw.get(start..end).filter(|piece| !piece.is_empty()) {
                this.script().steps.extend([Step::Pause, Step::Bytes(piece.to_vec())]);
            }
            start = end;
        }
        this
    }

    fn script(&self) -> RefMut<'_, Script> {
        self.0.borrow_mut()
    }

    /// Adds a step; a waiting read sees it.
    pub fn push(&self, step: Step) {
        self.script().steps.push_back(step);
        let waker = self.script().reader.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// All bytes written so far.
    pub fn written(&self) -> Vec<u8> {
        self.script().written.clone()
    }

    /// The same as text.
    pub fn written_text(&self) -> String {
        String::from_utf8_lossy(&self.script().written).into_owned()
    }

    /// Number of writes so far.
    pub fn write_count(&self) -> usize {
        self.script().write_count
    }

    /// Bytes the peer has sent and nobody has read.
    pub fn unread_bytes(&self) -> usize {
        let bytes = |step: &Step| if let Step::Bytes(bytes) = step { bytes.len() } else { 0 };
        self.script().steps.iter().map(bytes).sum()
    }

    /// Says whether our side was closed.
    pub fn is_closed(&self) -> bool {
        self.script().is_closed
    }

    /// Broken rules of the ring so far.
    pub fn faults(&self) -> Vec<&'static str> {
        self.script().faults.clone()
    }

    /// Lets the peer send `bytes` (perhaps none) once it has been written to; one call a write, in order.
    pub fn answer_next_write(&self, bytes: &[u8]) {
        self.script().answers.push_back(bytes.to_vec());
    }

    /// Lets every write from here on fail as on a connection the peer has reset.
    pub fn fail_writes(&self) {
        self.script().writes_fail = true;
    }

    /// Lets every write from here on wait, as on a peer that does not read, until released.
    pub fn hold_writes(&self, hold: bool) {
        self.script().writes_wait = hold;
        let waker = self.script().writer.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Script {
    /// What a read finds now, if anything.
    fn read(&mut self, buf: &mut Vec<u8>) -> Option<io::Result<usize>> {
        if self.is_closed {
            return Some(Ok(0));
        }
        let room = buf.capacity() - buf.len();
        match self.steps.front_mut()? {
            Step::Bytes(bytes) => {
                let taken = room.min(bytes.len());
                buf.extend(bytes.drain(..taken));
                if bytes.is_empty() {
                    self.steps.pop_front();
                }
                Some(Ok(taken))
            }
            Step::Pause => {
                self.steps.pop_front();
                if let Some(waker) = &self.reader {
                    waker.wake_by_ref();
                }
                None
            }
            Step::Eof => Some(Ok(0)),
            Step::Reset => Some(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

/// Notices a pending read that is dropped.
struct PendingRead(Rc<RefCell<Script>>);

impl Drop for PendingRead {
    fn drop(&mut self) {
        let mut script = self.0.borrow_mut();
        script.pending_reads -= 1;
        if !script.is_closed && !std::thread::panicking() {
            script.faults.push("a pending read was dropped on an open connection");
        }
    }
}

impl Io for Scripted {
    fn read(&self, mut buf: Vec<u8>) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + 'static {
        let shared = self.0.clone();
        async move {
            if shared.borrow().pending_reads > 0 {
                shared.borrow_mut().faults.push("two reads at once");
            }
            if buf.len() == buf.capacity() {
                shared.borrow_mut().faults.push("a read without room");
            }
            shared.borrow_mut().pending_reads += 1;
            let pending = PendingRead(shared.clone());
            let result = poll_fn(|cx| {
                let mut script = shared.borrow_mut();
                script.reader = Some(cx.waker().clone());
                script.read(&mut buf).map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            std::mem::forget(pending);
            shared.borrow_mut().pending_reads -= 1;
            (result, buf)
        }
    }

    fn write_all<B: IoBuf>(&self, buf: B) -> impl Future<Output = (io::Result<()>, B)> + 'static {
        let shared = self.0.clone();
        async move {
            poll_fn(|cx| {
                let mut script = shared.borrow_mut();
                script.writer = Some(cx.waker().clone());
                if script.writes_wait && !script.is_closed { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            if shared.borrow().is_closed || shared.borrow().writes_fail {
                return (Err(io::ErrorKind::BrokenPipe.into()), buf);
            }
            let bytes = bytes_of(&buf);
            let mut script = shared.borrow_mut();
            script.written.extend_from_slice(&bytes);
            script.write_count += 1;
            let answer = script.answers.pop_front();
            drop(script);
            if let Some(answer) = answer.filter(|answer| !answer.is_empty()) {
                Self(shared).push(Step::Bytes(answer));
            }
            (Ok(()), buf)
        }
    }

    fn close_now(&self) {
        let wakers = {
            let mut script = self.script();
            script.is_closed = true;
            [script.reader.take(), script.writer.take()]
        };
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
    }
}

/// The bytes of the buffer types this crate writes: what any other holds cannot be seen without unsafe code.
fn bytes_of<B: IoBuf>(buf: &B) -> Vec<u8> {
    let any: &dyn Any = buf;
    let slice_of_vec = Vec::new().slice(..);
    if let Some(vec) = any.downcast_ref::<Vec<u8>>() {
        vec.clone()
    } else if let Some(bytes) = any.downcast_ref::<Bytes>() {
        bytes.to_vec()
    } else if let Some(text) = any.downcast_ref::<&'static [u8]>() {
        text.to_vec()
    } else if let Some(slice) = downcast_like(&slice_of_vec, any) {
        slice.get_ref().get(slice.begin()..slice.end()).unwrap_or_default().to_vec()
    } else {
        panic!("a buffer type the scripted connection does not know");
    }
}

/// Downcasts to a type that has no name here.
fn downcast_like<'a, T: 'static>(_like: &T, any: &'a dyn Any) -> Option<&'a T> {
    any.downcast_ref()
}
