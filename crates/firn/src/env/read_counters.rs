//! Counts file reads by class, with the distribution of their latencies.
//!
//! A latency falls into one of [`BUCKETS`] fixed buckets: each power of two of microseconds is
//! divided into four. So a percentile, the upper end of its bucket, is at most a quarter too large.
//!
//! ```text
//! µs      0  1  2  3  4  5  6  7  8-9  10-11  12-13  14-15  16-19  20-23 …
//! bucket  0  1  2  3  4  5  6  7   8     9     10     11     12     13   …
//! ```

use super::ReadClass;
use crate::base::thread_number::thread_number;
use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets within a power of two, as an exponent of two.
const STEP_BITS: u32 = 2;
/// Latencies of 2 to the power of this number of microseconds (16 s) and more are in the last
/// bucket, too.
const OCTAVES: u32 = 24;
/// Number of buckets.
const BUCKETS: usize = ((OCTAVES - STEP_BITS + 1) << STEP_BITS) as usize;

/// The counters are divided into this many stripes, one for each thread that reads while no more
/// threads do.
const COUNTER_STRIPES: usize = 16;

const CLASSES: usize = ReadClass::ALL.len();

/// The bucket of a latency.
fn bucket_of(us: u64) -> usize {
    match us.checked_ilog2() {
        Some(octave) if octave >= STEP_BITS => {
            let step = us >> (octave - STEP_BITS);
            let bucket = (u64::from(octave - STEP_BITS) << STEP_BITS) + step;
            (bucket as usize).min(BUCKETS - 1)
        }
        _ => us as usize,
    }
}

/// The longest latency of a bucket, microseconds.
fn end_of(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    let octave = (next >> STEP_BITS).saturating_sub(1) as u32;
    ((next - (u64::from(octave) << STEP_BITS)) << octave) - 1
}

struct ClassCounters {
    bytes: AtomicU64,
    latency_us_max: AtomicU64,
    by_latency: [AtomicU64; BUCKETS],
}

/// The reads of some threads. A stripe begins with a cache line of its own.
#[repr(align(64))]
struct Stripe([ClassCounters; CLASSES]);

/// Counters of the reads from one source, by class.
///
/// Counting is wait-free: three additions, nearly always to cache lines of the thread's own.
pub struct ReadCounters {
    stripes: Box<[Stripe]>,
}

/// The reads of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassReads {
    /// The class.
    pub class: ReadClass,
    /// Number of reads.
    pub reads: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Latency of the slowest read, microseconds.
    pub latency_us_max: u64,
    by_latency: [u64; BUCKETS],
}

impl ClassReads {
    /// The latency that `percent` of the reads did not exceed, microseconds; at most a quarter too
    /// large. `None` without reads.
    pub fn latency_us(&self, percent: u64) -> Option<u64> {
        let rank = (self.reads * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let bucket = self.by_latency.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bucket.map(|bucket| match bucket {
            // The last bucket has no end.
            last if last == BUCKETS - 1 => self.latency_us_max,
            bucket => end_of(bucket).min(self.latency_us_max),
        })
    }
}

impl Default for ReadCounters {
    fn default() -> Self {
        let class = |_| ClassCounters {
            bytes: AtomicU64::new(0),
            latency_us_max: AtomicU64::new(0),
            by_latency: from_fn(|_| AtomicU64::new(0)),
        };
        Self {
            stripes: (0..COUNTER_STRIPES)
                .map(|_| Stripe(from_fn(class)))
                .collect(),
        }
    }
}

impl ReadCounters {
    /// Counts a read that took `us` microseconds.
    pub fn count(&self, class: ReadClass, bytes: u64, us: u64) {
        let counters = &self.stripes[thread_number() % COUNTER_STRIPES].0[class as usize];
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        // The maximum first: percentiles are never above it.
        if us > counters.latency_us_max.load(Ordering::Relaxed) {
            counters.latency_us_max.fetch_max(us, Ordering::Relaxed);
        }
        counters.by_latency[bucket_of(us)].fetch_add(1, Ordering::Release);
    }

    /// The reads of each class, in the order of [`ReadClass::ALL`].
    pub fn by_class(&self) -> impl Iterator<Item = ClassReads> {
        ReadClass::ALL.into_iter().map(|class| {
            let stripes = || self.stripes.iter().map(|stripe| &stripe.0[class as usize]);
            let sum = |of: &dyn Fn(&ClassCounters) -> &AtomicU64| {
                let counts = stripes().map(|c| of(c).load(Ordering::Acquire));
                counts.sum::<u64>()
            };
            let by_latency = from_fn(|bucket| sum(&|c| &c.by_latency[bucket]));
            let max = stripes()
                .map(|c| c.latency_us_max.load(Ordering::Relaxed))
                .max();
            ClassReads {
                class,
                reads: by_latency.iter().sum(),
                bytes: sum(&|c| &c.bytes),
                latency_us_max: max.unwrap_or(0),
                by_latency,
            }
        })
    }

    /// Bytes of the reads of all classes.
    pub fn bytes(&self) -> u64 {
        let all = self.stripes.iter().flat_map(|stripe| &stripe.0);
        all.map(|c| c.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Number of reads of all classes.
    pub fn reads(&self) -> u64 {
        self.by_class().map(|class| class.reads).sum()
    }
}

impl std::fmt::Debug for ReadCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} reads, {} bytes", self.reads(), self.bytes())
    }
}

#[cfg(test)]
mod tests;
