//! Golden scripts: one command per line, and after `:` its results.
//!
//! Commands: `T S key` and `T X key`: transaction T locks a key; `T unlock key`; `T rollback`;
//! `T kill`; `T rows n`: T has changed n rows. Results: `granted`, `held`, `waits`, an error, or
//! `ok`; then the results of other transactions, ordered by transaction.

use super::*;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// A request for a session's thread.
pub type Request = (Vec<u8>, LockMode, WaitPolicy);

/// An owner with a thread of its own.
pub struct Session {
    pub owner: Arc<LockOwner>,
    pub requests: Sender<Request>,
    results: Receiver<Result<Granted>>,
    /// The result of the last request has not been received yet.
    pub outstanding: bool,
}

impl Session {
    pub fn spawn<'scope, 'env>(
        scope: &'scope std::thread::Scope<'scope, 'env>,
        table: &'env LockTable,
        id: u64,
    ) -> Self {
        let (requests, inbox) = channel::<Request>();
        let (outbox, results) = channel();
        let owner = LockOwner::new(id, 0);
        let own = Arc::clone(&owner);
        scope.spawn(move || {
            for (key, mode, policy) in inbox {
                let result = table.acquire(&own, &key, mode, policy);
                let _ = outbox.send(result);
            }
        });
        Self {
            owner,
            requests,
            results,
            outstanding: false,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // End the session's wait, so that a failed script does not hang.
        if std::thread::panicking() {
            self.owner.interrupt();
        }
    }
}

fn words(result: Result<Granted>) -> String {
    match result {
        Ok(granted) if granted.newly => "granted".into(),
        Ok(granted) if granted.waited => "upgraded".into(),
        Ok(_) => "held".into(),
        Err(error) => error.kind().words().into(),
    }
}

fn run(name: &str, script: &str) {
    tables().for_each(|table| run_with(&table, name, script));
}

fn run_with(table: &LockTable, name: &str, script: &str) {
    std::thread::scope(|scope| {
        let mut sessions = BTreeMap::<u64, Session>::new();
        for (number, line) in script.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (command, expected) = line.split_once(':').expect("command : result");
            let mut parts = command.split_whitespace();
            let id: u64 = parts.next().unwrap().parse().unwrap();
            let session = sessions.entry(id);
            let session = session.or_insert_with(|| Session::spawn(scope, table, id));
            let mut what = Some("ok".to_string());
            match (parts.next().unwrap(), parts.next()) {
                (mode @ ("S" | "X"), Some(key)) => {
                    let mode = match mode {
                        "S" => LockMode::Shared,
                        _ => LockMode::Exclusive,
                    };
                    session.requests.send((key.into(), mode, LONG)).unwrap();
                    session.outstanding = true;
                    what = None;
                }
                ("unlock", Some(key)) => {
                    assert!(table.release(&session.owner, key.as_bytes()));
                }
                ("rollback", None) => table.release_all(&session.owner),
                ("kill", None) => {
                    session.owner.interrupt();
                }
                ("rows", Some(n)) => session.owner.set_changed_rows(n.parse().unwrap()),
                other => panic!("{name}:{}: {other:?}", number + 1),
            }
            let mut happened = wait_until_idle(table, &mut sessions);
            let own = happened.remove(&id);
            let own = match (what, own) {
                (None, own) => own.unwrap_or("waits".into()),
                (Some(what), None) => what,
                (Some(_), Some(own)) => own,
            };
            let others = happened.iter().map(|(id, what)| format!("{id} {what}"));
            let happened: Vec<String> = std::iter::once(own).chain(others).collect();
            assert_eq!(
                happened.join(", "),
                expected.trim(),
                "{name}:{}: {line}",
                number + 1
            );
        }
        for session in sessions.values() {
            assert!(!session.outstanding, "{name} ends with a wait");
            table.release_all(&session.owner);
        }
        assert!(table.locks(1).is_empty() && table.waits().is_empty());
    });
}

/// Waits until every session with a request either has a result or waits. Returns the new results.
pub fn wait_until_idle(
    table: &LockTable,
    sessions: &mut BTreeMap<u64, Session>,
) -> BTreeMap<u64, String> {
    let mut happened = BTreeMap::new();
    loop {
        let waits = table.waits();
        let mut idle = true;
        for (&id, session) in sessions.iter_mut().filter(|(_, s)| s.outstanding) {
            let result = session.results.try_recv();
            assert_ne!(
                result.as_ref().err(),
                Some(&TryRecvError::Disconnected),
                "{id} panicked"
            );
            if let Ok(result) = result {
                session.outstanding = false;
                happened.insert(id, words(result));
            } else {
                let waiting = waits.iter().any(|wait| wait.owner == id);
                // The request may be listed before its search for cycles has ended; taking the
                // graph lock below waits for that.
                idle &= waiting && !session.owner.is_interrupted();
            }
        }
        if idle {
            drop(table.graph.lock());
            let now = table.waits();
            let still = |id| now.iter().any(|wait| wait.owner == id);
            if sessions.iter().all(|(&id, s)| !s.outstanding || still(id)) {
                return happened;
            }
        }
        std::thread::yield_now();
    }
}

