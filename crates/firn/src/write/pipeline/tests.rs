//! Tests in which something fails while commits are in progress.

use super::*;
use crate::base::event_listener::Silent;
use crate::base::key::Kind;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{ErrorKind, Value};
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{FaultEnv, MemEnv};
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
            while others.state.lock().waiting_for_publication == 0 {
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
