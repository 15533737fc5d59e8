//! Threads that append to lists through the C ABI; `firn-history` judges the history of their
//! requests and results.
//!
//! Each thread uses the C ABI as a session of the server does: scans in both directions, plain and
//! locking, updates and deletes of ranges and of single rows, moves, transfers, savepoints, commits
//! in one and in two phases. In half of the runs some tables are optimistic. Threads sleep at pause
//! points. Memtables and write-set limits are so small that memtables switch and transactions spill
//! all the time. A further thread kills statements. All lives of the database but the last end with
//! a death of the environment at some sync, and the recovered database continues the history.

mod abi;
mod client;
mod pauses;

use crate::failure::Failure;
use crate::tiny_options::{one_of, tiny};
use abi::{Server, TABLES};
use client::{Client, Lists};
use firn::base::options::{CommitDurability, Options};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn_capi::error::firn_status;
use firn_history::{History, IsolationLevel, Setup, check};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::OpenOptions;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Number of client threads.
const CLIENTS: usize = 6;

/// Transactions of each thread in one life of the database.
const TRANSACTIONS: usize = 60;

/// Lock wait timeout, microseconds.
const LEVEL_TIMEOUT_US: u64 = 2_000_000;

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConcurrentStats {
    /// Transactions whose commit was acknowledged.
    pub committed: u64,
    /// Transactions with another outcome.
    pub others: u64,
    /// Instants that the judge ordered.
    pub instants: u64,
    /// Cycles that the isolation level permits.
    pub permitted: u64,
    /// Phantoms that gap locks would have prevented.
    pub gaps: u64,
    /// Crashes.
    pub crashes: u64,
}

impl ConcurrentStats {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.others += other.others;
        self.instants += other.instants;
        self.permitted += other.permitted;
        self.gaps += other.gaps;
        self.crashes += other.crashes;
    }
}

/// Turns a status into a result. Statuses that no fault or conflict explains are bugs of the engine
/// or of this driver.
///
/// # Panics
/// If the status is such a bug.
fn bug(status: firn_status) -> Result<(), firn_status> {
    use firn_status::{
        FIRN_CORRUPTION, FIRN_INVALID, FIRN_NO_TABLE, FIRN_OK, FIRN_PANIC, FIRN_SAME_ROW,
        FIRN_UNSUPPORTED,
    };
    match status {
        FIRN_OK => Ok(()),
        FIRN_CORRUPTION | FIRN_INVALID | FIRN_NO_TABLE | FIRN_PANIC | FIRN_SAME_ROW
        | FIRN_UNSUPPORTED => {
            // SAFETY: the message is a C string that stays valid until this thread's next call of
            // the C ABI, and none happens before it is printed.
            let words = unsafe { std::ffi::CStr::from_ptr(firn_capi::error::firn_last_error()) };
            panic!("{status:?}: {}", words.to_string_lossy())
        }
        other => Err(other),
    }
}

/// State that the threads of a run share.
struct Shared {
    level: IsolationLevel,
    lists: Lists,
    /// The logical clock of the history: each reading is later than all readings before it.
    clock: AtomicU64,
    ids: AtomicU64,
    elements: AtomicU64,
}

impl Shared {
    /// Advances a counter and returns its new value. `SeqCst` orders all readings of the clock.
    fn next(counter: &AtomicU64) -> u64 {
        counter.fetch_add(1, Ordering::SeqCst) + 1
    }
}

fn options(rng: &mut StdRng) -> Options {
    Options {
        background_jobs: 1,
        l0_stop_runs: 12,
        ..tiny(rng, CommitDurability::Sync)
    }
}

/// Runs threads over one to three lives of a database in memory, and judges their history.
///
/// # Errors
/// A [`Failure`] with the findings of the judge and the file that keeps the history, or with the
/// call that failed.
///
/// # Panics
/// If a call of the observer returns a status that is a bug of the engine or of the driver. In
/// other threads, such a panic becomes a [`Failure`].
pub fn run(seed: u64) -> Result<ConcurrentStats, Failure> {
    let (history, crashes) = history_of(seed)?;
    let verdict = check(&history);
    if !verdict.findings.is_empty() {
        let kept = keep(&history, seed);
        return Err(Failure::new(format!(
            "concurrent seed {seed}, {}: {kept}: {verdict}",
            history.setup.engine
        )));
    }
    let committed = verdict.txns.get("ok").copied().unwrap_or(0);
    Ok(ConcurrentStats {
        committed,
        others: verdict.txns.values().sum::<u64>() - committed,
        instants: verdict.instants,
        permitted: verdict.permitted.values().sum(),
        gaps: verdict.gaps.len() as u64,
        crashes,
    })
}

/// Writes a history to a file, for inspection and for the `firn-history` command. Returns the
/// file's name or the error, in words.
fn keep(history: &History, seed: u64) -> String {
    let path =
        std::env::temp_dir().join(format!("firn-history-{}-{seed}.jsonl", std::process::id()));
    let opened = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(&path);
    let written = opened.and_then(|file| history.write(BufWriter::new(file)));
    match written {
        Ok(()) => format!("history in {}", path.display()),
        Err(error) => format!("history not kept: {error}"),
    }
}

