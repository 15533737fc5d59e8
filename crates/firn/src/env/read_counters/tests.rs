use super::*;
use std::sync::Arc;

#[test]
fn each_bucket_ends_where_the_next_begins() {
    for bucket in 0..BUCKETS - 1 {
        let end = end_of(bucket);
        assert_eq!((bucket_of(end), bucket_of(end + 1)), (bucket, bucket + 1));
        // The next bucket begins at most a quarter later.
        assert!(4 * (end_of(bucket + 1) - end) <= (end + 1).max(4));
    }
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
}

#[test]
fn percentiles_are_at_most_a_quarter_too_large() {
    let mut state = 1;
    for count in [1, 2, 19, 20, 100, 999] {
        let counters = ReadCounters::default();
        let mut all = Vec::new();
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let us: u64 = state % (1 << (state >> 32 & 15));
            counters.count(ReadClass::Point, 100, us);
            all.push(us);
        }
        all.sort_unstable();
        let point = counters.by_class().nth(1).unwrap();
        assert_eq!((point.class, point.reads), (ReadClass::Point, count));
        assert_eq!(point.bytes, 100 * count);
        assert_eq!(Some(&point.latency_us_max), all.last());
        for percent in [50, 95, 99, 100] {
            let rank = (count * percent).div_ceil(100) as usize;
            let (exact, found) = (all[rank - 1], point.latency_us(percent).unwrap());
            assert!(
                exact <= found && 4 * found <= 5 * exact + 4,
                "{exact} {found}"
            );
        }
    }
}

#[test]
fn without_reads_there_is_no_percentile() {
    let counters = ReadCounters::default();
    counters.count(ReadClass::Scan, 1, u64::MAX);
    for class in counters.by_class() {
        let slowest = (class.class == ReadClass::Scan).then_some(u64::MAX);
        assert_eq!(class.latency_us(99), slowest);
    }
}

#[test]
fn reads_of_many_threads_are_all_counted() {
    let counters = Arc::new(ReadCounters::default());
    let threads: Vec<_> = (0..40)
        .map(|thread| {
            let counters = Arc::clone(&counters);
            std::thread::spawn(move || {
                for read in 0..1000 {
                    let class = ReadClass::ALL[(thread + read) % CLASSES];
                    counters.count(class, 3, read as u64);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    for class in counters.by_class() {
        assert_eq!((class.reads, class.bytes), (4000, 12_000));
        assert_eq!(class.latency_us(100), Some(class.latency_us_max));
    }
    assert_eq!((counters.reads(), counters.bytes()), (40_000, 120_000));
}
