//! The queue of committed data that is not in the tree yet: frozen memtables and ingested runs.

use super::{FileHandle, FileMeta, FileSource, Run};
use crate::base::blob_ref::BlobUses;
use crate::base::{IndexId, Seqno};
use crate::memtable::{IndexCounts, Memtable};
use std::sync::Arc;

/// Files that became visible with one commit, above all earlier memtables, and that are not in the
/// tree yet.
///
/// An ingested run has an id and a position in the queue of flushables, as a frozen memtable has.
/// It is complete from the start, and its data is on disk.
pub struct IngestedRun {
    id: u64,
    seqno: Seqno,
    run: Arc<Run>,
    min_segment: u64,
    last_lsn: u64,
}

impl IngestedRun {
    /// Makes the ingested run of the commit at `seqno`, with queue id `id` and with `files`. The
    /// log must keep its segments from number `min_segment` on until these files are in the tree.
    /// The log record of the commit ends at LSN `last_lsn`.
    pub fn new(
        id: u64,
        seqno: Seqno,
        files: Vec<FileMeta>,
        source: &Arc<FileSource>,
        min_segment: u64,
        last_lsn: u64,
    ) -> Self {
        let handle = |meta: FileMeta| {
            let meta = Arc::new(meta.with_external_seqno(seqno));
            FileHandle::new(meta, Arc::clone(source))
        };
        Self {
            id,
            seqno,
            run: Arc::new(Run::new(0, files.into_iter().map(handle).collect())),
            min_segment,
            last_lsn,
        }
    }

    /// Position in the queue of flushables. Memtables and ingested runs are counted together; a
    /// higher number is newer.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Seqno of the commit that made the files visible.
    pub fn seqno(&self) -> Seqno {
        self.seqno
    }

    /// The files, as a run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// LSN at which the log record of the commit ends, as for [`Memtable::last_lsn`].
    pub fn last_lsn(&self) -> u64 {
        self.last_lsn
    }
}

/// A frozen memtable or an ingested run that waits for its place in the tree.
#[derive(Clone)]
pub enum Flushable {
    /// A memtable that takes no more commits.
    Memtable(Arc<Memtable>),
    /// The files that one commit made visible.
    Run(Arc<IngestedRun>),
}

impl Flushable {
    /// Position among the flushables: higher is newer.
    pub fn id(&self) -> u64 {
        match self {
            Self::Memtable(memtable) => memtable.id(),
            Self::Run(run) => run.id,
        }
    }

    /// Number of the oldest log segment that must be kept until this flushable is in the tree.
    pub fn min_segment(&self) -> u64 {
        match self {
            Self::Memtable(memtable) => memtable.min_segment(),
            Self::Run(run) => run.min_segment,
        }
    }

    /// The memtable, if this flushable is one.
    pub fn memtable(&self) -> Option<&Arc<Memtable>> {
        match self {
            Self::Memtable(memtable) => Some(memtable),
            Self::Run(_) => None,
        }
    }

    /// The ingested run, if this flushable is one.
    pub fn run(&self) -> Option<&Arc<IngestedRun>> {
        match self {
            Self::Memtable(_) => None,
            Self::Run(run) => Some(run),
        }
    }

    /// Seqno of the newest commit in this flushable; `None` if it has no entries.
    pub fn newest(&self) -> Option<Seqno> {
        match self {
            Self::Memtable(memtable) => memtable.seqno_range().map(|(_, newest)| newest),
            Self::Run(run) => Some(run.seqno),
        }
    }

    /// The indexes of which this flushable has entries; an index may occur several times.
    pub fn indexes(&self) -> Vec<IndexId> {
        match self {
            Self::Memtable(memtable) => {
                let counts = memtable.all_index_counts().into_iter();
                counts.map(|(index, _)| index).collect()
            }
            Self::Run(run) => {
                let files = run.run.files.iter();
                let stats = files.flat_map(|file| file.per_index.iter());
                stats.map(|stats| stats.index).collect()
            }
        }
    }

    /// Number and size of the entries of `index` in this flushable.
    pub fn index_counts(&self, index: IndexId) -> IndexCounts {
        match self {
            Self::Memtable(memtable) => memtable.index_counts(index),
            Self::Run(run) => {
                let mut sum = IndexCounts::default();
                let files = run.run.files.iter();
                for stats in files.filter_map(|file| file.index(index)) {
                    sum.entries += stats.entries;
                    sum.deletes += stats.deletes;
                    sum.raw_bytes += stats.raw_bytes;
                }
                sum
            }
        }
    }

    /// Bytes in blob files that the entries of `index` in this flushable refer to. `holds` says
    /// whether an index may refer to blobs; see
    /// [`Version::out_of_line_bytes`](super::Version::out_of_line_bytes).
    pub fn out_of_line_bytes(
        &self,
        index: IndexId,
        holds: &mut impl FnMut(IndexId) -> bool,
    ) -> u64 {
        match self {
            Self::Memtable(memtable) => memtable.index_counts(index).blob_bytes,
            Self::Run(run) => {
                let files = run.run.files.iter();
                let files = files.filter(|file| !file.blobs.is_empty());
                files.map(|file| file.blob_bytes_of(index, holds)).sum()
            }
        }
    }

    /// The blobs that entries of this flushable refer to, summed by blob file.
    pub fn blob_uses(&self) -> BlobUses {
        match self {
            Self::Memtable(memtable) => memtable.blob_uses(),
            Self::Run(run) => {
                let mut uses = BlobUses::default();
                let all = run.run.files.iter().flat_map(|file| &file.blobs);
                all.for_each(|&used| uses.add(used));
                uses
            }
        }
    }

    /// Bytes of memory that are freed when this flushable is dropped; 0 for an ingested run.
    pub fn memory_bytes(&self) -> u64 {
        self.memtable()
            .map_or(0, |memtable| memtable.memory_bytes())
    }
}
