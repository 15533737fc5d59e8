//! Counts the work of an operation, for tests that limit that work: counts are the same on every
//! machine, times are not.
//!
//! The counts belong to the thread, so tests that run side by side do not disturb each other.
//! Without the feature `counts` the functions that count are empty, so the engine that users run
//! counts nothing.
//!
//! ```text
//! let (job, work) = counted(|| pick(&context));
//! assert!(work.files < 1000);
//! ```

/// Work of the calling thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkCount {
    /// Accesses to the metadata of an SST through its file handle.
    pub files: u64,
    /// Nodes of persistent lists that were created or copied.
    pub nodes: u64,
    /// Tables of the catalog, or counters of tables, that were looked at in a loop over all or many
    /// of them.
    pub tables: u64,
    /// Waiting lock requests and waiting committers that loops have looked at.
    pub waiters: u64,
    /// Holders of rows that were looked at, one by one.
    pub holders: u64,
    /// Blob files that a search for garbage looked at.
    pub blob_files: u64,
}

#[cfg(feature = "counts")]
mod counting {
    use super::WorkCount;
    use std::cell::Cell;

    thread_local! {
        static WORK: Cell<WorkCount> = const { Cell::new(WorkCount { files: 0, nodes: 0, tables: 0, waiters: 0, holders: 0, blob_files: 0 }) };
    }

    pub(super) fn add(change: impl FnOnce(&mut WorkCount)) {
        // While a thread ends, its thread-local cell may be destroyed already. Ignore that, since
        // nobody reads the counts of such a thread.
        let _ = WORK.try_with(|cell| {
            let mut work = cell.get();
            change(&mut work);
            cell.set(work);
        });
    }

    pub(super) fn uncounted<T>(f: impl FnOnce() -> T) -> T {
        let before = WORK.get();
        let result = f();
        WORK.set(before);
        result
    }

    /// Runs `f`. Returns its result, and the work of this thread during the call.
    pub fn counted<T>(f: impl FnOnce() -> T) -> (T, WorkCount) {
        let before = WORK.get();
        let result = f();
        let after = WORK.get();
        let work = WorkCount {
            files: after.files - before.files,
            nodes: after.nodes - before.nodes,
            tables: after.tables - before.tables,
            waiters: after.waiters - before.waiters,
            holders: after.holders - before.holders,
            blob_files: after.blob_files - before.blob_files,
        };
        (result, work)
    }
}

#[cfg(feature = "counts")]
pub use counting::counted;

/// Runs `f` without counting its work. For the costly checks of [`super::invariant`], which users
/// do not run.
#[inline(always)]
pub fn uncounted<T>(f: impl FnOnce() -> T) -> T {
    counting::uncounted(f)
}

#[cfg(not(feature = "counts"))]
mod counting {
    use super::WorkCount;

    #[inline(always)]
    pub(super) fn add(_change: impl FnOnce(&mut WorkCount)) {}

    #[inline(always)]
    pub(super) fn uncounted<T>(f: impl FnOnce() -> T) -> T {
        f()
    }
}

/// Counts an access to the metadata of a file.
#[inline(always)]
pub fn file_seen() {
    counting::add(|work| work.files += 1);
}

/// Counts a node of a persistent list that was created or copied.
#[inline(always)]
pub fn node_made() {
    counting::add(|work| work.nodes += 1);
}

/// Counts tables of the catalog.
#[inline(always)]
pub fn tables_seen(tables: usize) {
    counting::add(|work| work.tables += tables as u64);
}

/// Counts a waiting lock request or committer.
#[inline(always)]
pub fn waiter_seen() {
    counting::add(|work| work.waiters += 1);
}

/// Counts a holder of a row.
#[inline(always)]
pub fn holder_seen() {
    counting::add(|work| work.holders += 1);
}

/// Counts blob files that a search for garbage looks at.
#[inline(always)]
pub fn blob_files_seen(files: usize) {
    counting::add(|work| work.blob_files += files as u64);
}
