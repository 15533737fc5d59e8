//! Read views: one pointer load pins the memtables and the version a read sees.
//!
//! Order of a statement's read: pin the view, *then* read the visible seqno. The reverse loses keys:
//! between the two a flush and a compaction could drop the versions the older number needs. A
//! snapshot that outlives its statement is registered first (see `txn`), then the view is pinned: a
//! view older than the snapshot would hide writes that the next statement shows.

use crate::base::Seqno;
use crate::base::pause::{self, PausePoint};
use crate::blob::BlobStore;
use crate::cache::{RowCache, Sealed};
use crate::memtable::Memtable;
use crate::version::{FileHandle, Frozen, Run, Version};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What a read looks into, immutable but for the active memtable's growth.
pub struct View {
    /// Takes new commits.
    pub active: Arc<Memtable>,
    /// Full memtables on their way to disk, and runs of files on their way into the tree, newest first.
    pub frozen: Vec<Frozen>,
    /// The files.
    pub version: Arc<Version>,
    /// Up to which memtable all were frozen and complete when the view was made.
    pub sealed: Sealed,
    /// Single rows of the files.
    pub rows: Arc<RowCache>,
    /// Values out of line.
    pub blobs: Arc<BlobStore>,
    /// Counts the views of a database.
    pub generation: u64,
}

impl View {
    /// The memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let frozen = self.frozen.iter().filter_map(Frozen::memtable);
        std::iter::once(&self.active).chain(frozen)
    }

    /// The runs of files, queued ones included, newest first.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        let queued = self.frozen.iter().filter_map(Frozen::run);
        let queued = queued.map(|run| run.run());
        queued.chain(&self.version.l0).chain(&self.version.levels)
    }

    /// Whether there may be commits after `seqno` below the memtables, in files or in runs on their way there. A
    /// commit gets there, at the earliest, a moment before it is visible.
    pub fn has_files_after(&self, seqno: Seqno) -> bool {
        let newer = |frozen: &Frozen| frozen.run().is_some() && frozen.newest() > Some(seqno);
        self.sealed.seqno > seqno || self.frozen.iter().any(newer)
    }

    /// The files, queued ones included.
    pub fn files(&self) -> impl Iterator<Item = &Arc<FileHandle>> {
        self.runs().flat_map(|run| &run.files)
    }

    /// This view over other memtables.
    fn over(&self, active: &Arc<Memtable>, frozen: Vec<Frozen>) -> Self {
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

/// A pinned view and the seqno to read it at.
#[derive(Clone)]
pub struct ReadPoint {
    /// The pinned view.
    pub view: Arc<View>,
    /// Commits up to this seqno are visible.
    pub seqno: Seqno,
}

/// What has happened to the database since a [`ReadPoint`] was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Nothing that a reader sees.
    Latest,
    /// Commits up to this seqno have become visible, and all of them are in the point's own view.
    Newer(Seqno),
    /// Another view is current. The point's view may lack commits, those up to its own seqno among
    /// them: a commit that replaces the memtable can come between the two loads of a point.
    Replaced,
}

/// The current view of a database.
pub struct Views {
    current: ArcSwap<View>,
    /// The generation of the current view; set after it.
    generation: AtomicU64,
    visible: Arc<AtomicU64>,
    /// All views that somebody may hold, oldest first.
    held: Mutex<VecDeque<Held>>,
}

/// A view that somebody may hold.
struct Held {
    generation: u64,
    view: Weak<View>,
}

impl Views {
    /// Starts with an empty active memtable over `version`; all commits so far are visible, and
    /// lie in files or in memtables numbered before the active one. `rows` caches rows of the files,
    /// `blobs` has the values out of line.
    pub fn new(
        active: Arc<Memtable>,
        version: Arc<Version>,
        visible: Arc<AtomicU64>,
        rows: Arc<RowCache>,
        blobs: Arc<BlobStore>,
    ) -> Self {
        let sealed = Sealed {
            number: active.id().saturating_sub(1),
            seqno: visible.load(Ordering::Acquire),
        };
        let view = View {
            active,
            frozen: Vec::new(),
            version,
            sealed,
            rows,
            blobs,
            generation: 0,
        };
        let view = Arc::new(view);
        let held = VecDeque::from([Held::of(&view)]);
        Self {
            current: ArcSwap::from(view),
            generation: AtomicU64::new(0),
            visible,
            held: Mutex::new(held),
        }
    }

