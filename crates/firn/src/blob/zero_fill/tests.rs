use super::*;
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::BlobRef;
use crate::blob::{BlobSpan, BlobStore, TransactionBlobs};
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{Env, FaultEnv, MemEnv, PosixEnv, ReadClass};
use crate::store::{FileKind, FileStore};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::path::Path;
use std::sync::Arc;

#[test]
fn zeros_are_for_small_syncs_alone() {
    let zero_fill = ZeroFill::default();
    assert_eq!(
        zero_fill.next_fill(100, u64::MAX),
        None,
        "before the first sync"
    );
    zero_fill.synced(8192);
    let want = zero_fill.next_fill(100, u64::MAX).unwrap();
    assert_eq!(want, 100..(100 + 32 * 8192u64).next_multiple_of(4096));
    zero_fill.filled(want.end);
    assert_eq!(zero_fill.next_fill(want.end, u64::MAX), None);
    assert_eq!(
        zero_fill.next_fill(want.end + 1, want.end + 1),
        None,
        "it is full"
    );
    assert_eq!(
        zero_fill.next_fill(want.end + 1, want.end + 9).unwrap().end,
        want.end + 9
    );
    for _ in 0..8 {
        zero_fill.synced(1 << 20);
    }
    assert_eq!(
        zero_fill.next_fill(want.end + 1, u64::MAX),
        None,
        "large syncs"
    );
    for _ in 0..20 {
        zero_fill.synced(4096);
    }
    assert!(zero_fill.next_fill(want.end + 1, u64::MAX).is_some());
    zero_fill.give_up();
    assert_eq!(zero_fill.next_fill(want.end + 1, u64::MAX), None);
}

const VALUE: usize = 8 << 10;

fn store(env: Arc<dyn Env>, dir: &Path) -> BlobStore {
    env.create_dir_all(dir).unwrap();
    let files = FileStore::new(env, dir);
    let next = AtomicU64::new(files.list_blobs().unwrap().last().map_or(1, |id| id + 1));
    BlobStore::new(files, 64 << 20, move || {
        next.fetch_add(1, Ordering::Relaxed)
    })
}

/// Writes one incompressible value and makes it durable, as a commit does.
fn commit(store: &BlobStore, rng: &mut StdRng) -> (BlobRef, Vec<u8>) {
    let value: Vec<u8> = (0..VALUE).map(|_| rng.random()).collect();
    let mut session = TransactionBlobs::new();
    let blob = store.write(&mut session, 0, &value).unwrap();
    session.sync().unwrap();
    (blob, value)
}

fn check(store: &BlobStore, all: &[(BlobRef, Vec<u8>)]) {
    let mut buf = BlobBuf::new();
    for (blob, value) in all {
        assert_eq!(store.read(blob, ReadClass::Blob, &mut buf).unwrap(), value);
    }
}

#[test]
fn lone_commits_find_their_room_and_the_rest_goes_when_the_file_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let env = Arc::new(PosixEnv::new());
    let store = store(env.clone(), dir.path());
    let mut rng = StdRng::seed_from_u64(1);
    let mut all = vec![commit(&store, &mut rng)];
    let path = store.files().path(FileKind::Blob, all[0].0.file);
    let mut grown = 0;
    let mut before = env.usage(&path).unwrap();
    for _ in 0..3 * SYNCS_AHEAD {
        all.push(commit(&store, &mut rng));
        let now = env.usage(&path).unwrap();
        grown += u64::from(now != before);
        before = now;
    }
    // The first sync waits for the journal, and so does the second: the zero fill needs the average
    // of a first sync before it writes zeros.
    assert!((3..=4).contains(&grown), "it grew {grown} times");
    let file = store.file(all[0].0.file);
    assert!(before.len > file.written() + VALUE as u64, "{before:?}");
    assert!(before.len - file.written() < 512 << 10, "{before:?}");
    check(&store, &all);
    store.seal_active();
    let after = env.usage(&path).unwrap();
    assert_eq!(after.len, file.written());
    assert!(after.allocated < after.len + 2 * BLOCK as u64, "{after:?}");
    check(&store, &all);
}

