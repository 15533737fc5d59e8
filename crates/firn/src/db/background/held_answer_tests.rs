//! Commits that a host acknowledges later: their threads do not wait for the log.

use crate::base::Value;
use crate::base::options::{CommitDurability, MutableOptions, Options};
use crate::db::Db;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{Env, FaultEnv, MemEnv};
use crate::txn::{Isolation, Transaction, WaitObserver};
use crate::wal::Acknowledgement;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const WAIT_MAX: Duration = Duration::from_secs(120);

/// Holds the answers of all sessions, and passes on the acknowledgements of each.
struct Host(Sender<(u64, bool)>);

impl WaitObserver for Host {
    fn waits_for(&self, _: u64, _: u64) {}

    fn may_hold_answer(&self, _: u64) -> bool {
        true
    }

    fn hold_answer(&self, waiter: u64) -> Option<Acknowledgement> {
        let sender = self.0.clone();
        let send = move |durable| sender.send((waiter, durable)).unwrap();
        Some(Acknowledgement::new(send))
    }
}

/// A database whose log hangs in the write of its first session, and one write may be under way.
struct HangingLog {
    mem: MemEnv,
    env: FaultEnv,
    mutable: Arc<MutableOptions>,
    db: Arc<Db>,
    answers: Receiver<(u64, bool)>,
    /// The commit of session 1, which writes the log.
    leader: Option<JoinHandle<bool>>,
}

fn log_file(env: &MemEnv) -> PathBuf {
    let names = env.list_dir(Path::new("/db")).unwrap().into_iter();
    let segments = names.filter(|name| name.ends_with(".wal"));
    Path::new("/db").join(segments.min().expect("a segment"))
}

fn options() -> Options {
    Options {
        background_jobs: 0,
        wal_syncs_in_flight: 1,
        ..Options::default()
    }
}

fn change(db: &Db, session: u64) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(session));
    txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
    txn.put(&key(session), Value::whole(b"row")).unwrap();
    txn
}

fn key(session: u64) -> Vec<u8> {
    [&1000u32.to_be_bytes()[..], &session.to_be_bytes()].concat()
}

/// Whether a new reader sees the row of a session.
fn sees(db: &Db, session: u64) -> bool {
    let mut txn = db.new_transaction(db.new_owner(99));
    txn.begin_statement(1, Isolation::ReadCommitted, 1000, false);
    txn.get_latest(&key(session), |_, _| ()).unwrap().is_some()
}

/// Whether the row of a session is there after a crash of the machine, which ends the environment.
fn survives(env: &MemEnv, session: u64) -> bool {
    let env = Arc::new(env.crash(0));
    let db = Db::open(env, Path::new("/db"), options(), None).unwrap();
    sees(&db, session)
}

impl HangingLog {
    fn new() -> Self {
        let mem = MemEnv::new();
        let env = FaultEnv::new(Arc::new(mem.clone()));
        let (sender, answers) = channel();
        let options = options();
        let mutable = Arc::clone(&options.mutable);
        let observer = Arc::new(Host(sender)) as Arc<dyn WaitObserver>;
        let shared = Arc::new(env.clone());
        let db = Db::open(shared, Path::new("/db"), options, Some(observer)).unwrap();
        env.hang(&log_file(&mem));
        let leader = {
            let db = Arc::clone(&db);
            std::thread::spawn(move || change(&db, 1).commit_for_answer().is_ok())
        };
        while env.hanging() == 0 {
            std::thread::yield_now();
        }
        Self {
            mem,
            env,
            mutable,
            db,
            answers,
            leader: Some(leader),
        }
    }

    /// Lets the log go on.
    fn answer(&self) {
        self.env.answer(&log_file(&self.mem));
    }

    /// Whether the commit of session 1 succeeds.
    fn leader_commits(&mut self) -> bool {
        self.leader.take().expect("asked once").join().unwrap()
    }

    fn fail_syncs(&self) {
        self.env.inject(Fault {
            class: CallClass::Sync,
            nth: 1,
            sticky: true,
            errno: Errno::Io,
        });
    }

    /// The acknowledgements of `count` sessions, ordered by session.
    fn answers(&self, count: usize) -> Vec<(u64, bool)> {
        let answer = || self.answers.recv_timeout(WAIT_MAX).expect("an answer");
        let mut all: Vec<_> = (0..count).map(|_| answer()).collect();
        all.sort_unstable();
        all
    }
}

#[test]
fn commits_return_before_they_are_durable_and_are_acknowledged_then() {
    let mut log = HangingLog::new();
    for session in 2..=5 {
        change(&log.db, session).commit_for_answer().unwrap();
        assert!(sees(&log.db, session), "visible before durable");
    }
    assert!(log.answers.try_recv().is_err(), "the log hangs");
    log.answer();
    assert!(log.leader_commits());
    assert_eq!(log.answers(4), [2, 3, 4, 5].map(|session| (session, true)));
    assert!(survives(&log.mem, 5));
}

#[test]
fn what_is_not_acknowledged_may_be_lost() {
    let mut log = HangingLog::new();
    change(&log.db, 2).commit_for_answer().unwrap();
    assert!(!survives(&log.mem, 2));
    log.answer();
    assert!(!log.leader_commits());
    assert_eq!(log.answers(1), [(2, false)]);
}

#[test]
fn a_second_phase_and_other_durabilities_wait_for_themselves() {
    let mut log = HangingLog::new();
    change(&log.db, 2).commit_for_answer().unwrap();
    log.mutable.set_commit_durability(CommitDurability::Lazy);
    change(&log.db, 3).commit_for_answer().unwrap();
    assert!(log.answers.try_recv().is_err());
    log.answer();
    assert!(log.leader_commits());
    assert_eq!(log.answers(1), [(2, true)]);
    log.mutable.set_commit_durability(CommitDurability::Sync);
    let mut txn = change(&log.db, 4);
    txn.prepare(b"x").unwrap();
    txn.commit_prepared(None).unwrap();
    assert!(sees(&log.db, 4));
    txn.commit_for_answer().unwrap();
    assert!(survives(&log.mem, 4));
    assert!(log.answers.try_recv().is_err());
}

#[test]
fn a_lost_commit_is_answered_as_lost_and_hidden() {
    let mut log = HangingLog::new();
    change(&log.db, 2).commit_for_answer().unwrap();
    change(&log.db, 3).commit_for_answer().unwrap();
    log.fail_syncs();
    log.answer();
    assert!(!log.leader_commits());
    assert_eq!(log.answers(2), [(2, false), (3, false)]);
    assert!(
        !sees(&log.db, 2) && !sees(&log.db, 3),
        "hidden from readers"
    );
    change(&log.db, 4).commit_for_answer().unwrap_err();
}

#[test]
fn a_close_answers_all() {
    let mut log = HangingLog::new();
    change(&log.db, 2).commit_for_answer().unwrap();
    let closer = {
        let db = Arc::clone(&log.db);
        std::thread::spawn(move || db.close().is_ok())
    };
    log.answer();
    assert!(log.leader_commits() && closer.join().unwrap());
    assert_eq!(log.answers.try_recv().unwrap(), (2, true));
}