macro_rules! scripts {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            run(
                stringify!($name),
                include_str!(concat!("scripts/", stringify!($name), ".txt")),
            );
        })*
    };
}

scripts!(
    deadlock_of_two,
    deadlock_of_three,
    deadlock_victims,
    fifo,
    kill,
    unlock,
    upgrade
);

/// A cycle of n transactions, closed by the last one.
#[test]
fn deadlock_of_many() {
    use std::fmt::Write;
    for n in [4, 9, 17] {
        let mut script = String::new();
        for i in 0..n {
            writeln!(script, "{i} X k{i} : granted").unwrap();
        }
        for i in 0..n - 1 {
            writeln!(script, "{i} X k{} : waits", i + 1).unwrap();
        }
        writeln!(script, "{} X k0 : deadlock", n - 1).unwrap();
        for i in (1..n).rev() {
            writeln!(script, "{i} rollback : ok, {} granted", i - 1).unwrap();
        }
        writeln!(script, "0 rollback : ok").unwrap();
        run(&format!("ring of {n}"), &script);
    }
}

#[test]
fn the_last_deadlocks_are_kept() {
    for table in tables() {
        let reported = Arc::new(AtomicU64::new(0));
        let number = Arc::clone(&reported);
        table.on_deadlock(move |deadlock| number.store(deadlock.number, Ordering::Relaxed));
        assert!(table.deadlocks().is_empty());
        for round in 1..=12u64 {
            let (one, two) = (LockOwner::of_session(1, 0, 7), LockOwner::new(2, 0));
            let exclusive = LockMode::Exclusive;
            table.acquire(&one, b"a", exclusive, LONG).unwrap();
            table.acquire(&two, b"b", exclusive, LONG).unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| table.acquire(&one, b"b", LockMode::Shared, LONG));
                until_waiting(&table, 1);
                let error = table.acquire(&two, b"a", exclusive, LONG);
                assert_eq!(error.unwrap_err().kind(), &ErrorKind::Deadlock);
                table.release_all(&two);
                waiting.join().unwrap().unwrap();
            });
            table.release_all(&one);
            assert_eq!(table.stats().deadlocks, round);
            assert_eq!(reported.load(Ordering::Relaxed), round);
        }
        let kept = table.deadlocks();
        let numbers: Vec<u64> = kept.iter().map(|deadlock| deadlock.number).collect();
        assert_eq!(numbers, (3..=12).collect::<Vec<_>>());
        let last = kept.last().unwrap();
        assert_eq!(last.victim, 0, "on a tie the requester");
        let members: Vec<_> = last
            .members
            .iter()
            .map(|one| {
                (
                    one.owner,
                    one.session,
                    one.weight,
                    &one.key[..],
                    one.words(),
                )
            })
            .collect();
        assert_eq!(
            members,
            [
                (2, 0, 1, &b"a"[..], "exclusive lock"),
                (1, 7, 1, &b"b"[..], "shared lock")
            ]
        );
    }
}

#[test]
fn without_detection_a_deadlock_waits_until_it_is_turned_on() {
    for table in tables() {
        table.set_deadlock_detection(false);
        let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
        let exclusive = LockMode::Exclusive;
        table.acquire(&one, b"a", exclusive, LONG).unwrap();
        table.acquire(&two, b"b", exclusive, LONG).unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let outcome = table.acquire(&one, b"b", exclusive, LONG);
                table.release_all(&one);
                outcome.is_ok()
            });
            let second = scope.spawn(|| {
                let outcome = table.acquire(&two, b"a", exclusive, LONG);
                table.release_all(&two);
                outcome.is_ok()
            });
            until_waiting(&table, 2);
            assert_eq!(table.stats().deadlocks, 0);
            table.set_deadlock_detection(true);
            let granted = [first.join().unwrap(), second.join().unwrap()];
            assert_eq!(granted.iter().filter(|granted| **granted).count(), 1);
        });
        assert_eq!(table.stats().deadlocks, 1);
    }
}
