mod eviction;
mod model;
mod threads;

use super::*;
use crate::env::Clock;
use crate::error::ErrorKind;
use crate::mem::{Faults, HookedFiles, MemFiles, MemObjects, QueuedJobs, VirtualClock};
use crate::random::SplitMix64;
use crate::retry::{Deadlines, Retrying};
use bytes::Bytes;
use std::ops::Range;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const ROOT: &str = "/data/cache";
/// Objects of these tests consist of blocks with a checksum at their ends.
const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

fn seed_of(name: &str, block: u64) -> u64 {
    xxh3_64_with_seed(name.as_bytes(), block)
}

/// The bytes of an object; the last block may be short.
fn content(name: &str, bytes: u64) -> Bytes {
    let mut all = Vec::new();
    for block in 0..bytes.div_ceil(BLOCK) {
        let len = BLOCK.min(bytes - block * BLOCK) as usize;
        let mut random = SplitMix64::new(seed_of(name, block));
        let mut one: Vec<u8> = Vec::new();
        while one.len() < len {
            one.extend_from_slice(&random.draw().to_le_bytes());
        }
        one.truncate(len);
        if let Some(at) = len.checked_sub(8) {
            let sum = xxh3_64_with_seed(&one[..at], seed_of(name, block));
            one[at..].copy_from_slice(&sum.to_le_bytes());
        }
        all.extend_from_slice(&one);
    }
    all.into()
}

/// The caller's check of whole blocks that begin at `start`.
fn blocks_are_good(name: &str, start: u64, bytes: &[u8]) -> bool {
    bytes.chunks(BLOCK as usize).enumerate().all(|(i, block)| {
        let Some(at) = block.len().checked_sub(8) else {
            return true;
        };
        let sum = xxh3_64_with_seed(&block[..at], seed_of(name, start / BLOCK + i as u64));
        block[at..] == sum.to_le_bytes()
    })
}

struct Bench {
    files: Arc<MemFiles>,
    clock: Arc<dyn Clock>,
    jobs: Arc<QueuedJobs>,
    objects: Arc<MemObjects>,
    store: Arc<Retrying>,
    cache: FileCache,
}

impl Bench {
    fn new(seed: u64, bytes_max: u64) -> Self {
        let files = Arc::new(MemFiles::new(seed, &[ROOT]));
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(seed));
        let jobs = Arc::new(QueuedJobs::default());
        let objects = Arc::new(MemObjects::new(seed, clock.clone()));
        let deadlines = Deadlines::default();
        let store = Arc::new(Retrying::new(objects.clone(), clock.clone(), deadlines));
        let cache = open(&files, &store, &jobs, bytes_max);
        Self {
            files,
            clock,
            jobs,
            objects,
            store,
            cache,
        }
    }

    fn reopen(&mut self, bytes_max: u64) {
        self.jobs.clear();
        self.cache = open(&self.files, &self.store, &self.jobs, bytes_max);
    }

    /// Stores an object, without its faults.
    fn put(&self, name: &str, bytes: u64) {
        self.store.put(name, content(name, bytes)).unwrap();
    }

    fn file(&self, name: &str, bytes: u64) -> CachedFile {
        self.file_with(name, bytes, 0, false)
    }

    fn file_with(&self, name: &str, bytes: u64, tail_bytes: u64, is_hot: bool) -> CachedFile {
        let traits = FileTraits {
            bytes,
            tail_bytes,
            is_hot,
        };
        self.cache.file(name, traits).unwrap()
    }

    fn requests(&self) -> u64 {
        self.cache.stats().requests
    }

    /// Nothing takes room that is not counted, and nothing is counted that is not there.
    fn check_room(&self) {
        let stats = self.cache.stats();
        assert!(stats.bytes <= stats.bytes_max, "{stats:?}");
        assert!(stats.pinned_bytes <= stats.bytes, "{stats:?}");
        let allocated = self.files.allocated(Path::new(ROOT));
        // The last page of a file may be longer than the file.
        let files = self.cache.names().len() as u64;
        assert!(allocated >= stats.bytes, "{allocated}, {stats:?}");
        assert!(
            allocated <= stats.bytes + files * BLOCK,
            "{allocated}, {stats:?}"
        );
    }
}

