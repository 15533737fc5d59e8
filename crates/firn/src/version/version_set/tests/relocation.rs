//! Files between the data directory and an object store, as the manifest sees them.

use super::*;
use crate::base::epoch::DatabaseId;
use crate::base::event_listener::{EventListener, Severity};
use crate::env::ReadFile;
use crate::store::{FileId, RemoteFiles, RemoteSst};
use crate::version::{FileLocation, LAST_LEVEL, RemoteDeletions};

const MINUTE_US: u64 = 60_000_000;
const LAST: u8 = LAST_LEVEL as u8;

/// Notes which objects are deleted. Nobody reads or uploads here.
#[derive(Default)]
struct Deletions {
    deleted: Mutex<Vec<FileId>>,
    is_out: AtomicBool,
}

impl RemoteFiles for Deletions {
    fn name(&self) -> &str {
        "a store"
    }

    fn belongs_to(&self, _: DatabaseId, _: bool) {}

    fn open(&self, _: &RemoteSst) -> Result<Arc<dyn ReadFile>> {
        Err(Error::invalid("nobody reads"))
    }

    fn is_there(&self, _: &RemoteSst) -> Result<bool> {
        Err(Error::invalid("nobody asks"))
    }

    fn upload(&self, _: &RemoteSst, _: &Path, _: &AtomicBool) -> Result<()> {
        Err(Error::invalid("nobody uploads"))
    }

    fn release(&self, _: &RemoteSst) {}

    fn delete(&self, id: FileId) -> Result<()> {
        if self.is_out.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unreachable, "out"));
        }
        self.deleted.lock().push(id);
        Ok(())
    }

    fn stop(&self) {}

    fn sweep(&self, _: &dyn Fn(FileId, u64) -> bool) -> Result<u64> {
        Ok(0)
    }

    fn shares_disk_with(&self, _: &Path) -> bool {
        false
    }

    fn beat(&self) {}
}

fn open_with(dir: &Path, remote: &Arc<Deletions>) -> VersionSet {
    let context = context(Arc::new(PosixEnv::new()), dir);
    let remote: Arc<dyn RemoteFiles> = Arc::<Deletions>::clone(remote);
    let store = FileStore::new(Arc::clone(&context.env), dir).with_remote(remote);
    let source = FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20)));
    let set = VersionSet::open(VersionSetContext { source, ..context }).unwrap();
    set.remove_strays(&HashSet::new());
    set
}

/// A file of the last level.
fn add(set: &VersionSet, keys: [&[u8]; 2]) -> FileMeta {
    let id = put_file(set).file_id;
    let meta = file(id, keys[0], keys[1]);
    set.apply(Edit {
        added: vec![(LAST, 0, meta.clone())],
        ..Edit::default()
    })
    .unwrap();
    meta
}

fn location(set: &VersionSet, id: u64) -> FileLocation {
    let version = set.current();
    let (_, file) = version
        .files()
        .find(|(_, file)| file.file_id == id)
        .unwrap();
    assert_eq!(file.location, set.state().files[&id].meta.location);
    file.location
}

fn delete(set: &VersionSet, minute: u64) -> RemoteDeletions {
    set.delete_objects(minute * MINUTE_US, 256, &AtomicBool::new(false))
        .unwrap()
}

#[test]
fn a_file_moves_and_its_local_file_goes_with_the_last_reader() {
    let (dir, remote) = (tempfile::tempdir().unwrap(), Arc::default());
    let set = open_with(dir.path(), &remote);
    let meta = add(&set, [b"\0\0\0\x01a", b"\0\0\0\x01b"]);
    let id = meta.file_id;
    let reading = set.current();
    set.relocate(&meta, FileLocation::ObjectStore)
        .unwrap()
        .unwrap();
    assert_eq!(location(&set, id), FileLocation::ObjectStore);
    set.delete_obsolete().unwrap();
    assert_eq!(on_disk(&set), [id], "somebody reads it");
    assert!(
        !set.begin_local_copy(id),
        "a new file of this name would be deleted"
    );
    drop(reading);
    set.delete_obsolete().unwrap();
    assert!(on_disk(&set).is_empty());
    // Twice is once.
    assert!(
        set.relocate(&meta, FileLocation::ObjectStore)
            .unwrap()
            .is_none()
    );
    drop(set);
    let set = open_with(dir.path(), &remote);
    assert_eq!(location(&set, id), FileLocation::ObjectStore);
    assert!(set.begin_local_copy(id));
    assert!(!set.begin_local_copy(id));
}

