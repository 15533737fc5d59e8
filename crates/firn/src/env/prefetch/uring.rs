//! Announced reads through `io_uring`. This is the only module in which the kernel writes to our
//! memory after a call has returned.
//!
//! Each submission takes a ring from a small pool and gives it back when all its reads are
//! complete. It submits at most as many reads as the ring has entries, and a ring has twice as many
//! completions as entries, so neither queue can overflow.

use super::{AlignedBuf, BLOCK, PrefetchExtent, READS_MAX, copy_from};
use io_uring::{IoUring, Probe, opcode, types};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most idle rings in the pool, about 16 KiB each.
const IDLE_MAX: usize = 16;
/// Most rings in use at once; each takes a descriptor and some memory. Further submissions use
/// threads.
const LENT_MAX: usize = 64;
/// Most attempts for a read that the kernel interrupts or completes in part.
const TRIES_MAX: u32 = 16;
/// Most refusals by the kernel in one call of [`RingState::enter`] before the ring counts as
/// broken.
const REFUSALS_MAX: u32 = 10_000;

/// The pool of idle rings.
pub(super) struct Rings {
    idle: Mutex<Vec<IoUring>>,
    /// Number of rings in use by incomplete submissions.
    lent: AtomicUsize,
}

impl Rings {
    /// A pool with one ring, if the kernel supports reads through rings. `None` without `io_uring`
    /// (before Linux 5.6), or where it is forbidden (containers, `kernel.io_uring_disabled`).
    pub(super) fn probe() -> Option<Arc<Self>> {
        let ring = new_ring()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        probe.is_supported(opcode::Read::CODE).then(|| {
            Arc::new(Self {
                idle: Mutex::new(vec![ring]),
                lent: AtomicUsize::new(0),
            })
        })
    }

