//! A connection without a network, for tests: gives scripted bytes, keeps what is written.
//!
//! Used by the tests of this crate and of its callers. Reads without room and empty writes are
//! counted as faults. Never used in production.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use llmgw_runtime::driver::{Driver, block_on};
use llmgw_runtime::io::Io;

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

    /// Calls so far that make no sense.
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
    fn read(&mut self, buf: &mut Vec<u8>, room: usize) -> Option<io::Result<usize>> {
        if self.is_closed {
            return Some(Ok(0));
        }
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

impl Io for Scripted {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        let mut script = self.script();
        if room == 0 {
            script.faults.push("a read without room");
        }
        script.reader = Some(cx.waker().clone());
        script.read(buf, room).map_or(Poll::Pending, Poll::Ready)
    }

    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut script = self.script();
        script.writer = Some(cx.waker().clone());
        if script.writes_wait && !script.is_closed {
            return Poll::Pending;
        }
        if script.is_closed || script.writes_fail {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut taken = 0;
        for part in parts {
            script.written.extend_from_slice(part);
            taken += part.len();
        }
        if taken == 0 {
            script.faults.push("a write of nothing");
        }
        script.write_count += 1;
        let answer = script.answers.pop_front();
        drop(script);
        if let Some(answer) = answer.filter(|answer| !answer.is_empty()) {
            self.push(Step::Bytes(answer));
        }
        Poll::Ready(Ok(taken))
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
