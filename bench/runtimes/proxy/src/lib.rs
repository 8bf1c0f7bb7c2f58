//! The part of a bare HTTP/1.1 reverse proxy that no runtime is in: framing, the loop over a two-method I/O trait, the
//! pool of engine connections, the listening socket.
//!
//! Every variant runs this same loop, so that what differs is the runtime. It is no gateway: heads are copied with one
//! header more, bodies pass, and what it does not know ends the connection.

mod framing;

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use framing::{Answer, Chunks, Length};

/// Size of every buffer; a head must fit.
pub const BUFFER_BYTES: usize = 16 << 10;

/// A connection of some runtime.
#[expect(async_fn_in_trait, reason = "one thread, no Send wanted")]
pub trait Io {
    /// Reads into the spare capacity of `buffer`, behind what it holds; 0 is the end.
    async fn read(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>);
    /// Writes all of `buffer`.
    async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>);
}

/// Opens connections of some runtime.
#[expect(async_fn_in_trait, reason = "one thread, no Send wanted")]
pub trait Connect {
    type Io: Io;
    async fn connect(&self, addr: SocketAddr) -> io::Result<Self::Io>;
}

/// Idle engine connections of one thread.
pub struct Pool<C: Connect> {
    connect: C,
    engine: SocketAddr,
    idle: RefCell<Vec<C::Io>>,
}

impl<C: Connect> Pool<C> {
    pub fn new(connect: C, engine: SocketAddr) -> Self {
        Self { connect, engine, idle: RefCell::new(Vec::new()) }
    }

    async fn take(&self) -> io::Result<C::Io> {
        let idle = self.idle.borrow_mut().pop();
        match idle {
            Some(io) => Ok(io),
            None => self.connect.connect(self.engine).await,
        }
    }

    fn put(&self, io: C::Io) {
        self.idle.borrow_mut().push(io);
    }
}

/// Serves one client connection until it ends.
///
/// Errors: either side broke, or sent what is not understood.
pub async fn serve<C: Connect>(mut client: impl Io, pool: &Pool<C>) -> io::Result<()> {
    let buffer = || Vec::with_capacity(BUFFER_BYTES);
    let (mut received, mut out, mut answer) = (buffer(), buffer(), buffer());
    loop {
        let request = loop {
            if let Some(request) = framing::request(&received)? {
                break request;
            }
            if received.len() == received.capacity() {
                return Err(framing::wrong());
            }
            if read(&mut client, &mut received).await? == 0 {
                return Ok(());
            }
        };
        let end = request.head_bytes + request.body_bytes;
        received.reserve(end.saturating_sub(received.len()));
        while received.len() < end {
            some(read(&mut client, &mut received).await?)?;
        }
        out.clear();
        framing::write_request_head(&received, &mut out)?;
        out.extend_from_slice(received.get(request.head_bytes..end).unwrap_or_default());
        received.drain(..end);

        let mut engine = pool.take().await?;
        write(&mut engine, &mut out).await?;
        out.clear();
        answer.clear();
        let head = loop {
            some(read(&mut engine, &mut answer).await?)?;
            if let Some(head) = framing::answer(&answer, &mut out)? {
                break head;
            }
        };
        relay(&mut client, &mut engine, &head, &mut out, &mut answer).await?;
        pool.put(engine);
    }
}

/// Passes the body that `answer` holds the beginning of; `out` holds the head.
async fn relay(
    client: &mut impl Io,
    engine: &mut impl Io,
    head: &Answer,
    out: &mut Vec<u8>,
    answer: &mut Vec<u8>,
) -> io::Result<()> {
    let begun = answer.get(head.head_bytes..).unwrap_or_default();
    out.extend_from_slice(begun);
    let mut rest = Rest::of(&head.length);
    rest.pass(begun)?;
    write(client, out).await?;
    while !rest.is_over() {
        answer.clear();
        some(read(engine, answer).await?)?;
        rest.pass(answer)?;
        write(client, answer).await?;
    }
    Ok(())
}

/// What is missing of a body.
enum Rest {
    Bytes(usize),
    Chunks(Chunks),
}

impl Rest {
    fn of(length: &Length) -> Self {
        match length {
            Length::Known(bytes) => Self::Bytes(*bytes),
            Length::Chunked => Self::Chunks(Chunks::default()),
        }
    }

    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Bytes(left) => *left = left.checked_sub(bytes.len()).ok_or_else(framing::wrong)?,
            Self::Chunks(chunks) => chunks.pass(bytes)?,
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Bytes(left) => *left == 0,
            Self::Chunks(chunks) => chunks.is_over(),
        }
    }
}

async fn read(io: &mut impl Io, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let (outcome, back) = io.read(std::mem::take(buffer)).await;
    *buffer = back;
    outcome
}

async fn write(io: &mut impl Io, buffer: &mut Vec<u8>) -> io::Result<()> {
    let (outcome, back) = io.write_all(std::mem::take(buffer)).await;
    *buffer = back;
    outcome
}

fn some(read: usize) -> io::Result<()> {
    if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// CPUs this process may use; at least one.
pub fn cpus() -> Vec<usize> {
    let cpus: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Keeps this thread, and those it starts from now on, to one CPU.
pub fn pin(cpu: usize) {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
}

/// What every variant is started with: `PORT-OF-THE-ENGINE CPU [MODE [PORT]]`.
pub struct Start {
    pub engine: SocketAddr,
    pub cpu: usize,
    pub mode: String,
    pub listener: TcpListener,
}

/// Reads the command line, pins the thread, listens, and says the port on standard output.
///
/// Errors: a wrong command line, no port.
pub fn start() -> io::Result<Start> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u16>().ok());
    let (Some(engine), Some(cpu)) = (number(0), number(1)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "say: PORT-OF-THE-ENGINE CPU [MODE [PORT]]"));
    };
    pin(cpu.into());
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, number(3).unwrap_or(0))).into())?;
    socket.listen(1024)?;
    let listener = TcpListener::from(socket);
    println!("{}", listener.local_addr()?.port());
    let engine = SocketAddr::from((Ipv4Addr::LOCALHOST, engine));
    Ok(Start { engine, cpu: cpu.into(), mode: words.get(2).cloned().unwrap_or_default(), listener })
}