    /// Pins the current view.
    pub fn pin(&self) -> Arc<View> {
        self.current.load_full()
    }

    /// The last visible commit.
    pub fn visible(&self) -> Seqno {
        self.visible.load(Ordering::Acquire)
    }

    /// Pins the current view and reads the visible seqno, in this order.
    pub fn latest(&self) -> ReadPoint {
        let view = self.pin();
        pause::at(PausePoint::Pinned);
        let seqno = self.visible();
        ReadPoint { view, seqno }
    }

    /// What has happened since `point` was taken. Whoever has been granted a lock learns here of all
    /// that its holders have committed: a commit changes the view, if it does, before it is visible,
    /// and is visible before its locks are given up.
    ///
    /// The seqno is read first here: if the point's view is current after that, the view has all
    /// commits up to that seqno.
    pub fn freshness(&self, point: &ReadPoint) -> Freshness {
        let seqno = self.visible();
        if self.generation.load(Ordering::Acquire) != point.view.generation {
            Freshness::Replaced
        } else if seqno == point.seqno {
            Freshness::Latest
        } else if seqno > point.seqno {
            Freshness::Newer(seqno)
        } else {
            // The log has failed, and what it may have lost is hidden.
            Freshness::Replaced
        }
    }

    /// Recovery has filled this queue, oldest first.
    pub fn recovered(&self, queue: &[Frozen]) {
        let frozen = queue.iter().rev().cloned().collect();
        self.change(|view| view.over(&view.active, frozen));
    }

    /// The active memtable was replaced; `queued` comes on top of the queue, newest first: the old one
    /// if anything is in it, and a run of files that was committed.
    pub fn switched(&self, queued: &[Frozen], active: Arc<Memtable>) {
        self.change(|view| {
            let all = queued.iter().chain(&view.frozen).cloned();
            view.over(&active, all.collect())
        });
    }

    /// The oldest element of the queue is complete: a memtable without writers, or a run. What views
    /// made from now on find in the files may enter the row cache even after it is in the tree.
    pub fn drained(&self, oldest: &Frozen) {
        self.change(|view| {
            let sealed = Sealed {
                number: view.sealed.number.max(oldest.id()),
                seqno: view.sealed.seqno.max(oldest.newest().unwrap_or(0)),
            };
            let frozen = view.frozen.clone();
            View {
                sealed,
                ..view.over(&view.active, frozen)
            }
        });
    }

    /// `version` was installed; the elements of the queue with these ids are in its files.
    pub fn installed(&self, version: Arc<Version>, flushed: &[u64]) {
        self.change(|view| {
            let left = view
                .frozen
                .iter()
                .filter(|m| !flushed.contains(&m.id()))
                .cloned();
            View {
                version,
                ..view.over(&view.active, left.collect())
            }
        });
    }

    /// The generation of the oldest view that anybody holds, or that is current.
    pub fn oldest_generation(&self) -> u64 {
        let mut held = self.held.lock();
        while held.len() > 1 && held[0].view.strong_count() == 0 {
            held.pop_front();
        }
        held[0].generation
    }

    fn change(&self, next: impl FnOnce(&View) -> View) {
        let mut held = self.held.lock();
        let current = self.current.load();
        let next = Arc::new(View {
            generation: current.generation + 1,
            ..next(&current)
        });
        // One that somebody holds for long must not make the list long.
        held.retain(|held| held.view.strong_count() > 0);
        held.push_back(Held::of(&next));
        let generation = next.generation;
        self.current.store(next);
        self.generation.store(generation, Ordering::Release);
    }
}

impl Held {
    fn of(view: &Arc<View>) -> Self {
        Self {
            generation: view.generation,
            view: Arc::downgrade(view),
        }
    }
}
