//! The blob files of a directory, and the references to them in tree and log.

use super::super::background::blob_gc::for_each_blob;
use super::{ReadOnlyDb, ReadOnlyLog, ReadOnlyTree};
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::{self, BlobRef, BlobUse};
use crate::base::{Error, Kind, Result};
use crate::blob::BlobStore;
use crate::env::ReadClass;
use crate::read::ReadPoint;
use crate::write::Changes;
use std::collections::BTreeMap;

/// One blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobFileReport {
    /// Physical id of the blob file, which its name contains.
    pub file: u64,
    /// Length, bytes.
    pub len: u64,
    /// Bytes allocated by the file system.
    pub allocated: u64,
    /// The number of references to blobs of this file, and the bytes of these blobs; `None` if
    /// there are none. It has the logical file id, which references contain. A blob that several
    /// versions of a row refer to counts once for each.
    pub used: Option<BlobUse>,
}

/// The blob files of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobFilesReport {
    /// The existing files, ascending by id.
    pub files: Vec<BlobFileReport>,
    /// Physical ids of files that are referred to but missing.
    pub missing: Vec<u64>,
}

impl ReadOnlyDb {
    /// The existing blob files and the references to them.
    ///
    /// # Errors
    /// `Io` of the file system.
    pub fn blobs(&self, tree: &ReadOnlyTree, log: &ReadOnlyLog) -> Result<BlobFilesReport> {
        let store = self.source.store();
        let moved = &tree.state.blobs_moved;
        let physical = |used: BlobUse| (moved.get(&used.file).copied().unwrap_or(used.file), used);
        let mut used: BTreeMap<u64, BlobUse> = log.blob_uses.iter().map(physical).collect();
        let mut files = Vec::new();
        for file in store.list_blobs()? {
            let usage = store.blob_usage(file)?;
            files.push(BlobFileReport {
                file,
                len: usage.len,
                allocated: usage.allocated,
                used: used.remove(&file),
            });
        }
        Ok(BlobFilesReport {
            files,
            missing: used.into_keys().collect(),
        })
    }

    /// Checks that each blob to which the memtables and SSTs of `point` refer, old row versions
    /// included, lies within its file. For each reference to a blob that does not, calls `found`
    /// with an error. Reads no blobs. Skips damaged SSTs, because other checks report them.
    ///
    /// # Errors
    /// `Io` of the file system.
    pub fn check_blob_positions(
        &self,
        point: &ReadPoint,
        found: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let super_version = &point.super_version;
        let mut check = BlobPositionCheck::new(&super_version.blobs, found);
        for memtable in super_version
            .memtables()
            .filter(|m| !m.blob_uses().is_empty())
        {
            let read = for_each_blob(&mut memtable.iter(), |blob| check.look_at(&blob));
            check.pass(read)?;
        }
        for file in super_version.files().filter(|file| !file.blobs.is_empty()) {
            let read = file.reader().and_then(|reader| {
                for_each_blob(&mut reader.iter(ReadClass::Verify, false), |blob| {
                    check.look_at(&blob)
                })
            });
            check.pass(read)?;
        }
        check.result
    }

    /// As [`Self::check_blob_positions`], for the prepared transactions. Also reads the values,
    /// since no other check reads the rows of these transactions.
    ///
    /// # Errors
    /// Those of [`Self::check_blob_positions`].
    pub fn check_prepared_blobs(
        &self,
        log: &ReadOnlyLog,
        found: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let mut check = BlobPositionCheck::new(&log.point.super_version.blobs, found);
        check.values = Some(BlobBuf::new());
        for changes in log.prepared.values() {
            // The changes of a prepared transaction are a batch, or files if the transaction was
            // large. Those files are also in `log.files`, and the loop below checks them.
            let Changes::Batch(batch) = &**changes else {
                continue;
            };
            let read = batch.for_each(|entry| {
                if entry.kind == Kind::PutBlobs {
                    let each = blob_ref::for_each(entry.value.tail, |blob| check.look_at(&blob));
                    // Decoding cannot fail here: replay has decoded the same bytes to count the
                    // references.
                    debug_assert!(each.is_ok());
                }
            });
            check.pass(read)?;
        }
        for file in log.files.iter().filter(|file| !file.blobs.is_empty()) {
            let read = file.reader().and_then(|reader| {
                for_each_blob(&mut reader.iter(ReadClass::Verify, false), |blob| {
                    check.look_at(&blob)
                })
            });
            check.pass(read)?;
        }
        check.result
    }
}

struct BlobPositionCheck<'a> {
    blobs: &'a BlobStore,
    /// Buffer for values; `None` if values are not read.
    values: Option<BlobBuf>,
    found: &'a mut dyn FnMut(Error),
    result: Result<()>,
}

impl<'a> BlobPositionCheck<'a> {
    fn new(blobs: &'a BlobStore, found: &'a mut dyn FnMut(Error)) -> Self {
        Self {
            blobs,
            values: None,
            found,
            result: Ok(()),
        }
    }

    fn look_at(&mut self, blob: &BlobRef) {
        let placed = self.blobs.file(blob.file).check_place(blob);
        let whole = placed.and_then(|()| match &mut self.values {
            Some(room) => {
                room.clear();
                self.blobs.read(blob, ReadClass::Verify, room).map(|_| ())
            }
            None => Ok(()),
        });
        match whole {
            Err(error) if error.is_corruption() => (self.found)(error),
            Err(error) if self.result.is_ok() => self.result = Err(error),
            _ => {}
        }
    }

    /// Turns an error of kind `Corruption` into `Ok`, because other checks report damaged SSTs and
    /// batches. Returns all other errors.
    fn pass(&self, read: Result<()>) -> Result<()> {
        read.or_else(|error| match error.is_corruption() {
            true => Ok(()),
            false => Err(error),
        })
    }
}
