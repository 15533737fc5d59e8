//! Announced reads by threads, where no ring is available.

use super::{AlignedBuf, PrefetchExtent, copy_from, fill};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Most reads at the same time.
const THREADS: usize = 8;

enum QueuedReadState {
    /// No thread has begun the read.
    Waiting,
    Running,
    /// The buffer and the number of bytes read.
    Done(AlignedBuf, usize),
    Failed,
    /// A caller wanted the bytes before a thread had begun the read. It reads the file itself, and
    /// no thread begins the read any more.
    Abandoned,
}

struct QueuedRead {
    place: PrefetchExtent,
    state: Mutex<QueuedReadState>,
    done: Condvar,
}

/// The reads of one submission. The queue holds weak references, so reads that have not begun are
/// canceled when the last owner drops this.
pub(super) struct ThreadReads {
    slots: Vec<QueuedRead>,
}

/// A guard that sets the outcome of a read when the function ends, even by a panic, so that no
/// caller waits for ever.
struct Running<'a> {
    slot: &'a QueuedRead,
    outcome: QueuedReadState,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.slot.state.lock() = std::mem::replace(&mut self.outcome, QueuedReadState::Failed);
        self.slot.done.notify_all();
    }
}

impl QueuedRead {
    fn read(&self) {
        {
            let mut state = self.state.lock();
            if !matches!(*state, QueuedReadState::Waiting) {
                return;
            }
            *state = QueuedReadState::Running;
        }
        let mut running = Running {
            slot: self,
            outcome: QueuedReadState::Failed,
        };
        let blocks = self.place.blocks();
        let mut buf = AlignedBuf::new();
        buf.set_len((blocks.end - blocks.start) as usize);
        if let Ok(found) = fill(&self.place.file, blocks.start, buf.as_mut_slice()) {
            running.outcome = QueuedReadState::Done(buf, found);
        }
    }
}

impl ThreadReads {
    /// As [`super::SubmittedReads::copy`]. If no thread has begun the read yet, returns false and
    /// does not wait.
    pub(super) fn copy(&self, number: usize, skip: usize, out: &mut [u8]) -> bool {
        let slot = &self.slots[number];
        let mut state = slot.state.lock();
        if matches!(*state, QueuedReadState::Waiting) {
            *state = QueuedReadState::Abandoned;
        }
        while matches!(*state, QueuedReadState::Running) {
            slot.done.wait(&mut state);
        }
        match &*state {
            QueuedReadState::Done(buf, found) => copy_from(buf, *found, skip, out),
            _ => false,
        }
    }
}

#[derive(Default)]
struct Queue {
    reads: VecDeque<(Weak<ThreadReads>, usize)>,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct ReadThreads {
    queue: Mutex<Queue>,
    came: Condvar,
}

/// A pool of threads, started on demand and kept.
pub(super) struct Threads {
    shared: Arc<ReadThreads>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self {
            shared: Arc::default(),
            threads: Mutex::default(),
        }
    }

    pub(super) fn start(&self, places: &[PrefetchExtent]) -> Arc<ThreadReads> {
        let slot = |place: &PrefetchExtent| QueuedRead {
            place: place.clone(),
            state: Mutex::new(QueuedReadState::Waiting),
            done: Condvar::new(),
        };
        let reads = Arc::new(ThreadReads {
            slots: places.iter().map(slot).collect(),
        });
        let mut queue = self.shared.queue.lock();
        let numbers = 0..places.len();
        queue
            .reads
            .extend(numbers.map(|number| (Arc::downgrade(&reads), number)));
        let missing = queue.reads.len().saturating_sub(queue.idle);
        drop(queue);
        self.shared.came.notify_all();
        let mut threads = self.threads.lock();
        for _ in 0..missing.min(THREADS - threads.len()) {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("firn-read".to_owned());
            // If no thread can be started, the callers read by themselves.
            threads.extend(builder.spawn(move || work(&shared)));
        }
        reads
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.came.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(shared: &ReadThreads) {
    let mut queue = shared.queue.lock();
    while !queue.closed {
        match queue.reads.pop_front() {
            Some((reads, number)) => {
                drop(queue);
                if let Some(reads) = reads.upgrade() {
                    reads.slots[number].read();
                }
                queue = shared.queue.lock();
            }
            None => {
                queue.idle += 1;
                shared.came.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
impl ThreadReads {
    pub(super) fn has_begun(&self, number: usize) -> bool {
        !matches!(*self.slots[number].state.lock(), QueuedReadState::Waiting)
    }
}
