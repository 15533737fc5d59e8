use super::*;
use crate::base::ErrorKind;
use crate::base::event_listener::Silent;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{FaultEnv, MemEnv, PosixEnv, ReadClass};

#[test]
fn names_round_trip_and_foreign_names_are_passed_over() {
    for id in [0, 7, 9_999_999_999, 10_000_000_000, u64::MAX] {
        let name = file_name(FileKind::Sst, id);
        assert_eq!(parse_file_name(&name), Some((FileKind::Sst, id)));
    }
    for foreign in [
        "7.sst",
        "+000000007.sst",
        "0000000007.tmp",
        "0000000007.sst.bak",
        "MANIFEST",
    ] {
        assert_eq!(parse_file_name(foreign), None, "{foreign}");
    }
}

#[test]
fn files_are_created_listed_read_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::new(Arc::new(PosixEnv::new()), dir.path());
    for id in [12, 3] {
        let mut file = store.create(id).unwrap();
        file.append(&[id as u8; 9]).unwrap();
        file.sync().unwrap();
    }
    store.sync_dir().unwrap();
    assert_eq!(store.list().unwrap(), [3, 12]);
    let mut buf = [0; 9];
    store
        .open(12)
        .unwrap()
        .read_exact_at(ReadClass::Point, 0, &mut buf)
        .unwrap();
    assert_eq!(buf, [12; 9]);
    store.remove(12).unwrap();
    assert_eq!(store.list().unwrap(), [3]);
    assert_eq!(store.open(12).err().unwrap().kind(), &ErrorKind::NotFound);
}

/// A later sync of the directory may succeed although names are lost.
#[test]
fn a_failed_sync_of_names_poisons_unless_it_had_no_effect() {
    for (class, errno, poisons) in [
        (CallClass::Sync, Errno::Io, true),
        (CallClass::Sync, Errno::NoSpace, false),
        (CallClass::Open, Errno::ProcessTableFull, false),
    ] {
        let env = FaultEnv::new(Arc::new(MemEnv::new()));
        env.create_dir_all(Path::new("/db")).unwrap();
        let health = Arc::new(Health::new());
        let store = FileStore::new(Arc::new(env.clone()), "/db");
        let store = store.with_health(Arc::clone(&health), Arc::new(Silent));
        store.create(1).unwrap();
        env.inject(Fault {
            class,
            nth: 1,
            sticky: false,
            errno,
        });
        assert!(store.sync_dir().is_err());
        assert_eq!(health.check().is_err(), poisons, "{class:?} {errno:?}");
        store.sync_dir().unwrap();
    }
}
