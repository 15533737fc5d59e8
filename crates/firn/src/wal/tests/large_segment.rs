//! Room that is prepared ahead for large appends.

use super::*;
use crate::base::{Error, ErrorKind};
use crate::env::FaultEnv;
use crate::env::fault::{CallClass, Errno, Fault};

/// Bytes of a batch for which no segment of the usual size has room.
const LARGE: usize = 60 * 4096;

struct Fixture {
    mem: MemEnv,
    env: FaultEnv,
    health: Arc<Health>,
    wal: Arc<Wal>,
}

fn fixture() -> Fixture {
    let mem = MemEnv::new();
    mem.create_dir_all(&dir()).unwrap();
    let env = FaultEnv::new(Arc::new(mem.clone()));
    env.keep_dir_open(&dir()).unwrap();
    let health = Arc::new(Health::new());
    let wal = Wal::create(
        Arc::new(env.clone()),
        &dir(),
        options(),
        Arc::clone(&health),
        Arc::new(Silent),
        1,
        LogEnd::default(),
    )
    .unwrap();
    Fixture {
        mem,
        env,
        health,
        wal,
    }
}

impl Fixture {
    /// No file can be opened, or the disk is full.
    fn fail(&self, kind: &ErrorKind) {
        match kind {
            ErrorKind::NoSpace => self.mem.fill(),
            _ => self.env.inject(Fault {
                class: CallClass::Open,
                nth: 1,
                sticky: true,
                errno: Errno::ProcessTableFull,
            }),
        }
    }

    fn files(&self) -> Vec<String> {
        let mut names = self.mem.list_dir(&dir()).unwrap();
        names.sort();
        names
    }
}

fn large(wal: &Wal, seqno: u64, bytes: usize) -> Result<Appended> {
    let _room_ahead = wal.prepare_room(bytes, OutcomeRoom::Leave);
    commit(wal, seqno, &vec![9; bytes])
}

/// Commits one block each until the log needs a segment that it cannot prepare.
fn fill(wal: &Wal, seqno: &mut u64) -> u64 {
    let before = *seqno;
    while commit(wal, *seqno + 1, &[7; 3000]).is_ok() {
        *seqno += 1;
    }
    *seqno - before
}

#[test]
fn small_appends_use_up_segments_while_a_large_one_is_created() {
    let fixture = fixture();
    let (env, wal) = (&fixture.env, &fixture.wal);
    let mut seqno = 1;
    commit(wal, seqno, b"first").unwrap();
    env.hang(&dir().join("000001.wal.tmp"));
    std::thread::scope(|scope| {
        let room_ahead = scope.spawn(|| drop(wal.prepare_room(LARGE, OutcomeRoom::Leave)));
        while env.hanging() == 0 {
            assert!(!room_ahead.is_finished(), "it has created no file");
            std::thread::yield_now();
        }
        // Three segments of seven blocks.
        for _ in 0..21 {
            seqno += 1;
            commit(wal, seqno, &[7; 3000]).unwrap();
        }
        assert!(!room_ahead.is_finished());
        env.clear();
    });
    assert_eq!(wal.current_segment(), 4);
    let before = fixture.files();
    seqno += 1;
    commit(wal, seqno, &vec![9; LARGE]).unwrap();
    assert_eq!(fixture.files(), before, "the append creates no segment");
    assert!(wal.current_segment() > 4);
    for _ in 0..40 {
        seqno += 1;
        commit(wal, seqno, &[7; 3000]).unwrap();
    }
    for first in 1..=wal.current_segment() {
        let (found, _) = replayed(&fixture.mem, first).unwrap();
        assert!(Vec::from_iter(1..=seqno).ends_with(&found), "from {first}");
        assert!(first > 1 || found.len() as u64 == seqno);
    }
    wal.release_before(wal.current_segment()).unwrap();
    assert!(fixture.files().len() <= 4, "{:?}", fixture.files());
}

/// Without the large append, the log goes on in the next segment and then in the large one.
#[test]
fn a_large_segment_that_no_large_append_takes_is_used_like_any_other() {
    let fixture = fixture();
    let wal = &fixture.wal;
    drop(wal.prepare_room(LARGE, OutcomeRoom::Leave));
    let created = wal.stats().segments_created;
    assert_eq!(created, 3);
    let mut seqno = 0;
    fixture.fail(&ErrorKind::NoDescriptor);
    let blocks = fill(wal, &mut seqno);
    assert!(blocks >= 7 + 7 + 60, "{blocks}");
    assert_eq!(wal.current_segment(), 3);
    let expected = Vec::from_iter(1..=seqno);
    assert_eq!(replayed(&fixture.mem, 1).unwrap().0, expected);
}

