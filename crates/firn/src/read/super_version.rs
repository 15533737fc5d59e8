//! Super versions: one pointer load pins the memtables and the version that a read sees.
//!
//! Order of a statement's read: pin the super version, *then* read the visible seqno. In the
//! reverse order, a flush and a compaction between the two could drop versions that the older seqno
//! needs. A snapshot that outlives its statement is registered first (see `txn`), then the super
//! version is pinned. In the reverse order, the super version could be older than the snapshot. The
//! first statement would then miss commits of the snapshot that the next statement, with a newer
//! super version, shows.

use crate::base::Seqno;
use crate::base::pause_points::{self, PausePoint};
use crate::blob::BlobStore;
use crate::cache::{RowCache, SealPoint};
use crate::memtable::Memtable;
use crate::version::{FileHandle, Flushable, Run, Version};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The sources of a read. Immutable, except that the active memtable grows.
pub struct SuperVersion {
    /// The memtable that takes new commits.
    pub active: Arc<Memtable>,
    /// Frozen memtables that wait for their flush, and ingested runs that wait for their edit,
    /// newest first.
    pub frozen: Vec<Flushable>,
    /// The files.
    pub version: Arc<Version>,
    /// The newest flushable for which the following holds: when the super version was created, it
    /// and all older ones were complete, so no commit could add entries to them.
    pub sealed: SealPoint,
    /// Cache of single rows of the files.
    pub rows: Arc<RowCache>,
    /// Store of the blobs.
    pub blobs: Arc<BlobStore>,
    /// Number of the super version, counted up from 0.
    pub generation: u64,
}

impl SuperVersion {
    /// The memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let frozen = self.frozen.iter().filter_map(Flushable::memtable);
        std::iter::once(&self.active).chain(frozen)
    }

    /// The runs of files, newest first; ingested runs that wait for their edit are included.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        let queued = self.frozen.iter().filter_map(Flushable::run);
        let queued = queued.map(|run| run.run());
        queued.chain(&self.version.l0).chain(&self.version.levels)
    }

    /// Whether files, those of ingested runs included, may hold commits after `seqno`. An ingested
    /// run is among the files from shortly before its commit becomes visible.
    pub fn has_files_after(&self, seqno: Seqno) -> bool {
        let newer = |frozen: &Flushable| frozen.run().is_some() && frozen.newest() > Some(seqno);
        self.sealed.seqno > seqno || self.frozen.iter().any(newer)
    }

    /// The files, those of ingested runs that wait for their edit included.
    pub fn files(&self) -> impl Iterator<Item = &Arc<FileHandle>> {
        self.runs().flat_map(|run| &run.files)
    }

    /// A copy of this super version with other memtables.
    fn over(&self, active: &Arc<Memtable>, frozen: Vec<Flushable>) -> Self {
        Self {
            active: Arc::clone(active),
            frozen,
            version: Arc::clone(&self.version),
            sealed: self.sealed,
            rows: Arc::clone(&self.rows),
            blobs: Arc::clone(&self.blobs),
            generation: self.generation,
        }
    }
}

/// A pinned super version and the seqno of reads in it.
#[derive(Clone)]
pub struct ReadPoint {
    /// The pinned super version.
    pub super_version: Arc<SuperVersion>,
    /// Commits up to this seqno are visible.
    pub seqno: Seqno,
}

/// How the database has changed since a [`ReadPoint`] was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// No change is visible.
    Latest,
    /// Commits up to this seqno have become visible. The super version of the read point has all of
    /// them.
    Newer(Seqno),
    /// Another super version is current. That of the read point may lack commits, even some up to
    /// the point's seqno: a commit that replaces the memtable can come after the point's super
    /// version is pinned and before its seqno is loaded.
    Replaced,
}

