use super::*;
use crate::base::{InternalIterator, InternalKey, Kind, Value};
use crate::cache::KeyHash;
use crate::env::fault::{CallClass, Errno, Fault, FaultEnv};
use crate::env::{Env, MemEnv, ReadClass};
use crate::sst::{SstOptions, SstWriter};
use crate::version::testing::file;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;

/// So many that an index takes more than all the pins of a test.
const KEYS: u64 = 600;

fn key(file_id: u64, n: u64) -> Vec<u8> {
    let parts = [
        &1u32.to_be_bytes()[..],
        &file_id.to_be_bytes(),
        &n.to_be_bytes(),
    ];
    parts.concat()
}

/// Handles of `count` files, and the environment that has the files. `pins` is the limit of their
/// pins, which has no room for an index.
struct Files {
    mem: MemEnv,
    env: FaultEnv,
    source: Arc<FileSource>,
    handles: Vec<Arc<FileHandle>>,
}

impl Files {
    fn new(count: u64, pins: u64) -> Self {
        let mem = MemEnv::new();
        let env = FaultEnv::new(Arc::new(mem.clone()));
        let shared: Arc<dyn Env> = Arc::new(env.clone());
        shared.create_dir_all(Path::new("/db")).unwrap();
        let store = FileStore::new(shared, Path::new("/db"));
        let cache = Arc::new(SstBlockCache::new(1 << 20));
        cache.set_room(1 << 20, pins);
        let source = FileSource::new(store, cache);
        let handles = (0..count).map(|id| Self::write(&source, id)).collect();
        Self {
            mem,
            env,
            source,
            handles,
        }
    }

    fn write(source: &Arc<FileSource>, id: u64) -> Arc<FileHandle> {
        let out = source.store.create(id).unwrap();
        let mut writer = SstWriter::new(out, id, SstOptions::upper_level(64), 0);
        for n in 0..KEYS {
            let key = key(id, n);
            let key = InternalKey::new(&key, 5, Kind::Put);
            writer.add(key, Value::whole(&n.to_le_bytes())).unwrap();
        }
        let summary = writer.finish().unwrap();
        let mut meta = file(id, &key(id, 0), &key(id, KEYS - 1));
        meta.size = summary.size;
        FileHandle::new(Arc::new(meta), Arc::clone(source))
    }

    fn pins(&self) -> &Arc<crate::cache::PinBudget> {
        self.source.cache.pins()
    }

    /// Bytes that the files take which are open, without marking them as used.
    fn open_bytes(&self) -> u64 {
        let bytes = |file: &Arc<FileHandle>| {
            let evictable = file.evictable.load();
            evictable.as_ref().map_or(0, |reader| reader.memory_bytes())
        };
        self.handles.iter().map(bytes).sum()
    }

    fn read(&self, id: u64, n: u64) -> Result<()> {
        let key = key(id, n);
        let reader = self.handles[id as usize].reader()?;
        let found = reader.get(&key, KeyHash::of(&key), 9, ReadClass::Point, |_, value| {
            value.head.to_vec()
        })?;
        assert_eq!(found.unwrap(), n.to_le_bytes());
        Ok(())
    }

    fn each_once(&self) {
        (0..self.handles.len() as u64).for_each(|id| self.read(id, 0).unwrap());
    }
}

/// Memory of one open file of [`Files`], without its index.
fn one() -> u64 {
    let files = Files::new(1, 1);
    files.read(0, 0).unwrap();
    let whole = Files::new(1, 1 << 30);
    whole.read(0, 0).unwrap();
    assert!(whole.pins().used() > 8 * files.pins().used());
    files.pins().used()
}

#[test]
fn readers_are_evicted_to_make_room() {
    let limit = 5 * one();
    let files = Files::new(40, limit);
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..2000 {
        files
            .read(rng.random_range(0..40), rng.random_range(0..KEYS))
            .unwrap();
        assert!(files.pins().used() <= limit);
        assert_eq!(files.pins().used(), files.open_bytes());
    }
    let stats = files.pins().stats();
    assert!(stats.evictions > 1000, "{stats:?}");
    assert_eq!((stats.over_limit, stats.grants), (0, 0));
    drop(files.handles);
    assert_eq!(files.source.cache.pins().used(), 0);
}

/// With room for everything, the reader stays, and no eviction finds it.
#[test]
fn a_pinned_reader_stays() {
    let files = Files::new(3, 1 << 20);
    files.each_once();
    let first = Arc::as_ptr(files.handles[0].pinned().unwrap());
    files.source.cache.set_room(1 << 20, 1);
    files.pins().evict_excess();
    files.each_once();
    assert_eq!(Arc::as_ptr(&*files.handles[0].reader().unwrap()), first);
    assert_eq!(files.pins().stats().evictions, 0);
}

