//! CRC-32C, the checksum of everything in a segment: finds every flipped bit, and every burst shorter than 32 bits.

/// Castagnoli's polynomial, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// The checksum of `parts` one after the other. `salt` makes it another one for the same bytes elsewhere.
///
/// Cost: 2.5 ns a byte; records are some 200 bytes.
pub(crate) fn crc32c(salt: u32, parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)];
    !bytes.fold(!salt, step)
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn it_is_the_checksum_that_others_call_by_that_name() {
        assert_eq!(crc32c(0, &[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(0, &[b"1234", b"", b"56789"]), 0xe306_9283);
        assert_eq!(crc32c(0, &[&[0; 32]]), 0x8a91_36aa);
        assert_ne!(crc32c(1, &[b"123456789"]), 0xe306_9283);
    }
}
