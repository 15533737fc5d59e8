//! Tests in which something fails while commits are in progress.

use super::*;
use crate::base::event_listener::Silent;
use crate::base::key::Kind;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{ErrorKind, Value};
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{Env, FaultEnv, MemEnv};
use crate::wal::{LogEnd, WalOptions};
use crate::write::Batch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::channel;

struct NoHost;

impl MemtableHost for NoHost {
    fn switched(&self, _: &[Flushable], _: Arc<Memtable>) {}
}

struct Fixture {
    env: FaultEnv,
    pipeline: Arc<Pipeline>,
    memtable: Arc<Memtable>,
}

fn fixture() -> Fixture {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let shared: Arc<dyn crate::env::Env> = Arc::new(env.clone());
    let health = Arc::new(Health::new());
    let options = WalOptions {
        segment_size: 16 * 4096,
        background: false,
        ..WalOptions::default()
    };
    let wal = Wal::create(
        Arc::clone(&shared),
        Path::new("/db"),
        options,
        Arc::clone(&health),
        Arc::new(Silent),
        1,
        LogEnd::default(),
    )
    .unwrap();
    let memtable = Arc::new(Memtable::with_capacity(1, 1, 1 << 20));
    let pipeline = Pipeline::new(
        wal,
        health,
        Arc::default(),
        Arc::default(),
        Arc::new(StallGate::new(shared)),
        Box::new(NoHost),
        Arc::clone(&memtable),
    );
    Fixture {
        env,
        pipeline: Arc::new(pipeline),
        memtable,
    }
}

fn batch(key: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.add(key, Kind::Put, Value::whole(b"value"));
    batch
}

fn commit(pipeline: &Pipeline, key: &[u8]) -> Result<Committed> {
    let committed = pipeline.commit(CommitRecord::Batch, &batch(key), &[])?;
    pipeline.wait_durable(committed.lsn)?;
    Ok(committed)
}

/// Calls `then` when this thread next passes `point`.
fn at(point: PausePoint, then: impl FnOnce() + 'static) {
    let mut then = Some(then);
    pause_points::on_this_thread(move |passed| {
        if passed == point
            && let Some(then) = then.take()
        {
            then();
        }
    });
}

fn visible(pipeline: &Pipeline) -> Seqno {
    pipeline.visible.load(Ordering::Acquire)
}

fn fail_the_log(env: &FaultEnv) {
    env.inject(Fault {
        class: CallClass::Write,
        nth: 1,
        sticky: true,
        errno: Errno::Io,
    });
}

#[test]
fn a_durable_commit_becomes_visible_although_a_later_write_fails() {
    for point in [PausePoint::Sequenced, PausePoint::BeforePublish] {
        let Fixture { env, pipeline, .. } = fixture();
        commit(&pipeline, b"first").unwrap();
        let others = Arc::clone(&pipeline);
        at(point, move || {
            // The record of the commit that passes this point is in the log's buffer; the sync
            // makes it durable.
            others.sync_all().unwrap();
            fail_the_log(&env);
            let lost = others.state.lock().last_seqno + 1;
            let later = Arc::clone(&others);
            let waits = std::thread::spawn(move || commit(&later, b"lost"));
            while others.state.lock().last_seqno < lost {
                std::thread::yield_now();
            }
            // The failure is contained while both commits are still in progress.
            let failed = others.sync_all().unwrap_err();
            assert_eq!(*failed.kind(), ErrorKind::Poisoned);
            let error = waits.join().unwrap().unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Poisoned);
            assert_eq!(visible(&others), 1);
        });
        let acknowledged = commit(&pipeline, b"durable").unwrap();
        assert_eq!(acknowledged.seqno, 2);
        assert_eq!(
            visible(&pipeline),
            2,
            "{point:?}: acknowledged and invisible"
        );
        assert_eq!(pipeline.last_seqno(), 3);
        let refused = commit(&pipeline, b"refused").unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Poisoned);
    }
}

#[test]
fn a_commit_that_panics_lets_those_behind_it_fail() {
    for point in [PausePoint::Sequenced, PausePoint::BeforePublish] {
        let Fixture {
            pipeline, memtable, ..
        } = fixture();
        commit(&pipeline, b"first").unwrap();
        let (queued, is_queued) = channel();
        let others = Arc::clone(&pipeline);
        at(point, move || {
            let later = Arc::clone(&others);
            let behind = std::thread::spawn(move || commit(&later, b"behind"));
            // Wait until the next commit has its seqno and waits for the publication of this one.
            while others
                .state
                .lock()
                .queue
                .iter()
                .all(|one| one.waiter.is_none())
            {
                std::thread::yield_now();
            }
            queued.send(behind).unwrap();
            panic!("injected");
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| commit(&pipeline, b"panics")));
        assert!(panicked.is_err());
        let behind = is_queued.recv().unwrap();
        let error = behind.join().unwrap().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Poisoned, "{point:?}: {error}");
        assert_eq!(visible(&pipeline), 1);
        let refused = commit(&pipeline, b"refused").unwrap_err();
        assert!(refused.message().contains("panicked"), "{refused}");
        // A flush that waits for the memtable's writers must not wait forever.
        memtable.wait_quiescent();
    }
}

#[test]
fn a_panic_at_the_switch_of_memtables_poisons() {
    for by_commit in [false, true] {
        let Fixture { pipeline, .. } = fixture();
        commit(&pipeline, b"first").unwrap();
        at(PausePoint::Switched, || panic!("injected"));
        if by_commit {
            pipeline.mutable.memtable_size.store(1, Ordering::Relaxed);
        }
        let switch = || match by_commit {
            true => drop(commit(&pipeline, b"panics")),
            false => drop(pipeline.freeze()),
        };
        assert!(catch_unwind(AssertUnwindSafe(switch)).is_err());
        let refused = commit(&pipeline, b"refused").unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Poisoned);
    }
}

