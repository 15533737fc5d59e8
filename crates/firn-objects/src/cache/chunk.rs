//! A remote file and the states of its chunks.
//!
//! The state of a chunk is one word: whether the local file has it, a count of touches, whether it
//! is pinned, and a generation that changes whenever the chunk comes or goes. All changes but those
//! of the touches are made under the lock of [`super::limit::Limit`].

use super::{CHUNK_BYTES, FileTraits};
use crate::env::LocalFile;
use parking_lot::RwLock;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

/// The local file has the chunk.
const PRESENT: u32 = 1;
/// The chunk is being written, or its hole is being punched: nobody else may write it.
const BUSY: u32 = 2;
const PINNED: u32 = 4;
const TOUCH: u32 = 8;
const TOUCHES: u32 = 3 * TOUCH;
const GENERATION: u32 = 256;

/// See the module.
pub struct ChunkFile {
    id: u64,
    name: String,
    local_path: PathBuf,
    bytes: u64,
    tail_from: AtomicU64,
    is_hot: AtomicBool,
    is_dead: AtomicBool,
    chunks: Box<[AtomicU32]>,
    /// The local file, while it is open.
    pub(super) handle: RwLock<Option<Arc<dyn LocalFile>>>,
}

/// A chunk that was there, as of one look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u32);

impl ChunkFile {
    pub fn new(id: u64, name: &str, local_path: PathBuf, traits: FileTraits) -> Self {
        let chunks = (0..traits.bytes.div_ceil(CHUNK_BYTES)).map(|_| AtomicU32::new(0));
        let file = Self {
            id,
            name: name.to_owned(),
            local_path,
            bytes: traits.bytes,
            tail_from: AtomicU64::new(u64::MAX),
            is_hot: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            chunks: chunks.collect(),
            handle: RwLock::new(None),
        };
        file.set_traits(traits);
        file
    }

    pub fn set_traits(&self, traits: FileTraits) {
        let tail_from = match traits.tail_bytes {
            0 => u64::MAX,
            bytes => traits.bytes.saturating_sub(bytes),
        };
        self.tail_from.store(tail_from, SeqCst);
        self.is_hot.store(traits.is_hot, SeqCst);
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn local_path(&self) -> &Path {
        &self.local_path
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_hot(&self) -> bool {
        self.is_hot.load(SeqCst)
    }

    pub fn is_dead(&self) -> bool {
        self.is_dead.load(SeqCst)
    }

    pub fn kill(&self) {
        self.is_dead.store(true, SeqCst);
    }

    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// The chunks that hold a range.
    pub fn chunks_of(&self, range: &Range<u64>) -> Range<u32> {
        if range.is_empty() {
            return 0..0;
        }
        (range.start / CHUNK_BYTES) as u32..range.end.div_ceil(CHUNK_BYTES) as u32
    }

    /// The bytes of a chunk; the last one may be short.
    pub fn range_of(&self, chunk: u32) -> Range<u64> {
        let start = u64::from(chunk) * CHUNK_BYTES;
        start..(start + CHUNK_BYTES).min(self.bytes)
    }

    pub fn len_of(&self, chunk: u32) -> u64 {
        let range = self.range_of(chunk);
        range.end - range.start
    }

    /// Whether the chunk has bytes of the file's tail.
    pub fn is_tail(&self, chunk: u32) -> bool {
        self.range_of(chunk).end > self.tail_from.load(SeqCst)
    }

    fn state(&self, chunk: u32) -> &AtomicU32 {
        &self.chunks[chunk as usize]
    }

    /// The chunk, if the local file has it.
    pub fn seen(&self, chunk: u32) -> Option<Seen> {
        let state = self.state(chunk).load(SeqCst);
        (state & PRESENT != 0).then_some(Seen(state / GENERATION))
    }

    /// A read has used the chunk.
    pub fn touch(&self, chunk: u32) {
        let state = self.state(chunk);
        let now = state.load(SeqCst);
        // Once it has its three touches, a hot chunk's word is only read. Of two touches at once
        // one may get lost.
        if now & TOUCHES != TOUCHES {
            let _ = state.compare_exchange(now, now + TOUCH, SeqCst, SeqCst);
        }
    }

    pub fn touches(&self, chunk: u32) -> u32 {
        (self.state(chunk).load(SeqCst) & TOUCHES) / TOUCH
    }

    pub fn is_pinned(&self, chunk: u32) -> bool {
        self.state(chunk).load(SeqCst) & PINNED != 0
    }

    fn change(&self, chunk: u32, change: impl Fn(u32) -> u32) {
        // Only touches can be in the way.
        let _ = self
            .state(chunk)
            .fetch_update(SeqCst, SeqCst, |state| Some(change(state)));
    }

    /// Takes `touches` away.
    pub fn untouch(&self, chunk: u32, touches: u32) {
        self.change(chunk, |state| {
            let left = ((state & TOUCHES) / TOUCH).saturating_sub(touches);
            (state & !TOUCHES) | (left * TOUCH)
        });
    }

    pub fn set_pinned(&self, chunk: u32, is_pinned: bool) {
        let bit = if is_pinned { PINNED } else { 0 };
        self.change(chunk, |state| (state & !PINNED) | bit);
    }

    /// The caller may write the chunk. None if it is there, or being written or punched.
    pub fn begin_write(&self, chunk: u32) -> bool {
        let state = self.state(chunk);
        let now = state.load(SeqCst);
        now & (PRESENT | BUSY) == 0
            && state
                .compare_exchange(now, now | BUSY, SeqCst, SeqCst)
                .is_ok()
    }

    /// The chunk is there, in a new generation.
    pub fn set_present(&self, chunk: u32) -> Seen {
        self.change(chunk, |state| {
            (state / GENERATION * GENERATION).wrapping_add(GENERATION) | PRESENT
        });
        Seen(self.state(chunk).load(SeqCst) / GENERATION)
    }

    /// The chunk is not there any more; its hole will be punched.
    pub fn begin_punch(&self, chunk: u32) {
        self.change(chunk, |state| {
            (state / GENERATION * GENERATION).wrapping_add(GENERATION) | BUSY
        });
    }

    /// Nobody writes or punches the chunk any more, and it is not there.
    pub fn set_absent(&self, chunk: u32) {
        self.change(chunk, |state| state / GENERATION * GENERATION);
    }
}
