//! Counts the reads of the current thread, for statistics of single statements: a statement runs on
//! one thread, so the counts at its end minus those at its begin are its own.

use std::cell::Cell;

/// Totals of a thread since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadReads {
    /// Blocks looked up, in the block cache or in a file.
    pub blocks: u64,
    /// Reads of files.
    pub file_reads: u64,
    /// Time of these reads, microseconds.
    pub file_read_us: u64,
    /// Reads of files that were requested ahead.
    pub prefetched: u64,
    /// Entries that reads have passed over: old versions, deletions, and entries newer than the
    /// read. Versions that a memtable passes in one step count as one.
    pub passed_over: u64,
}

thread_local! {
    static READS: Cell<ThreadReads> = const {
        Cell::new(ThreadReads {
            blocks: 0,
            file_reads: 0,
            file_read_us: 0,
            prefetched: 0,
            passed_over: 0,
        })
    };
}

/// The totals of this thread.
pub fn thread_reads() -> ThreadReads {
    READS.get()
}

#[inline]
fn add(change: impl FnOnce(&mut ThreadReads)) {
    READS.with(|reads| {
        let mut now = reads.get();
        change(&mut now);
        reads.set(now);
    });
}

/// A block is looked up.
#[inline]
pub fn count_block() {
    add(|reads| reads.blocks += 1);
}

/// A file was read.
pub fn count_file_read(took_us: u64) {
    add(|reads| {
        reads.file_reads += 1;
        reads.file_read_us += took_us;
    });
}

/// A read was requested ahead.
pub fn count_prefetch() {
    add(|reads| reads.prefetched += 1);
}

/// An entry is passed over.
#[inline]
pub fn count_passed_over() {
    add(|reads| reads.passed_over += 1);
}