#[test]
fn a_large_append_for_which_there_is_room_prepares_nothing() {
    for kind in [ErrorKind::NoSpace, ErrorKind::NoDescriptor] {
        let fixture = fixture();
        let wal = &fixture.wal;
        for seqno in 1..=3 {
            commit(wal, seqno, &[7; 3000]).unwrap();
        }
        wal.prepare_cut().unwrap();
        let before = fixture.files();
        fixture.fail(&kind);
        // Of seven blocks in the current segment three are used. Five fit the next one.
        large(wal, 4, 5 * 4096 - 200).unwrap();
        assert_eq!(wal.current_segment(), 2);
        assert_eq!(fixture.files(), before);
        let mut seqno = 4;
        assert_eq!(fill(wal, &mut seqno), 2, "{kind:?}");
    }
}

#[test]
fn a_large_append_without_room_leaves_the_prepared_segments() {
    for kind in [ErrorKind::NoSpace, ErrorKind::NoDescriptor] {
        for ahead in [false, true] {
            let context = format!("{kind:?}, ahead: {ahead}");
            let fixture = fixture();
            let wal = &fixture.wal;
            commit(wal, 1, &[7; 3000]).unwrap();
            wal.prepare_cut().unwrap();
            let before = fixture.files();
            fixture.fail(&kind);
            for _ in 0..3 {
                let failed = match ahead {
                    true => large(wal, 2, LARGE),
                    false => commit(wal, 2, &[9; LARGE]),
                };
                assert_eq!(failed.unwrap_err().kind(), &kind, "{context}");
            }
            assert_eq!(fixture.files(), before, "{context}");
            assert!(!fixture.health.is_full(None), "{context}");
            let mut seqno = 1;
            assert_eq!(fill(wal, &mut seqno), 6 + 7, "{context}");
            fixture.env.clear();
            fixture.mem.unfill();
            large(wal, seqno + 1, LARGE).unwrap();
            let expected = Vec::from_iter(1..=seqno + 1);
            assert_eq!(replayed(&fixture.mem.crash(0), 1).unwrap().0, expected);
        }
    }
}

#[test]
fn nothing_is_prepared_after_the_close_or_a_failure() {
    for closes in [true, false] {
        let fixture = fixture();
        let wal = &fixture.wal;
        commit(wal, 1, b"first").unwrap();
        match closes {
            true => wal.close().unwrap(),
            false => assert!(fixture.health.poison(Error::invalid("elsewhere"))),
        }
        let before = fixture.files();
        let error = large(wal, 2, LARGE).unwrap_err();
        let expected = match closes {
            true => ErrorKind::ShutDown,
            false => ErrorKind::Poisoned,
        };
        assert_eq!(*error.kind(), expected);
        wal.prepare_cut().unwrap_err();
        assert_eq!(fixture.files(), before);
    }
}

/// The log is closed while a large segment is created: it gets no id any more, since the next
/// incarnation may use it.
#[test]
fn a_segment_that_is_ready_after_the_close_is_removed() {
    let fixture = fixture();
    let (env, wal) = (&fixture.env, &fixture.wal);
    commit(wal, 1, b"first").unwrap();
    env.hang(&dir().join("000001.wal.tmp"));
    std::thread::scope(|scope| {
        let room_ahead = scope.spawn(|| drop(wal.prepare_room(LARGE, OutcomeRoom::Leave)));
        while env.hanging() == 0 {
            assert!(!room_ahead.is_finished());
            std::thread::yield_now();
        }
        wal.close().unwrap();
        env.clear();
    });
    assert_eq!(fixture.files(), [segment_name(1), segment_name(2)]);
    assert_eq!(replayed(&fixture.mem, 1).unwrap().0, [1]);
}

/// A crash leaves the file of a segment without an id. The next incarnation removes it.
#[test]
fn the_next_open_removes_a_segment_without_an_id() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    commit(&wal, 1, b"first").unwrap();
    drop(wal);
    let aside = dir().join("000001.wal.tmp");
    drop(env.open_log(&aside, true, false).unwrap());
    let other = dir().join("other.tmp");
    drop(env.create(&other).unwrap());
    let (_, end) = replayed(&env, 1).unwrap();
    assert_eq!(end.max_segment_id_seen, 1);
    let wal = open(&env, options(), 2, end.log_end()).unwrap();
    assert!(!env.exists(&aside).unwrap());
    assert!(env.exists(&other).unwrap());
    commit(&wal, 2, b"second").unwrap();
    assert_eq!(replayed(&env, 1).unwrap().0, [1, 2]);
}

/// A second large append that is larger than an unused large segment gets one of its own, and
/// nothing prepared is lost.
#[test]
fn a_larger_append_than_the_large_segment_gets_another() {
    let fixture = fixture();
    let wal = &fixture.wal;
    commit(wal, 1, b"first").unwrap();
    drop(wal.prepare_room(10 * 4096, OutcomeRoom::Leave));
    let room_ahead = wal.prepare_room(LARGE, OutcomeRoom::Leave);
    let files = fixture.files();
    commit(wal, 2, &[9; LARGE]).unwrap();
    drop(room_ahead);
    assert_eq!(fixture.files(), files);
    let mut seqno = 2;
    fixture.fail(&ErrorKind::NoDescriptor);
    fill(wal, &mut seqno);
    let expected = Vec::from_iter(1..=seqno);
    assert_eq!(replayed(&fixture.mem.crash(0), 1).unwrap().0, expected);
}