/// A crash between the edit and the removal leaves the local file, and one while a file is brought
/// back leaves a part of it.
#[test]
fn a_local_file_beside_the_object_is_a_stray() {
    let (dir, remote) = (tempfile::tempdir().unwrap(), Arc::default());
    let set = open_with(dir.path(), &remote);
    let meta = add(&set, [b"\0\0\0\x01a", b"\0\0\0\x01b"]);
    set.relocate(&meta, FileLocation::ObjectStore)
        .unwrap()
        .unwrap();
    drop(set);
    let store = open_with(dir.path(), &remote).source().store().clone();
    assert!(store.list().unwrap().is_empty());
    store.create(meta.file_id).unwrap().sync().unwrap();
    let set = open_with(dir.path(), &remote);
    assert!(on_disk(&set).is_empty());
    assert_eq!(location(&set, meta.file_id), FileLocation::ObjectStore);
}

/// A job that was chosen before the move has the old metadata.
#[test]
fn an_edit_that_moves_a_file_to_another_level_leaves_its_place() {
    let (dir, remote) = (tempfile::tempdir().unwrap(), Arc::default());
    let set = open_with(dir.path(), &remote);
    let meta = add(&set, [b"\0\0\0\x01a", b"\0\0\0\x01b"]);
    set.relocate(&meta, FileLocation::ObjectStore)
        .unwrap()
        .unwrap();
    set.apply(Edit {
        removed: vec![(LAST, meta.file_id)],
        added: vec![(5, 0, meta.clone())],
        ..Edit::default()
    })
    .unwrap();
    assert_eq!(location(&set, meta.file_id), FileLocation::ObjectStore);
    assert!(set.state().deferred.is_empty());
}

