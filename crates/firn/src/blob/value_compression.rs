//! Compresses and decompresses values and chunks. A value or chunk that would shrink by less than
//! an eighth stays plain.

use crate::base::pool::Pool;
use crate::base::zstd_memory::ZstdObject;
use zstd::zstd_safe::{CCtx, DCtx};

/// The fastest regular level, because a statement waits while its values are compressed.
const LEVEL: i32 = 1;

/// A value or chunk is stored compressed only if that saves at least 1/8 of its bytes.
const SAVED_PART_MIN: usize = 8;

static COMPRESSORS: Pool<ZstdObject<CCtx<'static>>> = Pool::new();
static DECOMPRESSORS: Pool<ZstdObject<DCtx<'static>>> = Pool::new();

/// Compresses `bytes`; `None` if they shrink too little.
pub(super) fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    // The compressed bytes must be fewer than the plain ones: the reader takes stored bytes as long
    // as the value for the plain value.
    let room = bytes
        .len()
        .saturating_sub((bytes.len() / SAVED_PART_MIN).max(1));
    let mut packed = Vec::with_capacity(zstd::zstd_safe::compress_bound(bytes.len()));
    COMPRESSORS
        .try_with(
            || ZstdObject::new(CCtx::create()),
            |context| context.with(|context| context.compress(&mut packed, bytes, LEVEL)),
        )
        .ok()?;
    (packed.len() <= room).then(|| {
        packed.shrink_to_fit();
        packed
    })
}

/// Decompresses `stored`, which [`compress`] has returned, into `value`. Returns false if the
/// result is not exactly as long as `value`.
pub(super) fn unpack(stored: &[u8], value: &mut [u8]) -> bool {
    let len = value.len();
    let unpacked = DECOMPRESSORS.try_with(
        || ZstdObject::new(DCtx::create()),
        |context| context.with(|context| context.decompress(value, stored)),
    );
    unpacked == Ok(len)
}