/// The current super version of a database, and those that a reader may still hold.
///
/// Readers take no lock. The mutex `held` serializes all changes. A change stores the super version
/// before its generation, so a reader that sees the new generation also pins the new super version.
pub struct SuperVersions {
    current: ArcSwap<SuperVersion>,
    /// Generation of the current super version. It is stored after the super version.
    generation: AtomicU64,
    visible: Arc<AtomicU64>,
    /// All super versions that a reader may hold, oldest first.
    held: Mutex<HeldSuperVersions>,
}

/// The super versions that a reader may hold, and others that were not forgotten yet.
struct HeldSuperVersions {
    /// Oldest first.
    list: VecDeque<TrackedSuperVersion>,
    /// Once the list has this many elements, those without readers are forgotten.
    sweep_at: usize,
}

/// A list of super versions is swept when it has twice as many elements as the last sweep has left,
/// but not below this number.
const SWEEP_MIN: usize = 16;

/// A super version that a reader may hold.
struct TrackedSuperVersion {
    generation: u64,
    super_version: Weak<SuperVersion>,
}

impl SuperVersions {
    /// Starts with an empty active memtable over `version`. All commits so far must be visible, and
    /// be in files or in memtables with smaller ids than the active one. `rows` caches rows of the
    /// files; `blobs` stores the blobs.
    pub fn new(
        active: Arc<Memtable>,
        version: Arc<Version>,
        visible: Arc<AtomicU64>,
        rows: Arc<RowCache>,
        blobs: Arc<BlobStore>,
    ) -> Self {
        let sealed = SealPoint {
            number: active.id().saturating_sub(1),
            seqno: visible.load(Ordering::Acquire),
        };
        let super_version = SuperVersion {
            active,
            frozen: Vec::new(),
            version,
            sealed,
            rows,
            blobs,
            generation: 0,
        };
        let super_version = Arc::new(super_version);
        let held = HeldSuperVersions {
            list: VecDeque::from([TrackedSuperVersion::of(&super_version)]),
            sweep_at: SWEEP_MIN,
        };
        Self {
            current: ArcSwap::from(super_version),
            generation: AtomicU64::new(0),
            visible,
            held: Mutex::new(held),
        }
    }

    /// Pins the current super version.
    pub fn pin(&self) -> Arc<SuperVersion> {
        self.current.load_full()
    }

    /// Calls `f` with the current super version, which is pinned only while `f` runs. Unlike
    /// [`Self::pin`], this changes no reference count, whose cache line all sessions would share.
    pub fn with_current<R>(&self, f: impl FnOnce(&SuperVersion) -> R) -> R {
        f(&self.current.load())
    }

    /// Seqno of the last visible commit.
    pub fn visible(&self) -> Seqno {
        self.visible.load(Ordering::Acquire)
    }

    /// Pins the current super version and reads the visible seqno, in this order.
    pub fn latest(&self) -> ReadPoint {
        let super_version = self.pin();
        pause_points::at(PausePoint::Pinned);
        let seqno = self.visible();
        ReadPoint {
            super_version,
            seqno,
        }
    }

    /// Calls `f` with what [`Self::latest`] returns. The super version is pinned only meanwhile, as
    /// by [`Self::with_current`].
    pub fn with_latest<R>(&self, f: impl FnOnce(&SuperVersion, Seqno) -> R) -> R {
        let super_version = self.current.load();
        pause_points::at(PausePoint::Pinned);
        let seqno = self.visible();
        f(&super_version, seqno)
    }

    /// As [`Self::latest`], but the super version has all commits up to the seqno. A point of
    /// `latest` may lack one: a commit that replaces the memtable can come between its two loads. A
    /// reader that later searches only for commits above the seqno would overlook that commit.
    pub fn latest_complete(&self) -> ReadPoint {
        loop {
            let point = self.latest();
            if self.freshness(&point) != Freshness::Replaced {
                return point;
            }
        }
    }