    /// Submits reads of `places`, of which there must be at most [`READS_MAX`]. `None` if no ring
    /// is available.
    pub(super) fn start(self: &Arc<Self>, places: &[PrefetchExtent]) -> Option<RingReads> {
        assert!(places.len() <= READS_MAX);
        if self.lent.fetch_add(1, Ordering::Relaxed) >= LENT_MAX {
            self.lent.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let idle = self.idle.lock().pop();
        let Some(ring) = idle.or_else(new_ring) else {
            self.lent.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let mut state = RingState::new(ring, places);
        state.submit_all();
        Some(RingReads {
            state: Mutex::new(state),
            rings: Arc::clone(self),
        })
    }

    fn give_back(&self, ring: IoUring) {
        self.lent.fetch_sub(1, Ordering::Relaxed);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(ring);
        }
    }
}

fn new_ring() -> Option<IoUring> {
    IoUring::new(READS_MAX as u32).ok()
}

/// The reads of one submission.
pub(super) struct RingReads {
    state: Mutex<RingState>,
    rings: Arc<Rings>,
}

impl RingReads {
    /// See [`super::SubmittedReads::copy`].
    pub(super) fn copy(&self, number: usize, skip: usize, out: &mut [u8]) -> bool {
        let mut state = self.state.lock();
        state.wait_for(number);
        // The other reads of the submission may never be asked for. Take their completions too, so
        // that the ring is given back.
        state.take_completions();
        if let Some(ring) = state.finished_ring() {
            self.rings.give_back(ring);
        }
        let read = &state.reads[number];
        match read.outcome {
            Some(Ok(())) => copy_from(&read.buf, read.done, skip, out),
            _ => false,
        }
    }
}

impl Drop for RingReads {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.wait_for_all();
        if let Some(ring) = state.finished_ring() {
            self.rings.give_back(ring);
        } else if state.ring.is_some() {
            self.rings.lent.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The read has failed. The error is not kept, because the caller then reads the file itself and
/// gets the error again.
struct Failed;

struct Read {
    file: Arc<File>,
    offset: u64,
    buf: AlignedBuf,
    /// Bytes read so far.
    done: usize,
    tries: u32,
    /// `None` from the moment the read is queued until its completion is taken; the kernel may
    /// write to the buffer meanwhile.
    outcome: Option<Result<(), Failed>>,
}

/// The reads of one submission and their ring.
///
/// Invariant: from the moment a read is queued until its completion is taken (`open` counts such
/// reads), its buffer and its descriptor stay in place and no code accesses the buffer. `Drop`
/// waits for all open reads, also on a panic. If the kernel prevents that, it leaks them.
struct RingState {
    /// `Some` until all reads are complete.
    ring: Option<IoUring>,
    reads: ManuallyDrop<Vec<Read>>,
    open: usize,
    /// The kernel rejects calls on the ring for good.
    broken: bool,
}

impl RingState {
    fn new(ring: IoUring, places: &[PrefetchExtent]) -> Self {
        let read = |place: &PrefetchExtent| {
            let blocks = place.blocks();
            let mut buf = AlignedBuf::new();
            buf.set_len((blocks.end - blocks.start) as usize);
            Read {
                file: Arc::clone(&place.file),
                offset: blocks.start,
                buf,
                done: 0,
                tries: 0,
                outcome: None,
            }
        };
        Self {
            ring: Some(ring),
            reads: ManuallyDrop::new(places.iter().map(read).collect()),
            open: 0,
            broken: false,
        }
    }

    fn submit_all(&mut self) {
        for number in 0..self.reads.len() {
            self.queue(number);
        }
        self.enter(0);
    }

    /// Queues the part of a read that is still missing. The read must not be in progress. The next
    /// [`Self::enter`] submits it to the kernel.
    fn queue(&mut self, number: usize) {
        let Some(ring) = &mut self.ring else { return };
        let read = &mut self.reads[number];
        read.tries += 1;
        let rest = &mut read.buf.as_mut_slice()[read.done..];
        let fd = types::Fd(read.file.as_raw_fd());
        let entry = opcode::Read::new(fd, rest.as_mut_ptr(), rest.len() as u32)
            .offset(read.offset + read.done as u64)
            .build()
            .user_data(number as u64);
        // SAFETY: the kernel may write to `rest`, whose pointer and length the entry has, until the
        // completion is taken. `self.reads` owns the buffer and the descriptor: it is never moved
        // out of, grown or shrunk, and only `Drop` of `RingState` frees it, after the last
        // completion or never. The buffer is on the heap, so it stays in place when `self` moves.
        // No code reads or writes it while `outcome` is `None` and `open` counts the read.
        match unsafe { ring.submission().push(&entry) } {
            Ok(()) => self.open += 1,
            // The push never fails: the queue has an entry for each read, and a read is queued once
            // at a time.
            Err(_) => read.outcome = Some(Err(Failed)),
        }
    }

    /// Submits the queued reads, and waits until at least `want` completions can be taken.
    fn enter(&mut self, want: usize) {
        for _ in 0..REFUSALS_MAX {
            let Some(ring) = &self.ring else { return };
            let Err(error) = ring.submit_and_wait(want) else {
                return;
            };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                // The kernel lacks memory, or wants completions to be taken first. Return if the
                // caller does not wait (`want` is 0) or if completions could be taken; the next
                // call of this function submits the reads that are left.
                Some(Errno::AGAIN | Errno::BUSY) => {
                    if want == 0 || self.take_completions() {
                        return;
                    }
                    std::thread::yield_now();
                }
                _ => break,
            }
        }
        self.broken = true;
    }

    /// Takes all completions; returns whether there were any.
    fn take_completions(&mut self) -> bool {
        let mut any = false;
        while let Some(done) = self.ring.as_mut().and_then(|ring| ring.completion().next()) {
            any = true;
            self.open -= 1;
            self.complete(done.user_data() as usize, done.result());
        }
        any
    }

    /// Handles a completion: the kernel no longer writes to the buffer. Queues the rest of a
    /// partial read.
    fn complete(&mut self, number: usize, result: i32) {
        let read = &mut self.reads[number];
        let again = match usize::try_from(result) {
            Ok(found) => {
                read.done += found;
                // A read that ends within a block has reached the end of the file.
                found > 0 && found % BLOCK == 0 && read.done < read.buf.len()
            }
            Err(_) => matches!(
                Errno::from_raw_os_error(-result),
                Errno::INTR | Errno::AGAIN
            ),
        };
        if again && read.tries < TRIES_MAX {
            self.queue(number);
        } else {
            let failed = again || result < 0;
            read.outcome = Some(if failed { Err(Failed) } else { Ok(()) });
        }
    }

    /// Waits until read `number` is complete. If its outcome is still `None` afterwards, the ring
    /// is broken.
    fn wait_for(&mut self, number: usize) {
        while self.reads[number].outcome.is_none() && self.may_wait() {
            if !self.take_completions() {
                self.enter(1);
            }
        }
    }

    fn wait_for_all(&mut self) {
        while self.may_wait() {
            if !self.take_completions() {
                self.enter(1);
            }
        }
    }

    fn may_wait(&self) -> bool {
        self.open > 0 && !self.broken
    }

    /// Takes the ring if no read is open on it.
    fn finished_ring(&mut self) -> Option<IoUring> {
        match self.open == 0 && !self.broken {
            true => self.ring.take(),
            false => None,
        }
    }
}

impl Drop for RingState {
    fn drop(&mut self) {
        self.wait_for_all();
        if self.open > 0 {
            // The kernel may still write to the buffers, so their memory must never be reused: leak
            // them.
            std::mem::forget(self.ring.take());
            return;
        }
        // SAFETY: `open` is 0, so the kernel writes to none of the buffers. `drop` runs once and
        // nothing uses `self.reads` after it, so the reads are dropped once.
        unsafe { ManuallyDrop::drop(&mut self.reads) }
    }
}

#[cfg(test)]
impl Rings {
    pub(super) fn idle(&self) -> usize {
        self.idle.lock().len()
    }

