//! Newtypes for everything that is counted or indexed, so that two small integers are never swapped.
//!
//! An index is valid only with the route table it was read from; a [`BoardSlot`] stays its endpoint's own for life.

use std::fmt;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The value as a position in a slice.
            pub const fn idx(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index!(
    /// A data-plane thread, 0..cores.
    CoreId
);
index!(
    /// A row of the route table's endpoints; valid with that table's generation only.
    EndpointIdx
);
index!(
    /// A row of the route table's pools; valid with that table's generation only.
    PoolIdx
);
index!(
    /// A row of the route table's models; valid with that table's generation only.
    ModelIdx
);
index!(
    /// An endpoint's column on the load board; its own as long as it lives, reused only when no core can still count on
    /// it.
    BoardSlot
);

index!(
    /// A pool's column on the load board; its own as long as it lives, reused only when no core can still count on it.
    /// Small enough for 16 bits.
    PoolSlot
);

index!(
    /// A key, by its row in the table of who may ask; its own for the life of the process.
    KeyIdx
);
index!(
    /// A project, by its row in the table of who may ask; its own for the life of the process.
    ProjectIdx
);
index!(
    /// An organisation's number; its own for the life of the process.
    OrganizationIdx
);
index!(
    /// A level with limits, by its row in the table of who may ask; its own for the life of the process.
    LevelIdx
);

/// An id of a key or a project, short enough to travel by value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortId {
    len: u8,
    bytes: [u8; Self::BYTES_MAX],
}

impl ShortId {
    /// The longest.
    pub const BYTES_MAX: usize = 31;

    /// The id of that text; none where it is longer.
    pub fn of(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self { len: u8::try_from(text.len()).ok()?, bytes })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Only a text was ever put there; the fallbacks cannot be reached.
        self.bytes.get(..usize::from(self.len)).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl fmt::Debug for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A band's rank: 1 is the band of lowest priority, a higher rank goes first. [`BandRank::NOBODY`] is below every band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BandRank(pub u8);

impl BandRank {
    /// No band at all.
    pub const NOBODY: Self = Self(0);

    /// The value as a position in a slice that has a place for nobody in front.
    pub const fn idx(self) -> usize {
        self.0 as usize
    }
}

/// Names one request in logs, headers and records; sorts by time.
///
/// Shape: 48 bits of unix milliseconds, 16 bits of core, 64 bits of chance; 32 hexadecimal digits when written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u128);

impl RequestId {
    /// Builds an id. `unix_ms` is wall time, `chance` 64 random bits.
    pub fn new(unix_ms: u64, core: CoreId, chance: u64) -> Self {
        let high = ((unix_ms & 0xffff_ffff_ffff) << 16) | u64::from(core.0 & 0xffff);
        Self((u128::from(high) << 64) | u128::from(chance))
    }

    /// When it was built. Units: unix milliseconds.
    pub const fn unix_ms(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// The id as it is written everywhere: `req-` and 32 lower-case hexadecimal digits.
    ///
    /// Cost: no allocation.
    pub fn text(self) -> RequestIdText {
        let mut bytes = *b"req-00000000000000000000000000000000";
        let mut rest = self.0;
        for byte in bytes[4..].iter_mut().rev() {
            *byte = b"0123456789abcdef"[(rest & 0xf) as usize];
            rest >>= 4;
        }
        RequestIdText(bytes)
    }
}

/// The written form of a [`RequestId`], on the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestIdText([u8; 36]);

impl RequestIdText {
    /// The text.
    pub fn as_str(&self) -> &str {
        // Only ASCII was ever put there; the fallback cannot be reached.
        std::str::from_utf8(&self.0).unwrap_or("req-")
    }
}

impl fmt::Debug for RequestIdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{CoreId, RequestId, ShortId};

    #[test]
    fn a_short_id_is_its_text_or_none() {
        for text in ["", "key-0123456789abcdefg", &"x".repeat(31), "schlüssel"] {
            assert_eq!(ShortId::of(text).expect("short enough").as_str(), text);
        }
        assert!(ShortId::of(&"x".repeat(32)).is_none());
    }

    #[test]
    fn request_ids_sort_by_time_and_then_by_core() {
        let a = RequestId::new(1_000, CoreId(7), u64::MAX);
        let b = RequestId::new(1_001, CoreId(0), 0);
        let c = RequestId::new(1_001, CoreId(1), 0);
        assert!(a < b && b < c);
        assert_eq!((a.unix_ms(), c.unix_ms()), (1_000, 1_001));
        assert!(a.to_string() < b.to_string() && b.to_string() < c.to_string());
    }

    #[test]
    fn a_request_id_is_written_with_all_its_digits() {
        assert_eq!(RequestId::new(0, CoreId(0), 10).to_string(), "req-0000000000000000000000000000000a");
    }
}
