//! Decides how a value is stored (plain, compressed, or in chunks) and produces the bytes to store.

use super::chunks;
use super::value_compression::compress;
use crate::base::blob_ref::BlobCodec;
use crate::base::checksum;
use std::borrow::Cow;

/// If a value has more bytes than this, a sample of it is compressed first. If compression does not
/// shorten the sample, the value is stored plain.
const TRIED_WHOLE: usize = 64 << 10;
const PIECES: usize = 4;
const PIECE: usize = 4 << 10;

/// The bytes to store for a value: the table, then the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packed<'a> {
    pub(super) codec: BlobCodec,
    /// The table of chunks; empty if the value is not stored in chunks.
    pub(super) table: Vec<u8>,
    pub(super) body: Cow<'a, [u8]>,
}

impl Packed<'_> {
    /// Length in bytes of table and body together.
    pub(super) fn stored(&self) -> u64 {
        (self.table.len() + self.body.len()) as u64
    }

    /// The checksum of the blob, if it is stored at `offset` of the logical file `file`.
    pub(super) fn checksum(&self, file: u64, offset: u64) -> u64 {
        match self.codec {
            BlobCodec::Chunks => checksum::placed(&self.table, file, offset),
            BlobCodec::None | BlobCodec::Zstd => checksum::placed(&self.body, file, offset),
        }
    }
}

/// Compresses `value`, or each of its chunks, where that saves enough; see
/// [`super::value_compression`].
pub(super) fn pack(value: &[u8]) -> Packed<'_> {
    let try_it = value.len() <= TRIED_WHOLE || compress(&sample(value)).is_some();
    let packed = |chunk: &[u8]| try_it.then(|| compress(chunk)).flatten();
    let (codec, table, body) = match chunks::in_chunks(value.len()) {
        true => {
            let (table, body) = chunks::split(value, packed);
            (BlobCodec::Chunks, table, body)
        }
        false => match packed(value) {
            Some(body) => (BlobCodec::Zstd, Vec::new(), Some(body)),
            None => (BlobCodec::None, Vec::new(), None),
        },
    };
    Packed {
        codec,
        table,
        body: body.map_or(Cow::Borrowed(value), Cow::Owned),
    }
}

fn sample(value: &[u8]) -> Vec<u8> {
    let step = (value.len() - PIECE) / (PIECES - 1);
    let pieces = (0..PIECES).map(|i| &value[i * step..i * step + PIECE]);
    pieces.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::value_compression::unpack;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    #[test]
    fn what_compresses_is_compressed_and_comes_back() {
        for len in [1, 100, 5000, 65_536, 65_537, 300_000] {
            let value: Vec<u8> = (0..len)
                .map(|i| b"abcdefgh "[i % 9] ^ (i / 999) as u8)
                .collect();
            let packed = pack(&value);
            let want = match len {
                ..=50 => BlobCodec::None,
                51..=131_072 => BlobCodec::Zstd,
                _ => BlobCodec::Chunks,
            };
            assert_eq!(packed.codec, want, "{len} bytes");
            if want == BlobCodec::Zstd {
                let stored = &*packed.body;
                let mut back = vec![0; len];
                assert!(unpack(stored, &mut back));
                assert_eq!(back, value);
                assert!(!unpack(stored, &mut vec![0; len - 1]));
                assert!(!unpack(stored, &mut vec![0; len + 1]));
                assert!(!unpack(&stored[..stored.len() - 1], &mut back));
            }
            assert!(len <= 50 || packed.stored() < len as u64 / 2);
        }
    }

    #[test]
    fn noise_stays_as_it_is() {
        let mut rng = StdRng::seed_from_u64(1);
        for len in [5000, 70_000, 300_000] {
            let value: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            let packed = pack(&value);
            assert_ne!(packed.codec, BlobCodec::Zstd);
            assert!(matches!(packed.body, Cow::Borrowed(body) if body == value));
        }
    }
}