#[test]
fn the_object_of_a_removed_file_is_deleted_after_its_readers_and_ten_minutes() {
    let (dir, remote) = (tempfile::tempdir().unwrap(), Arc::default());
    let set = open_with(dir.path(), &remote);
    let meta = add(&set, [b"\0\0\0\x01a", b"\0\0\0\x01b"]);
    let id = meta.file_id;
    set.relocate(&meta, FileLocation::ObjectStore)
        .unwrap()
        .unwrap();
    set.delete_obsolete().unwrap();
    let reading = set.current();
    set.apply(Edit {
        removed: vec![(LAST, id)],
        ..Edit::default()
    })
    .unwrap();
    assert!(set.names_object(id));
    assert_eq!(delete(&set, 100), RemoteDeletions::default());
    drop(reading);
    assert_eq!(delete(&set, 200).left, 1);
    assert_eq!(delete(&set, 209).deleted, 0);
    let hold = set.hold_files();
    assert_eq!(delete(&set, 211).deleted, 0);
    drop(hold);
    remote.is_out.store(true, Ordering::Relaxed);
    let error = set.delete_objects(211 * MINUTE_US, 256, &AtomicBool::new(false));
    assert_eq!(*error.unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(set.awaits_deletion(id));
    remote.is_out.store(false, Ordering::Relaxed);
    assert_eq!((delete(&set, 213).deleted, delete(&set, 213).done), (1, 0));
    assert_eq!(*remote.deleted.lock(), [id]);
    assert!(!set.names_object(id) && set.state().deferred.is_empty());
    // Nothing of the local directory was touched, and nothing is left.
    assert_eq!(set.obsolete(), (0, 0));
    drop(set);
    let set = open_with(dir.path(), &remote);
    assert!(set.state().deferred.is_empty() && set.new_file_id() > id);
}

/// The list survives restarts. An object is deleted twice rather than never.
#[test]
fn a_restart_goes_on_with_deletions() {
    let (dir, remote) = (tempfile::tempdir().unwrap(), Arc::default());
    let set = open_with(dir.path(), &remote);
    let meta = add(&set, [b"\0\0\0\x01a", b"\0\0\0\x01b"]);
    let id = meta.file_id;
    set.relocate(&meta, FileLocation::ObjectStore)
        .unwrap()
        .unwrap();
    set.apply(Edit {
        removed: vec![(LAST, id)],
        ..Edit::default()
    })
    .unwrap();
    drop(set);
    let set = open_with(dir.path(), &remote);
    assert!(set.names_object(id));
    delete(&set, 1);
    assert!(remote.deleted.lock().is_empty());
    assert_eq!(delete(&set, 12).done, 1);
    assert_eq!(*remote.deleted.lock(), [id]);
}

#[test]
fn a_file_that_came_back_stays_until_its_deletion_is_an_hour_old() {
    let (dir, remote) = (tempfile::tempdir().unwrap(), Arc::default());
    let set = open_with(dir.path(), &remote);
    let meta = add(&set, [b"\0\0\0\x01a", b"\0\0\0\x01b"]);
    let id = meta.file_id;
    set.relocate(&meta, FileLocation::ObjectStore)
        .unwrap()
        .unwrap();
    set.delete_obsolete().unwrap();
    let bring_back = |set: &VersionSet| {
        assert!(set.begin_local_copy(id));
        set.source().store().create(id).unwrap().sync().unwrap();
        set.relocate(&meta, FileLocation::Local).unwrap().unwrap();
        assert_eq!(location(set, id), FileLocation::Local);
    };
    bring_back(&set);
    set.delete_obsolete().unwrap();
    assert_eq!(on_disk(&set), [id]);
    let stays = |set: &VersionSet| {
        assert!(
            set.relocate(&meta, FileLocation::ObjectStore)
                .unwrap()
                .is_none()
        );
        assert!(set.names_object(id) && set.awaits_deletion(id));
    };
    stays(&set);
    drop(set);
    let set = open_with(dir.path(), &remote);
    assert_eq!(
        (on_disk(&set), location(&set, id)),
        (vec![id], FileLocation::Local)
    );
    stays(&set);
    delete(&set, 0);
    assert_eq!(delete(&set, 11).deleted, 1);
    stays(&set);
    assert_eq!(delete(&set, 70).done, 0);
    stays(&set);
    assert_eq!(delete(&set, 72).done, 1);
    // A level move of a file that came back is an edit like others.
    set.relocate(&meta, FileLocation::ObjectStore)
        .unwrap()
        .unwrap();
    set.delete_obsolete().unwrap();
    assert!(on_disk(&set).is_empty());
    bring_back(&set);
    set.apply(Edit {
        removed: vec![(LAST, id)],
        added: vec![(5, 0, meta.clone())],
        ..Edit::default()
    })
    .unwrap();
    assert_eq!(location(&set, id), FileLocation::Local);
    // The file goes, its object is on the list already.
    set.apply(Edit {
        removed: vec![(5, id)],
        ..Edit::default()
    })
    .unwrap();
    assert_eq!(set.state().deferred.len(), 1);
    set.delete_obsolete().unwrap();
    assert!(on_disk(&set).is_empty());
}

/// A file that leaves the tree while it moves.
#[test]
fn a_file_that_is_gone_does_not_move() {
    let (dir, remote) = (tempfile::tempdir().unwrap(), Arc::default());
    let set = open_with(dir.path(), &remote);
    let meta = add(&set, [b"\0\0\0\x01a", b"\0\0\0\x01b"]);
    let id = meta.file_id;
    let gone = || Edit {
        removed: vec![(LAST, id)],
        ..Edit::default()
    };
    set.relocate(&meta, FileLocation::ObjectStore)
        .unwrap()
        .unwrap();
    set.delete_obsolete().unwrap();
    assert!(set.begin_local_copy(id));
    set.source().store().create(id).unwrap().sync().unwrap();
    set.apply(gone()).unwrap();
    assert!(set.relocate(&meta, FileLocation::Local).unwrap().is_none());
    assert!(on_disk(&set).is_empty(), "the copy is removed");
    assert!(!set.begin_local_copy(id));

    let meta = add(&set, [b"\0\0\0\x01a", b"\0\0\0\x01b"]);
    set.apply(Edit {
        removed: vec![(LAST, meta.file_id)],
        ..Edit::default()
    })
    .unwrap();
    assert!(
        set.relocate(&meta, FileLocation::ObjectStore)
            .unwrap()
            .is_none()
    );
    assert!(!set.names_object(meta.file_id));
}

/// Without a store nobody looks whether the directories are gone.
#[test]
fn only_a_database_with_a_store_remembers_who_holds_objects() {
    let dir = tempfile::tempdir().unwrap();
    let holder = dir.path().join("checkpoint");
    let plain = VersionSet::open(context(Arc::new(PosixEnv::new()), dir.path())).unwrap();
    plain.hold_objects_for(vec![holder.clone()]);
    assert_eq!(plain.object_holds(), 0);

    let (other, remote) = (tempfile::tempdir().unwrap(), Arc::default());
    let set = open_with(other.path(), &remote);
    std::fs::create_dir(&holder).unwrap();
    set.hold_objects_for(vec![holder.clone()]);
    delete(&set, 0);
    assert_eq!(set.object_holds(), 1);
    std::fs::remove_dir(&holder).unwrap();
    delete(&set, 0);
    assert_eq!(set.object_holds(), 0);
}

/// Notes warnings.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl EventListener for Warnings {
    fn log(&self, severity: Severity, message: &str) {
        if severity == Severity::Warning {
            self.0.lock().push(message.to_owned());
        }
    }
}

