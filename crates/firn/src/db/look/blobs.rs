//! Blob files, as tree and log refer to them.

use super::super::blobs::for_each_blob;
use super::{Log, Look, Tree};
use crate::base::{Error, Kind, Result};
use crate::blob::BlobStore;
use crate::read::ReadPoint;
use crate::rowcode::{BlobBuf, BlobRef, BlobUse, blob_ref};
use crate::write::Changes;
use std::collections::BTreeMap;

/// One blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobFileReport {
    /// Its id.
    pub file: u64,
    /// Its length, bytes.
    pub len: u64,
    /// What it takes of the file system, bytes.
    pub allocated: u64,
    /// What refers to its blobs, by the id that references name; `None` if nothing does. A blob that several versions
    /// of a row refer to counts as often.
    pub used: Option<BlobUse>,
}

/// The blob files of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobFiles {
    /// Those that are there, ascending by id.
    pub files: Vec<BlobFileReport>,
    /// Ids of those that something refers to and that are not there.
    pub missing: Vec<u64>,
}

impl Look {
    /// The blob files there are, and what refers to them.
    ///
    /// # Errors
    /// Of the file system.
    pub fn blobs(&self, tree: &Tree, log: &Log) -> Result<BlobFiles> {
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
        Ok(BlobFiles {
            files,
            missing: used.into_keys().collect(),
        })
    }

    /// Compares every reference at `point`, old versions included, with the length of its file, and calls
    /// `found` with those that it cannot hold. Values are not read, and damage of tables is passed over.
    ///
    /// # Errors
    /// Of the file system.
    pub fn check_blob_places(&self, point: &ReadPoint, found: &mut dyn FnMut(Error)) -> Result<()> {
        let view = &point.view;
        let mut check = Places::new(&view.blobs, found);
        for memtable in view.memtables().filter(|m| !m.blob_uses().is_empty()) {
            let read = for_each_blob(&mut memtable.iter(), |blob| check.look_at(&blob));
            check.pass(read)?;
        }
        for file in view.files().filter(|file| !file.blobs.is_empty()) {
            let read = file.reader().and_then(|reader| {
                for_each_blob(&mut reader.iter(false), |blob| check.look_at(&blob))
            });
            check.pass(read)?;
        }
        check.result
    }

    /// The same of prepared transactions, whose rows nobody else reads: their values are.
    ///
    /// # Errors
    /// As [`Self::check_blob_places`].
    pub fn check_prepared_blobs(&self, log: &Log, found: &mut dyn FnMut(Error)) -> Result<()> {
        let mut check = Places::new(&log.point.view.blobs, found);
        check.values = Some(BlobBuf::new());
        for changes in log.prepared.values() {
            // Runs are files of the log.
            let Changes::Batch(batch) = changes else {
                continue;
            };
            let read = batch.for_each(|entry| {
                if entry.kind == Kind::PutBlobs {
                    let each = blob_ref::for_each(entry.value.tail, |blob| check.look_at(&blob));
                    // Replay has counted them: they decode.
                    debug_assert!(each.is_ok());
                }
            });
            check.pass(read)?;
        }
        for file in log.files.iter().filter(|file| !file.blobs.is_empty()) {
            let read = file.reader().and_then(|reader| {
                for_each_blob(&mut reader.iter(false), |blob| check.look_at(&blob))
            });
            check.pass(read)?;
        }
        check.result
    }
}

struct Places<'a> {
    blobs: &'a BlobStore,
    /// Room for a value, where values are read, too.
    values: Option<BlobBuf>,
    found: &'a mut dyn FnMut(Error),
    result: Result<()>,
}

impl<'a> Places<'a> {
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
                self.blobs.read(blob, room).map(|_| ())
            }
            None => Ok(()),
        });
        match whole {
            Err(error) if error.is_corruption() => (self.found)(error),
            Err(error) if self.result.is_ok() => self.result = Err(error),
            _ => {}
        }
    }

    /// Damage of what has the references is found by those who look for that.
    fn pass(&self, read: Result<()>) -> Result<()> {
        read.or_else(|error| match error.is_corruption() {
            true => Ok(()),
            false => Err(error),
        })
    }
}
