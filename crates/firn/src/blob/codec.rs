//! Compression of single values, where it pays.

use std::borrow::Cow;
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

use crate::rowcode::BlobCodec;

/// The fastest level proper: values are compressed while a statement waits.
const LEVEL: i32 = 1;

/// A value is compressed if that saves one byte in so many.
const SAVES: usize = 8;

/// Larger values are tried by pieces first: what does not compress costs no more than these.
const TRIED_WHOLE: usize = 64 << 10;
const PIECES: usize = 4;
const PIECE: usize = 4 << 10;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The bytes to store for `value`.
pub(super) fn pack(value: &[u8]) -> (BlobCodec, Cow<'_, [u8]>) {
    let plain = (BlobCodec::None, Cow::Borrowed(value));
    if value.len() > TRIED_WHOLE {
        let step = (value.len() - PIECE) / (PIECES - 1);
        let pieces = (0..PIECES).map(|i| &value[i * step..i * step + PIECE]);
        let sample: Vec<u8> = pieces.flatten().copied().collect();
        if compress(&sample).is_none() {
            return plain;
        }
    }
    match compress(value) {
        Some(packed) => (BlobCodec::Zstd, Cow::Owned(packed)),
        None => plain,
    }
}

/// `None` if it does not save enough.
fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let room = bytes.len() - bytes.len() / SAVES;
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Compressor::new(LEVEL).ok();
        }
        let mut packed = Vec::with_capacity(zstd::zstd_safe::compress_bound(bytes.len()));
        slot.as_mut()?.compress_to_buffer(bytes, &mut packed).ok()?;
        (packed.len() <= room).then(|| {
            packed.shrink_to_fit();
            packed
        })
    })
}

/// Fills `value` from what [`pack`] made of it; whether that was possible.
pub(super) fn unpack(stored: &[u8], value: &mut [u8]) -> bool {
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Decompressor::new().ok();
        }
        let len = slot
            .as_mut()
            .and_then(|d| d.decompress_to_buffer(stored, value).ok());
        len == Some(value.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    #[test]
    fn what_compresses_is_compressed_and_comes_back() {
        for len in [1, 100, 5000, 65_536, 65_537, 300_000] {
            let value: Vec<u8> = (0..len)
                .map(|i| b"abcdefgh "[i % 9] ^ (i / 999) as u8)
                .collect();
            let (codec, stored) = pack(&value);
            assert_eq!(codec == BlobCodec::Zstd, len > 50, "{len} bytes");
            if codec == BlobCodec::Zstd {
                let mut back = vec![0; len];
                assert!(unpack(&stored, &mut back));
                assert_eq!(back, value);
                assert!(!unpack(&stored, &mut vec![0; len - 1]));
                assert!(!unpack(&stored, &mut vec![0; len + 1]));
                assert!(!unpack(&stored[..stored.len() - 1], &mut back));
            }
        }
    }

    #[test]
    fn noise_stays_as_it_is() {
        let mut rng = StdRng::seed_from_u64(1);
        for len in [5000, 70_000, 300_000] {
            let value: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            let (codec, stored) = pack(&value);
            assert_eq!((codec, &*stored), (BlobCodec::None, &value[..]));
        }
    }
}
