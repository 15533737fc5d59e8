//! Tests of the identity and the epochs of a database, and of the manifest's fields for object
//! stores.

use super::*;
use crate::base::epoch::{DatabaseId, EPOCH_MAX, IDS_PER_EPOCH};
use crate::env::MemEnv;
use crate::store::FileKind;
use crate::version::{DatabaseIdentity, DeferredDeletion, FileLocation, create_manifest};

const DIR: &str = "/db";

fn env() -> MemEnv {
    let env = MemEnv::new();
    env.create_dir_all(Path::new(DIR)).unwrap();
    env
}

fn try_open(env: &MemEnv) -> Result<VersionSet> {
    let set = VersionSet::open(context(Arc::new(env.clone()), Path::new(DIR)))?;
    set.remove_strays(&HashSet::new());
    Ok(set)
}

fn open(env: &MemEnv) -> VersionSet {
    try_open(env).unwrap()
}

#[test]
fn a_database_keeps_the_identity_that_its_first_open_draws() {
    let (one, other) = (env(), env());
    // Both environments have the same random source, as two databases on one machine have. Advance
    // one of them, so that the identities differ.
    other.random(&mut [0]).unwrap();
    let first = open(&one).identity();
    assert_eq!((first.epoch, first.after), (0, 0));
    assert_eq!(open(&one).identity(), first);
    assert_eq!(open(&one.crash(1)).identity(), first);
    assert_ne!(open(&other).identity().database, first.database);

    // A manifest of an engine from before identities: its state has none.
    let older = env();
    let mut state = ManifestState::default();
    let meta = file(3, b"\0\0\0\x01a", b"\0\0\0\x01f");
    state.apply(&Edit {
        added: vec![(2, 0, meta)],
        ..Edit::default()
    });
    older.place(&Path::new(DIR).join("0000000003.sst"), Vec::new());
    create_manifest(&older, Path::new(DIR), &state).unwrap();
    let loaded = load(&older, Path::new(DIR)).unwrap().unwrap();
    assert_eq!(loaded.state.identity, None);
    let drawn = open(&older).identity();
    assert_eq!(drawn.epoch, 0);
    assert_eq!(open(&older).identity(), drawn);
    assert!(open(&older).state().files.contains_key(&3));
}

#[test]
fn an_epoch_has_ids_of_its_own_and_never_goes_back() {
    let env = env();
    let set = open(&env);
    let old = set.apply(flush(&set)).unwrap();
    assert!(old.files().all(|(_, file)| file.file_id < IDS_PER_EPOCH));
    set.begin_epoch(3, 1 << 33).unwrap();
    let begun = set.identity();
    assert_eq!((begun.epoch, begun.after), (3, 1 << 33));
    let id = set.new_file_id();
    assert_eq!(id, 3 * IDS_PER_EPOCH);
    set.apply(flush(&set)).unwrap();
    set.begin_epoch(3, 1 << 33).unwrap();
    for (epoch, after) in [(2, 1 << 34), (4, 5), (EPOCH_MAX + 1, 1 << 34)] {
        let error = set.begin_epoch(epoch, after).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidArgument, "{epoch}");
    }
    assert_eq!(set.identity(), begun);
    drop(set);

    // A stray file with an id of a later epoch does not raise the ids that this epoch allocates.
    let stray = format!("{}.sst", 5 * IDS_PER_EPOCH + 9);
    env.place(&Path::new(DIR).join(stray), Vec::new());
    let set = open(&env);
    assert_eq!(set.identity(), begun);
    assert!(set.manifest_id() > id && set.manifest_id() < 4 * IDS_PER_EPOCH);
    let files = set.state().files;
    assert_eq!(files.len(), 2, "of both epochs");
    set.begin_epoch(EPOCH_MAX, 1 << 40).unwrap();
    assert_eq!(set.new_file_id(), EPOCH_MAX * IDS_PER_EPOCH);
    set.apply(flush(&set)).unwrap();
}

#[test]
fn no_id_beyond_the_epoch_gets_into_the_tree() {
    let env = env();
    let set = open(&env);
    // Reserve all ids of the epoch except the last one.
    set.reserve_file_ids(u64::MAX);
    let last = IDS_PER_EPOCH - 1;
    assert_eq!(set.new_file_id(), last);
    let error = set.apply(flush(&set)).unwrap_err();
    assert!(error.to_string().contains("beyond epoch 0"), "{error}");
    let of_next = |f: &dyn Fn(&mut Edit)| {
        let mut edit = Edit::default();
        f(&mut edit);
        ManifestState::default().check_edit(&edit).is_some()
    };
    assert!(of_next(&|edit| edit.log_number = Some(IDS_PER_EPOCH)));
    assert!(of_next(&|edit| edit.blobs_moved = vec![(1, IDS_PER_EPOCH)]));
    assert!(!of_next(&|edit| edit.blobs_moved = vec![(1, last)]));
    // The numbers of epoch 1 are valid in the edit that begins this epoch.
    assert!(!of_next(&|edit| {
        edit.log_number = Some(IDS_PER_EPOCH);
        edit.identity = Some(DatabaseIdentity {
            epoch: 1,
            after: 0,
            database: DatabaseId([7; 16]),
        });
    }));
}