fn open(
    files: &Arc<MemFiles>,
    store: &Arc<Retrying>,
    jobs: &Arc<QueuedJobs>,
    bytes_max: u64,
) -> FileCache {
    FileCache::open(
        ROOT.into(),
        bytes_max,
        files.clone(),
        store.clone(),
        jobs.clone(),
    )
    .unwrap()
}

fn read(file: &CachedFile, range: Range<u64>) -> Vec<u8> {
    let verify = |bytes: &[u8]| blocks_are_good(file.name(), range.start, bytes);
    let got = file.read(range.clone(), &verify).unwrap().bytes;
    let all = content(file.name(), file.bytes());
    assert_eq!(got, all[range.start as usize..range.end as usize]);
    got
}

#[test]
fn a_chunk_is_read_once_also_after_a_restart() {
    let mut bench = Bench::new(1, 10 * MIB);
    bench.put("sst/00/1", MIB + 1000);
    let file = bench.file("sst/00/1", MIB + 1000);
    read(&file, 0..BLOCK);
    read(&file, BLOCK..2 * BLOCK);
    assert_eq!(bench.requests(), 1);
    assert_eq!(bench.cache.stats().fetched_bytes, CHUNK_BYTES);
    // Three chunks that follow each other are one request.
    read(&file, CHUNK_BYTES..MIB);
    assert_eq!(bench.requests(), 2);
    read(&file, MIB..MIB + 1000);
    read(&file, 0..MIB + 1000);
    assert_eq!(bench.requests(), 3);
    bench.check_room();
    let before = bench.cache.stats();
    bench.reopen(10 * MIB);
    assert_eq!(bench.cache.names(), ["sst/00/1"]);
    assert_eq!(bench.cache.stats().bytes, before.bytes);
    let file = bench.file("sst/00/1", MIB + 1000);
    read(&file, 0..MIB + 1000);
    assert_eq!(bench.requests(), 0);
    bench.check_room();
}

#[test]
fn damage_of_the_local_file_is_read_again_and_that_of_the_object_is_an_error() {
    let bench = Bench::new(1, 10 * MIB);
    bench.put("a", MIB);
    let file = bench.file("a", MIB);
    read(&file, 0..MIB);
    assert!(bench.files.damage(&bench.cache.0.local_path("a"), 300_000));
    // Another block of the chunk is good.
    read(&file, 64 * BLOCK..65 * BLOCK);
    assert_eq!(bench.cache.stats().damaged, 0);
    read(&file, 0..MIB);
    assert!(bench.cache.stats().damaged > 0);
    bench.check_room();
    assert!(bench.objects.damage("a", 300_000));
    bench.cache.forget("a");
    let file = bench.file("a", MIB);
    let verify = |bytes: &[u8]| blocks_are_good("a", 0, bytes);
    let error = file.read(0..MIB, &verify).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let past = file.read_past_cache(0..MIB, &verify).unwrap_err();
    assert_eq!(past.kind(), ErrorKind::Damaged);
    bench.check_room();
}

#[test]
fn the_limit_holds_and_moves() {
    let bench = Bench::new(1, 2 * MIB);
    bench.put("a", 8 * MIB);
    let file = bench.file("a", 8 * MIB);
    for chunk in 0..32 {
        read(&file, chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES);
        bench.check_room();
    }
    assert_eq!(bench.cache.stats().bytes, 2 * MIB);
    assert_eq!(bench.cache.stats().evicted, 24);
    bench.cache.set_bytes_max(MIB);
    bench.check_room();
    assert_eq!(bench.cache.stats().bytes, MIB);
    bench.cache.set_bytes_max(0);
    assert_eq!(bench.files.allocated(Path::new(ROOT)), 0);
    read(&file, 0..MIB);
    assert_eq!(bench.cache.stats().bytes, 0);
    bench.cache.set_bytes_max(16 * MIB);
    read(&file, 0..8 * MIB);
    assert_eq!(bench.cache.stats().bytes, 8 * MIB);
}

