use super::apply::ROTATE_BY_EDIT;
use super::rotation::ROTATE_SIZE_MIN;
use super::*;
use crate::base::event_listener::Silent;
use crate::base::pause_points::{self, PausePoint};
use crate::env::{MemEnv, PosixEnv};
use crate::sst::SstBlockCache;
use crate::store::{DiskReserve, FileStore};
use crate::version::FileMeta;
use crate::version::manifest::{ROOM, manifest_name};
use crate::version::testing::file;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

mod epoch;
mod faults;
mod relocation;
mod rewrite;

fn context(env: Arc<dyn Env>, dir: &Path) -> VersionSetContext {
    let store = FileStore::new(env.clone(), dir);
    VersionSetContext {
        env,
        dir: dir.to_path_buf(),
        source: FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20))),
        health: Arc::new(Health::new()),
        listener: Arc::new(Silent),
    }
}

fn open(dir: &Path) -> VersionSet {
    let set = VersionSet::open(context(Arc::new(PosixEnv::new()), dir)).unwrap();
    set.remove_strays(&HashSet::new());
    set
}

/// The manifest's state and the version share what they know of a file.
#[test]
fn an_added_file_is_described_once() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let version = set.apply(flush(&set)).unwrap();
    let (_, file) = version.files().next().unwrap();
    let inner = set.inner.lock();
    assert!(Arc::ptr_eq(
        file.meta(),
        &inner.state.files[&file.file_id].meta
    ));
}

/// Creates an empty SST file and returns invented metadata for it. Versions do not read the file.
fn put_file(set: &VersionSet) -> FileMeta {
    let id = set.new_file_id();
    set.source().store().create(id).unwrap().sync().unwrap();
    file(id, b"\0\0\0\x01a", b"\0\0\0\x01b")
}

fn flush(set: &VersionSet) -> Edit {
    Edit {
        added: vec![(0, set.new_run_number(), put_file(set))],
        ..Edit::default()
    }
}

fn on_disk(set: &VersionSet) -> Vec<u64> {
    set.source().store().list().unwrap()
}

#[test]
fn edits_survive_a_reopen_and_numbers_are_never_reused() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = HashSet::new();
    let mut last_run = 0;
    for round in 0..4 {
        let set = open(dir.path());
        assert_eq!(set.current().l0.len(), round);
        assert_eq!(
            set.counters().get(&1).copied().unwrap_or_default(),
            (round as u64).into()
        );
        let unused = (set.new_file_id(), set.new_run_number());
        let mut edit = flush(&set);
        edit.counters = vec![(1, (round as u64 + 1).into())];
        edit.last_seqno = Some(10 * round as u64);
        edit.log_number = Some(round as u64);
        let (_, run, meta) = &edit.added[0];
        assert!(unused.0 < meta.file_id && unused.1 < *run);
        assert!(*run > last_run && seen.insert(meta.file_id));
        assert!(!seen.contains(&set.manifest_id()) && seen.insert(set.manifest_id()));
        last_run = *run;
        let installed = set.apply(edit).unwrap();
        assert!(Arc::ptr_eq(&installed, &set.current()));
        assert_eq!(
            (set.log_number(), set.last_seqno()),
            (round as u64, 10 * round as u64)
        );
    }
}

#[test]
fn strays_are_removed_and_their_ids_are_not_reused() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    set.apply(flush(&set)).unwrap();
    let stray = put_file(&set).file_id;
    let mut far = set.source().store().create(500).unwrap();
    far.sync().unwrap();
    drop(set);
    let set = open(dir.path());
    let live: Vec<u64> = set.current().files().map(|(_, f)| f.file_id).collect();
    assert_eq!(on_disk(&set), live);
    assert!(!live.contains(&stray) && set.new_file_id() > 500);
    let names = PosixEnv::new().list_dir(dir.path()).unwrap();
    assert_eq!(
        names.iter().filter(|n| n.starts_with("MANIFEST")).count(),
        1
    );
}

