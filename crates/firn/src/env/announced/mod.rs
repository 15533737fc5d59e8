//! Direct reads that were announced: under way before anyone waits for them.
//!
//! Past the page cache nobody reads ahead. So a caller that knows what it is about to read says so
//! ([`super::ReadFile::will_read`]), and the reads of one [`Announcement`] go to the device at once:
//! through a ring of `io_uring` where the kernel has it and lets us, by a few threads otherwise. The
//! reads that follow find their bytes here, or wait for them; whatever is wrong with an announced
//! read, they read again by themselves and tell. So an announcement changes no result and no error.
//!
//! Worked example: a batch of sorted keys announces blocks `[0, 5000)` and `[90000, 95000)` of a file.
//! Two reads, of `[0, 8192)` and `[86016, 98304)`, are submitted in one call. `read_exact_at(90000, ..)`
//! waits until the second is complete, and copies; then the second is forgotten.

mod ring;
mod table;
mod threads;

use super::{AlignedBuf, BLOCK};
use parking_lot::Mutex;
use ring::{RingReads, Rings};
use rustix::fs::Advice;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use table::{Piece, Table};
use threads::{ThreadReads, Threads};

/// How reads that were announced are read at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchedReads {
    /// Through `io_uring`.
    Ring,
    /// By threads: the kernel has no `io_uring`, or forbids it.
    Threads,
    /// Not at all: one after the other, as simulations do it.
    OneByOne,
}

impl std::fmt::Display for BatchedReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ring => "io_uring",
            Self::Threads => "threads",
            Self::OneByOne => "one by one",
        })
    }
}

/// What became of announced reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnnouncedStats {
    /// Reads submitted.
    pub submitted: u64,
    /// Reads that found their bytes here.
    pub taken: u64,
    /// Reads dropped before all their bytes were asked for.
    pub unused: u64,
}

/// Reads of one submission at most; more are cut.
const READS_MAX: usize = 32;
/// Longer pieces are left to the read itself, bytes.
const PIECE_MAX: u64 = 1 << 20;

/// So many bytes between two announced places are read rather than skipped.
const GAP: u64 = 16 << 10;

/// What is read in one piece.
#[derive(Clone)]
struct Place {
    file: Arc<File>,
    bytes: Range<u64>,
    /// Bytes that were announced: those between them were not.
    wanted: u64,
}

/// Tells a file from all others that are open.
fn id_of(file: &Arc<File>) -> u64 {
    Arc::as_ptr(file) as usize as u64
}

impl Place {
    /// Whole blocks around the bytes.
    fn blocks(&self) -> Range<u64> {
        let block = BLOCK as u64;
        self.bytes.start / block * block..self.bytes.end.next_multiple_of(block)
    }
}