/// A file whose reader an iterator holds is not evicted, so it is not opened a second time beside.
#[test]
fn a_reader_in_use_is_spared() {
    let files = Files::new(20, 3 * one());
    let mut iter = files.handles[0]
        .reader()
        .unwrap()
        .iter(ReadClass::Range, true);
    let held = Arc::as_ptr(iter.reader());
    for _ in 0..3 {
        (1..20).for_each(|id| files.read(id, 3).unwrap());
        assert_eq!(Arc::as_ptr(&*files.handles[0].reader().unwrap()), held);
        assert!(files.pins().used() <= 3 * one());
    }
    let mut on = iter.seek_to_first().unwrap();
    for n in 0..KEYS {
        assert!(on && iter.key().user_key == key(0, n));
        on = iter.next().unwrap();
    }
    drop(iter);
    (1..20)
        .chain(1..20)
        .for_each(|id| files.read(id, 3).unwrap());
    assert!(
        files.handles[0].evictable.load().is_none(),
        "it is evicted in time"
    );
}

/// A reader that a thread has borrowed without a reference is not evicted either.
#[test]
fn a_borrowed_reader_is_spared() {
    let files = Files::new(2, 1);
    files.read(0, 0).unwrap();
    let borrowed = files.handles[0].reader().unwrap();
    assert!(matches!(borrowed, ReaderRef::Evictable(_)));
    files.pins().evict_excess();
    let stats = files.pins().stats();
    assert_eq!((stats.evictions, stats.charges), (0, 1));
    assert_eq!(
        Arc::as_ptr(&*borrowed),
        Arc::as_ptr(&*files.handles[0].reader().unwrap())
    );
    drop(borrowed);
    files.pins().evict_excess();
    assert_eq!(
        (files.pins().stats().evictions, files.pins().used()),
        (1, 0)
    );
}

/// While an eviction has taken out a reader that turns out to be in use, another thread that wants
/// the reader waits and gets the same one.
#[test]
fn an_eviction_that_fails_opens_nothing() {
    let files = Files::new(1, 1);
    files.read(0, 0).unwrap();
    let borrowed = files.handles[0].reader().unwrap();
    let handle = Arc::clone(&files.handles[0]);
    let (send, others) = std::sync::mpsc::channel();
    pause_points::on_this_thread(move |point| {
        assert_eq!(point, PausePoint::ReaderTaken);
        assert!(handle.evictable.load().is_none());
        let handle = Arc::clone(&handle);
        let other = std::thread::spawn(move || {
            let reader = handle.reader().unwrap();
            Arc::as_ptr(&*reader) as usize
        });
        send.send(other).unwrap();
    });
    files.handles[0].take_used();
    assert_eq!(files.handles[0].evict(), Eviction::InUse);
    pause_points::clear();
    let other = others.recv().unwrap().join().unwrap();
    assert_eq!(other, Arc::as_ptr(&*borrowed) as usize);
    assert_eq!(files.pins().stats().charges, 1);
}

#[test]
fn threads_read_while_others_evict() {
    let limit = 4 * one();
    let files = Files::new(16, limit);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let files = &files;
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for _ in 0..3000 {
                    // Some files are hot, so that they are read while they are evicted.
                    let among = if rng.random() { 3 } else { 16 };
                    let file = rng.random_range(0..among);
                    files.read(file, rng.random_range(0..KEYS)).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut rng = StdRng::seed_from_u64(9);
            for _ in 0..20_000 {
                files.handles[rng.random_range(0..16)].evict();
            }
        });
    });
    files.pins().evict_excess();
    assert!(files.pins().used() <= limit);
    assert_eq!(files.pins().used(), files.open_bytes());
    let stats = files.pins().stats();
    assert!(stats.charges > 500, "{stats:?}");
}

#[test]
fn damage_that_a_second_open_finds_has_the_name_of_the_file() {
    let files = Files::new(2, one());
    files.each_once();
    assert!(files.handles[0].evictable.load().is_none());
    let path = Path::new("/db").join(file_name(FileKind::Sst, 0));
    let size = files.handles[0].size as usize;
    files
        .mem
        .damage(&path, |bytes| bytes[size - 30] ^= 4)
        .unwrap();
    let error = files.read(0, 0).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert!(error.to_string().contains("0000000000.sst"), "{error}");
    files.read(1, 0).unwrap();
    files
        .mem
        .damage(&path, |bytes| bytes[size - 30] ^= 4)
        .unwrap();
    files.read(0, 0).unwrap();
}

/// An error of a second open leaves no trace; the next read tries again.
#[test]
fn a_second_open_may_fail_for_lack_of_descriptors() {
    let files = Files::new(2, one());
    files.source.store.open_files().set_limit(1);
    files.each_once();
    let used = files.pins().used();
    files.env.inject(Fault {
        class: CallClass::Open,
        nth: 1,
        sticky: true,
        errno: Errno::ProcessTableFull,
    });
    let error = files.read(0, 0).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NoDescriptor, "{error}");
    assert_eq!(files.pins().used(), used);
    files.env.clear();
    files.each_once();
    assert!(files.pins().used() <= one());
}
