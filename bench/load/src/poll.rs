//! Waiting for many sockets and one moment: an edge-triggered epoll with a kernel timer beside it.
//!
//! Under `drive` and `mock`, whose cost must stay far below that of the gateway between them: no task, no waker, one
//! system call a round. Knows nothing of HTTP.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::usage::monotonic_ns;

/// Events taken in one round.
const EVENTS_MAX: usize = 512;
const TIMER: u64 = u64::MAX;

/// What a socket is ready for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// The other side has ended its direction, or the connection is broken: read to the end.
    pub(crate) is_ending: bool,
}

/// The set of sockets.
pub(crate) struct Poll {
    fd: OwnedFd,
    timer: OwnedFd,
    armed_ns: u64,
    events: Vec<epoll::Event>,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&fd, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Self { fd, timer, armed_ns: 0, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches both directions of a socket, edge-triggered: each edge is told once. The socket leaves when it is
    /// closed.
    pub(crate) fn add(&self, socket: &impl AsFd, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        Ok(epoll::add(&self.fd, socket, epoll::EventData::new_u64(token), flags)?)
    }

    /// Watches a listener: told as long as somebody waits there.
    pub(crate) fn add_listener(&self, socket: &impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.fd, socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Waits for an event or the moment, whichever comes first, and puts what is ready into `ready`. A moment that has
    /// passed makes it look without waiting; none means for ever.
    pub(crate) fn wait(&mut self, until_ns: Option<u64>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let is_due = until_ns.is_some_and(|due| due <= monotonic_ns());
        if let (Some(due), false) = (until_ns, is_due)
            && due != self.armed_ns
        {
            self.arm(due)?;
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.events.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.fd, spare, is_due.then_some(&at_once)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            let (flags, data) = (event.flags, event.data);
            let token = data.u64();
            if token == TIMER {
                // Edge-triggered, and set anew for each moment: what it counted need not be read.
                self.armed_ns = 0;
                continue;
            }
            let is_ending =
                flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            ready.push(Ready {
                token,
                is_readable: is_ending || flags.contains(epoll::EventFlags::IN),
                is_writable: flags.contains(epoll::EventFlags::OUT),
                is_ending,
            });
        }
        Ok(())
    }

    fn arm(&mut self, due_ns: u64) -> io::Result<()> {
        let at = Timespec {
            tv_sec: i64::try_from(due_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(due_ns % 1_000_000_000).unwrap_or(0),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        self.armed_ns = due_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_moment_is_never_early_and_a_past_one_does_not_wait() {
        let mut poll = Poll::new().expect("epoll");
        let mut ready = Vec::new();
        for ahead_ns in [0, 100_000, 3_000_000] {
            let due = monotonic_ns() + ahead_ns;
            while monotonic_ns() < due {
                poll.wait(Some(due), &mut ready).expect("waited");
            }
            poll.wait(Some(1), &mut ready).expect("looked");
            assert!(ready.is_empty());
        }
    }

    #[test]
    fn bytes_and_an_end_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        server.set_nonblocking(true).expect("an option");
        let mut poll = Poll::new().expect("epoll");
        poll.add(&server, 7).expect("added");
        client.write_all(b"x").expect("written");
        let mut ready = Vec::new();
        let mut wait_for = |wanted: fn(&Ready) -> bool| loop {
            poll.wait(None, &mut ready).expect("waited");
            if ready.iter().any(|one| one.token == 7 && wanted(one)) {
                return;
            }
        };
        wait_for(|one| one.is_readable);
        assert_eq!(server.read(&mut [0; 8]).expect("read"), 1);
        drop(client);
        wait_for(|one| one.is_ending);
        assert_eq!(server.read(&mut [0; 8]).expect("read"), 0);
    }
}
