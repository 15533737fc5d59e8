//! Splits the blob bytes that an SST refers to by index.

use super::FileHandle;
use crate::base::blob_ref;
use crate::base::key::{SEQNO_MAX, index_prefix};
use crate::base::{IndexId, InternalIterator, Kind, Result};
use crate::env::ReadClass;
use crate::sst::IndexStats;

/// Number of entries that are read as a sample of each index.
const SAMPLE: u64 = 64;

impl FileHandle {
    /// Splits [`FileMeta::blob_bytes`](super::FileMeta::blob_bytes) by index. `holds` says whether
    /// an index may refer to blobs; it is called once for each handle and index. The file's
    /// metadata say how many blob bytes the file refers to, but not from which index. So if the
    /// file has entries of several such indexes, a sample of each is read: its first entries, in
    /// one or a few blocks. The bytes are split in proportion to the samples. If a sample fails or
    /// finds no blob, they are split in proportion to the raw bytes of each index.
    fn blob_bytes_by_index(&self, holds: &mut impl FnMut(IndexId) -> bool) -> &[(IndexId, u64)] {
        self.blob_shares_once().get_or_init(|| {
            let bytes = u128::from(self.blob_bytes());
            let all = self.per_index.iter();
            let here: Vec<_> = all
                .filter(|one| bytes > 0 && one.entries > one.deletes)
                .filter(|one| holds(one.index))
                .collect();
            if let [one] = here[..] {
                return vec![(one.index, bytes as u64)];
            }
            let sampled: Result<Vec<u128>> = here.iter().map(|one| self.sampled(one)).collect();
            let mut weights = sampled.unwrap_or_default();
            if weights.iter().all(|weight| *weight == 0) {
                weights = here.iter().map(|one| u128::from(one.raw_bytes)).collect();
            }
            let sum = weights.iter().sum::<u128>().max(1);
            let shares = here.iter().zip(weights);
            shares
                .map(|(one, weight)| (one.index, (bytes * weight / sum) as u64))
                .collect()
        })
    }

    /// Blob bytes that the entries of `index` refer to, see [`Self::blob_bytes_by_index`].
    pub(super) fn blob_bytes_of(
        &self,
        index: IndexId,
        holds: &mut impl FnMut(IndexId) -> bool,
    ) -> u64 {
        let shares = self.blob_bytes_by_index(holds).iter();
        let own = shares.filter(|(holder, _)| *holder == index);
        own.map(|(_, bytes)| *bytes).sum()
    }

    /// Estimates the blob bytes that the entries of one index refer to, from its first entries.
    fn sampled(&self, one: &IndexStats) -> Result<u128> {
        let prefix = index_prefix(one.index);
        let mut entries = self.reader()?.iter(ReadClass::Range, true);
        let (mut seen, mut bytes) = (0, 0);
        let mut on = entries.seek(&prefix, SEQNO_MAX)?;
        while on && seen < SAMPLE && entries.key().user_key.starts_with(&prefix) {
            seen += 1;
            if entries.key().kind == Kind::PutBlobs {
                blob_ref::for_each(entries.value().tail, |blob| bytes += blob.span())?;
            }
            on = entries.next()?;
        }
        Ok(u128::from(bytes) * u128::from(one.entries) / u128::from(seen.max(1)))
    }
}
