use super::*;
use crate::base::Kind;
use crate::base::blob_ref::{self, BlobCodec, BlobRef};
use crate::compaction::testing::{Db, user_key};

/// A value in the blob file `file`.
fn tail(file: u64) -> Vec<u8> {
    let mut tail = Vec::new();
    let blob = BlobRef {
        column: 1,
        file,
        offset: 0,
        len: 1000,
        codec: BlobCodec::None,
        stored: 1000,
        checksum: 0,
    };
    blob_ref::append(&mut tail, &[blob]);
    tail
}

#[test]
fn a_file_names_a_bounded_number_of_blob_files() {
    let db = Db::new();
    let write = |splitter| {
        let mut outputs = Outputs::new(db.context(), 0, splitter);
        for n in 0..2 * BLOB_FILES_MAX as u64 + 100 {
            // Each value refers to another file; two in a row to the same.
            let (key, tail) = (user_key(1, n), tail(1000 + n / 2 * 2));
            let value = Value {
                head: b"row",
                tail: &tail,
            };
            let key = InternalKey::new(&key, 1, Kind::PutBlobs);
            outputs.add(key, value, BlockResidence::default()).unwrap();
        }
        outputs.finish(&mut JobStats::default()).unwrap().0
    };
    let files = write(Splitter::new(1 << 40, Vec::new()));
    let names: Vec<usize> = files.iter().map(|file| file.blobs.len()).collect();
    assert_eq!(names, [BLOB_FILES_MAX, 51]);
    // The flush into the disk reserve has room for one file alone.
    let files = write(Splitter::new(u64::MAX, Vec::new()));
    assert_eq!(files.len(), 1);
}