#[test]
fn a_panic_in_the_log_lets_no_other_commit_take_the_seqno() {
    let Fixture { env, pipeline, .. } = fixture();
    commit(&pipeline, b"first").unwrap();
    // Some commits fill the segment; the preparation of the next segment then panics under the
    // pipeline's mutex.
    env.inject(Fault {
        class: CallClass::Create,
        nth: 1,
        sticky: false,
        errno: Errno::Panic,
    });
    let fill = || {
        (0..1000)
            .map(|_| commit(&pipeline, &[7; 500]))
            .all(|c| c.is_ok())
    };
    assert!(catch_unwind(AssertUnwindSafe(fill)).is_err());
    let (last, acknowledged) = (pipeline.last_seqno(), visible(&pipeline));
    let refused = commit(&pipeline, b"refused").unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Poisoned);
    assert_eq!(
        (pipeline.last_seqno(), visible(&pipeline)),
        (last, acknowledged)
    );
    assert_eq!(last, acknowledged, "all before it were acknowledged");
}

/// Appends to the log a prepare record of more than a segment, or commits such a batch, while the
/// file for its segment cannot be created: others go on, also those that need new segments.
#[test]
fn the_segment_of_a_large_batch_is_created_without_the_mutex() {
    const SMALL: u64 = 40;
    for prepares in [false, true] {
        let Fixture { env, pipeline, .. } = fixture();
        commit(&pipeline, b"first").unwrap();
        let mut large = Batch::new();
        for n in 0..100u8 {
            large.add(&[1, n], Kind::Put, Value::whole(&[n; 3000]));
        }
        assert!(large.as_bytes().len() > 4 * 16 * 4096);
        env.hang(Path::new("/db/000001.wal.tmp"));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| match prepares {
                false => drop(pipeline.commit(CommitRecord::Batch, &large, &[]).unwrap()),
                true => {
                    let changes = Arc::new(super::super::Changes::Batch(large.clone()));
                    pipeline.prepare_recovered(b"x", &changes).unwrap();
                }
            });
            while env.hanging() == 0 {
                assert!(!waits.is_finished(), "it has created no file");
                std::thread::yield_now();
            }
            // A segment has room for fifteen of them.
            for _ in 0..SMALL {
                commit(&pipeline, b"small").unwrap();
            }
            assert!(!waits.is_finished());
            env.clear();
        });
        assert_eq!(visible(&pipeline), 1 + SMALL + u64::from(!prepares));
        assert_eq!(pipeline.wal.current_segment(), 4);
    }
}

/// Two large batches at a time: each finds the room that was prepared for it.
#[test]
fn large_batches_take_turns_from_their_room_to_their_append() {
    let Fixture { env, pipeline, .. } = fixture();
    let mut large = Batch::new();
    for n in 0..100u8 {
        large.add(&[1, n], Kind::Put, Value::whole(&[n; 3000]));
    }
    let state = pipeline.state.lock();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| pipeline.commit(CommitRecord::Batch, &large, &[]).unwrap());
        }
        // The first one has its room and waits for the mutex of the pipeline. It holds the turn.
        while env.exists(Path::new("/db/000003.wal")).ok() != Some(true) {
            std::thread::yield_now();
        }
        for _ in 0..1000 {
            std::thread::yield_now();
            assert!(!env.exists(Path::new("/db/000004.wal")).unwrap());
        }
        drop(state);
    });
    assert_eq!(visible(&pipeline), 2);
    // Segment 2 stays empty, and 4 is the next one while 5 is made for the second batch.
    assert_eq!(pipeline.wal.current_segment(), 5);
}

/// A commit that is published wakes its own thread: not those behind it that are not published yet.
#[test]
fn a_publication_wakes_those_that_it_publishes() {
    let Fixture { pipeline, .. } = fixture();
    let pipeline = &pipeline;
    let waiter = |seqno: Seqno| {
        let state = pipeline.state.lock();
        let first = state.last_seqno + 1 - state.queue.len() as u64;
        let at = seqno.checked_sub(first).map(|at| at as usize);
        at.and_then(|at| state.queue.get(at)?.waiter.clone())
    };
    let wait_for = |seqno: Seqno| {
        loop {
            match waiter(seqno) {
                Some(waiter) => return waiter,
                None => std::thread::yield_now(),
            }
        }
    };
    std::thread::scope(|scope| {
        // Commits 1 and 4 are held up before their publication. So 2 and 3 wait for 1, and 5 waits
        // for both.
        let mut gates = Vec::new();
        let mut commits = Vec::new();
        for seqno in 1..=5 {
            let (open, opened) = channel::<()>();
            let held = seqno == 1 || seqno == 4;
            commits.push(scope.spawn(move || {
                if held {
                    at(PausePoint::BeforePublish, move || opened.recv().unwrap());
                }
                assert_eq!(commit(pipeline, b"key").unwrap().seqno, seqno);
            }));
            gates.push(open);
            while pipeline.last_seqno() < seqno {
                std::thread::yield_now();
            }
        }
        wait_for(2);
        wait_for(3);
        let last = wait_for(5);
        gates[0].send(()).unwrap();
        for _ in 0..3 {
            commits.remove(0).join().unwrap();
        }
        assert_eq!(visible(pipeline), 3);
        let still = waiter(5).unwrap();
        assert!(Arc::ptr_eq(&last, &still), "it was woken for nothing");
        gates[3].send(()).unwrap();
        commits
            .into_iter()
            .for_each(|commit| commit.join().unwrap());
        assert_eq!(visible(pipeline), 5);
        assert!(pipeline.state.lock().queue.is_empty());
    });
}
