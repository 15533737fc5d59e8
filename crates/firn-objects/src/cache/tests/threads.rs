//! Several threads, on real files.

use super::*;
use crate::env::{SystemFiles, Threads};
use crate::store::{ObjectInfo, Page, PartTag, PutNew, UploadId, UploadInfo};
use parking_lot::Condvar;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A store that has one object, and holds requests back until so many are there.
struct SlowStore {
    content: Bytes,
    requests: AtomicU64,
    in_flight: Mutex<InFlight>,
    changed: Condvar,
}

#[derive(Default)]
struct InFlight {
    bytes: u64,
    most_bytes: u64,
    /// Requests wait until this is true.
    open: bool,
}

impl SlowStore {
    fn new(name: &str, bytes: u64, open: bool) -> Arc<Self> {
        Arc::new(Self {
            content: content(name, bytes),
            requests: AtomicU64::new(0),
            in_flight: Mutex::new(InFlight {
                open,
                ..InFlight::default()
            }),
            changed: Condvar::new(),
        })
    }

    fn wait_for_bytes(&self, bytes: u64) {
        let mut in_flight = self.in_flight.lock();
        while in_flight.bytes < bytes {
            self.changed.wait(&mut in_flight);
        }
    }

    fn open(&self) {
        self.in_flight.lock().open = true;
        self.changed.notify_all();
    }
}

impl ObjectStore for SlowStore {
    fn get_range(&self, _: &str, range: Range<u64>) -> Result<Bytes> {
        self.requests.fetch_add(1, SeqCst);
        let len = range.end - range.start;
        let mut in_flight = self.in_flight.lock();
        in_flight.bytes += len;
        in_flight.most_bytes = in_flight.most_bytes.max(in_flight.bytes);
        self.changed.notify_all();
        while !in_flight.open {
            self.changed.wait(&mut in_flight);
        }
        in_flight.bytes -= len;
        Ok(self.content.slice(range.start as usize..range.end as usize))
    }

    fn put(&self, _: &str, _: Bytes) -> Result<()> {
        unreachable!("only read")
    }
    fn put_new(&self, _: &str, _: Bytes) -> Result<PutNew> {
        unreachable!("only read")
    }
    fn get(&self, _: &str) -> Result<Bytes> {
        unreachable!("only ranges")
    }
    fn head(&self, _: &str) -> Result<ObjectInfo> {
        unreachable!("only read")
    }
    fn list_page(&self, _: &str, _: Option<&str>) -> Result<Page<ObjectInfo>> {
        unreachable!("only read")
    }
    fn delete(&self, _: &str) -> Result<()> {
        unreachable!("only read")
    }
    fn begin_upload(&self, _: &str) -> Result<UploadId> {
        unreachable!("only read")
    }
    fn put_part(&self, _: &str, _: &UploadId, _: u32, _: Bytes) -> Result<PartTag> {
        unreachable!("only read")
    }
    fn complete_upload(&self, _: &str, _: &UploadId, _: &[PartTag]) -> Result<()> {
        unreachable!("only read")
    }
    fn abort_upload(&self, _: &str, _: &UploadId) -> Result<()> {
        unreachable!("only read")
    }
    fn list_uploads_page(&self, _: &str, _: Option<&str>) -> Result<Page<UploadInfo>> {
        unreachable!("only read")
    }
}

fn on_disk(root: &Path, store: Arc<SlowStore>, bytes_max: u64) -> FileCache {
    let jobs = Arc::new(Threads::start("jobs", 4).unwrap());
    FileCache::open(
        root.to_owned(),
        bytes_max,
        Arc::new(SystemFiles),
        store,
        jobs,
    )
    .unwrap()
}

fn file(cache: &FileCache, name: &str, bytes: u64) -> CachedFile {
    let traits = FileTraits {
        bytes,
        ..FileTraits::default()
    };
    cache.file(name, traits).unwrap()
}

#[test]
fn of_eight_threads_that_want_a_chunk_one_asks() {
    let root = tempfile::tempdir().unwrap();
    let store = SlowStore::new("a", 64 * CHUNK_BYTES, true);
    let cache = on_disk(root.path(), store.clone(), 64 * MIB);
    let file = file(&cache, "a", 64 * CHUNK_BYTES);
    for chunk in 0..64 {
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (start, file) = (&start, &file);
                scope.spawn(move || {
                    start.wait();
                    let at = chunk * CHUNK_BYTES + thread * BLOCK;
                    let verify = |bytes: &[u8]| blocks_are_good("a", at, bytes);
                    file.read(at..at + BLOCK, &verify).unwrap();
                });
            }
        });
        assert_eq!(store.requests.load(SeqCst), chunk + 1);
    }
}