#[test]
fn what_the_log_names_is_no_stray() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let (named, stray) = (put_file(&set).file_id, put_file(&set).file_id);
    drop(set);
    let set = VersionSet::open(context(Arc::new(PosixEnv::new()), dir.path())).unwrap();
    assert_eq!(on_disk(&set), [named, stray]);
    set.remove_strays(&HashSet::from([named]));
    assert_eq!(on_disk(&set), [named]);
    // A second call of `remove_strays` removes nothing, so files created since the open stay.
    let new = put_file(&set).file_id;
    set.remove_strays(&HashSet::new());
    assert_eq!(on_disk(&set), [named, new]);
    set.reserve_file_ids(new + 100);
    set.reserve_file_ids(new);
    assert_eq!(set.new_file_id(), new + 100);
    set.discard(&[named, new, new + 50]);
    assert_eq!((on_disk(&set), set.obsolete()), (vec![], (0, 0)));
}

#[test]
fn with_a_file_missing_no_stray_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let installed = set.apply(flush(&set)).unwrap();
    let live = installed.files().next().unwrap().1.clone();
    let stray = put_file(&set).file_id;
    set.source().store().remove(live.file_id).unwrap();
    drop(set);
    let set = open(dir.path());
    assert_eq!(on_disk(&set), [stray]);
    let version = set.current();
    let error = version.files().next().unwrap().1.reader().err().unwrap();
    assert!(error.is_corruption(), "{error}");
}

#[test]
fn a_removed_file_is_deleted_after_its_last_reader() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let before = set.apply(flush(&set)).unwrap();
    let old = before.files().next().unwrap().1.file_id;
    let merged = put_file(&set);
    let new = merged.file_id;
    let edit = Edit {
        removed: vec![(0, old)],
        added: vec![(6, 0, merged)],
        ..Edit::default()
    };
    set.apply(edit).unwrap();
    assert_eq!(set.delete_obsolete().unwrap(), 0);
    assert_eq!(on_disk(&set), [old, new]);
    drop(before);
    assert_eq!(set.delete_obsolete().unwrap(), 1);
    assert_eq!(on_disk(&set), [new]);
}

#[test]
fn a_moved_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let before = set.apply(flush(&set)).unwrap();
    let meta = FileMeta::clone(before.files().next().unwrap().1.meta());
    let id = meta.file_id;
    let edit = Edit {
        removed: vec![(0, id)],
        added: vec![(6, 0, meta)],
        ..Edit::default()
    };
    set.apply(edit).unwrap();
    drop(before);
    assert_eq!(set.delete_obsolete().unwrap(), 0);
    assert_eq!(on_disk(&set), [id]);
}

#[test]
fn edits_that_do_not_fit_are_refused_and_their_files_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let first = flush(&set);
    let second = flush(&set);
    set.apply(second.clone()).unwrap();
    let kept = second.added[0].2.file_id;
    let refused = |edit: Edit| {
        let error = set.apply(edit).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidArgument, "{error}");
        set.delete_obsolete().unwrap();
        assert_eq!(on_disk(&set), [kept]);
    };
    refused(first);
    refused(second);
    let mut overlapping = flush(&set);
    let (_, run, _) = overlapping.added[0];
    overlapping.added.push((0, run, put_file(&set)));
    refused(overlapping);
    let mut unknown = flush(&set);
    unknown.removed.push((3, 1));
    refused(unknown);
    set.apply(flush(&set)).unwrap();
}

#[test]
fn nothing_is_installed_or_deleted_once_poisoned() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    set.apply(flush(&set)).unwrap();
    set.ctx.health.poison(Error::invalid("test"));
    let edit = flush(&set);
    let files = on_disk(&set);
    let error = set.apply(edit).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Poisoned);
    assert_eq!(set.delete_obsolete().unwrap(), 0);
    assert_eq!(on_disk(&set), files);
    drop(set);
    let set = open(dir.path());
    assert_eq!((set.current().l0.len(), on_disk(&set).len()), (1, 1));
}