    /// For tests of errors and short reads: reads the file range `place`, and goes on as if the
    /// kernel had completed each read with the result that `change` returns. `change` gets the
    /// result that the kernel has returned: a number of bytes, or a negative error number.
    pub(super) fn with_results(
        &self,
        place: &PrefetchExtent,
        change: &mut dyn FnMut(i32) -> i32,
    ) -> Option<Vec<u8>> {
        let mut state = RingState::new(new_ring()?, std::slice::from_ref(place));
        state.submit_all();
        while state.open > 0 {
            state.enter(1);
            while let Some(done) = state
                .ring
                .as_mut()
                .and_then(|ring| ring.completion().next())
            {
                state.open -= 1;
                state.complete(done.user_data() as usize, change(done.result()));
            }
        }
        let read = &state.reads[0];
        matches!(read.outcome, Some(Ok(()))).then(|| read.buf.as_slice()[..read.done].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_bounded_and_come_back_though_some_reads_are_never_asked_for() {
        let Some(rings) = Rings::probe() else { return };
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[7; 2 * BLOCK]).unwrap();
        let file = Arc::new(file);
        let place = |block: u64| PrefetchExtent {
            file: Arc::clone(&file),
            bytes: block * BLOCK as u64..(block + 1) * BLOCK as u64,
            wanted: BLOCK as u64,
        };
        let places = [place(0), place(1)];
        let start = || rings.start(&places);
        let mut lent: Vec<RingReads> = (0..LENT_MAX).map(|_| start().unwrap()).collect();
        assert!(start().is_none(), "no more than {LENT_MAX}");
        // The submission has two reads. Take only the result of the first one, as a reader may that
        // never asks for the second. Once the second read is complete, too, the ring can be used
        // again.
        let mut out = [0; BLOCK];
        assert!(lent[0].copy(0, 0, &mut out) && out == [7; BLOCK]);
        lent[0].state.lock().wait_for_all();
        assert!(lent[0].copy(0, 0, &mut out));
        let again = start();
        assert!(again.is_some(), "its ring is free");
        drop((lent.pop(), again));
        assert!(start().is_some());
        drop(lent);
        assert_eq!(rings.lent.load(Ordering::Relaxed), 0);
    }
}
