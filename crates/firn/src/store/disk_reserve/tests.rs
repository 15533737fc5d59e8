use super::*;
use crate::env::{MemEnv, PosixEnv};

fn setup() -> (MemEnv, DiskReserve) {
    let env = MemEnv::new();
    let dir = Path::new("/db");
    env.create_dir_all(dir).unwrap();
    let reserve = DiskReserve::new(Arc::new(env.clone()), dir);
    (env, reserve)
}

#[test]
fn a_full_disk_has_room_for_what_is_made_of_the_reserve() {
    let (env, reserve) = setup();
    reserve.fill().unwrap();
    let (there, wanted) = reserve.bytes();
    assert_eq!(there, wanted);
    assert!((3 << 20..4 << 20).contains(&there), "{there}");
    env.fill();
    let used = env.used();
    let path = Path::new("/db/file");
    assert!(env.create(path).is_err());
    let mut file = reserve.create(ReservePart::Table, path).unwrap();
    assert!(!reserve.has(ReservePart::Table) && reserve.has(ReservePart::Log));
    let bytes = vec![7; ReservePart::Table.bytes() as usize];
    file.append(&bytes).unwrap();
    file.sync().unwrap();
    assert_eq!(*file.append(&[7]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(env.used(), used);
    assert_eq!(env.read(path).unwrap(), bytes);
    // Filling the reserve without room on the disk is no error.
    reserve.fill().unwrap();
    assert!(!reserve.has(ReservePart::Table));
    env.remove(path).unwrap();
    reserve.fill().unwrap();
    assert!(reserve.has(ReservePart::Table));
    assert_eq!(env.used(), used);
}

#[test]
fn a_part_that_is_gone_is_done_without() {
    let (env, reserve) = setup();
    let mut file = reserve
        .create(ReservePart::Manifest, Path::new("/db/file"))
        .unwrap();
    file.append(b"plain").unwrap();
    assert_eq!(env.read(Path::new("/db/file")).unwrap(), b"plain");
}

#[test]
fn the_system_sets_room_aside_without_a_length() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let reserve = DiskReserve::new(Arc::clone(&env), dir.path());
    reserve.fill().unwrap();
    let (there, wanted) = reserve.bytes();
    // Where the file system cannot set blocks aside, the target becomes 0.
    assert_eq!(there, wanted);
    if wanted == 0 {
        return;
    }
    let usage = env.usage(&reserve.path(ReservePart::Table)).unwrap();
    assert_eq!(usage.len, 0);
    assert!(usage.allocated >= ReservePart::Table.bytes(), "{usage:?}");
    let path = dir.path().join("file");
    let mut file = reserve.create(ReservePart::Table, &path).unwrap();
    file.append(b"in its room").unwrap();
    assert!(file.allocate(4096).unwrap());
    file.sync().unwrap();
    let usage = env.usage(&path).unwrap();
    assert_eq!(usage.len, 11);
    assert!(usage.allocated >= ReservePart::Table.bytes(), "{usage:?}");
    assert!(!env.exists(&reserve.path(ReservePart::Table)).unwrap());
}

#[test]
fn what_a_power_cut_left_in_a_part_is_not_found_in_what_is_made_of_it() {
    let (env, reserve) = setup();
    reserve.fill().unwrap();
    env.sync_dir(Path::new("/db")).unwrap();
    let path = Path::new("/db/file");
    let mut file = reserve.create(ReservePart::Manifest, path).unwrap();
    file.append(b"synced under a name that is lost").unwrap();
    file.sync().unwrap();
    let env = env.crash(0);
    let reserve = DiskReserve::new(Arc::new(env.clone()), Path::new("/db"));
    assert!(
        !env.read(&reserve.path(ReservePart::Manifest))
            .unwrap()
            .is_empty()
    );
    reserve.fill().unwrap();
    let mut file = reserve.create(ReservePart::Manifest, path).unwrap();
    file.append(b"short").unwrap();
    assert_eq!(env.read(path).unwrap(), b"short");
}
