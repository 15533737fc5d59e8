//! Trains a file's dictionary from the file's own blocks.

use super::block::StoredForm;
use super::block_compression::{Codec, Compressor, Tuning};
use super::dictionary::Dictionary;
use zstd::zstd_safe::zstd_sys::{
    ZDICT_fastCover_params_t, ZDICT_isError, ZDICT_params_t, ZDICT_trainFromBuffer_fastCover,
};

const SIZE: usize = 16 << 10;
/// Bytes of samples to train with. ZSTD advises a hundred times the size of the dictionary; this is
/// 32 times.
const TRAINING_BYTES: usize = 32 * SIZE;
/// Blocks are cut into samples of this many bytes, because the trainer works best with many small
/// samples.
const SAMPLE: usize = 1 << 10;
/// A file with fewer raw bytes of data than this gets no dictionary, which would take more bytes
/// than it saves.
const RAW_BYTES_MIN: usize = 8 * SIZE;
/// Number of blocks that a trial compresses both with and without the dictionary.
const TRIAL_BLOCKS: usize = 16;
/// The dictionary is used if it makes the compressed trial blocks smaller by at least this
/// percentage.
const GAIN_PERCENT_MIN: usize = 2;

impl Dictionary {
    /// Trains a dictionary from `blocks`. `None` if there is too little data, or if a trial shows
    /// that the dictionary saves too little. For example, random data gains nothing, and would be
    /// compressed and decompressed with a useless dictionary for as long as it exists.
    pub(super) fn train(blocks: &[StoredForm], codec: Codec, tuning: Tuning) -> Option<Self> {
        let total: usize = blocks.iter().map(|b| b.raw.len()).sum();
        if total < RAW_BYTES_MIN {
            return None;
        }
        // Take whole blocks, evenly spread over the file, so that keys, value heads and value tails
        // are all sampled.
        let step = (total / TRAINING_BYTES).max(1);
        let mut samples = Vec::with_capacity(TRAINING_BYTES.min(total));
        let mut sizes = Vec::new();
        let spread = blocks.iter().step_by(step);
        for chunk in spread.flat_map(|b| b.raw.chunks(SAMPLE)) {
            samples.extend_from_slice(chunk);
            sizes.push(chunk.len());
        }
        let bytes = cover(&samples, &sizes)?;
        let dictionary = Self::new(bytes);
        dictionary
            .pays(blocks, total, codec, tuning)
            .then_some(dictionary)
    }

    fn pays(&self, blocks: &[StoredForm], total: usize, codec: Codec, tuning: Tuning) -> bool {
        let mut plain = Compressor::new(codec, tuning);
        let mut with_dictionary = Compressor::new(codec, tuning);
        with_dictionary.set_dictionary(self);
        let (mut without, mut with, mut raw) = (0, 0, 0);
        // Begin with another block than the training did, so that most trial blocks were not
        // trained on.
        let step = (blocks.len() / TRIAL_BLOCKS).max(1);
        for block in blocks.iter().skip(step / 2).step_by(step) {
            raw += block.raw.len();
            without += plain.data(block).2.len();
            with += with_dictionary.data(block).2.len();
        }
        let saved = without.saturating_sub(with);
        let saved_in_all = saved as u64 * total as u64 / raw.max(1) as u64;
        saved * 100 >= without * GAIN_PERCENT_MIN && saved_in_all > self.bytes().len() as u64
    }
}

/// Length in bytes of the segments of the samples that the trainer joins to a dictionary.
const COVER_SEGMENT: u32 = 512;
/// The trainer scores a segment by the frequency of the byte strings of this length in it.
const COVER_WIDTH: u32 = 8;
/// Binary logarithm of the number of entries in the trainer's frequency table: half a million,
/// about one for each byte of the samples.
const COVER_TABLE_LOG: u32 = 19;

/// ZSTD's trainer with fixed parameters. The safe binding's function tries five segment lengths and
/// compresses the samples with each result. That took a fifth of the CPU time of compactions, for
/// dictionaries that were better by tenths of a percent.
fn cover(samples: &[u8], sizes: &[usize]) -> Option<Vec<u8>> {
    debug_assert_eq!(samples.len(), sizes.iter().sum());
    let parameters = ZDICT_fastCover_params_t {
        k: COVER_SEGMENT,
        d: COVER_WIDTH,
        f: COVER_TABLE_LOG,
        steps: 1,
        nbThreads: 1,
        splitPoint: 1.0,
        accel: 1,
        shrinkDict: 0,
        shrinkDictMaxRegression: 0,
        zParams: ZDICT_params_t {
            compressionLevel: 0,
            notificationLevel: 0,
            dictID: 0,
        },
    };
    let mut bytes = vec![0u8; SIZE];
    // SAFETY: the pointers and lengths are those of live slices. `sizes` adds up to the length of
    // `samples`, because `train` built both together, so the trainer reads only inside `samples`.
    // It writes at most `bytes.len()` bytes and keeps none of the pointers.
    let len = unsafe {
        ZDICT_trainFromBuffer_fastCover(
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            samples.as_ptr().cast(),
            sizes.as_ptr(),
            sizes.len() as u32,
            parameters,
        )
    };
    // SAFETY: the function takes a number and no pointer.
    let failed = unsafe { ZDICT_isError(len) } != 0;
    (!failed).then(|| {
        bytes.truncate(len);
        bytes
    })
}
