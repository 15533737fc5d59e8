//! Announced direct reads: in progress before a caller waits for them.
//!
//! Without the page cache there is no read-ahead. So a caller announces the reads it is about to
//! make ([`super::ReadFile::prefetch`]), and the reads of one [`PrefetchBatch`] go to the device at
//! once: through an `io_uring` if the kernel offers one, by a few threads otherwise. When the
//! caller then makes a read, it takes its bytes from the announced read, and waits for that if
//! necessary. If an announced read fails, the later read goes to the file itself and reports its
//! own error. So an announcement changes no result and no error.
//!
//! Worked example: a batch of sorted keys announces the ranges `[0, 5000)` and `[90000, 95000)` of
//! a file. Two reads, of `[0, 8192)` and `[86016, 98304)`, are submitted in one call.
//! `read_exact_at` of the second range waits until the second read is complete and copies the
//! bytes. Then this read is removed from the table of announced reads.

mod piece_table;
mod threads;
mod uring;

use super::slow::AnnouncedReads;
use super::{AlignedBuf, BLOCK};
use parking_lot::Mutex;
use piece_table::{PieceTable, PrefetchPiece};
use rustix::fs::Advice;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use threads::{ThreadReads, Threads};
use uring::{RingReads, Rings};

/// How announced reads are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefetchMethod {
    /// Through `io_uring`.
    Ring,
    /// By threads: the kernel has no `io_uring` or forbids it.
    Threads,
    /// Announcements are ignored and reads come one after the other, as in simulations.
    OneByOne,
}

impl std::fmt::Display for PrefetchMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ring => "io_uring",
            Self::Threads => "threads",
            Self::OneByOne => "one by one",
        })
    }
}

/// Counters of announced reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefetchStats {
    /// Reads submitted.
    pub submitted: u64,
    /// Reads by callers that took their bytes from an announced read instead of the file.
    pub taken: u64,
    /// Announced reads dropped before all their bytes were taken.
    pub unused: u64,
}

/// Largest number of reads in one submission. A longer list becomes several submissions.
const READS_MAX: usize = 32;
/// Longest announced read, in bytes. Announcements of longer ranges are ignored, and ranges are not
/// joined beyond this length.
const PIECE_MAX: u64 = 1 << 20;

/// Two announced ranges with at most this many bytes between them become one read.
const GAP: u64 = 16 << 10;

/// A range of a file that one announced read covers. `F` is what stands for the file.
struct PrefetchExtent<F = File> {
    file: Arc<F>,
    bytes: Range<u64>,
    /// Number of bytes in the range that callers have announced; the gaps between joined ranges do
    /// not count.
    wanted: u64,
}

impl<F> Clone for PrefetchExtent<F> {
    fn clone(&self) -> Self {
        Self {
            file: Arc::clone(&self.file),
            bytes: self.bytes.clone(),
            wanted: self.wanted,
        }
    }
}

/// An id that is unique among open files.
fn id_of<F>(file: &Arc<F>) -> u64 {
    Arc::as_ptr(file) as usize as u64
}

impl PrefetchExtent {
    /// The range extended to whole blocks.
    fn blocks(&self) -> Range<u64> {
        let block = BLOCK as u64;
        self.bytes.start / block * block..self.bytes.end.next_multiple_of(block)
    }
}

/// Joins ranges of one file that overlap or lie close together, as long as the result has at most
/// [`PIECE_MAX`] bytes.
fn merge<F>(places: &mut Vec<PrefetchExtent<F>>) {
    places.sort_by_key(|place| (id_of(&place.file), place.bytes.start));
    places.dedup_by(|next, place| {
        let end = next.bytes.end.max(place.bytes.end);
        let joins = Arc::ptr_eq(&next.file, &place.file)
            && next.bytes.start <= place.bytes.end.saturating_add(GAP)
            && end - place.bytes.start <= PIECE_MAX;
        if joins {
            place.wanted += end - next.bytes.start.max(place.bytes.end);
            place.bytes.end = end;
        }
        joins
    });
}

/// A list of reads that a caller is about to make. Nothing happens until [`Self::start`]; dropping
/// it discards the list.
#[derive(Default)]
pub struct PrefetchBatch {
    cached: Vec<PrefetchExtent>,
    direct: Vec<PrefetchExtent>,
    slow: Vec<PrefetchExtent<AnnouncedReads>>,
    prefetched: Option<Arc<Prefetcher>>,
}

