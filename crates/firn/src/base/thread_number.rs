//! Numbers of threads, by which they spread over shared counters and slots.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of the calling thread: threads are numbered from 0 on, in the order in which they
/// first ask. So as many slots as there are threads at work, chosen by this number, are seldom
/// shared.
pub fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
