//! Runs threads that call an engine, and measures how long the calls take.

use crate::engine::{Engine, Result, Session};
use hdrhistogram::Histogram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pause between two messages on the progress of a measurement.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// A function that a thread calls again and again. A call returns the number of operations that it
/// did, or 0 when nothing is left to do.
pub type Call<'a> = Box<dyn FnMut(&mut dyn Session) -> Result<u64> + Send + 'a>;

/// Creates the [`Call`] of a thread. The argument is the thread's number in its [`ThreadGroup`].
pub type Calls<'c, 'a> = &'c (dyn Fn(usize) -> Call<'a> + Sync);

/// Threads that repeat the same kind of call.
pub struct ThreadGroup<'c, 'a> {
    /// Number of threads.
    pub threads: usize,
    /// Largest number of operations per second of each thread.
    pub rate: Option<f64>,
    /// Creates the [`Call`] of each thread.
    pub call: Calls<'c, 'a>,
}

/// The end of a measurement.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// The measurement ends when the call of every thread has returned 0.
    Done,
    /// The measurement ends after a fixed time, and does not count the first part of it.
    Time {
        /// The part that is not counted.
        warm: Duration,
        /// The part that is counted.
        measured: Duration,
    },
}

/// Counts of a group of threads.
#[derive(Debug)]
pub struct Tally {
    /// Number of operations that were counted.
    pub ops: u64,
    /// Time that they took, seconds.
    pub seconds: f64,
    /// Durations of the calls, nanoseconds.
    pub latency: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        Self {
            ops: 0,
            seconds: 0.0,
            latency: Histogram::new_with_bounds(1, 1 << 40, 3).expect("bounds are valid"),
        }
    }

    /// Operations a second.
    pub fn per_second(&self) -> f64 {
        self.ops as f64 / self.seconds.max(1e-9)
    }

    /// Latency at a quantile, microseconds.
    pub fn micros(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// Runs the thread groups at the same time, and reports progress on standard error.
pub fn drive(
    engine: &dyn Engine,
    groups: &[ThreadGroup<'_, '_>],
    until: Until,
) -> Result<Vec<Tally>> {
    let threads: usize = groups.iter().map(|g| g.threads).sum();
    let start = Barrier::new(threads);
    let (done, finished) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let progress = scope.spawn(|| report_progress(&done, &finished));
        let mut running = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            for thread in 0..group.threads {
                let (start, done) = (&start, &done);
                let work = move || {
                    // A thread whose session cannot be opened must still reach the barrier, since
                    // the other threads wait there.
                    let session = engine.session();
                    let call = (group.call)(thread);
                    start.wait();
                    run(&mut *session?, call, group.rate, until, done)
                };
                running.push((number, scope.spawn(work)));
            }
        }
        let mut tallies: Vec<Tally> = groups.iter().map(|_| Tally::new()).collect();
        let mut failed = None;
        for (group, thread) in running {
            match thread.join() {
                Ok(Ok(tally)) => {
                    let sum = &mut tallies[group];
                    sum.ops += tally.ops;
                    sum.seconds = sum.seconds.max(tally.seconds);
                    sum.latency.add(&tally.latency)?;
                }
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some("a thread panicked".into()),
            }
        }
        finished.store(true, Ordering::Relaxed);
        progress.thread().unpark();
        match failed {
            Some(error) => Err(error),
            None => Ok(tallies),
        }
    })
}

fn run(
    session: &mut dyn Session,
    mut call: Call<'_>,
    rate: Option<f64>,
    until: Until,
    done: &AtomicU64,
) -> Result<Tally> {
    let (warm, end) = match until {
        Until::Done => (Duration::ZERO, Duration::MAX),
        Until::Time { warm, measured } => (warm, warm + measured),
    };
    let mut tally = Tally::new();
    let begin = Instant::now();
    let mut before = begin;
    let (mut unreported, mut total) = (0, 0u64);
    loop {
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(total as f64 / rate);
            if let Some(early) = due.checked_sub(begin.elapsed()) {
                std::thread::sleep(early);
            }
            before = Instant::now();
        }
        let ops = call(session)?;
        if ops == 0 {
            break;
        }
        total += ops;
        let now = Instant::now();
        let elapsed = now - begin;
        if elapsed >= warm {
            tally.ops += ops;
            tally
                .latency
                .saturating_record((now - before).as_nanos() as u64);
        }
        before = now;
        unreported += ops;
        if unreported >= 1000 {
            done.fetch_add(unreported, Ordering::Relaxed);
            unreported = 0;
        }
        if elapsed >= end {
            break;
        }
    }
    tally.seconds = (begin.elapsed().saturating_sub(warm)).as_secs_f64();
    Ok(tally)
}

fn report_progress(done: &AtomicU64, finished: &AtomicBool) {
    let begin = Instant::now();
    let mut next = PROGRESS_EVERY;
    while !finished.load(Ordering::Relaxed) {
        std::thread::park_timeout(next.saturating_sub(begin.elapsed()));
        if begin.elapsed() >= next {
            let millions = done.load(Ordering::Relaxed) as f64 / 1e6;
            eprintln!("      {:4} s: {millions:.2} million", next.as_secs());
            next += PROGRESS_EVERY;
        }
    }
}