impl PrefetchBatch {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts all reads at the same time and does not wait for them. Ranges that overlap or lie
    /// close together become one read, so no byte is read twice.
    pub fn start(mut self) {
        merge(&mut self.slow);
        for place in &self.slow {
            place.file.begin(&place.bytes, place.wanted);
        }
        merge(&mut self.cached);
        for place in &self.cached {
            let len = NonZeroU64::new(place.bytes.end - place.bytes.start);
            // Ignore an error: the caller's own read meets it again and reports it.
            let _ = rustix::fs::fadvise(&place.file, place.bytes.start, len, Advice::WillNeed);
        }
        if let Some(prefetched) = &self.prefetched {
            merge(&mut self.direct);
            prefetched.submit(&mut self.direct);
        }
    }

    /// Adds a read of a slow disk, which [`Self::start`] begins as it begins direct reads.
    pub(super) fn push_slow(&mut self, file: &Arc<AnnouncedReads>, offset: u64, len: u64) {
        let place = place(file, offset, len);
        self.slow
            .extend(place.filter(|place| place.wanted <= PIECE_MAX));
    }

    /// Adds a read through the page cache; [`Self::start`] asks the system to read it ahead.
    pub(super) fn push_cached(&mut self, file: &Arc<File>, offset: u64, len: u64) {
        self.cached.extend(place(file, offset, len));
    }

    /// Adds a direct read; `prefetched` will hold its bytes.
    pub(super) fn push_direct(
        &mut self,
        prefetched: &Arc<Prefetcher>,
        file: &Arc<File>,
        offset: u64,
        len: u64,
    ) {
        let other = |mine: &Arc<Prefetcher>| !Arc::ptr_eq(mine, prefetched);
        if self.prefetched.as_ref().is_some_and(other) {
            std::mem::take(self).start();
        }
        self.prefetched
            .get_or_insert_with(|| Arc::clone(prefetched));
        let place = place(file, offset, len);
        self.direct
            .extend(place.filter(|place| place.wanted <= PIECE_MAX));
    }
}

/// The extent of a range; `None` if the range is empty, or ends beyond the largest offset of a
/// file.
fn place<F>(file: &Arc<F>, offset: u64, len: u64) -> Option<PrefetchExtent<F>> {
    let end = offset.checked_add(len)?;
    (len > 0 && end <= i64::MAX as u64 - BLOCK as u64).then(|| PrefetchExtent {
        file: Arc::clone(file),
        bytes: offset..end,
        wanted: len,
    })
}

/// The reads of one submission, in progress or complete.
#[allow(clippy::large_enum_variant)] // Shared by the pieces, each in one allocation.
enum SubmittedReads {
    Ring(RingReads),
    Threads(Arc<ThreadReads>),
}

impl SubmittedReads {
    /// Waits for read `number` and copies its bytes from `skip` on. Returns false if the read has
    /// not begun, has failed, or has found too few bytes; the caller must then read the file
    /// itself.
    fn copy(&self, number: usize, skip: usize, out: &mut [u8]) -> bool {
        match self {
            Self::Ring(reads) => reads.copy(number, skip, out),
            Self::Threads(reads) => reads.copy(number, skip, out),
        }
    }
}

fn copy_from(buf: &AlignedBuf, found: usize, skip: usize, out: &mut [u8]) -> bool {
    match buf.as_slice()[..found].get(skip..skip + out.len()) {
        Some(bytes) => {
            out.copy_from_slice(bytes);
            true
        }
        None => false,
    }
}

