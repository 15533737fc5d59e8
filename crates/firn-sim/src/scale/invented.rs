//! Invents the metadata of files.
//!
//! All keys of all tables, in ascending order, are numbered from 0; these numbers are called
//! *slots*. Half of the slots belong to the first index; the other indexes share the rest evenly. A
//! file covers a range of slots.

use super::ScalePlan;
use firn::base::blob_ref::BlobUse;
use firn::base::{IndexId, Seqno};
use firn::sst::IndexStats;
use firn::version::{FileLocation, FileMeta, LAST_LEVEL};

/// Slots that a file of the last level covers, one entry each.
const SLOTS: u64 = 1000;
/// Stored bytes of a file.
const FILE_SIZE: u64 = 32 << 20;
/// Number of invented blob files.
const BLOB_FILES: u64 = 2000;

/// Largest seqno in the invented files. All reads are at later seqnos.
pub(super) const SEQNO: Seqno = 1000;

/// The slots of an invented tree.
pub(super) struct Invented {
    indexes: Vec<IndexId>,
    slots: u64,
    files: u64,
}

impl Invented {
    /// Creates the slots for the number of files in `plan`. `indexes` are the index ids of all
    /// tables, in ascending order.
    pub(super) fn new(plan: ScalePlan, indexes: Vec<IndexId>) -> Self {
        Self {
            indexes,
            slots: plan.files * SLOTS,
            files: plan.files,
        }
    }

    /// The index and the number of a slot's key.
    fn key(&self, slot: u64) -> (IndexId, u64) {
        let half = self.slots / 2;
        if slot < half {
            return (self.indexes[0], slot);
        }
        let others = self.indexes.len() as u64 - 1;
        let share = (self.slots - half).div_ceil(others);
        let (index, number) = ((slot - half) / share, (slot - half) % share);
        (self.indexes[1 + index as usize], number)
    }

    fn key_bytes(&self, slot: u64) -> Vec<u8> {
        let (index, number) = self.key(slot);
        let mut key = index.to_be_bytes().to_vec();
        key.extend_from_slice(&number.to_be_bytes());
        key
    }

    /// Invents the metadata of a file with [`SLOTS`] entries. All keys of the invented tree are
    /// numbered as slots; the file covers the slots from `from` to below `to`. One hundredth of the
    /// entries are deletions, and as many are old versions.
    fn file(&self, id: u64, level: u8, from: u64, to: u64) -> FileMeta {
        let mut per_index: Vec<IndexStats> = Vec::new();
        let mut slot = from;
        let step = ((to - from) / 10).max(1);
        while slot < to {
            let index = self.key(slot).0;
            if per_index.last().is_none_or(|last| last.index != index) {
                per_index.push(IndexStats {
                    index,
                    ..IndexStats::default()
                });
            }
            slot += step;
        }
        let parts = per_index.len() as u64;
        for (number, part) in (0..).zip(&mut per_index) {
            part.entries = SLOTS / parts + u64::from(number < SLOTS % parts);
            part.deletes = part.entries / 100;
            part.raw_bytes = part.entries * 100;
            part.stored_bytes = FILE_SIZE / parts;
        }
        FileMeta {
            file_id: id,
            size: FILE_SIZE,
            checksum: id,
            smallest: self.key_bytes(from),
            largest: self.key_bytes(to - 1),
            min_seqno: 1,
            max_seqno: SEQNO - id % 100,
            entries: SLOTS,
            deletes: per_index.iter().map(|part| part.deletes).sum(),
            dense_deletes: 0,
            superseded: SLOTS / 100,
            raw_bytes: per_index.iter().map(|part| part.raw_bytes).sum(),
            at_rest: usize::from(level) == LAST_LEVEL,
            external_seqno: None,
            per_index,
            blobs: (0..2)
                .map(|n| BlobUse {
                    file: 10_000_000 + id % BLOB_FILES + n * 7,
                    refs: 10,
                    bytes: 100_000,
                })
                .collect(),
            location: FileLocation::Local,
            tail_len: 4096,
        }
    }

    /// `count` files of `level` that cover all slots evenly.
    pub(super) fn level(
        &self,
        level: u8,
        count: u64,
        mut id: impl FnMut() -> u64,
    ) -> Vec<FileMeta> {
        let at = |n: u64| n * self.slots / count;
        (0..count)
            .map(|n| {
                // A slot is a place for one key in the key order. Above the last level, leave one
                // slot free between a file and the next one, so that the key ranges of neighbouring
                // files do not touch.
                let end = at(n + 1) - u64::from(usize::from(level) != LAST_LEVEL);
                self.file(id(), level, at(n), end)
            })
            .collect()
    }

    /// The files of all levels. The level above the last one has a ninth of the last level's files,
    /// and each level above that has an eleventh of the files of the level below it, so no level
    /// reaches its target. L0 has `l0` runs of 16 files.
    pub(super) fn tree(&self, l0: u64, mut id: impl FnMut() -> u64) -> Vec<(u8, u64, FileMeta)> {
        let mut files = Vec::new();
        let mut count = self.files * 8 / 9 - l0 * 16;
        let mut level = LAST_LEVEL as u8;
        while level > 0 && count > 20 {
            let metas = self.level(level, count, &mut id);
            files.extend(metas.into_iter().map(|meta| (level, 0, meta)));
            count /= if usize::from(level) == LAST_LEVEL {
                9
            } else {
                11
            };
            level -= 1;
        }
        for run in 0..l0 {
            let metas = self.level(0, 16, &mut id);
            files.extend(metas.into_iter().map(|meta| (0, run + 1, meta)));
        }
        files
    }
}