#[test]
fn a_smaller_limit_at_start_evicts() {
    let mut bench = Bench::new(1, 8 * MIB);
    bench.put("a", 4 * MIB);
    read(&bench.file("a", 4 * MIB), 0..4 * MIB);
    bench.reopen(MIB);
    assert_eq!(bench.cache.stats().bytes, MIB);
    bench.check_room();
}

#[test]
fn tails_stay_and_are_one_request() {
    let mut bench = Bench::new(1, 4 * MIB);
    for name in ["a", "b"] {
        bench.put(name, 8 * MIB);
    }
    let tail = 8 * MIB - 300 * 1024;
    let a = bench.file_with("a", 8 * MIB, 300 * 1024, false);
    read(&a, tail..8 * MIB);
    assert_eq!(bench.requests(), 1);
    assert_eq!(bench.cache.stats().pinned_bytes, 2 * CHUNK_BYTES);
    let b = bench.file("b", 8 * MIB);
    for _ in 0..3 {
        read(&b, 0..8 * MIB);
    }
    let requests = bench.requests();
    read(&a, tail..8 * MIB);
    assert_eq!(bench.requests(), requests);
    // After a restart the tail is pinned once the database has told of it.
    bench.reopen(4 * MIB);
    let a = bench.file_with("a", 8 * MIB, 300 * 1024, false);
    let b = bench.file("b", 8 * MIB);
    for _ in 0..3 {
        read(&b, 0..8 * MIB);
    }
    let requests = bench.requests();
    read(&a, tail..8 * MIB);
    assert_eq!(bench.requests(), requests);
    // Tails do not take more than half.
    let huge = bench.file_with("b", 8 * MIB, 8 * MIB, false);
    read(&huge, 0..8 * MIB);
    assert!(bench.cache.stats().pinned_bytes <= 2 * MIB);
    bench.cache.set_bytes_max(MIB);
    assert!(bench.cache.stats().pinned_bytes <= MIB / 2);
    bench.check_room();
    bench.cache.forget("a");
    bench.cache.forget("b");
    assert_eq!(bench.cache.stats().bytes, 0);
    assert_eq!(bench.cache.stats().pinned_bytes, 0);
    assert_eq!(bench.files.allocated(Path::new(ROOT)), 0);
}

/// Half of the limit is the tail, and the other half has no room for a chunk.
#[test]
fn a_chunk_that_does_not_fit_beside_a_tail_is_not_kept() {
    let bench = Bench::new(1, CHUNK_BYTES + CHUNK_BYTES / 2);
    bench.put("a", CHUNK_BYTES + 100 * 1024);
    let file = bench.file_with("a", CHUNK_BYTES + 100 * 1024, 1000, false);
    read(&file, CHUNK_BYTES..CHUNK_BYTES + 100 * 1024);
    bench.cache.set_bytes_max(CHUNK_BYTES + 50 * 1024);
    read(&file, 0..CHUNK_BYTES);
    assert_eq!(bench.cache.stats().bytes, 100 * 1024);
    bench.check_room();
}

#[test]
fn hot_files_leave_last() {
    let bench = Bench::new(1, 4 * MIB);
    bench.put("hot", 2 * MIB);
    bench.put("cold", 16 * MIB);
    let hot = bench.file_with("hot", 2 * MIB, 0, true);
    let cold = bench.file("cold", 16 * MIB);
    read(&hot, 0..2 * MIB);
    for _ in 0..3 {
        read(&cold, 0..16 * MIB);
    }
    let requests = bench.requests();
    read(&hot, 0..2 * MIB);
    assert_eq!(bench.requests(), requests);
}

#[test]
fn reads_past_the_cache_leave_nothing_and_use_what_is_there() {
    let bench = Bench::new(1, 64 * MIB);
    bench.put("a", 20 * MIB);
    let file = bench.file("a", 20 * MIB);
    let verify = |bytes: &[u8]| blocks_are_good("a", 0, bytes);
    let got = file.read_past_cache(0..20 * MIB, &verify).unwrap();
    assert_eq!(got, content("a", 20 * MIB));
    assert_eq!(bench.requests(), 3);
    assert_eq!(bench.cache.stats().bytes, 0);
    read(&file, 0..MIB);
    let requests = bench.requests();
    file.read_past_cache(0..MIB, &verify).unwrap();
    assert_eq!(bench.requests(), requests);
}