#[test]
fn an_edit_of_another_database_is_refused() {
    let env = env();
    let set = open(&env);
    let other = DatabaseIdentity {
        database: DatabaseId([9; 16]),
        ..set.identity()
    };
    let edit = Edit {
        identity: Some(other),
        ..Edit::default()
    };
    let error = set.apply(edit).unwrap_err();
    assert!(error.to_string().contains("is of database 0909"), "{error}");
}

#[test]
fn deletions_that_wait_stay_until_they_are_done() {
    let env = env();
    let set = open(&env);
    let live = set.apply(flush(&set)).unwrap();
    let live = live.files().next().unwrap().1.file_id;
    let deletion = |file, slot| DeferredDeletion {
        kind: FileKind::Sst,
        file,
        epoch: 0,
        slot,
    };
    let of = |deferred: Vec<DeferredDeletion>| Edit {
        deferred,
        ..Edit::default()
    };
    let refused = |set: &VersionSet, edit: Edit, why: &str| {
        let error = set.apply(edit).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(&set, of(vec![deletion(live, 7)]), "which is live");
    refused(&set, of(vec![deletion(900, 0)]), "was not to be");
    let later = DeferredDeletion {
        epoch: 1,
        ..deletion(900, 7)
    };
    refused(&set, of(vec![later]), "impossible number");
    let mut edit = of(vec![deletion(live, 7), deletion(900, 8)]);
    edit.removed = vec![(0, live)];
    set.apply(edit).unwrap();
    drop(set);

    let set = open(&env);
    assert!(set.new_file_id() > 900, "the id stays taken");
    let waiting: Vec<u64> = set.state().deferred.into_keys().collect();
    assert_eq!(waiting, [live, 900]);
    set.apply(of(vec![deletion(live, 0)])).unwrap();
    drop(set);
    let waiting = open(&env).state().deferred;
    assert_eq!(
        waiting.into_values().collect::<Vec<_>>(),
        [deletion(900, 8)]
    );
}

#[test]
fn a_file_in_an_object_store_is_refused_by_name() {
    let env = env();
    let mut state = ManifestState::default();
    let meta = FileMeta {
        location: FileLocation::ObjectStore,
        ..file(3, b"\0\0\0\x01a", b"\0\0\0\x01f")
    };
    state.apply(&Edit {
        added: vec![(2, 0, meta)],
        ..Edit::default()
    });
    create_manifest(&env, Path::new(DIR), &state).unwrap();
    let error = try_open(&env).err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    let said = error.to_string();
    assert!(said.contains("SST 3 lies in an object store"), "{said}");
    // Loading the manifest alone succeeds and reports the location of the file.
    let loaded = load(&env, Path::new(DIR)).unwrap().unwrap();
    let file = &loaded.state.files[&3].meta;
    assert_eq!(file.location, FileLocation::ObjectStore);
    let source = context(Arc::new(env.clone()), Path::new(DIR)).source;
    let handle = FileHandle::new(Arc::clone(file), source);
    let error = handle.reader().err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
}

#[test]
fn what_waits_for_its_deletion_does_not_come_back() {
    let env = env();
    let set = open(&env);
    let meta = put_file(&set);
    let deletion = |slot| DeferredDeletion {
        kind: FileKind::Sst,
        file: meta.file_id,
        epoch: 0,
        slot,
    };
    let of = |deferred, added| Edit {
        deferred,
        added,
        ..Edit::default()
    };
    set.apply(of(vec![deletion(3)], Vec::new())).unwrap();
    let add = || vec![(1, 0, meta.clone())];
    let error = set.apply(of(Vec::new(), add())).unwrap_err();
    assert!(error.to_string().contains("is to be deleted"), "{error}");
    // Once the deferred deletion is done, a file with this id may be added again.
    set.apply(of(vec![deletion(0)], add())).unwrap();
}

#[test]
fn a_blob_file_that_a_table_needs_is_not_to_be_deleted() {
    let used = |file| crate::base::blob_ref::BlobUse {
        file,
        refs: 1,
        bytes: 9,
    };
    let deletion = |file| DeferredDeletion {
        kind: FileKind::Blob,
        file,
        epoch: 0,
        slot: 7,
    };
    let of = |file| Edit {
        deferred: vec![deletion(file)],
        ..Edit::default()
    };
    let mut state = ManifestState::default();
    let mut meta = file(3, b"\0\0\0\x01a", b"\0\0\0\x01f");
    meta.blobs = vec![used(10), used(11)];
    state.apply(&Edit {
        added: vec![(1, 0, meta.clone())],
        blobs_moved: vec![(11, 12)],
        ..Edit::default()
    });
    for (file, needed) in [(10, true), (12, true), (11, false), (13, false)] {
        let said = state.check_edit(&of(file));
        assert_eq!(said.is_some(), needed, "{file}: {said:?}");
        assert!(said.is_none_or(|what| what.contains("which file 3 needs")));
    }
    // A blob file may be marked for deletion in the edit that removes the last SST that needs it,
    // or that moves its blobs to another file.
    let mut edit = of(10);
    edit.removed = vec![(1, 3)];
    assert_eq!(state.check_edit(&edit), None);
    let mut edit = of(12);
    edit.blobs_moved = vec![(11, 14)];
    assert_eq!(state.check_edit(&edit), None);
    // While a blob file waits for its deletion, no edit may make an SST need it.
    state.apply(&of(11));
    let mut edit = Edit {
        blobs_moved: vec![(11, 0)],
        ..Edit::default()
    };
    assert!(state.check_edit(&edit).is_some());
    edit.removed = vec![(1, 3)];
    assert_eq!(state.check_edit(&edit), None);
    let mut newer = file(4, b"\0\0\0\x01g", b"\0\0\0\x01h");
    newer.blobs = vec![used(13)];
    state.apply(&of(13));
    let edit = Edit {
        added: vec![(1, 0, newer)],
        ..Edit::default()
    };
    assert!(state.check_edit(&edit).is_some());
}

#[test]
fn a_file_may_change_its_place_and_nothing_else() {
    let mut state = ManifestState::default();
    let meta = file(3, b"\0\0\0\x01a", b"\0\0\0\x01f");
    let edit = |meta| Edit {
        added: vec![(1, 0, meta)],
        ..Edit::default()
    };
    state.apply(&edit(meta.clone()));
    let moved = |change: &dyn Fn(&mut FileMeta)| {
        let mut meta = meta.clone();
        change(&mut meta);
        let mut edit = edit(meta);
        edit.removed = vec![(1, 3)];
        state.check_edit(&edit)
    };
    assert_eq!(
        moved(&|meta| meta.location = FileLocation::ObjectStore),
        None
    );
    assert_eq!(moved(&|meta| meta.tail_len = 77), None);
    let changed = moved(&|meta| meta.entries += 1);
    assert_eq!(changed.as_deref(), Some("moves file 3 and changes it"));
}

#[test]
fn a_stray_with_the_last_id_of_an_epoch_does_not_use_the_epoch_up() {
    let env = env();
    let set = open(&env);
    let stray = IDS_PER_EPOCH - 1;
    let store = set.source().store().clone();
    drop(set);
    for _ in 0..3 {
        store.create(stray).unwrap().sync().unwrap();
        let set = open(&env);
        set.apply(flush(&set)).unwrap();
        assert!(set.new_file_id() < 1000);
    }
}

#[test]
fn ids_that_are_used_up_are_refused_before_the_manifest_has_them() {
    let env = env();
    let set = open(&env);
    set.reserve_file_ids(u64::MAX);
    set.apply(Edit::default()).unwrap();
    assert_eq!(set.new_file_id(), IDS_PER_EPOCH - 1);
    let counters = Edit {
        counters: vec![(1, 2.into())],
        ..Edit::default()
    };
    let error = set.apply(counters).unwrap_err();
    assert!(error.to_string().contains("beyond epoch 0"), "{error}");
    drop(set);
    for _ in 0..2 {
        // This open's own manifest would get the last id of the epoch, and no id would be left for
        // the manifest after it. So the open is refused.
        let error = try_open(&env).err().unwrap();
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().contains("used up"), "{error}");
    }
}

