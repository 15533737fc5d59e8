//! Named points at which a test may hold up a thread, or run other code in that thread.
//!
//! Two threads race only within a window of nanoseconds. At a pause point, the test's handler may
//! sleep, or may do itself what the other thread would do, which makes the window as wide as the
//! test needs. Without the feature `pauses` a pause point is an empty function, so the engine that
//! users run has none.
//!
//! ```text
//! pause_points::on_this_thread(move |point| {
//!     if point == PausePoint::Pinned { other.commit().unwrap(); }
//! });
//! ```

/// A point that a thread passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PausePoint {
    /// The snapshot of a transaction is registered, its super version is not pinned yet.
    SnapshotTaken,
    /// A super version is pinned, the visible seqno is not read yet.
    Pinned,
    /// A thread is about to request a row lock.
    LockWanted,
    /// A row lock could not be granted at once; the wait for it has not begun yet.
    LockRefused,
    /// A row lock was granted; the row is not read again yet.
    LockGranted,
    /// A scan is about to lock a gap in which it has found no entry.
    GapWanted,
    /// A scan has locked a gap; it has not searched the uncommitted keys of others yet.
    GapLocked,
    /// A check has found no gap lock that forbids a new key; the key is not in the write set yet.
    InsertAllowed,
    /// A new key is in the write set; its gap has not been checked again yet.
    Inserted,
    /// The writer of a referencing row is about to lock the referenced value.
    ReferenceSought,
    /// The writer of a referencing row has locked the referenced value or found none; its row is
    /// not written yet.
    ReferenceLocked,
    /// A row whose value other rows may refer to is locked; the search for these rows has not begun
    /// yet.
    ReferencesSought,
    /// DDL has closed the indexes of a table: foreign key checks of other sessions may no longer
    /// use them, and all transactions that had used them for a check have ended. DDL has not begun
    /// to replace the indexes yet.
    IndexesClosed,
    /// A commit has its seqno and its position in the log's buffer; its entries are in no memtable
    /// yet.
    Sequenced,
    /// The active memtable was replaced; the mutex of the commit pipeline is held.
    Switched,
    /// A commit of files has seen whether others insert into the active memtable, and not yet
    /// whether that has entries; the mutex of the commit pipeline is held.
    InsertersSought,
    /// A commit is about to be made visible.
    BeforePublish,
    /// A commit is visible; its row locks are still held.
    Published,
    /// A thread is about to take a file from the list of obsolete files, and deletes it next.
    ObsoleteWanted,
    /// An eviction has taken the reader out of a file's handle; it has not checked yet whether
    /// other threads use it.
    ReaderTaken,
    /// The files of old prepared transactions are linked for the log archive; the transactions are
    /// not logged again yet.
    PinnedFilesKept,
    /// The outcome of a prepared transaction has found no room in the log; the log's mutex is not
    /// locked again yet.
    NoRoomForOutcome,
    /// Retired indexes without entries are chosen; they are not forgotten yet.
    RetiredChosen,
    /// A writer is in the line at the stall gate; a kill cannot wake it yet.
    GateJoined,
}

#[cfg(any(test, feature = "pauses"))]
mod handler {
    use super::PausePoint;
    use std::cell::RefCell;

    type Handler = Box<dyn FnMut(PausePoint)>;

    thread_local! {
        static HANDLER: RefCell<Option<Handler>> = const { RefCell::new(None) };
    }

    /// Calls `handler` at each point that this thread passes, until [`clear`]. Points that the
    /// handler itself passes are not reported.
    pub fn on_this_thread(handler: impl FnMut(PausePoint) + 'static) {
        HANDLER.set(Some(Box::new(handler)));
    }

    /// Removes the handler of this thread.
    pub fn clear() {
        HANDLER.set(None);
    }

    /// The thread passes `point`.
    pub fn at(point: PausePoint) {
        // A thread that ends may pass pause points after its thread-local storage, and with it the
        // handler, is destroyed. Ignore them.
        let taken = HANDLER.try_with(RefCell::take).ok().flatten();
        if let Some(mut handler) = taken {
            handler(point);
            HANDLER.with_borrow_mut(|slot| {
                slot.get_or_insert(handler);
            });
        }
    }
}

#[cfg(any(test, feature = "pauses"))]
pub use handler::{at, clear, on_this_thread};

/// The thread passes `point`.
#[cfg(not(any(test, feature = "pauses")))]
#[inline(always)]
pub fn at(_: PausePoint) {}

#[cfg(test)]
mod tests;