#[test]
fn an_edit_takes_the_counters_that_changed_and_forgets_those_that_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let install = |current: &[(u64, u64)], dropped: &[u64], fails: bool| {
        let values = current.iter().map(|&(c, v)| (c, v.into()));
        let changes = CounterChanges {
            values: values.collect(),
            dropped: dropped.to_vec(),
        };
        let counters = set.changed_counters(|| changes);
        let edit = Edit {
            counters: counters.clone(),
            ..Edit::default()
        };
        if !fails {
            set.apply(edit).unwrap();
        }
        let values = counters.into_iter().map(|(c, v)| (c, v.value));
        values.collect::<Vec<_>>()
    };
    let changed = [(1, 5), (2, 0), (3, 7)];
    assert_eq!(install(&changed, &[], false), [(1, 5), (3, 7)]);
    // The changes of an edit that fails are taken by the next one.
    assert_eq!(install(&[(2, 1), (3, 8)], &[], true), [(2, 1), (3, 8)]);
    assert_eq!(install(&[(3, 9)], &[], false), [(2, 1), (3, 9)]);
    assert_eq!(install(&[(1, 5)], &[2], false), []);
    assert_eq!(install(&[(4, 1)], &[4], false), []);
    let left: Vec<u64> = set.counters().into_keys().collect();
    assert_eq!(left, [1, 3]);
}

#[test]
fn the_manifest_is_rewritten_when_it_has_grown() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let first = set.manifest_id();
    for i in 0..(3 << 20) / 4000 {
        let counters = (0..200)
            .map(|c| (u64::MAX - c, ((1 << 62) + i).into()))
            .collect();
        set.apply(Edit {
            counters,
            ..Edit::default()
        })
        .unwrap();
    }
    assert!(set.manifest_id() > first);
    let last = set.counters();
    let size = |name: String| {
        let file = PosixEnv::new().open(&dir.path().join(name)).unwrap();
        file.size().unwrap()
    };
    let size = || size(manifest_name(set.manifest_id()));
    assert!(size() < ROTATE_BY_EDIT * ROTATE_SIZE_MIN + 8192);
    let second = set.manifest_id();
    while size() <= ROTATE_SIZE_MIN {
        let counters = (0..200).map(|c| (u64::MAX - c, (1 << 62).into())).collect();
        set.apply(Edit {
            counters,
            ..Edit::default()
        })
        .unwrap();
    }
    assert_eq!(set.manifest_id(), second);
    assert!(set.rewrite_manifest().unwrap() && !set.rewrite_manifest().unwrap());
    assert!(set.manifest_id() > second && size() < 16_384);
    drop(set);
    assert_eq!(open(dir.path()).counters(), last);
}

/// Applies edits of about `bytes` bytes to a full disk until one fails. Returns how many succeed.
fn edits_on_a_full_disk(set: &VersionSet, bytes: usize) -> usize {
    let counters: Vec<_> = (0..bytes as u64 / 8)
        .map(|n| (n, (1 << 40).into()))
        .collect();
    let edit = || Edit {
        counters: counters.clone(),
        ..Edit::default()
    };
    (0..100)
        .find(|_| match set.apply(edit()) {
            Ok(_) => false,
            Err(full) => {
                assert_eq!(*full.kind(), ErrorKind::NoSpace, "{full}");
                true
            }
        })
        .unwrap_or(100)
}

#[test]
fn on_a_full_disk_the_next_manifest_takes_its_room() {
    let env = MemEnv::new();
    let dir = Path::new("/db");
    env.create_dir_all(dir).unwrap();
    let mut context = context(Arc::new(env.clone()), dir);
    let reserve = Arc::new(DiskReserve::new(Arc::new(env.clone()), dir));
    let store = FileStore::new(Arc::new(env.clone()), dir).with_reserve(Arc::clone(&reserve));
    context.source = FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20)));
    let set = VersionSet::open(context).unwrap();
    set.fill_reserve().unwrap();
    env.fill();
    // The edits take far more than the space behind one manifest: each rotation brings new space.
    let edits = edits_on_a_full_disk(&set, 4000);
    assert!(edits as u64 * 4000 > 3 * ROOM, "{edits} edits");
}

#[test]
fn a_lost_current_is_not_an_empty_database() {
    let dir = tempfile::tempdir().unwrap();
    let env = PosixEnv::new();
    let set = open(dir.path());
    drop(set);
    // Without `CURRENT`, the directory is as after an interrupted creation.
    env.remove(&dir.path().join("CURRENT")).unwrap();
    let set = open(dir.path());
    let edit = Edit {
        counters: vec![(1, 1.into())],
        ..Edit::default()
    };
    set.apply(edit).unwrap();
    drop(set);
    env.remove(&dir.path().join("CURRENT")).unwrap();
    let opened = VersionSet::open(context(Arc::new(PosixEnv::new()), dir.path()));
    assert!(opened.is_err_and(|e| e.is_corruption()));
}

