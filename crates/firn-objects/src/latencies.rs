//! The distribution of latencies, in fixed buckets: each power of two of microseconds is divided
//! into four. So a percentile, the upper end of its bucket, is at most a quarter too large.

/// Buckets within a power of two, as an exponent of two.
const STEP_BITS: u32 = 2;
/// Latencies of 2 to the power of this number of microseconds (36 min) and more share the last
/// bucket.
const OCTAVES: u32 = 31;
const BUCKETS: usize = ((OCTAVES - STEP_BITS + 1) << STEP_BITS) as usize;

/// Counts of latencies.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: [u64; BUCKETS],
    max_us: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            max_us: 0,
        }
    }
}

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

impl Latencies {
    pub(crate) fn note(&mut self, us: u64) {
        self.counts[bucket_of(us)] += 1;
        self.max_us = self.max_us.max(us);
    }

    /// The longest one, microseconds.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// The latency that `percent` of all did not exceed, microseconds. `None` if there is none.
    pub fn percentile_us(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.counts.iter().sum();
        let rank = (all * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bucket.map(|bucket| match bucket {
            // The last bucket has no end.
            last if last == BUCKETS - 1 => self.max_us,
            bucket => end_of(bucket).min(self.max_us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_a_quarter_too_large() {
        let mut all = Latencies::default();
        assert_eq!((all.percentile_us(50), all.max_us()), (None, 0));
        for us in 1..=1000 {
            all.note(us);
        }
        for percent in [1, 10, 50, 95, 99, 100] {
            let (found, right) = (all.percentile_us(percent).unwrap(), percent * 10);
            assert!((right..=right + right / 4).contains(&found), "{found}");
        }
        assert_eq!(all.percentile_us(100), Some(1000));
        all.note(u64::MAX);
        assert_eq!(all.percentile_us(100), Some(u64::MAX));
        assert_eq!(all.percentile_us(1), Some(11));
    }

    #[test]
    fn a_bucket_begins_where_the_one_before_ends() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(bucket_of(end_of(bucket)), bucket);
            assert_eq!(bucket_of(end_of(bucket) + 1), bucket + 1);
        }
    }
}