/// Makes one place of those that overlap or lie close together. Reads longer than [`PIECE_MAX`] are
/// cut off, unless one place is.
fn merge(places: &mut Vec<Place>) {
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

/// Reads of one environment that are about to be made. Nothing happens until it is started; dropped
/// before, it was never said.
#[derive(Default)]
pub struct Announcement {
    cached: Vec<Place>,
    direct: Vec<Place>,
    announced: Option<Arc<Announced>>,
}

impl Announcement {
    /// No reads so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins to read: each byte once, neighbours in one piece, all at the same time. Waits for
    /// nothing.
    pub fn start(mut self) {
        merge(&mut self.cached);
        for place in &self.cached {
            let len = NonZeroU64::new(place.bytes.end - place.bytes.start);
            // The read that follows tells what is wrong, if anything is.
            let _ = rustix::fs::fadvise(&place.file, place.bytes.start, len, Advice::WillNeed);
        }
        if let Some(announced) = &self.announced {
            merge(&mut self.direct);
            announced.submit(&mut self.direct);
        }
    }

    /// Adds a read through the page cache, which the system begins by itself.
    pub(super) fn push_cached(&mut self, file: &Arc<File>, offset: u64, len: u64) {
        self.cached.extend(place(file, offset, len));
    }

    /// Adds a read past it, whose bytes `announced` will have.
    pub(super) fn push_direct(
        &mut self,
        announced: &Arc<Announced>,
        file: &Arc<File>,
        offset: u64,
        len: u64,
    ) {
        let other = |mine: &Arc<Announced>| !Arc::ptr_eq(mine, announced);
        if self.announced.as_ref().is_some_and(other) {
            std::mem::take(self).start();
        }
        self.announced.get_or_insert_with(|| Arc::clone(announced));
        let place = place(file, offset, len);
        self.direct
            .extend(place.filter(|place| place.wanted <= PIECE_MAX));
    }
}

/// None if nothing is wanted, or what no file has.
fn place(file: &Arc<File>, offset: u64, len: u64) -> Option<Place> {
    let end = offset.checked_add(len)?;
    (len > 0 && end <= i64::MAX as u64 - BLOCK as u64).then(|| Place {
        file: Arc::clone(file),
        bytes: offset..end,
        wanted: len,
    })
}

/// Reads under way or complete, of one submission.
#[allow(clippy::large_enum_variant)] // Shared by the pieces, each in one allocation.
enum Reads {
    Ring(RingReads),
    Threads(Arc<ThreadReads>),
}

impl Reads {
    /// Waits for read `number` and copies what it found from `skip` on. `false` if there is less, or
    /// if the read failed or has not begun.
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

/// Fills `buf` from `start` on as far as the file goes; both are whole blocks.
pub(super) fn fill(file: &File, start: u64, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], start + done as u64) {
            Ok(0) => break,
            Ok(n) => {
                done += n;
                // What follows a read that ends within a block is the end of the file.
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

/// Reads announced and not yet taken, of all files of an environment.
///
/// Invariants: a read is submitted for files that never change; its buffer lives until the read is
/// complete, whoever drops what; buffers held together stay below [`table::BYTES_MAX`] and a few more.
/// A read that nobody asks for is dropped when others need its room, or with its file.
///
/// Rejected: handing the bytes to the block cache (a block that is then read would count as asked for
/// twice, and scans would empty the cache); batches that the caller holds (every reader on the way
/// down to the block would have to pass them on); one ring for all (submitters and waiters would
/// stand in line); a ring for each session (thousands of them, nearly all idle); a thread that takes
/// completions (two switches for each read).
pub(super) struct Announced {
    way: Way,
    table: Mutex<Table>,
    /// Pieces in the table, so that reads pass by while there are none.
    pieces: AtomicUsize,
    submitted: AtomicU64,
    taken: AtomicU64,
    unused: AtomicU64,
}

enum Way {
    Ring(Arc<Rings>, Threads),
    Threads(Threads),
}

impl Announced {
    /// Reads through a ring if one can be had and `ring` is set.
    pub(super) fn new(ring: bool) -> Arc<Self> {
        let way = match ring.then(Rings::probe).flatten() {
            Some(rings) => Way::Ring(rings, Threads::new()),
            None => Way::Threads(Threads::new()),
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

    pub(super) fn way(&self) -> BatchedReads {
        match self.way {
            Way::Ring(..) => BatchedReads::Ring,
            Way::Threads(_) => BatchedReads::Threads,
        }
    }

    pub(super) fn stats(&self) -> AnnouncedStats {
        AnnouncedStats {
            submitted: self.submitted.load(Ordering::Relaxed),
            taken: self.taken.load(Ordering::Relaxed),
            unused: self.unused.load(Ordering::Relaxed),
        }
    }

    fn submit(&self, places: &mut Vec<Place>) {
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

    fn start(&self, places: &[Place]) -> Reads {
        let threads = match &self.way {
            Way::Threads(threads) => threads,
            Way::Ring(rings, threads) => match rings.start(places) {
                Some(reads) => return Reads::Ring(reads),
                // No memory or no descriptors for a further ring.
                None => threads,
            },
        };
        Reads::Threads(threads.start(places))
    }

    /// Fills `out` with what an announced read finds at `offset`. `false`: the caller reads.
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

    /// The file is closed.
    pub(super) fn forget(&self, file: &Arc<File>) {
        if self.pieces.load(Ordering::Relaxed) != 0 {
            let mut table = self.table.lock();
            let dropped = table.forget(file);
            self.counted(&table);
            drop(table);
            self.drop_unused(dropped);
        }
    }

    fn counted(&self, table: &Table) {
        self.pieces.store(table.len(), Ordering::Relaxed);
    }

    /// Outside the table's lock: reads that are still under way are waited for.
    fn drop_unused(&self, dropped: Vec<Piece>) {
        let unused = dropped.len() as u64;
        self.unused.fetch_add(unused, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