#[test]
fn a_file_with_a_second_name_keeps_its_length_until_that_goes() {
    let env = MemEnv::new();
    let store = store(Arc::new(env.clone()), Path::new("/db"));
    let mut rng = StdRng::seed_from_u64(2);
    let all = [commit(&store, &mut rng), commit(&store, &mut rng)];
    let file = store.file(all[0].0.file);
    let len = || file.usage().unwrap().len;
    let full = len();
    assert!(full > file.written());
    let hold = store.hold_links();
    store.seal_active();
    assert_eq!(len(), full, "it is about to get a second name");
    let second = Path::new("/db/second");
    env.link(&store.files().path(FileKind::Blob, file.id()), second)
        .unwrap();
    drop(hold);
    store.trim_sealed();
    assert_eq!(len(), full, "it has a second name");
    env.remove(second).unwrap();
    store.trim_sealed();
    assert_eq!(len(), file.written());
    check(&store, &all);
}

#[test]
fn zeros_that_could_not_be_given_back_go_with_the_file_and_not_with_the_one_in_its_place() {
    let env = MemEnv::new();
    let store = store(Arc::new(env.clone()), Path::new("/db"));
    let mut rng = StdRng::seed_from_u64(4);
    let all = [commit(&store, &mut rng), commit(&store, &mut rng)];
    let file = store.file(all[0].0.file);
    let path = store.files().path(FileKind::Blob, file.id());
    env.link(&path, Path::new("/db/second")).unwrap();
    store.seal_active();
    assert!(file.usage().unwrap().len > file.written());
    let live = all.each_ref().map(|(blob, _)| BlobSpan {
        offset: blob.offset,
        len: blob.span(),
    });
    let rewritten = store.rewrite(&file, &live).unwrap();
    store.install(&rewritten).unwrap();
    store.trim_sealed();
    check(&store, &all);
}

#[test]
fn what_a_kill_leaves_behind_the_last_value_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let env = Arc::new(PosixEnv::new());
    let first = store(env.clone(), dir.path());
    let mut rng = StdRng::seed_from_u64(3);
    let all: Vec<_> = (0..5).map(|_| commit(&first, &mut rng)).collect();
    drop(first);
    let store = store(env, dir.path());
    check(&store, &all);
    let file = store.file(all[0].0.file);
    let before = file.usage().unwrap().allocated;
    let live = all.iter().map(|(blob, _)| BlobSpan {
        offset: blob.offset,
        len: blob.span(),
    });
    let live: Vec<BlobSpan> = live.collect();
    let given = store.punch(&file, &live).unwrap().unwrap();
    assert!(given > 20 * VALUE as u64, "{given} of {before} bytes");
    assert_eq!(file.usage().unwrap().allocated, before - given);
    check(&store, &all);
}

#[test]
fn a_power_cut_takes_nothing_that_was_synced_among_zeros() {
    for seed in 0..300 {
        let env = MemEnv::new();
        let first = store(Arc::new(env.clone()), Path::new("/db"));
        let mut rng = StdRng::seed_from_u64(seed);
        let mut all = Vec::new();
        for _ in 0..rng.random_range(1..2 * SYNCS_AHEAD) {
            all.push(commit(&first, &mut rng));
        }
        if rng.random() {
            let mut session = TransactionBlobs::new();
            first.write(&mut session, 0, &[1; 9000]).unwrap();
        }
        if rng.random() {
            first.seal_active();
        }
        if rng.random() {
            all.push(commit(&first, &mut rng));
        }
        let store = store(Arc::new(env.crash(seed)), Path::new("/db"));
        check(&store, &all);
    }
}

#[test]
fn the_last_room_of_a_disk_is_for_values() {
    // The first commit writes the file's header and a value. The second commit also writes zeros,
    // with several calls. Each of these calls fails in turn.
    for nth in 1..6 {
        let env = FaultEnv::new(Arc::new(MemEnv::new()));
        let store = store(Arc::new(env.clone()), Path::new("/db"));
        let mut rng = StdRng::seed_from_u64(nth);
        let mut all = vec![commit(&store, &mut rng)];
        env.inject(Fault {
            class: CallClass::Write,
            nth,
            sticky: false,
            errno: Errno::NoSpace,
        });
        for _ in 0..3 {
            all.push(commit(&store, &mut rng));
            let file = store.file(all[0].0.file);
            let usage = file.usage().unwrap();
            // After the failure, the zeros written before it are cut off, and no more are written.
            assert_eq!(usage.len, file.written(), "call {nth}");
        }
        assert_eq!(store.all().len(), 1);
        check(&store, &all);
    }
}
