use super::*;
use crate::env::{Clock, Files, Open};
use crate::error::ErrorKind;
use crate::store::{ObjectStore, PutNew};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

fn objects(faults: Faults) -> (Arc<VirtualClock>, MemObjects) {
    let clock = Arc::new(VirtualClock::new(1));
    let objects = MemObjects::new(1, clock.clone());
    objects.set_faults(faults);
    (clock, objects)
}

fn always(change: impl Fn(&mut Faults)) -> Faults {
    let mut faults = Faults {
        timeout_us: 1000,
        ..Faults::default()
    };
    change(&mut faults);
    faults
}

#[test]
fn each_fault_does_what_it_says() {
    let one = Bytes::from_static(b"one");
    let (_, lost) = objects(always(|faults| faults.lost = 1000));
    assert_eq!(
        lost.put("a", one.clone()).unwrap_err().kind(),
        ErrorKind::Unreachable
    );
    assert!(lost.contents().is_empty());
    let (clock, answer) = objects(always(|faults| faults.lost_answer = 1000));
    assert_eq!(
        answer.put("a", one.clone()).unwrap_err().kind(),
        ErrorKind::Unreachable
    );
    assert_eq!(answer.contents()["a"], one);
    assert_eq!(clock.now_us(), 1000);
    let (clock, late) = objects(always(|faults| {
        (faults.late, faults.late_us) = (1000, 1_000_000)
    }));
    late.put_new("a", one.clone()).unwrap_err();
    assert!(late.contents().is_empty());
    late.set_faults(Faults::default());
    clock.sleep_us(1_000_000);
    assert_eq!(late.put_new("a", Bytes::new()).unwrap(), PutNew::Exists);
    assert_eq!(late.contents()["a"], one);
    let (_, throttled) = objects(always(|faults| faults.throttled = 1000));
    assert_eq!(
        throttled.put("a", one.clone()).unwrap_err().kind(),
        ErrorKind::Throttled
    );
    let (_, flipped) = objects(always(|faults| faults.flip_sent = 1000));
    assert_eq!(
        flipped.put("a", one.clone()).unwrap_err().kind(),
        ErrorKind::Damaged
    );
    assert!(flipped.contents().is_empty());
    let (_, flipped) = objects(always(|faults| faults.flip_read = 1000));
    flipped.put("a", one.clone()).unwrap();
    assert_ne!(flipped.get("a").unwrap(), one);
    assert_eq!(flipped.contents()["a"], one);
    let (clock, stale) = objects(always(|faults| {
        (faults.stale, faults.stale_us) = (1000, 1000)
    }));
    clock.sleep_us(1_000_000);
    stale.put("a", one.clone()).unwrap();
    clock.sleep_us(1);
    let listed = |_| !stale.list_page("", None).unwrap().items.is_empty();
    assert!(
        (0..100).filter(|&i| listed(i)).count() < 10,
        "most lists are older than the object"
    );
    clock.sleep_us(1_000_000);
    assert!(listed(0));
    let (clock, out) = objects(always(|_| ()));
    out.go_out(1_000_000);
    assert_eq!(
        out.put("a", one.clone()).unwrap_err().kind(),
        ErrorKind::Unreachable
    );
    clock.sleep_us(1_000_000);
    out.put("a", one).unwrap();
}

#[test]
fn a_crash_keeps_what_was_synced_and_some_of_the_rest() {
    let (mut kept, mut torn) = (0, 0);
    for seed in 0..200 {
        let files = MemFiles::new(seed, &["/d"]);
        let path = Path::new("/d/a");
        let file = files.open(path, Open::New).unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        file.sync().unwrap();
        files.sync_directory(Path::new("/d")).unwrap();
        file.write_at(&[2; 8192], 0).unwrap();
        files.rename(path, Path::new("/d/b")).unwrap();
        files.crash();
        let found = ["/d/a", "/d/b"].map(|path| files.open(Path::new(path), Open::Read).ok());
        // Either name, or both, or none, as a rename of an unsynced directory may do.
        for file in found.into_iter().flatten() {
            let mut bytes = [0; 8192];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 8192);
            assert!(
                bytes[..4096]
                    .iter()
                    .all(|&byte| byte == bytes[0] && byte != 0)
            );
            assert!(
                bytes[4096..]
                    .iter()
                    .all(|&byte| byte == bytes[4096] && byte != 0)
            );
            kept += 1;
            torn += u32::from(bytes[0] != bytes[4096]);
        }
    }
    assert!(kept > 100 && torn > 20, "{kept}, {torn}");
}

#[test]
fn a_burnt_fuse_fails_all_changes() {
    let files = MemFiles::new(1, &["/d"]);
    files.set_fuse(2);
    let file = files.open(Path::new("/d/a"), Open::New).unwrap();
    file.write_at(&[1], 0).unwrap();
    assert!(file.write_at(&[2], 0).is_err());
    assert!(files.remove(Path::new("/d/a")).is_err());
    files.kill();
    let mut byte = [0];
    files
        .open(Path::new("/d/a"), Open::Read)
        .unwrap()
        .read_at(&mut byte, 0)
        .unwrap();
    assert_eq!(byte, [1]);
}
