use super::*;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{FaultEnv, MemEnv};

#[test]
fn names_come_back() {
    for id in [1, 999_999, 1_000_000, u64::MAX] {
        assert_eq!(parse_segment_name(&segment_name(id)), Some(id));
    }
    for other in [
        "1.wal",
        "000001.sst",
        "000001.wal.tmp",
        "+00001.wal",
        ".wal",
    ] {
        assert_eq!(parse_segment_name(other), None, "{other}");
    }
}

const SIZE: u64 = 8 * 4096;

fn segments(env: &FaultEnv, spare_max: usize) -> Segments {
    let dir = PathBuf::from("/db");
    env.create_dir_all(&dir).unwrap();
    Segments {
        env: Arc::new(env.clone()),
        dir,
        health: Arc::new(Health::new()),
        direct: false,
        size: SIZE,
        incarnation: 1,
        base: LogEnd::default(),
        spare: Mutex::default(),
        spare_max,
        kept: None,
        created: AtomicU64::new(0),
        recycled: AtomicU64::new(0),
    }
}

/// A spare segment that cannot be used now is still there for the next try.
#[test]
fn a_spare_survives_a_failed_try() {
    let failures = [
        (CallClass::Rename, Errno::NoSpace),
        (CallClass::Open, Errno::ProcessTableFull),
    ];
    for (class, errno) in failures {
        let env = FaultEnv::new(Arc::new(MemEnv::new()));
        let segments = segments(&env, 8);
        for id in 1..=2 {
            segments.prepare(id, 0, false).unwrap();
        }
        segments
            .release([(1, SIZE), (2, SIZE)].into_iter())
            .unwrap();
        // As if the files could not be opened when they were released.
        let mut spare = segments.spare.lock();
        assert_eq!(spare.len(), 2);
        spare.iter_mut().for_each(|spare| spare.file = None);
        drop(spare);
        for _ in 0..3 {
            env.inject(Fault {
                class,
                nth: 1,
                sticky: false,
                errno,
            });
            segments.prepare(3, 0, false).err().unwrap();
            assert_eq!(segments.spare.lock().len(), 2);
        }
        assert!(segments.health.check().is_ok());
        segments.prepare(3, 0, false).unwrap();
        segments.prepare(4, 0, false).unwrap();
        assert_eq!(segments.recycled.load(Ordering::Relaxed), 2);
        assert_eq!(segments.created.load(Ordering::Relaxed), 2);
    }
}

/// Somebody has removed the file of a spare segment, or its file system is damaged: the log goes on
/// without it.
#[test]
fn a_spare_that_is_gone_holds_nothing_up() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let segments = segments(&env, 8);
    (1..=3).for_each(|id| _ = segments.prepare(id, 0, false).unwrap());
    segments.release((1..=3).map(|id| (id, SIZE))).unwrap();
    env.remove(&segments.path(3)).unwrap();
    segments.prepare(4, 0, false).unwrap();
    assert_eq!(segments.recycled.load(Ordering::Relaxed), 1);
    env.inject(Fault {
        class: CallClass::Rename,
        nth: 1,
        sticky: false,
        errno: Errno::Io,
    });
    segments.prepare(5, 0, false).err().unwrap();
    segments.prepare(5, 0, false).unwrap();
    assert!(segments.spare.lock().is_empty());
}

/// One segment that cannot be removed does not keep the others.
#[test]
fn a_failed_release_keeps_one_segment() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let segments = segments(&env, 0);
    (1..=3).for_each(|id| _ = segments.prepare(id, 0, false).unwrap());
    env.inject(Fault {
        class: CallClass::Remove,
        nth: 1,
        sticky: false,
        errno: Errno::Io,
    });
    let released = (1..=3).map(|id| (id, SIZE));
    segments.release(released).unwrap_err();
    assert_eq!(env.list_dir(&segments.dir).unwrap(), [segment_name(1)]);
}
