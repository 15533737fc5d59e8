use super::*;
use crate::env::{PosixEnv, ReadClass};
use crate::store::FileStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;

/// A store with `count` SSTs of 100 bytes, each filled with its id, and `limit` descriptors.
fn store(dir: &Path, count: u64, limit: u64) -> FileStore {
    let store = FileStore::new(Arc::new(PosixEnv::new()), dir).with_open_files(limit);
    for id in 0..count {
        let mut file = store.create(id).unwrap();
        file.append(&[id as u8; 100]).unwrap();
        file.sync().unwrap();
    }
    store
}

fn check(file: &dyn ReadFile, id: u64) {
    let mut buf = [0; 100];
    file.read_exact_at(ReadClass::Point, 0, &mut buf).unwrap();
    assert_eq!(buf, [id as u8; 100], "file {id}");
    assert_eq!(file.size().unwrap(), 100);
}

#[test]
fn readers_of_many_files_need_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 50, 4);
    let files: Vec<_> = (0..50).map(|id| store.open(id).unwrap()).collect();
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..1000 {
        let id = rng.random_range(0..50);
        check(&*files[id as usize], id);
        assert!(store.open_files().stats().open <= 4);
    }
    let stats = store.open_files().stats();
    assert!(stats.closes > 500, "{stats:?}");
    assert_eq!(stats.over_limit, 0);
    drop(files);
    assert_eq!(store.open_files().stats().open, 0);
    assert!(store.open_files().known.lock().is_empty());
}

#[test]
fn a_file_that_is_read_stays_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 50, 4);
    let hot = store.open(0).unwrap();
    let others: Vec<_> = (1..50).map(|id| store.open(id).unwrap()).collect();
    check(&*hot, 0);
    let opens = store.open_files().stats().opens;
    for (file, id) in others.iter().zip(1..) {
        check(&**file, id);
        check(&*hot, 0);
    }
    // Each other file was opened again, the hot one at most once.
    assert!(store.open_files().stats().opens <= opens + 50);
}

#[test]
fn readers_of_a_file_share_a_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 2, 8);
    let files: Vec<_> = (0..10).map(|_| store.open(1).unwrap()).collect();
    files.iter().for_each(|file| check(&**file, 1));
    assert_eq!(store.open_files().stats().open, 1);
}

#[test]
fn a_removed_file_stays_readable_for_its_readers() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 10, 2);
    let removed = store.open(0).unwrap();
    let others: Vec<_> = (1..10).map(|id| store.open(id).unwrap()).collect();
    store.remove(0).unwrap();
    for _ in 0..3 {
        others
            .iter()
            .zip(1..)
            .for_each(|(file, id)| check(&**file, id));
        check(&*removed, 0);
    }
    assert_eq!(*store.open(0).err().unwrap().kind(), ErrorKind::NotFound);
    drop(removed);
    assert!(store.open_files().stats().open <= 2);
}

#[test]
fn a_lower_limit_holds_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 20, 20);
    let files: Vec<_> = (0..20).map(|id| store.open(id).unwrap()).collect();
    assert_eq!(store.open_files().stats().open, 20);
    store.open_files().set_limit(3);
    assert_eq!(store.open_files().stats().open, 3);
    files
        .iter()
        .zip(0..)
        .for_each(|(file, id)| check(&**file, id));
    assert!(store.open_files().stats().open <= 3);
}

#[test]
fn turns_of_files_that_are_gone_do_not_pile_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 1, 100);
    for _ in 0..1000 {
        check(&*store.open(0).unwrap(), 0);
    }
    assert!(store.open_files().queue.lock().len() < 200);
}

#[test]
fn threads_read_open_and_remove_files_at_the_same_time() {
    const FILES: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), FILES, 3);
    let files: Vec<_> = (0..FILES).map(|id| store.open(id).unwrap()).collect();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (files, store) = (&files, &store);
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for step in 0..2000 {
                    let id = rng.random_range(0..FILES);
                    check(&*files[id as usize], id);
                    // Each thread removes every fourth file once, while all read it.
                    if step % 50 == 0 && step / 50 % 4 == seed {
                        store.remove(step / 50).unwrap();
                    }
                }
            });
        }
    });
    drop(files);
    assert_eq!(store.open_files().stats().open, 0);
}
