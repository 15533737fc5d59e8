//! Read views: one pointer load pins the memtables and the version a read sees.
//!
//! Order of a statement's read: pin the view, *then* read the visible seqno. The reverse loses keys:
//! between the two a flush and a compaction could drop the versions the older number needs. A
//! snapshot that outlives its statement is registered first (see `txn`), then the view is pinned: a
//! view older than the snapshot would hide writes that the next statement shows.

use crate::base::Seqno;
use crate::cache::{RowCache, Sealed};
use crate::memtable::Memtable;
use crate::version::Version;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a read looks into, immutable but for the active memtable's growth.
pub struct View {
    /// Takes new commits.
    pub active: Arc<Memtable>,
    /// Full memtables on their way to disk, newest first.
    pub frozen: Vec<Arc<Memtable>>,
    /// The files.
    pub version: Arc<Version>,
    /// Up to which memtable all were frozen and complete when the view was made.
    pub sealed: Sealed,
    /// Single rows of the files.
    pub rows: Arc<RowCache>,
}

impl View {
    /// This view over other memtables.
    fn over(&self, active: &Arc<Memtable>, frozen: Vec<Arc<Memtable>>) -> Self {
        Self {
            active: Arc::clone(active),
            frozen,
            version: Arc::clone(&self.version),
            sealed: self.sealed,
            rows: Arc::clone(&self.rows),
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

/// The current view of a database.
pub struct Views {
    current: ArcSwap<View>,
    visible: Arc<AtomicU64>,
    changing: Mutex<()>,
}

impl Views {
    /// Starts with an empty active memtable over `version`; all commits so far are visible, and
    /// lie in files or in memtables numbered before the active one. `rows` caches rows of the files.
    pub fn new(
        active: Arc<Memtable>,
        version: Arc<Version>,
        visible: Arc<AtomicU64>,
        rows: Arc<RowCache>,
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
        };
        Self {
            current: ArcSwap::from_pointee(view),
            visible,
            changing: Mutex::new(()),
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
        let seqno = self.visible();
        ReadPoint { view, seqno }
    }

    /// Recovery has filled these memtables, oldest first.
    pub fn recovered(&self, memtables: &[Arc<Memtable>]) {
        let frozen = memtables.iter().rev().cloned().collect();
        self.change(|view| view.over(&view.active, frozen));
    }

    /// The active memtable was frozen and replaced.
    pub fn switched(&self, frozen: Arc<Memtable>, active: Arc<Memtable>) {
        self.change(|view| {
            debug_assert!(Arc::ptr_eq(&view.active, &frozen));
            let mut all = vec![frozen];
            all.extend(view.frozen.iter().cloned());
            view.over(&active, all)
        });
    }

    /// `memtable`, the oldest frozen one, has no writers any more. What views made from now on find
    /// in the files may enter the row cache even after the memtable's flush.
    pub fn drained(&self, memtable: &Memtable) {
        self.change(|view| {
            let newest = memtable.seqno_range().map_or(0, |(_, newest)| newest);
            let sealed = Sealed {
                number: view.sealed.number.max(memtable.id()),
                seqno: view.sealed.seqno.max(newest),
            };
            let frozen = view.frozen.clone();
            View {
                sealed,
                ..view.over(&view.active, frozen)
            }
        });
    }

    /// `version` was installed; the memtables with these ids are in its files.
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

    fn change(&self, next: impl FnOnce(&View) -> View) {
        let _one_at_a_time = self.changing.lock();
        let current = self.current.load();
        self.current.store(Arc::new(next(&current)));
    }
}
