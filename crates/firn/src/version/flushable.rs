//! The queue of committed data that is not in the tree yet: frozen memtables and ingested runs.

use super::{FileHandle, FileMeta, FileSource, Run};
use crate::base::blob_ref::BlobUses;
use crate::base::{IndexId, Seqno};
use crate::memtable::{IndexCounts, Memtable};
use std::collections::HashSet;
use std::sync::Arc;

/// Files that one commit has made visible, above all earlier memtables, and that are not in the
/// tree yet.
///
/// An ingested run has an id and a position in the queue, as a frozen memtable has. It is complete
/// from the start, and its data is on disk.
pub struct IngestedRun {
    id: u64,
    seqno: Seqno,
    run: Arc<Run>,
    min_segment: u64,
    last_lsn: u64,
}

impl IngestedRun {
    /// The run with queue id `id` of the files of the commit at `seqno`. The log keeps its segments
    /// from `min_segment` on until the files are in the tree. The commit's record ends at
    /// `last_lsn`.
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

    /// Position in the queue, counted together with the memtables: higher is newer.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Seqno of the commit.
    pub fn seqno(&self) -> Seqno {
        self.seqno
    }

    /// The files.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// See [`Memtable::last_lsn`].
    pub fn last_lsn(&self) -> u64 {
        self.last_lsn
    }
}

/// An element of the queue.
#[derive(Clone)]
pub enum Flushable {
    /// A memtable that takes no more commits.
    Memtable(Arc<Memtable>),
    /// The files of one commit.
    Run(Arc<IngestedRun>),
}

impl Flushable {
    /// Position in the queue: higher is newer.
    pub fn id(&self) -> u64 {
        match self {
            Self::Memtable(memtable) => memtable.id(),
            Self::Run(run) => run.id,
        }
    }

    /// The oldest log segment that must be kept until this element is in the tree.
    pub fn min_segment(&self) -> u64 {
        match self {
            Self::Memtable(memtable) => memtable.min_segment(),
            Self::Run(run) => run.min_segment,
        }
    }

    /// The memtable, if it is one.
    pub fn memtable(&self) -> Option<&Arc<Memtable>> {
        match self {
            Self::Memtable(memtable) => Some(memtable),
            Self::Run(_) => None,
        }
    }

    /// The run, if it is one.
    pub fn run(&self) -> Option<&Arc<IngestedRun>> {
        match self {
            Self::Memtable(_) => None,
            Self::Run(run) => Some(run),
        }
    }

    /// Seqno of the newest commit in it; `None` if it is empty.
    pub fn newest(&self) -> Option<Seqno> {
        match self {
            Self::Memtable(memtable) => memtable.seqno_range().map(|(_, newest)| newest),
            Self::Run(run) => Some(run.seqno),
        }
    }

    /// Number and size of its entries of one index.
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

    /// Bytes in blob files that its entries of `index` refer to; see
    /// [`Version::out_of_line_bytes`](super::Version::out_of_line_bytes).
    pub fn out_of_line_bytes(
        &self,
        index: IndexId,
        holders: &mut impl FnMut() -> HashSet<IndexId>,
    ) -> u64 {
        match self {
            Self::Memtable(memtable) => memtable.index_counts(index).blob_bytes,
            Self::Run(run) => {
                let files = run.run.files.iter();
                let mut files = files.filter(|file| !file.blobs.is_empty()).peekable();
                if files.peek().is_none() {
                    return 0;
                }
                let holders = holders();
                let shares = files.flat_map(|file| file.blob_bytes_by_index(&holders));
                let own = shares.filter(|(holder, _)| *holder == index);
                own.map(|(_, bytes)| *bytes).sum()
            }
        }
    }

    /// The blobs that its entries refer to, by blob file.
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

    /// Bytes of memory that are freed with it.
    pub fn memory_bytes(&self) -> u64 {
        self.memtable()
            .map_or(0, |memtable| memtable.memory_bytes())
    }
}