fn history_of(seed: u64) -> Result<(History, u64), Failure> {
    let mut rng = StdRng::seed_from_u64(seed);
    let options = options(&mut rng);
    // In half of the runs no table is optimistic. In the other half, each table is optimistic with
    // a probability of 60 %, so that most of these runs have tables of both kinds.
    let some: bool = rng.random();
    let optimistic: [bool; TABLES] = std::array::from_fn(|_| some && rng.random_bool(0.6));
    let shared = Shared {
        level: one_of(
            &mut rng,
            &[
                IsolationLevel::ReadCommitted,
                IsolationLevel::RepeatableRead,
            ],
        ),
        lists: Lists::new(optimistic),
        clock: AtomicU64::new(0),
        ids: AtomicU64::new(0),
        elements: AtomicU64::new(0),
    };
    let mut memory = MemEnv::new();
    memory.set_log_sectors(rng.random());
    let mut clients: Vec<Client> = (0..=CLIENTS)
        .map(|number| Client::new(number, &shared, rng.random()))
        .collect();
    let mut observer = clients.pop().expect("one more");
    let lives = rng.random_range(1..=3);
    for life in 0..lives {
        let env: Arc<dyn Env> = Arc::new(memory.clone());
        let db = Db::open(env, Path::new("/lists"), options.clone(), None).map_err(failed)?;
        decide_prepared(&db)?;
        let server =
            Server::new(&db, optimistic).map_err(|status| Failure::new(format!("{status:?}")))?;
        observer.life = life;
        if life == 0 {
            observer.found(&server);
        }
        observer.look(&server);
        let crashes = life + 1 < lives;
        if crashes {
            memory.crash_at_sync(memory.sync_points() + rng.random_range(1..300));
        }
        work(&server, &mut clients, life, rng.random(), crashes)?;
        if !crashes {
            observer.look(&server);
        }
        drop(server);
        drop(db);
        memory = match rng.random() {
            true => memory.crash(rng.random_range(0..1 << 32)),
            false => memory.kill(),
        };
    }
    let mutable = &options.mutable;
    let setup = Setup {
        engine: format!(
            "FIRN {:?}, optimistic tables {optimistic:?}, memtable {}, write sets {}, row cache {}, \
             locks merged from {}",
            shared.level,
            mutable.memtable_size.load(Ordering::Relaxed),
            mutable.txn_memory_limit.load(Ordering::Relaxed),
            options.row_cache_size,
            options.lock_merge_rows
        ),
        gap_locks: true,
        hides_unsynced: true,
        // List no unique index here, although table 2 has one. If a row of the snapshot and a row
        // that the transaction has written have the same position, a lookup of the server returns
        // one of them, but these clients scan the index and get both.
        unique: Vec::new(),
        balanced: vec![shared.lists.bank()],
        optimistic: shared.lists.optimistic(),
    };
    clients.push(observer);
    let txns = clients
        .into_iter()
        .flat_map(|client| client.history)
        .collect();
    Ok((History { setup, txns }, u64::from(lives) - 1))
}

/// Runs the clients, while another thread kills statements. Ends when each client has run
/// [`TRANSACTIONS`] transactions; with `to_the_end`, clients go on until the environment has died.
fn work(
    server: &Server,
    clients: &mut [Client],
    life: u32,
    seed: u64,
    to_the_end: bool,
) -> Result<(), Failure> {
    let level = clients[0].level();
    let mut sessions: Vec<_> = clients.iter().map(|_| server.session(level)).collect();
    let killers: Vec<_> = sessions.iter().map(abi::Session::killer).collect();
    let done = AtomicBool::new(false);
    let transactions = if to_the_end { usize::MAX } else { TRANSACTIONS };
    std::thread::scope(|scope| {
        let done = &done;
        let at_work: Vec<_> = clients
            .iter_mut()
            .zip(&mut sessions)
            .map(|(client, session)| {
                scope.spawn(move || {
                    client.life = life;
                    client.work(session, transactions);
                })
            })
            .collect();
        let killer = scope.spawn(move || {
            let mut rng = StdRng::seed_from_u64(seed);
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(rng.random_range(500..20_000)));
                // SAFETY: `killers` point to live sessions: `sessions` is declared outside of the
                // scope, which joins this thread before they are dropped.
                unsafe { killers[rng.random_range(0..killers.len())].kill() };
            }
        });
        let ended: Vec<_> = at_work.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Relaxed);
        let killed = killer.join();
        match ended
            .into_iter()
            .chain([killed])
            .all(|result| result.is_ok())
        {
            true => Ok(()),
            false => Err(Failure::new("a thread panicked")),
        }
    })
}

/// Commits some of the prepared transactions that a crash left, and rolls the others back.
fn decide_prepared(db: &Db) -> Result<(), Failure> {
    for (i, xid) in db.prepared_xids().into_iter().enumerate() {
        let known = match i % 2 {
            0 => db.commit_xid(&xid),
            _ => db.rollback_xid(&xid),
        };
        known.map_err(failed)?;
    }
    Ok(())
}

fn failed(error: firn::base::Error) -> Failure {
    Failure::new(format!("a call failed: {error}"))
}
