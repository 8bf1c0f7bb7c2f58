//! The mock's loop: listeners, connections, and the times at which events are due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

use super::answers::Answers;
use super::connection::{Connection, Counts, Next};
use crate::poll::{Poll, Ready};
use crate::usage::monotonic_ns;

const BACKLOG: i32 = 4096;
/// Takes a prompt of a megabyte in a few reads.
const READ_BYTES: usize = 256 * 1024;
/// Connections at once; more are closed at the door.
const CONNECTIONS_MAX: usize = 60_000;

/// Engines on ports of the system's choosing, served by one thread.
pub struct Mock {
    listeners: Vec<TcpListener>,
    poll: Poll,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    next_number: u64,
    timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    turns: VecDeque<(usize, u64)>,
    counts: Counts,
    answers: Answers,
}

impl Mock {
    /// Binds `port_count` ports on loopback.
    ///
    /// Errors: the system has no port, or no epoll.
    pub fn bind(port_count: usize) -> io::Result<Self> {
        let listeners = (0..port_count).map(|_| listener()).collect::<io::Result<Vec<_>>>()?;
        let poll = Poll::new()?;
        for (idx, listener) in listeners.iter().enumerate() {
            poll.add_listener(listener, idx as u64)?;
        }
        Ok(Self {
            listeners,
            poll,
            connections: Vec::new(),
            free: Vec::new(),
            next_number: 0,
            timers: BinaryHeap::new(),
            turns: VecDeque::new(),
            counts: Counts::default(),
            answers: Answers::new(),
        })
    }

    /// Where it listens.
    ///
    /// Errors: the system cannot say.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves until the process ends.
    ///
    /// Errors: the system's; it does not end otherwise.
    pub fn serve(mut self) -> io::Result<()> {
        let (mut ready, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
        loop {
            let due = self.timers.peek().map(|Reverse((due, ..))| *due);
            let until = if self.turns.is_empty() { due } else { Some(0) };
            self.poll.wait(until, &mut ready)?;
            for one in &ready {
                self.on_ready(*one, &mut buffer);
            }
            self.on_due();
            for _ in 0..self.turns.len() {
                if let Some((idx, number)) = self.turns.pop_front() {
                    self.on_turn(idx, number);
                }
            }
        }
    }

    fn on_ready(&mut self, ready: Ready, buffer: &mut [u8]) {
        let token = usize::try_from(ready.token).unwrap_or(usize::MAX);
        if token < self.listeners.len() {
            return self.accept(token);
        }
        let idx = token - self.listeners.len();
        let Some(Some(connection)) = self.connections.get_mut(idx) else { return };
        if ready.is_writable && connection.flush().is_err() {
            return self.close(idx);
        }
        if ready.is_readable {
            let now = monotonic_ns();
            let next = connection.readable(ready.is_ending, buffer, &self.answers, &mut self.counts, now);
            self.go_on(idx, next);
        }
    }

    fn on_due(&mut self) {
        let now = monotonic_ns();
        while let Some(&Reverse((due, idx, number))) = self.timers.peek() {
            if due > now {
                return;
            }
            self.timers.pop();
            self.on_turn(idx, number);
        }
    }

    fn on_turn(&mut self, idx: usize, number: u64) {
        let Some(Some(connection)) = self.connections.get_mut(idx) else { return };
        if connection.number == number {
            let next = connection.event(&self.answers, &mut self.counts, monotonic_ns());
            self.go_on(idx, next);
        }
    }

    fn go_on(&mut self, idx: usize, next: Next) {
        let Some(Some(connection)) = self.connections.get(idx) else { return };
        match next {
            Next::OnEvent => {}
            Next::Turn => self.turns.push_back((idx, connection.number)),
            Next::At(due) => self.timers.push(Reverse((due, idx, connection.number))),
            Next::Close => self.close(idx),
        }
    }

    fn accept(&mut self, listener: usize) {
        // Level-triggered: who is not taken now is told again.
        for _ in 0..64 {
            let Some(Ok((socket, _))) = self.listeners.get(listener).map(TcpListener::accept) else { return };
            if self.connections.len() - self.free.len() >= CONNECTIONS_MAX || socket.set_nonblocking(true).is_err() {
                continue;
            }
            // Without it an event may wait for an acknowledgement; where it is refused the times tell.
            let _ = socket.set_nodelay(true);
            let idx = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            if self.poll.add(&socket, (self.listeners.len() + idx) as u64).is_err() {
                self.free.push(idx);
                continue;
            }
            self.next_number += 1;
            if let Some(place) = self.connections.get_mut(idx) {
                *place = Some(Connection::new(socket, self.next_number));
            }
        }
    }

    fn close(&mut self, idx: usize) {
        let Some(connection) = self.connections.get_mut(idx).and_then(Option::take) else { return };
        if connection.is_streaming() {
            self.counts.active -= 1;
        }
        self.free.push(idx);
    }
}

fn listener() -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::super::order::mark;
    use super::*;

    /// A mock on a thread that ends with the test's process.
    pub(crate) fn started(port_count: usize) -> Vec<SocketAddr> {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mock = Mock::bind(port_count).expect("ports");
            tell.send(mock.addresses().expect("addresses")).expect("the test waits");
            mock.serve()
        });
        told.recv().expect("a mock")
    }

    #[test]
    fn a_whole_answer_and_a_stream_come_over_one_connection() {
        let addresses = started(2);
        let mut socket = TcpStream::connect(addresses[1]).expect("connected");
        let body = format!("{{\"content\":\"{}\"}}", mark(3, 100, 50));
        let post =
            |body: &str| format!("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        // Pipelined: the second waits for the first.
        socket.write_all(format!("{}{}", post(&body), post("{}")).as_bytes()).expect("written");
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !seen.ends_with(b"146}}") {
            let read = socket.read(&mut buffer).expect("bytes");
            assert_ne!(read, 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..read]);
        }
        let text = String::from_utf8(seen).expect("text");
        assert_eq!(text.matches("sent_ns=").count(), 3);
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2);
        assert!(text.find("[DONE]") < text.find("chat.completion\""));
    }
}
