//! Files for tests: invented metadata, and small files that are written.

use super::{FileHandle, FileLocation, FileMeta, FileSource};
use crate::base::prefix_extractor::PrefixExtractors;
use crate::base::{InternalKey, Kind, Value};
use crate::sst::{IndexStats, SstOptions, SstWriter};
use std::sync::Arc;

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

/// Writes a file into the store of `source`. Its entries are `keys`, in ascending order, all with
/// seqno 1.
pub(crate) fn written(
    source: &Arc<FileSource>,
    file_id: u64,
    keys: &[(Vec<u8>, Kind)],
    prefix_extractors: Arc<dyn PrefixExtractors>,
) -> Arc<FileHandle> {
    let file = source.store().create(file_id).unwrap();
    let writer = SstWriter::new(file, file_id, SstOptions::upper_level(128), 0);
    let mut writer = writer.with_prefix_extractors(prefix_extractors);
    for (key, kind) in keys {
        let key = InternalKey::new(key, 1, *kind);
        writer.add(key, Value::whole(b"")).unwrap();
    }
    let meta = FileMeta::from_summary(writer.finish().unwrap(), 0, false);
    FileHandle::new(Arc::new(meta), Arc::clone(source))
}
