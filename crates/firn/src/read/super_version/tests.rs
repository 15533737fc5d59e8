use super::*;
use crate::env::MemEnv;
use crate::store::FileStore;

fn memtable(id: u64) -> Arc<Memtable> {
    Arc::new(Memtable::new(id, 1))
}

/// Super versions without readers are forgotten, also behind one that a reader holds.
#[test]
fn the_list_of_super_versions_stays_within_twice_those_held() {
    let files = FileStore::new(Arc::new(MemEnv::new()), "/db");
    let all = SuperVersions::new(
        memtable(1),
        Arc::new(Version::default()),
        Arc::new(AtomicU64::new(9)),
        Arc::new(RowCache::new(0)),
        Arc::new(BlobStore::read_only(files, 1 << 20)),
    );
    let mut held = Vec::new();
    let mut next = 2;
    for readers in [1, 40, 100, 3, 0] {
        while held.len() < readers {
            held.push(all.pin());
            all.switched(&[], memtable(next));
            next += 1;
        }
        held.truncate(readers);
        for _ in 0..500 {
            all.switched(&[], memtable(next));
            next += 1;
        }
        let listed = all.held.lock().list.len();
        assert!(
            listed <= SWEEP_MIN.max(2 * (readers + 1)),
            "{readers}: {listed}"
        );
        let oldest = held
            .first()
            .map_or(all.pin().generation, |first| first.generation);
        assert_eq!(all.oldest_generation(), oldest);
    }
}
