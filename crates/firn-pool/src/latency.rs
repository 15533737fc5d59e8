//! How long answers take: a moving mean for decisions, a histogram for reports.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Parts of a microsecond in the stored mean.
const FRACTION: u32 = 16;
/// Share of a new sample in the mean.
const SHARE: i64 = 16;
/// Share of the mean that [`MeanLatency::fade`] takes away.
const FADES: u32 = 32;

/// A moving mean of times. Racing updates may lose a sample.
pub struct MeanLatency(AtomicU32);

impl MeanLatency {
    /// A mean that begins at `us` microseconds.
    pub fn new(us: u32) -> Self {
        Self(AtomicU32::new(us * FRACTION))
    }

    /// Begins anew at `us`.
    pub fn set(&self, us: u64) {
        self.0.store(us.min(1_000_000) as u32 * FRACTION, Relaxed);
    }

    /// Adds a sample, microseconds.
    pub fn add(&self, us: u64) {
        let sample = us.min(1_000_000) as i64 * i64::from(FRACTION);
        let old = i64::from(self.0.load(Relaxed));
        // Rounded away from the mean, so that it arrives at a constant sample.
        let step = (sample - old + (sample - old).signum() * (SHARE - 1)) / SHARE;
        self.0.store((old + step) as u32, Relaxed);
    }

    /// Takes a part of the mean away: it is old, and there is no sample.
    pub fn fade(&self) {
        let old = self.0.load(Relaxed);
        self.0.store(old - old.div_ceil(FADES), Relaxed);
    }

    /// The mean, microseconds.
    pub fn us(&self) -> f64 {
        f64::from(self.0.load(Relaxed)) / f64::from(FRACTION)
    }
}

/// Buckets of a histogram.
pub const BUCKETS: usize = 16;

/// Counts of times: bucket b has those below 2^(b+1) microseconds, the last one the rest.
#[derive(Default)]
pub struct Histogram([AtomicU64; BUCKETS]);

impl Histogram {
    /// Counts a time.
    pub fn add(&self, us: u64) {
        let bucket = (63 - (us | 1).leading_zeros() as usize).min(BUCKETS - 1);
        self.0[bucket].fetch_add(1, Relaxed);
    }

    /// The counts.
    pub fn counts(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.0[bucket].load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_the_samples() {
        let mean = MeanLatency::new(500);
        for _ in 0..200 {
            mean.add(30);
        }
        assert_eq!(mean.us(), 30.0);
        mean.add(190);
        assert_eq!(mean.us(), 40.0);
        mean.fade();
        assert_eq!(mean.us(), 38.75);
        (0..1000).for_each(|_| mean.fade());
        assert_eq!(mean.us(), 0.0);
        mean.add(u64::MAX);
        assert!(mean.us() > 60_000.0 && mean.us() < 70_000.0);
    }

    #[test]
    fn buckets_are_powers_of_two() {
        let histogram = Histogram::default();
        for us in [0, 1, 2, 3, 4, 1 << 15, u64::MAX] {
            histogram.add(us);
        }
        let counts = histogram.counts();
        assert_eq!((counts[0], counts[1], counts[2], counts[15]), (2, 2, 1, 2));
    }
}