#[test]
fn many_files_are_deleted_in_many_steps() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let live = set.apply(flush(&set)).unwrap();
    let kept = live.files().next().unwrap().1.file_id;
    const FILES: usize = 40;
    // Registers files as obsolete with the usual largest size. The files themselves are empty.
    let drop_files = || {
        for _ in 0..FILES {
            let id = put_file(&set).file_id;
            set.ctx.source.put_obsolete(id, 32 << 20);
        }
    };
    drop_files();
    assert_eq!(set.obsolete(), (FILES as u64, FILES as u64 * (32 << 20)));
    let (mut now, mut steps, mut deleted) = (5_000_000, 0, 0);
    while set.obsolete().0 > 0 {
        let step = set.delete_paced(now, &AtomicBool::new(false)).unwrap();
        assert!(step <= 2, "{step} files at once");
        deleted += step;
        steps += usize::from(step > 0);
        assert_eq!(on_disk(&set).len(), 1 + FILES - deleted);
        now += 50_000;
        assert!(now < 60_000_000, "a few seconds will do");
    }
    assert_eq!((deleted, on_disk(&set)), (FILES, vec![kept]));
    assert!(steps > FILES / 3, "{steps} steps");
    // `delete_obsolete` ignores the pace and deletes all of them at once. The next open does so,
    // too, because they are few.
    drop_files();
    set.delete_paced(now, &AtomicBool::new(false)).unwrap();
    assert!(on_disk(&set).len() > FILES / 2);
    set.delete_obsolete().unwrap();
    assert_eq!((set.obsolete(), on_disk(&set)), ((0, 0), vec![kept]));
    drop_files();
    drop((live, set));
    assert_eq!(on_disk(&open(dir.path())), [kept]);
}

#[test]
fn what_others_replace_goes_at_once_past_what_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let set = open(dir.path());
    let (first, second) = (flush(&set), flush(&set));
    let of = |edit: &Edit| edit.added[0].2.file_id;
    let (dropped, replaced) = (of(&first), of(&second));
    set.apply(first).unwrap();
    set.apply(second).unwrap();
    let remove = |id, added| Edit {
        removed: vec![(0, id)],
        added,
        ..Edit::default()
    };
    // Put the pacer so far in debt that it allows no deletion for an hour.
    set.pacer.lock().take(u64::MAX / 4);
    set.apply(remove(dropped, Vec::new())).unwrap();
    let next = flush(&set);
    let live = of(&next);
    set.apply(remove(replaced, next.added)).unwrap();
    assert_eq!(set.delete_paced(1, &AtomicBool::new(false)).unwrap(), 1);
    assert_eq!(on_disk(&set), [dropped, live]);
    assert_eq!(set.delete_obsolete().unwrap(), 1);
    assert_eq!(on_disk(&set), [live]);
}

/// A checkpoint begins after a deletion has looked for holds, and before the deletion takes a file.
#[test]
fn a_file_that_becomes_obsolete_during_a_hold_stays() {
    let dir = tempfile::tempdir().unwrap();
    let set = Arc::new(open(dir.path()));
    let live = set.apply(flush(&set)).unwrap();
    let id = live.files().next().unwrap().1.file_id;
    drop(live);
    let held = Arc::new(Mutex::new(None));
    let (other, hold) = (Arc::clone(&set), Arc::clone(&held));
    pause_points::on_this_thread(move |point| {
        if point == PausePoint::ObsoleteWanted && hold.lock().is_none() {
            let guard = other.hold_files();
            assert!(other.state().files.contains_key(&id));
            let edit = Edit {
                removed: vec![(0, id)],
                ..Edit::default()
            };
            drop(other.apply(edit).unwrap());
            assert_eq!(other.obsolete().0, 1);
            *hold.lock() = Some(guard);
        }
    });
    assert_eq!(set.delete_obsolete().unwrap(), 0);
    pause_points::clear();
    assert_eq!(on_disk(&set), [id], "the state of the hold names it");
    *held.lock() = None;
    assert_eq!(set.delete_obsolete().unwrap(), 1);
}