/// Fills `buf` with the bytes of the file from `start` on, and returns their number, which is less
/// than the length of `buf` if the file ends before. `start` and the length of `buf` are multiples
/// of [`BLOCK`].
pub(super) fn fill(file: &File, start: u64, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], start + done as u64) {
            Ok(0) => break,
            Ok(n) => {
                done += n;
                // A read that ends within a block has reached the end of the file.
                if n % BLOCK != 0 {
                    break;
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// The announced reads of all files of an environment whose bytes no caller has taken yet.
///
/// Invariants: only files that never change are announced; the buffer of a read lives until the
/// read is complete, even if all its owners drop it; all buffers together stay near
/// [`piece_table::BYTES_MAX`]. An unused read is dropped when newer ones need its memory, or with
/// its file.
///
/// The lock of the table is never held while a read is awaited.
///
/// Rejected: putting the bytes into the block cache (a block would count as used twice, and scans
/// would flush the cache); batches owned by the caller (each layer down to the block would have to
/// pass them on); one ring for all (submitters and waiters would queue for it); a ring per session
/// (thousands, nearly all idle); a thread that collects completions (two context switches per
/// read).
pub(super) struct Prefetcher {
    way: PrefetchBackend,
    table: Mutex<PieceTable>,
    /// Number of announced reads in the table. While it is 0, callers' reads need not take the
    /// table's lock.
    pieces: AtomicUsize,
    submitted: AtomicU64,
    taken: AtomicU64,
    unused: AtomicU64,
}

enum PrefetchBackend {
    Ring(Arc<Rings>, Threads),
    Threads(Threads),
}

impl Prefetcher {
    /// Makes reads through `io_uring` if `ring` is set and the kernel offers it, otherwise in
    /// threads.
    pub(super) fn new(ring: bool) -> Arc<Self> {
        let way = match ring.then(Rings::probe).flatten() {
            Some(rings) => PrefetchBackend::Ring(rings, Threads::new()),
            None => PrefetchBackend::Threads(Threads::new()),
        };
        Arc::new(Self {
            way,
            table: Mutex::default(),
            pieces: AtomicUsize::new(0),
            submitted: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            unused: AtomicU64::new(0),
        })
    }

    pub(super) fn way(&self) -> PrefetchMethod {
        match self.way {
            PrefetchBackend::Ring(..) => PrefetchMethod::Ring,
            PrefetchBackend::Threads(_) => PrefetchMethod::Threads,
        }
    }

    pub(super) fn stats(&self) -> PrefetchStats {
        PrefetchStats {
            submitted: self.submitted.load(Ordering::Relaxed),
            taken: self.taken.load(Ordering::Relaxed),
            unused: self.unused.load(Ordering::Relaxed),
        }
    }

    fn submit(&self, places: &mut Vec<PrefetchExtent>) {
        {
            let table = self.table.lock();
            places.retain(|place| table.find(&place.file, &place.bytes).is_none());
        }
        for batch in places.chunks(READS_MAX) {
            let reads = Arc::new(self.start(batch));
            let mut table = self.table.lock();
            let dropped = table.insert(&reads, batch);
            self.counted(&table);
            drop(table);
            let submitted = batch.len() as u64;
            self.submitted.fetch_add(submitted, Ordering::Relaxed);
            self.drop_unused(dropped);
        }
    }

    fn start(&self, places: &[PrefetchExtent]) -> SubmittedReads {
        let threads = match &self.way {
            PrefetchBackend::Threads(threads) => threads,
            PrefetchBackend::Ring(rings, threads) => match rings.start(places) {
                Some(reads) => return SubmittedReads::Ring(reads),
                // Threads make the reads if all rings are in use, or if there is no memory or
                // descriptor for a further ring.
                None => threads,
            },
        };
        SubmittedReads::Threads(threads.start(places))
    }

    /// Fills `out` from an announced read that covers the range. Returns false if there is none or
    /// it has failed; the caller must then read the file itself.
    pub(super) fn take(&self, file: &Arc<File>, offset: u64, out: &mut [u8]) -> bool {
        if self.pieces.load(Ordering::Relaxed) == 0 || out.is_empty() {
            return false;
        }
        let bytes = offset..offset + out.len() as u64;
        let mut table = self.table.lock();
        let Some((reads, number, start)) = table.take(file, &bytes) else {
            return false;
        };
        self.counted(&table);
        drop(table);
        let taken = reads.copy(number, (offset - start) as usize, out);
        if taken {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Drops the announced reads of a file that is being closed.
    pub(super) fn forget(&self, file: &Arc<File>) {
        if self.pieces.load(Ordering::Relaxed) != 0 {
            let mut table = self.table.lock();
            let dropped = table.forget(file);
            self.counted(&table);
            drop(table);
            self.drop_unused(dropped);
        }
    }

    fn counted(&self, table: &PieceTable) {
        self.pieces.store(table.len(), Ordering::Relaxed);
    }

    /// Drops announced reads of which no caller has taken all bytes, and counts them. The caller
    /// must not hold the lock of `table`, the table of announced reads, because dropping a read
    /// waits until it is complete.
    fn drop_unused(&self, dropped: Vec<PrefetchPiece>) {
        let unused = dropped.len() as u64;
        self.unused.fetch_add(unused, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