#[test]
fn a_scan_reads_ahead_in_growing_pieces() {
    let bench = Bench::new(1, 1024 * MIB);
    bench.put("a", 100 * MIB);
    let file = bench.file("a", 100 * MIB);
    let all = content("a", 100 * MIB);
    let mut scan = file.scan();
    let mut at = 0;
    let mut most_queued = 0;
    while at < 100 * MIB {
        let range = at..at + 16 * BLOCK;
        let verify = |bytes: &[u8]| blocks_are_good("a", at, bytes);
        let got = scan.read(range.clone(), &verify).unwrap().bytes;
        assert_eq!(got, all[range.start as usize..range.end as usize]);
        at = range.end;
        let mut queued = 0;
        while bench.jobs.run_one() {
            queued += 1;
        }
        most_queued = most_queued.max(queued);
    }
    assert_eq!(most_queued, 4);
    let stats = bench.cache.stats();
    // Only the first chunk is waited for.
    assert_eq!(stats.misses, 1, "{stats:?}");
    assert_eq!(stats.fetched_bytes, 100 * MIB);
    // 1 + 2 + 4 + 8 + 8 ... MiB.
    assert!(stats.requests <= 17, "{stats:?}");
}

#[test]
fn a_scan_in_a_small_cache_reads_what_it_needs_once() {
    let bench = Bench::new(1, 16 * MIB);
    bench.put("a", 40 * MIB);
    let file = bench.file("a", 40 * MIB);
    let mut scan = file.scan();
    for block in 0..40 * MIB / (16 * BLOCK) {
        let at = block * 16 * BLOCK;
        let verify = |bytes: &[u8]| blocks_are_good("a", at, bytes);
        scan.read(at..at + 16 * BLOCK, &verify).unwrap();
        while bench.jobs.run_one() {}
        bench.check_room();
    }
    assert_eq!(bench.cache.stats().fetched_bytes, 40 * MIB);
}

#[test]
fn a_scan_does_not_push_out_what_points_read_again() {
    let bench = Bench::new(1, 8 * MIB);
    bench.put("points", 4 * MIB);
    bench.put("scan", 32 * MIB);
    let points = bench.file("points", 4 * MIB);
    for _ in 0..3 {
        read(&points, 0..4 * MIB);
    }
    let file = bench.file("scan", 32 * MIB);
    let mut scan = file.scan();
    for block in 0..32 * MIB / BLOCK {
        let at = block * BLOCK;
        scan.read(at..at + BLOCK, &|bytes| blocks_are_good("scan", at, bytes))
            .unwrap();
    }
    let before = bench.cache.stats().fetched_bytes;
    read(&points, 0..4 * MIB);
    let again = bench.cache.stats().fetched_bytes - before;
    assert!(again <= CHUNK_BYTES, "{again} bytes have left");
}

#[test]
fn chunks_are_announced() {
    let bench = Bench::new(1, 8 * MIB);
    bench.put("a", 4 * MIB);
    let file = bench.file("a", 4 * MIB);
    file.will_read(MIB..2 * MIB);
    file.will_read(3 * MIB..90 * MIB);
    assert_eq!(bench.requests(), 0);
    while bench.jobs.run_one() {}
    assert_eq!(bench.requests(), 2);
    read(&file, MIB..2 * MIB);
    read(&file, 3 * MIB..4 * MIB);
    assert_eq!(bench.requests(), 2);
    assert_eq!(bench.cache.stats().read_ahead, 8);
    // A long range is several requests.
    bench.cache.set_bytes_max(64 * MIB);
    bench.put("b", 20 * MIB);
    let file = bench.file("b", 20 * MIB);
    file.will_read(0..20 * MIB);
    while bench.jobs.run_one() {}
    assert_eq!(bench.requests(), 5);
    assert_eq!(bench.cache.stats().read_ahead, 88);
}

