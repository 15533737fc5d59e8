//! Invented file metadata for tests.

use super::{FileLocation, FileMeta};
use crate::sst::IndexStats;

/// Metadata of a file of index 1 with keys from `smallest` to `largest`. No such file exists.
pub(crate) fn file(file_id: u64, smallest: &[u8], largest: &[u8]) -> FileMeta {
    FileMeta {
        file_id,
        size: 1000,
        checksum: file_id.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
        min_seqno: 1,
        max_seqno: 9,
        entries: 10,
        deletes: 1,
        dense_deletes: file_id % 2,
        superseded: 2,
        raw_bytes: 2000,
        at_rest: false,
        external_seqno: None,
        per_index: vec![IndexStats {
            index: 1,
            entries: 10,
            deletes: 1,
            raw_bytes: 2000,
            stored_bytes: 1000,
        }],
        blobs: Vec::new(),
        location: FileLocation::Local,
        tail_len: 0,
    }
}