/// A directory that was forgotten keeps all objects.
#[test]
fn a_long_hold_is_named() {
    let (dir, remote) = (tempfile::tempdir().unwrap(), Arc::<Deletions>::default());
    let holder = dir.path().join("checkpoint");
    std::fs::create_dir(&holder).unwrap();
    let warnings = Arc::new(Warnings::default());
    let context = context(Arc::new(PosixEnv::new()), dir.path());
    let store = FileStore::new(Arc::clone(&context.env), dir.path());
    let store = store.with_remote(Arc::<Deletions>::clone(&remote));
    let set = VersionSet::open(VersionSetContext {
        source: FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20))),
        listener: Arc::<Warnings>::clone(&warnings),
        ..context
    });
    let set = set.unwrap();
    let meta = add(&set, [b"a", b"b"]);
    set.relocate(&meta, FileLocation::ObjectStore).unwrap();
    set.hold_objects_for(vec![holder.clone()]);
    assert_eq!(set.objects_held_by(), Some(holder.clone()));
    let now = |minute: u64| set.ctx.env.monotonic_micros() / MINUTE_US + minute;
    delete(&set, now(300));
    assert!(warnings.0.lock().is_empty(), "nobody waits for it");
    set.apply(Edit {
        removed: vec![(LAST, meta.file_id)],
        ..Edit::default()
    })
    .unwrap();
    delete(&set, now(1));
    delete(&set, now(30));
    assert!(warnings.0.lock().is_empty(), "it is not long");
    for _ in 0..3 {
        delete(&set, now(62));
    }
    let said = warnings.0.lock().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains(&holder.display().to_string()), "{said:?}");
    assert!(remote.deleted.lock().is_empty());
    std::fs::remove_dir(&holder).unwrap();
    delete(&set, now(63));
    assert_eq!(*remote.deleted.lock(), [meta.file_id]);
    assert_eq!(set.objects_held_by(), None);
}
