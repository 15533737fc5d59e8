//! Scans read ahead: one piece of 1 MiB, then larger ones up to 8 MiB, four at once.

use super::chunk::ChunkFile;
use super::file::CachedFile;
use super::flights::Claim;
use super::read::{CachedRead, REQUEST_CHUNKS_MAX, Touch, Verify, push_run};
use super::{ANNOUNCED_MAX, CHUNK_BYTES, REQUEST_BYTES_MAX, Shared, add};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The first piece.
const PIECE_BYTES_MIN: u64 = 1 << 20;
/// Pieces of a scan that are under way at once.
const PIECES_MAX: u32 = 4;
/// Of the cache's limit, a scan takes at most one in this many for what it reads ahead.
const AHEAD_SHARE: u64 = 16;

/// Reads of a range of a file in order. Others may use the file meanwhile.
pub struct Scan {
    file: CachedFile,
    /// Where the next read in order begins.
    next: Option<u64>,
    /// Up to here chunks have been asked for.
    ahead: u64,
    piece_bytes: u64,
    /// Pieces under way.
    pieces: Arc<AtomicU32>,
}

impl Scan {
    fn new(file: CachedFile) -> Self {
        Self {
            file,
            next: None,
            ahead: 0,
            piece_bytes: PIECE_BYTES_MIN,
            pieces: Arc::default(),
        }
    }

    /// As [`CachedFile::read`]. From the second read in order on, what comes next is asked for.
    ///
    /// # Errors
    /// As [`CachedFile::read`].
    pub fn read(&mut self, range: Range<u64>, verify: Verify<'_>) -> Result<CachedRead> {
        if self.next == Some(range.start) {
            self.ask_ahead(range.end);
        } else {
            self.ahead = range.end;
            self.piece_bytes = PIECE_BYTES_MIN;
        }
        self.next = Some(range.end);
        let file = &self.file;
        file.shared.read(&file.file, range, Touch::No, verify)
    }

    fn ask_ahead(&mut self, from: u64) {
        let share = self.file.shared.limit.lock().bytes_max() / AHEAD_SHARE;
        let piece_bytes_max = (share / u64::from(PIECES_MAX)).min(REQUEST_BYTES_MAX);
        if piece_bytes_max < CHUNK_BYTES {
            return;
        }
        self.ahead = self.ahead.max(from);
        while self.pieces.load(SeqCst) < PIECES_MAX && self.ahead < self.file.bytes() {
            let piece_bytes = self.piece_bytes.min(piece_bytes_max);
            let end = self.ahead + piece_bytes;
            if end > from + u64::from(PIECES_MAX) * piece_bytes {
                break;
            }
            // Chunks are asked for whole, so a piece ends where a chunk does.
            let end = (end / CHUNK_BYTES * CHUNK_BYTES).min(self.file.bytes());
            self.pieces.fetch_add(1, SeqCst);
            let pieces = PieceGuard(self.pieces.clone());
            self.file.announce(self.ahead..end, move || drop(pieces));
            self.ahead = end;
            self.piece_bytes = (piece_bytes * 2).min(REQUEST_BYTES_MAX);
        }
    }
}

/// A piece under way, also if its job is dropped.
struct PieceGuard(Arc<AtomicU32>);

impl Drop for PieceGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl CachedFile {
    /// Reads in order, ahead of the caller.
    pub fn scan(&self) -> Scan {
        Scan::new(self.clone())
    }

    /// Reads the chunks of a range in the background.
    pub fn will_read(&self, range: Range<u64>) {
        let end = range.end.min(self.bytes());
        self.announce(range.start.min(end)..end, || {});
    }

    /// Has a job read the chunks of a range that are missing; then `done` is called.
    fn announce(&self, range: Range<u64>, done: impl FnOnce() + Send + 'static) {
        let chunks = self.file.chunks_of(&range);
        let (shared, file) = (self.shared.clone(), self.file.clone());
        let announced = shared.announced.clone();
        // This function and the cache have two of the handles.
        if Arc::strong_count(&announced) >= ANNOUNCED_MAX + 2
            || chunks.clone().all(|chunk| file.seen(chunk).is_some())
        {
            return done();
        }
        let job = move || {
            shared.fetch_missing(&file, chunks);
            drop(announced);
            done();
        };
        self.shared.jobs.submit(Box::new(job));
    }
}

impl Shared {
    /// Reads missing chunks that nobody else reads, request by request: nobody waits for a chunk
    /// whose turn has not come. It is a help and not a duty: it fails silently, and ends when too
    /// much is in flight or the store fails.
    fn fetch_missing(&self, file: &Arc<ChunkFile>, chunks: Range<u32>) {
        for first in chunks.clone().step_by(REQUEST_CHUNKS_MAX) {
            let end = chunks.end.min(first + REQUEST_CHUNKS_MAX as u32);
            if !self.fetch_some(file, first..end) {
                return;
            }
        }
    }

    fn fetch_some(&self, file: &Arc<ChunkFile>, chunks: Range<u32>) -> bool {
        let mut runs = Vec::new();
        for chunk in chunks {
            let is_there = || file.seen(chunk).is_some();
            if let Claim::Mine(pilot) = self.flights.claim((file.id(), chunk), is_there) {
                push_run(&mut runs, (chunk, pilot));
            }
        }
        runs.into_iter().all(|run| {
            let count = run.len() as u64;
            let Some(_room) = self.in_flight.try_take(count * CHUNK_BYTES) else {
                return false;
            };
            let is_read = self.fetch(file, run).is_ok();
            if is_read {
                add(&self.counters.read_ahead, count);
            }
            is_read
        })
    }
}
