//! Verification of a whole SST.

use super::block::{Block, BlockIter};
use super::decode_error::{DecodeError, Decoded};
use super::format::Handle;
use super::index::{BlockPosition, BlockStats, Index};
use super::index_stats::IndexStats;
use super::reader::{SstReader, UsedDictionaries};
use crate::base::key::{SEQNO_COMMITTED_MAX, compare, index_id_of};
use crate::base::{Error, Kind, Result, Seqno, checksum};
use crate::env::ReadClass;
use std::cmp::Ordering;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Counts of an [`SstReader::verify`] that found no damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Number of data blocks.
    pub blocks: u64,
    /// Number of entries of all kinds.
    pub entries: u64,
    /// Number of entries that are tombstones.
    pub deletes: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// XXH3-64 of the whole file; the caller compares it with the checksum in the manifest.
    pub checksum: u64,
}

const READ_SIZE: u64 = 1 << 20;

/// Totals over all entries, to compare with the file's properties.
#[derive(Default)]
struct VerifiedTotals {
    stats: BlockStats,
    key_bytes: u64,
    value_bytes: u64,
    dense_deletes: u64,
    per_index: Vec<IndexStats>,
    last: Option<(Vec<u8>, Seqno)>,
    first_key: Vec<u8>,
}

impl SstReader {
    /// Reads the whole file without the block cache. Checks every checksum, the order of all
    /// entries, the separators, the filters, and all counts in index and properties. Index
    /// partitions that the reader holds in memory are not decoded from the file again; but the
    /// checksum of the whole file covers their bytes.
    ///
    /// # Errors
    /// The first problem found. The whole file is read even so.
    pub fn verify(&self) -> Result<VerifyReport> {
        let mut first = None;
        let report = self.survey(&mut |error| {
            first.get_or_insert(error);
        });
        first.map_or(Ok(report), Err)
    }

    /// As [`Self::verify`], but goes on after damage and passes each error to `found`: corruption
    /// and errors of the file system. The report counts only the intact parts. Ends with the first
    /// error of an object store, which would come for each block.
    pub fn survey(&self, found: &mut dyn FnMut(Error)) -> VerifyReport {
        let mut report = VerifyReport {
            bytes: self.size(),
            ..VerifyReport::default()
        };
        match self.file_checksum() {
            Ok(checksum) => report.checksum = checksum,
            Err(error) => {
                let ends = error.is_unreachable();
                found(error);
                if ends {
                    return report;
                }
            }
        }
        // Blocks cannot be read without their dictionaries. Report a damaged one once, and not
        // again for each block.
        let mut dictionaries = match self.all_dictionaries(ReadClass::Verify) {
            Ok(dictionaries) => dictionaries,
            Err(error) => {
                found(error);
                return report;
            }
        };
        let mut seen = VerifiedTotals::default();
        let mut whole = true;
        let mut broken = |error| {
            whole = false;
            found(error);
        };
        match self.whole_index(ReadClass::Verify) {
            Ok(index) => {
                let mut read =
                    |handle| self.read_with(handle, ReadClass::Verify, false, &mut dictionaries);
                self.survey_blocks(&index, &mut read, &mut seen, &mut report, &mut broken);
            }
            // Without all partitions, the counts and separators of the blocks cannot be checked.
            // Check the partitions and blocks that can be read.
            Err(error) => self.survey_partitions(error, &mut dictionaries, &mut broken),
        }
        report.entries = seen.stats.entries;
        report.deletes = seen.stats.deletes;
        if whole && !self.properties_match(&seen, &report) {
            let damage = DecodeError::Corrupt("entries contradict the properties");
            found(damage.at(self.name(), self.data_end()));
        }
        report
    }

    fn survey_blocks(
        &self,
        index: &Index,
        read: &mut dyn FnMut(Handle) -> Result<Block>,
        seen: &mut VerifiedTotals,
        report: &mut VerifyReport,
        broken: &mut dyn FnMut(Error),
    ) {
        let mut cursor = BlockIter::default();
        let mut end = 0;
        for spot in index.spots() {
            let handle = index.block(spot).handle;
            if handle.offset != end {
                broken(self.damaged(DecodeError::Corrupt("gap between data blocks"), handle));
            }
            end = handle.end();
            let verified = read(handle).and_then(|block| {
                cursor.enter(Arc::new(block));
                let private = self.properties().external_seqno;
                verify_block(index, spot, &mut cursor, seen, private)
                    .map_err(|damage| self.damaged(damage, handle))
            });
            match verified {
                Ok(()) => report.blocks += 1,
                Err(error) => {
                    let ends = error.is_unreachable();
                    broken(error);
                    if ends {
                        return;
                    }
                }
            }
        }
    }

