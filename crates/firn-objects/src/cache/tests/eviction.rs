//! A chunk leaves in the middle of a read of it, or a file while it comes again.

use super::*;

/// The read takes the hole for a miss: nobody is asked to judge it.
#[test]
fn a_chunk_that_leaves_during_a_read_is_a_miss() {
    for comes_back in [false, true] {
        let bench = Bench::new(1, 4 * MIB);
        bench.put("a", MIB);
        let files = Arc::new(HookedFiles::new(bench.files.clone()));
        let (store, jobs) = (bench.store.clone(), bench.jobs.clone());
        let cache = FileCache::open(ROOT.into(), 4 * MIB, files.clone(), store, jobs).unwrap();
        let traits = FileTraits {
            bytes: MIB,
            ..FileTraits::default()
        };
        let file = cache.file("a", traits).unwrap();
        read(&file, 0..MIB);
        let (evicting, again) = (cache.clone(), file.clone());
        files.before_next_read(move || {
            evicting.set_bytes_max(0);
            evicting.set_bytes_max(4 * MIB);
            if comes_back {
                read(&again, MIB / 2..MIB);
            }
        });
        // The hook runs while this reads its first block.
        let verify = |bytes: &[u8]| {
            assert!(blocks_are_good("a", 0, bytes), "a hole is no answer");
            true
        };
        file.read(0..BLOCK, &verify).unwrap();
        let stats = cache.stats();
        assert_eq!(stats.damaged, 0, "{stats:?}");
        assert_eq!(stats.evicted, 4, "{stats:?}");
    }
}

/// The old local file is removed; the new one has the same path, and stays.
#[test]
fn a_file_that_is_forgotten_while_it_comes_again_is_not_removed_twice() {
    let bench = Bench::new(1, 4 * MIB);
    bench.put("a", MIB);
    let files = Arc::new(HookedFiles::new(bench.files.clone()));
    let (store, jobs) = (bench.store.clone(), bench.jobs.clone());
    let cache = FileCache::open(ROOT.into(), 4 * MIB, files.clone(), store, jobs).unwrap();
    let traits = FileTraits {
        bytes: MIB,
        ..FileTraits::default()
    };
    read(&cache.file("a", traits).unwrap(), 0..MIB);
    let (comes, came) = std::sync::mpsc::channel();
    let again = cache.clone();
    files.before_next_remove(move || {
        let reader = std::thread::spawn(move || read(&again.file("a", traits).unwrap(), 0..MIB));
        // It has this time to come too early.
        std::thread::sleep(std::time::Duration::from_millis(100));
        comes.send(reader).unwrap();
    });
    cache.forget("a");
    came.recv().unwrap().join().unwrap();
    assert_eq!(cache.stats().bytes, MIB);
    assert_eq!(bench.files.allocated(Path::new(ROOT)), MIB);
}