/// A store that is down would let them pile up.
#[test]
fn announced_ranges_that_wait_are_limited() {
    let bench = Bench::new(1, 1024 * MIB);
    bench.put("a", 100 * MIB);
    let file = bench.file("a", 100 * MIB);
    for round in 1..=2 {
        for chunk in 0..400 {
            file.will_read(chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES);
        }
        let mut jobs = 0;
        while bench.jobs.run_one() {
            jobs += 1;
        }
        // The others of the first round are announced in the second.
        assert_eq!(jobs, [256, 144][round - 1]);
    }
}

/// Chunks whose room the disk does not give back are counted, and tried again.
#[test]
fn the_limit_holds_while_holes_cannot_be_punched() {
    let bench = Bench::new(1, 0);
    bench.put("a", 8 * MIB);
    let files = Arc::new(HookedFiles::new(bench.files.clone()));
    let (store, jobs) = (bench.store.clone(), bench.jobs.clone());
    let cache = FileCache::open(ROOT.into(), MIB, files.clone(), store, jobs).unwrap();
    let traits = FileTraits {
        bytes: 8 * MIB,
        ..FileTraits::default()
    };
    let file = cache.file("a", traits).unwrap();
    read(&file, 0..MIB);
    files.fail_punches(Some(std::io::ErrorKind::StorageFull));
    for _ in 0..2 {
        for chunk in 0..32 {
            read(&file, chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES);
            assert!(bench.files.allocated(Path::new(ROOT)) <= MIB);
            assert_eq!(cache.stats().bytes, bench.files.allocated(Path::new(ROOT)));
        }
    }
    files.fail_punches(None);
    read(&file, 0..8 * MIB);
    read(&file, 0..MIB);
    assert_eq!(cache.stats().bytes, bench.files.allocated(Path::new(ROOT)));
    let requests = cache.stats().requests;
    read(&file, 0..MIB);
    assert_eq!(cache.stats().requests, requests, "chunks are kept again");
}

#[test]
fn a_dead_store_fails_no_read_that_local_data_can_answer() {
    let bench = Bench::new(1, 8 * MIB);
    bench.put("a", 4 * MIB);
    let file = bench.file("a", 4 * MIB);
    read(&file, 0..MIB);
    bench.objects.go_out(u64::MAX / 2);
    read(&file, 0..MIB);
    let error = file.read(MIB..MIB + BLOCK, &|_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    read(&file, 0..MIB);
}

#[test]
fn a_full_disk_fails_no_read() {
    let bench = Bench::new(1, 8 * MIB);
    bench.put("a", 4 * MIB);
    let file = bench.file("a", 4 * MIB);
    bench.files.set_room(3);
    for _ in 0..3 {
        read(&file, 0..4 * MIB);
    }
    let stats = bench.cache.stats();
    assert_eq!(stats.bytes, 3 * CHUNK_BYTES);
    assert!(stats.not_written > 20);
    bench.check_room();
    bench.files.set_room(u64::MAX);
    read(&file, 0..4 * MIB);
    assert_eq!(bench.cache.stats().bytes, 4 * MIB);
}

#[test]
fn ranges_outside_of_the_file_are_refused() {
    let bench = Bench::new(1, MIB);
    let file = bench.file("a", 1000);
    for range in [0..1001, 1001..1001, Range { start: 5, end: 4 }] {
        let error = file.read(range, &|_| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(file.read(1000..1000, &|_| true).unwrap().bytes.is_empty());
    let empty = bench.file("empty", 0);
    assert!(empty.read(0..0, &|_| true).unwrap().bytes.is_empty());
}

#[test]
fn an_object_of_another_size_is_another_object() {
    let mut bench = Bench::new(1, 8 * MIB);
    bench.put("a", MIB);
    read(&bench.file("a", MIB), 0..MIB);
    bench.reopen(8 * MIB);
    bench.put("a", 2 * MIB);
    read(&bench.file("a", 2 * MIB), 0..2 * MIB);
    bench.check_room();
}
