use super::*;
use crate::base::{ErrorKind, FailureClass};
use crate::env::{AlignedBuf, MemEnv, ReadClass};

fn env() -> FaultEnv {
    let env = MemEnv::new();
    env.create_dir_all(Path::new("/db")).unwrap();
    FaultEnv::new(Arc::new(env))
}

fn block() -> AlignedBuf {
    let mut buf = AlignedBuf::new();
    buf.extend_from_slice(&[1; 4096]);
    buf
}

#[test]
fn the_nth_call_fails_once_or_from_then_on() {
    for sticky in [false, true] {
        let env = env();
        let mut file = env.create(Path::new("/db/a")).unwrap();
        file.append(b"0").unwrap();
        env.inject(Fault {
            class: CallClass::Write,
            nth: 2,
            sticky,
            errno: Errno::NoSpace,
        });
        let results = [(); 4].map(|()| file.append(b"1").is_ok());
        assert_eq!(results, [true, false, !sticky, !sticky]);
        assert_eq!(env.count(CallClass::Write), 5);
        env.clear();
        file.append(b"2").unwrap();
        file.sync().unwrap();
        assert_eq!(file.len(), if sticky { 3 } else { 5 });
    }
}

#[test]
fn each_class_fails_with_its_errno() {
    type Call = fn(&FaultEnv) -> Result<()>;
    let calls: [(CallClass, Call); 9] = [
        (CallClass::Read, |e| e.open(Path::new("/db/a")).map(drop)),
        (CallClass::Read, |e| e.list_dir(Path::new("/db")).map(drop)),
        (CallClass::Create, |e| {
            e.create(Path::new("/db/b")).map(drop)
        }),
        (CallClass::Create, |e| e.create_dir_all(Path::new("/db/c"))),
        (CallClass::Rename, |e| {
            e.rename(Path::new("/db/a"), Path::new("/db/b"))
        }),
        (CallClass::Remove, |e| e.remove(Path::new("/db/a"))),
        (CallClass::Sync, |e| e.sync_dir(Path::new("/db"))),
        (CallClass::Sync, |e| {
            e.open_log(Path::new("/db/a"), false, true)?.sync()
        }),
        (CallClass::Write, |e| {
            e.open_log(Path::new("/db/a"), false, true)?
                .write_at(0, &block())
        }),
    ];
    for (class, call) in calls {
        for (errno, kind) in [
            (Errno::Io, ErrorKind::Io { os_errno: 5 }),
            (Errno::NoSpace, ErrorKind::NoSpace),
        ] {
            let env = env();
            env.create(Path::new("/db/a")).unwrap();
            env.inject(Fault {
                class,
                nth: 1,
                sticky: false,
                errno,
            });
            assert_eq!(call(&env).unwrap_err().kind(), &kind, "{class:?}");
            call(&env).unwrap();
        }
    }
}

#[test]
fn a_failed_sync_of_a_durable_write_leaves_the_bytes_unsynced() {
    let mem = MemEnv::new();
    let env = FaultEnv::new(Arc::new(mem.clone()));
    let path = Path::new("/log");
    let log = env.open_log(path, true, true).unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    env.inject(Fault {
        class: CallClass::Sync,
        nth: 1,
        sticky: false,
        errno: Errno::Io,
    });
    log.write_durable_at(0, &block()).unwrap_err();
    assert_eq!(mem.read(path).unwrap().len(), 4096);
    assert_eq!(mem.crash(0).read(path).unwrap().len(), 0);
}

#[test]
fn a_flipped_bit_is_read_wherever_the_read_begins() {
    let env = env();
    let mut file = env.create(Path::new("/db/a")).unwrap();
    file.append(&[0; 8]).unwrap();
    env.flip_bit("a", 8 * 5 + 3);
    let file = env.open(Path::new("/db/a")).unwrap();
    let mut all = [0; 8];
    file.read_exact_at(ReadClass::Point, 0, &mut all).unwrap();
    assert_eq!(all, [0, 0, 0, 0, 0, 8, 0, 0]);
    let mut some = [0; 2];
    file.read_exact_at(ReadClass::Point, 4, &mut some).unwrap();
    assert_eq!(some, [0, 8]);
    file.read_exact_at(ReadClass::Point, 6, &mut some).unwrap();
    assert_eq!(some, [0, 0]);
    env.clear();
    file.read_exact_at(ReadClass::Point, 4, &mut some).unwrap();
    assert_eq!(some, [0, 0]);
}

#[test]
fn no_call_that_opens_a_file_has_an_effect_without_a_descriptor() {
    type Call = fn(&FaultEnv) -> Result<()>;
    let calls: [Call; 7] = [
        |e| e.open(Path::new("/db/a")).map(drop),
        |e| e.create(Path::new("/db/b")).map(drop),
        |e| e.open_log(Path::new("/db/b"), true, true).map(drop),
        |e| e.open_spans(Path::new("/db/b"), true).map(drop),
        |e| e.allocate(Path::new("/db/b"), 4096).map(drop),
        |e| e.list_dir(Path::new("/db")).map(drop),
        |e| e.sync_dir(Path::new("/db")),
    ];
    for call in calls {
        for errno in [
            Errno::NoMemory,
            Errno::SystemTableFull,
            Errno::ProcessTableFull,
        ] {
            let env = env();
            env.create(Path::new("/db/a")).unwrap();
            env.inject(Fault {
                class: CallClass::Open,
                nth: 1,
                sticky: false,
                errno,
            });
            let error = call(&env).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::NoDescriptor);
            assert_eq!(error.class(), FailureClass::NoEffect);
            assert!(!env.exists(Path::new("/db/b")).unwrap());
            call(&env).unwrap();
        }
    }
    // The sync of a directory that is kept open needs no descriptor.
    let env = env();
    env.keep_dir_open(Path::new("/db")).unwrap();
    env.inject(Fault {
        class: CallClass::Open,
        nth: 1,
        sticky: true,
        errno: Errno::ProcessTableFull,
    });
    env.sync_dir(Path::new("/db")).unwrap();
    env.sync_dir(Path::new("/")).unwrap_err();
}

#[test]
fn memory_that_a_write_lacks_is_no_descriptor() {
    let error = std::io::Error::from_raw_os_error(Errno::NoMemory as i32);
    assert_eq!(Error::io(&error, "write").class(), FailureClass::Poison);
    assert_eq!(Error::open(&error, "open").class(), FailureClass::NoEffect);
}
