//! Measures the memtable: `cargo run --release -p firn --example memtable`.
//!
//! Keys are an index id and eight bytes, values 100 bytes. Prints nanoseconds of processor time for
//! each entry, the best of three rounds: a busy machine disturbs that less than the clock.

use firn::base::{InternalIterator, InternalKey, Kind, Value};
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::memtable::Memtable;
use std::hint::black_box;
use std::sync::Arc;

const ENTRIES: u64 = 400_000;
const VALUE: [u8; 100] = [7; 100];

fn key(n: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[3] = 1;
    key[4..].copy_from_slice(&n.to_be_bytes());
    key
}

fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn insert(memtable: &Memtable, n: u64, seqno: u64) {
    let internal = &key(n);
    memtable.insert(
        InternalKey::new(internal, seqno, Kind::Put),
        Value::whole(&VALUE),
    );
}

/// Processor time of the calling thread.
fn processor_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().unwrap().parse().unwrap()
}

fn nanos(f: impl FnOnce()) -> f64 {
    let start = processor_nanos();
    f();
    (processor_nanos() - start) as f64 / ENTRIES as f64
}

fn best(name: &str, mut round: impl FnMut() -> f64) {
    let best = (0..3).map(|_| round()).fold(f64::MAX, f64::min);
    println!("{name:36} {best:7.0} ns");
}

fn filled() -> Arc<Memtable> {
    let memtable = Arc::new(Memtable::new(1, 1));
    for n in 0..ENTRIES {
        insert(&memtable, scattered(n), n + 1);
    }
    memtable
}

/// A memtable in which each row has `versions` versions, written as transactions update hot rows:
/// in random order, the newest last.
fn versioned(versions: u64) -> Arc<Memtable> {
    let memtable = Arc::new(Memtable::new(1, 1));
    let rows = ENTRIES / versions;
    for n in 0..rows * versions {
        insert(&memtable, n * 7919 % rows, n + 1);
    }
    memtable
}

/// Ranges of a hundred rows, one after another in random order, as a scan reads them. Nanoseconds
/// for each row.
fn scan_rows(memtable: &Arc<Memtable>, versions: u64) -> f64 {
    let rows = ENTRIES / versions;
    let merged = MergeIter::new(vec![memtable.iter()]);
    let mut iter = MvccIter::new(merged, ReadAt::latest());
    nanos(|| {
        for range in 0..ENTRIES / 100 {
            let mut on = iter.seek_ge(&key(range * 7919 % (rows - 100))).unwrap();
            for _ in 0..100 {
                assert!(on);
                black_box(iter.value().len());
                on = iter.next().unwrap();
            }
        }
    })
}

fn fill_by(threads: u64) -> f64 {
    let memtable = &Memtable::new(1, 1);
    let fill = move |thread: u64| {
        nanos(|| {
            for n in (thread..ENTRIES).step_by(threads as usize) {
                insert(memtable, scattered(n), n + 1);
            }
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || fill(thread)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    })
}

fn main() {
    best("insert, scattered, 1 thread", || {
        nanos(|| drop(black_box(filled())))
    });
    best("insert, ascending, 1 thread", || {
        let memtable = Memtable::new(1, 1);
        nanos(|| (0..ENTRIES).for_each(|n| insert(&memtable, n, n + 1)))
    });
    best("insert, scattered, 4 threads", || fill_by(4));
    best("insert, ascending, one batch", || {
        let memtable = Memtable::new(1, 1);
        let mut inserter = memtable.inserter();
        nanos(|| {
            for n in 0..ENTRIES {
                let key = key(n);
                let key = InternalKey::new(&key, 1, Kind::Put);
                inserter.insert(key, Value::whole(&VALUE));
            }
        })
    });

    let memtable = filled();
    println!("bytes for each entry: {}", memtable.size_bytes() / ENTRIES);
    best("get, present", || {
        nanos(|| {
            for n in 0..ENTRIES {
                let wanted = key(scattered(n * 7919 % ENTRIES));
                black_box(memtable.get(&wanted, u64::MAX >> 8, |_, value| value.len()));
            }
        })
    });
    best("get, absent", || {
        nanos(|| {
            for n in 0..ENTRIES {
                let wanted = key(scattered(ENTRIES + n));
                black_box(memtable.get(&wanted, u64::MAX >> 8, |_, value| value.len()));
            }
        })
    });
    let mut iter = memtable.iter();
    best("next", || {
        nanos(|| {
            let mut on = iter.seek_to_first().unwrap();
            while on {
                black_box(iter.key().seqno);
                on = iter.next().unwrap();
            }
        })
    });
    best("prev", || {
        nanos(|| {
            let mut on = iter.seek_to_last().unwrap();
            while on {
                black_box(iter.key().seqno);
                on = iter.prev().unwrap();
            }
        })
    });
    for versions in [1, 2, 4, 20] {
        let memtable = versioned(versions);
        best(
            &format!("scan of rows, versions of each: {versions}"),
            || scan_rows(&memtable, versions),
        );
    }
}