    /// How the database has changed since `point` was taken. A caller that has been granted a lock
    /// learns here of all commits of the lock's earlier holders: a commit changes the super
    /// version, if at all, before it becomes visible, and it becomes visible before its locks are
    /// released.
    ///
    /// The visible seqno is loaded first: if the point's super version is still current after that,
    /// it has all commits up to that seqno.
    pub fn freshness(&self, point: &ReadPoint) -> Freshness {
        let seqno = self.visible();
        if self.generation.load(Ordering::Acquire) != point.super_version.generation {
            Freshness::Replaced
        } else if seqno == point.seqno {
            Freshness::Latest
        } else if seqno > point.seqno {
            Freshness::Newer(seqno)
        } else {
            // The visible seqno is lower than before: the log has failed, and commits that it may
            // have lost are hidden again.
            Freshness::Replaced
        }
    }

    /// Installs the flushables that recovery has made, oldest first.
    pub fn recovered(&self, queue: &[Flushable]) {
        let frozen = queue.iter().rev().cloned().collect();
        self.change(|super_version| super_version.over(&super_version.active, frozen));
    }

    /// Replaces the active memtable. `queued` are the new flushables, newest first: the old
    /// memtable, unless it is empty, and the run of files that a commit has added, if there is one.
    pub fn switched(&self, queued: &[Flushable], active: Arc<Memtable>) {
        self.change(|super_version| {
            let all = queued.iter().chain(&super_version.frozen).cloned();
            super_version.over(&active, all.collect())
        });
    }

    /// Notes that the oldest flushable is complete: it is a memtable into which no commit inserts
    /// any more, or a run. Later super versions may then put rows that they find in the files into
    /// the row cache, even once these files have the entries of this flushable.
    pub fn drained(&self, oldest: &Flushable) {
        self.change(|super_version| {
            let sealed = SealPoint {
                number: super_version.sealed.number.max(oldest.id()),
                seqno: super_version.sealed.seqno.max(oldest.newest().unwrap_or(0)),
            };
            let frozen = super_version.frozen.clone();
            SuperVersion {
                sealed,
                ..super_version.over(&super_version.active, frozen)
            }
        });
    }

    /// Replaces the version. Its files contain the flushables with the ids in `flushed`, which are
    /// removed from the list.
    pub fn installed(&self, version: Arc<Version>, flushed: &[u64]) {
        self.change(|super_version| {
            let left = super_version
                .frozen
                .iter()
                .filter(|m| !flushed.contains(&m.id()))
                .cloned();
            SuperVersion {
                version,
                ..super_version.over(&super_version.active, left.collect())
            }
        });
    }

    /// The generation of the oldest super version that is held or current.
    pub fn oldest_generation(&self) -> u64 {
        let list = &mut self.held.lock().list;
        while list.len() > 1 && list[0].super_version.strong_count() == 0 {
            list.pop_front();
        }
        list[0].generation
    }

    fn change(&self, next: impl FnOnce(&SuperVersion) -> SuperVersion) {
        let mut held = self.held.lock();
        let current = self.current.load();
        let next = Arc::new(SuperVersion {
            generation: current.generation + 1,
            ..next(&current)
        });
        // Forget all super versions without readers, not only the oldest ones: otherwise the list
        // would grow behind one that a reader holds for long. Do it only when the list has doubled,
        // because commits wait for this when the memtable is frozen.
        if held.list.len() >= held.sweep_at {
            held.list
                .retain(|held| held.super_version.strong_count() > 0);
            held.sweep_at = SWEEP_MIN.max(2 * held.list.len());
        }
        held.list.push_back(TrackedSuperVersion::of(&next));
        let generation = next.generation;
        self.current.store(next);
        self.generation.store(generation, Ordering::Release);
    }
}

impl TrackedSuperVersion {
    fn of(super_version: &Arc<SuperVersion>) -> Self {
        Self {
            generation: super_version.generation,
            super_version: Arc::downgrade(super_version),
        }
    }
}

#[cfg(test)]
mod tests;