#[test]
fn at_most_64_mib_are_in_flight() {
    let root = tempfile::tempdir().unwrap();
    let store = SlowStore::new("a", 160 * MIB, false);
    let cache = on_disk(root.path(), store.clone(), 512 * MIB);
    let file = file(&cache, "a", 160 * MIB);
    std::thread::scope(|scope| {
        for thread in 0..20 {
            let file = &file;
            scope.spawn(move || {
                let at = thread * 8 * MIB;
                let verify = |bytes: &[u8]| blocks_are_good("a", at, bytes);
                match thread % 2 {
                    0 => file.read(at..at + 8 * MIB, &verify).unwrap().bytes,
                    _ => file.read_past_cache(at..at + 8 * MIB, &verify).unwrap(),
                };
            });
        }
        store.wait_for_bytes(64 * MIB);
        store.open();
    });
    assert_eq!(store.in_flight.lock().most_bytes, 64 * MIB);
}

/// A reader of a chunk of a large read waits for one request of it at most.
#[test]
fn a_large_read_claims_the_chunks_of_one_request() {
    let root = tempfile::tempdir().unwrap();
    let store = SlowStore::new("a", 40 * MIB, false);
    let cache = on_disk(root.path(), store.clone(), 512 * MIB);
    let file = file(&cache, "a", 40 * MIB);
    let claimed = std::thread::scope(|scope| {
        scope.spawn(|| read(&file, 0..20 * MIB));
        store.wait_for_bytes(8 * MIB);
        let by_read = cache.0.flights.len();
        file.will_read(20 * MIB..40 * MIB);
        store.wait_for_bytes(16 * MIB);
        let by_both = cache.0.flights.len();
        // Nothing fails before this, or the reader would wait for ever.
        store.open();
        (by_read, by_both)
    });
    assert_eq!(claimed, (32, 64));
}

/// Chunks leave while others read them. No read sees the hole.
#[test]
fn a_read_never_sees_a_chunk_half_evicted() {
    let root = tempfile::tempdir().unwrap();
    let store = SlowStore::new("a", 24 * CHUNK_BYTES, true);
    let cache = on_disk(root.path(), store, 8 * CHUNK_BYTES);
    let file = file(&cache, "a", 24 * CHUNK_BYTES);
    let all = content("a", 24 * CHUNK_BYTES);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (cache, file, all) = (&cache, &file, &all);
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed);
                for _ in 0..1000 {
                    let at = random.below(24 * CHUNK_BYTES / BLOCK) * BLOCK;
                    let verify = |bytes: &[u8]| blocks_are_good("a", at, bytes);
                    let got = file.read(at..at + BLOCK, &verify).unwrap().bytes;
                    assert_eq!(got, all[at as usize..(at + BLOCK) as usize]);
                    if random.per_mille(20) {
                        cache.set_bytes_max((1 + random.below(12)) * CHUNK_BYTES);
                    }
                    if random.per_mille(5) {
                        file.will_read(at..at + 4 * CHUNK_BYTES);
                    }
                }
            });
        }
    });
    // Bytes of a chunk that leaves would have failed the check, and counted as damage.
    let stats = cache.stats();
    assert_eq!(stats.damaged, 0, "{stats:?}");
    assert!(stats.evicted > 100, "{stats:?}");
    assert!(stats.bytes <= stats.bytes_max, "{stats:?}");
}

#[test]
fn chunks_survive_a_restart_on_a_real_disk() {
    let root = tempfile::tempdir().unwrap();
    let bytes = 5 * MIB + 77 * 100;
    let store = SlowStore::new("sst/00/1", bytes, true);
    let cache = on_disk(root.path(), store.clone(), 64 * MIB);
    let file1 = file(&cache, "sst/00/1", bytes);
    read(&file1, MIB..2 * MIB);
    read(&file1, 5 * MIB..bytes);
    let before = cache.stats();
    drop((file1, cache));
    let cache = on_disk(root.path(), store.clone(), 64 * MIB);
    assert_eq!(cache.stats().bytes, before.bytes);
    let requests = store.requests.load(SeqCst);
    let file1 = file(&cache, "sst/00/1", bytes);
    read(&file1, MIB..2 * MIB);
    read(&file1, 5 * MIB..bytes);
    assert_eq!(store.requests.load(SeqCst), requests);
}
