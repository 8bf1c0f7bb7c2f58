//! What a core records of a request that ended, for the log. Written by cores into a ring, read by the side runtime,
//! which turns rows and slots into names.

use crossbeam::queue::ArrayQueue;
use llmgw_types::{RequestId, ShortId};

/// One core's ring. From: the core. To: the side runtime. Loss: the newest record is dropped and counted.
pub type AccessRing = ArrayQueue<AccessRecord>;

/// Which requests are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AccessLog {
    /// Those that this gateway or an engine failed (status 500 and above, broken streams).
    #[default]
    Failures,
    /// All.
    All,
}

impl AccessLog {
    /// Records a core may have waiting; more are dropped and counted. The ring is in RAM from the start, so that of
    /// failures alone is small: rings are emptied twenty times a second.
    pub const fn ring_capacity(self) -> usize {
        match self {
            Self::Failures => 1024,
            Self::All => 4096,
        }
    }
}

/// What is known of a request when it ends. Times in microseconds from its head.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord {
    /// The request.
    pub id: RequestId,
    /// When it ended, unix milliseconds.
    pub at_unix_ms: u64,
    /// The key it came with, and that key's project.
    pub caller: Option<(ShortId, ShortId)>,
    /// Its method, in capitals.
    pub method: &'static str,
    /// The route it took: a fixed word, never what the client wrote.
    pub route: &'static str,
    /// What was answered; 499 when the client left first.
    pub status: u16,
    /// Why it failed, in the words of the errors' table.
    pub reason: Option<&'static str>,
    /// Row of the metric cells: model and pool.
    pub metric_row: u32,
    /// Board slot of the endpoint that answered.
    pub slot: Option<u32>,
    /// Whether the answer was a stream.
    pub is_streamed: bool,
    /// Upstream attempts.
    pub attempt_count: u32,
    /// Head to the last byte of the body.
    pub body_us: Option<u64>,
    /// Head to the first choice of an endpoint.
    pub route_us: Option<u64>,
    /// Time in queues for a place; none where it passed at once.
    pub queue_us: Option<u64>,
    /// Time to connect to the engine that answered, TLS included; none on a connection used before.
    pub connect_us: Option<u64>,
    /// Head to the head of the engine's answer.
    pub first_byte_us: Option<u64>,
    /// Head to first token.
    pub first_token_us: Option<u64>,
    /// Head to end.
    pub duration_us: u64,
    /// What this gateway added before the answer began.
    pub overhead_us: Option<u64>,
    /// The engine's word, or none.
    pub prompt_tokens: Option<u64>,
    /// The engine's word, or none.
    pub cached_tokens: Option<u64>,
    /// The engine's word, or none.
    pub completion_tokens: Option<u64>,
    /// Sound that the engine counted, in milliseconds; none where it counts tokens.
    pub audio_ms: Option<u64>,
    /// Bytes of answer body sent.
    pub sent_bytes: u64,
}
