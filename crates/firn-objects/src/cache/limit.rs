//! The room that chunks take, and who gives it back.

use super::chunk::{ChunkFile, Seen};
use super::s3_fifo::{Fate, Key, S3Fifo};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Of the limit, pinned tails take at most one in this many.
const PINNED_SHARE: u64 = 2;
/// Entries of queues that are gone are dropped when they are more than half of these.
const GONE_MIN: usize = 1024;

/// Of the chunks whose holes could not be punched, so many are tried again at once.
const STUCK_TRIES: usize = 8;

/// A chunk that is there, as its queue entry names it.
type Tag = Seen;

/// A chunk whose hole is to be punched.
pub type Evicted = (Arc<ChunkFile>, u32);

/// See the module.
pub struct Limit {
    bytes_max: u64,
    bytes: u64,
    pinned_bytes: u64,
    evicted: u64,
    /// Chunks of cold files, and of hot ones: those leave last.
    queues: [S3Fifo<Tag>; 2],
    gone: usize,
    files: HashMap<u64, Arc<ChunkFile>>,
    /// Chunks that have left, but whose holes could not be punched. They take their room.
    stuck: VecDeque<Evicted>,
}

impl Limit {
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            pinned_bytes: 0,
            evicted: 0,
            queues: [S3Fifo::default(), S3Fifo::default()],
            gone: 0,
            files: HashMap::new(),
            stuck: VecDeque::new(),
        }
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Changes the limit; [`Self::make_room`] follows.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        if self.pinned_bytes > bytes_max / PINNED_SHARE {
            self.unpin_all();
        }
    }

    /// Takes room for a chunk of which the caller has begun the write. Returns false if there is
    /// none: the chunk is not kept. In either case holes of the chunks in the answer are to be
    /// punched.
    pub fn reserve(&mut self, file: &ChunkFile, chunk: u32) -> (bool, Vec<Evicted>) {
        let len = file.len_of(chunk);
        if file.is_dead() || len > self.bytes_max {
            return (false, Vec::new());
        }
        let evicted = self.make_room(len);
        // Chunks that others write right now cannot leave.
        let fits = self.bytes + len <= self.bytes_max;
        if fits {
            self.bytes += len;
        }
        (fits, evicted)
    }

    /// Counts a chunk that was found in a local file, whether it fits or not.
    pub fn count(&mut self, file: &ChunkFile, chunk: u32) {
        self.bytes += file.len_of(chunk);
    }

    /// The chunk is in its file.
    pub fn insert(&mut self, file: &Arc<ChunkFile>, chunk: u32) {
        if file.is_dead() {
            return self.give_back(file, chunk);
        }
        let seen = file.set_present(chunk);
        self.files.entry(file.id()).or_insert_with(|| file.clone());
        if file.is_tail(chunk) && self.pin(file, chunk) {
            return;
        }
        self.queue_of(file).push((file.id(), chunk), seen);
    }

    /// The chunk was not written.
    pub fn give_back(&mut self, file: &ChunkFile, chunk: u32) {
        self.bytes -= file.len_of(chunk);
    }

    /// Gives back the room of a chunk that was to be written, if there is too much.
    pub fn cancel_if_over(&mut self, file: &ChunkFile, chunk: u32) -> bool {
        let is_over = self.bytes > self.bytes_max;
        if is_over {
            self.give_back(file, chunk);
        }
        is_over
    }

    /// Takes a chunk out, unless it has come anew since the caller saw it. If this returns true,
    /// its hole is to be punched.
    pub fn take_out(&mut self, file: &ChunkFile, chunk: u32, seen: Seen) -> bool {
        if file.seen(chunk) != Some(seen) {
            return false;
        }
        self.drop_chunk(file, chunk);
        self.note_gone(1);
        true
    }

    /// The hole of a chunk could not be punched.
    pub fn add_stuck(&mut self, (file, chunk): Evicted) {
        self.bytes += file.len_of(chunk);
        self.stuck.push_back((file, chunk));
    }

    /// Some chunks whose holes are to be tried again.
    pub fn take_stuck(&mut self) -> Vec<Evicted> {
        let count = self.stuck.len().min(STUCK_TRIES);
        let tried: Vec<Evicted> = self.stuck.drain(..count).collect();
        for (file, chunk) in &tried {
            self.bytes -= file.len_of(*chunk);
        }
        tried
    }

    /// All chunks of the file go, and none comes any more.
    pub fn remove_file(&mut self, file: &ChunkFile) {
        file.kill();
        self.files.remove(&file.id());
        let mut gone = 0;
        for chunk in 0..file.chunk_count() {
            if file.seen(chunk).is_some() {
                self.drop_chunk(file, chunk);
                file.set_absent(chunk);
                gone += 1;
            }
        }
        self.note_gone(gone);
    }

    /// Evicts until `len` more bytes fit.
    pub fn make_room(&mut self, len: u64) -> Vec<Evicted> {
        let mut evicted = Vec::new();
        while self.bytes + len > self.bytes_max {
            let Some((file, chunk)) = self.pop() else {
                break; // The rest is pinned, or being written.
            };
            self.drop_chunk(&file, chunk);
            self.evicted += 1;
            evicted.push((file, chunk));
        }
        evicted
    }

    fn queue_of(&mut self, file: &ChunkFile) -> &mut S3Fifo<Tag> {
        &mut self.queues[usize::from(file.is_hot())]
    }

    fn pop(&mut self) -> Option<Evicted> {
        let mut queues = std::mem::take(&mut self.queues);
        let popped = queues
            .iter_mut()
            .find_map(|queue| queue.pop(|&(id, chunk), &seen| self.fate(id, chunk, seen)));
        self.queues = queues;
        let ((id, chunk), _) = popped?;
        Some((self.files.get(&id)?.clone(), chunk))
    }

    fn fate(&mut self, id: u64, chunk: u32, seen: Seen) -> Fate {
        let file = self.files.get(&id).cloned();
        let Some(file) = file.filter(|file| file.seen(chunk) == Some(seen)) else {
            self.gone = self.gone.saturating_sub(1);
            return Fate::Gone;
        };
        // It was recovered, and the caller has told of the tail since.
        if file.is_tail(chunk) && self.pin(&file, chunk) {
            return Fate::Gone;
        }
        if file.touches(chunk) > 0 {
            file.untouch(chunk, 1);
            return Fate::Stays;
        }
        Fate::Leaves
    }

    fn pin(&mut self, file: &ChunkFile, chunk: u32) -> bool {
        let len = file.len_of(chunk);
        let fits = self.pinned_bytes + len <= self.bytes_max / PINNED_SHARE;
        if fits {
            file.set_pinned(chunk, true);
            self.pinned_bytes += len;
        }
        fits
    }

    /// Pinned chunks queue as if they had just come. Their files are as many as are in use: this
    /// happens when the limit has become too small for them.
    fn unpin_all(&mut self) {
        self.pinned_bytes = 0;
        let files: Vec<Arc<ChunkFile>> = self.files.values().cloned().collect();
        for file in files {
            for chunk in 0..file.chunk_count() {
                if !file.is_pinned(chunk) {
                    continue;
                }
                file.set_pinned(chunk, false);
                if let Some(seen) = file.seen(chunk) {
                    self.queue_of(&file).push((file.id(), chunk), seen);
                }
            }
        }
    }

    fn drop_chunk(&mut self, file: &ChunkFile, chunk: u32) {
        let len = file.len_of(chunk);
        if file.is_pinned(chunk) {
            self.pinned_bytes -= len;
        }
        file.begin_punch(chunk);
        self.bytes -= len;
    }

    fn note_gone(&mut self, count: usize) {
        self.gone += count;
        let queued: usize = self.queues.iter().map(S3Fifo::len).sum();
        if self.gone < GONE_MIN || self.gone * 2 < queued {
            return;
        }
        let files = &self.files;
        let is_current = |&(id, chunk): &Key, &seen: &Tag| {
            files
                .get(&id)
                .is_some_and(|file| file.seen(chunk) == Some(seen))
        };
        for queue in &mut self.queues {
            queue.retain(is_current);
        }
        self.gone = 0;
    }
}