/// A stop leaves many files in the epoch that the log began, and the next open still finds the
/// manifest in the epoch before. Their ids must not be those of new files, because they are deleted
/// later.
#[test]
fn strays_of_the_epoch_that_is_taken_over_are_deleted_without_a_new_file() {
    let env = env();
    drop(open(&env));
    let place = |id: u64| {
        let name = crate::store::file_name(FileKind::Sst, id);
        env.place(&Path::new(DIR).join(name), Vec::new());
    };
    (0..200).for_each(|n| place(IDS_PER_EPOCH + n));
    // No id of this epoch will ever lie above these. They cannot wait for their deletion.
    (0..200).for_each(|n| place(2 * IDS_PER_EPOCH - 1 - n));
    let set = VersionSet::open(context(Arc::new(env.clone()), Path::new(DIR))).unwrap();
    set.begin_epoch(1, 1 << 33).unwrap();
    set.remove_strays(&HashSet::new());
    let left = on_disk(&set);
    assert!(left.iter().all(|id| *id < IDS_PER_EPOCH + 200), "{left:?}");
    assert!(!left.is_empty(), "the first files go later");
    for _ in 0..200 {
        set.apply(flush(&set)).unwrap();
    }
    set.delete_obsolete().unwrap();
    let live: Vec<u64> = set.state().files.into_keys().collect();
    assert_eq!((live.len(), on_disk(&set)), (200, live));
}