    /// Checks each index partition by itself, and the checksums of the blocks that it locates.
    /// `first` is the error of loading the whole index. That error is reported first, and not a
    /// second time when its partition is loaded. If the block cache has an intact copy of the
    /// damaged partition, the blocks of that partition are checked too.
    fn survey_partitions(
        &self,
        first: Error,
        dictionaries: &mut UsedDictionaries,
        broken: &mut dyn FnMut(Error),
    ) {
        let reported = first.to_string();
        let ends = first.is_unreachable();
        broken(first);
        if ends {
            return;
        }
        for number in 0..self.index().partitions() {
            let partition = match self.partition(number, ReadClass::Verify, false) {
                Ok(partition) => partition,
                Err(error) => {
                    let ends = error.is_unreachable();
                    if error.to_string() != reported {
                        broken(error);
                    }
                    if ends {
                        return;
                    }
                    continue;
                }
            };
            for block in 0..partition.blocks() {
                let handle = partition.block(block).handle;
                if let Err(error) = self.read_with(handle, ReadClass::Verify, false, dictionaries) {
                    let ends = error.is_unreachable();
                    broken(error);
                    if ends {
                        return;
                    }
                }
            }
        }
    }

    fn properties_match(&self, seen: &VerifiedTotals, report: &VerifyReport) -> bool {
        let p = self.properties();
        let last = seen.last.as_ref().map_or(&[][..], |(last, _)| last);
        let stored: u64 = p.per_index.iter().map(|s| s.stored_bytes).sum();
        let counted = p.per_index.iter().map(|s| IndexStats {
            stored_bytes: 0,
            ..*s
        });
        let seqnos = match seen.stats.entries {
            0 => (0, 0),
            _ => (seen.stats.min_seqno, seen.stats.max_seqno),
        };
        p.entries == seen.stats.entries
            && p.deletes == seen.stats.deletes
            && (p.dense_deletes == seen.dense_deletes || p.dense_deletes == 0)
            && p.data_blocks == report.blocks
            && p.data_bytes == self.data_end()
            && stored == p.data_bytes
            && (p.raw_key_bytes, p.raw_value_bytes) == (seen.key_bytes, seen.value_bytes)
            && (p.min_seqno, p.max_seqno) == seqnos
            && p.smallest == seen.first_key
            && p.largest == last
            && counted.eq(seen.per_index.iter().copied())
    }

    fn file_checksum(&self) -> Result<u64> {
        let mut sum = Xxh3::new();
        let mut buf = Vec::new();
        let mut offset = 0;
        while offset < self.size() {
            buf.resize(READ_SIZE.min(self.size() - offset) as usize, 0);
            self.file()
                .read_exact_at(ReadClass::Verify, offset, &mut buf)?;
            sum.update(&buf);
            offset += buf.len() as u64;
        }
        Ok(sum.digest())
    }
}

fn verify_block(
    index: &Index,
    spot: BlockPosition,
    cursor: &mut BlockIter,
    seen: &mut VerifiedTotals,
    private: bool,
) -> Decoded<()> {
    let mut stats = BlockStats::default();
    let mut more = cursor.seek_to_first()?;
    while more {
        let (key, value) = (cursor.key(), cursor.value());
        let ordered = match &seen.last {
            Some((last, seqno)) => compare(last, *seqno, key.user_key, key.seqno) == Ordering::Less,
            None => true,
        };
        if !ordered || (key.seqno > SEQNO_COMMITTED_MAX && !private) {
            return Err(DecodeError::Corrupt("entries out of order"));
        }
        let id = index_id_of(key.user_key).ok_or(DecodeError::Corrupt("user key too short"))?;
        let hash = checksum::xxh3(key.user_key);
        // The index must lead a search for this entry's user key to this block, or to an earlier
        // block whose separator equals the key: then both blocks hold versions of the key.
        let found = index.find(key.user_key).is_some_and(|first| {
            (first == spot || index.separator(first) == key.user_key)
                && index.may_contain(first, hash)
        });
        if !found {
            return Err(DecodeError::Corrupt("key that index or filter do not know"));
        }
        let delete = matches!(key.kind, Kind::Delete | Kind::RangeDelete);
        stats.add_entry(key.seqno, delete);
        seen.add(id, delete, key.user_key.len(), value.len());
        match &mut seen.last {
            Some((last, seqno)) => {
                last.clear();
                last.extend_from_slice(key.user_key);
                *seqno = key.seqno;
            }
            None => {
                seen.first_key = key.user_key.to_vec();
                seen.last = Some((seen.first_key.clone(), key.seqno));
            }
        }
        more = cursor.next()?;
    }
    if stats != index.block(spot).stats {
        return Err(DecodeError::Corrupt("block contradicts its index entry"));
    }
    let last = seen.last.as_ref().map(|(last, _)| &last[..]);
    if last > Some(index.separator(spot)) {
        return Err(DecodeError::Corrupt("separator below the block's last key"));
    }
    seen.stats.add(&stats);
    seen.dense_deletes += stats.dense_deletes();
    Ok(())
}

impl VerifiedTotals {
    fn add(&mut self, index: u32, delete: bool, key_len: usize, value_len: usize) {
        self.key_bytes += key_len as u64;
        self.value_bytes += value_len as u64;
        if self.per_index.last().is_none_or(|s| s.index != index) {
            self.per_index.push(IndexStats {
                index,
                ..IndexStats::default()
            });
        }
        if let Some(stats) = self.per_index.last_mut() {
            stats.entries += 1;
            stats.deletes += u64::from(delete);
            stats.raw_bytes += (key_len + value_len) as u64;
        }
    }
}
