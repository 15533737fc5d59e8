//! Threads that move money between accounts, and threads that sum up the balances.
//!
//! Every transfer changes two accounts and writes a ledger row, in one transaction under row locks
//! taken in random order, so that deadlocks happen. Readers take snapshots: in each of them the
//! balances sum up to the initial deposits, and every balance follows from the ledger of the same
//! snapshot. Meanwhile another thread flushes and compacts beside the background threads.
//!
//! After a restart, clean or not, each thread's ledger has no gap, and ends between the thread's
//! last acknowledged transfer and its last attempt.

mod books;
mod teller;

use crate::ensure;
use crate::failure::Failure;
use crate::tiny_options::tiny;
use crate::world::End;
use books::{Books, deposit};
use firn::base::options::{CommitDurability, Options};
use firn::base::{ErrorKind, Result};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teller::Teller;

/// Number of threads that transfer money.
const TELLERS: u32 = 4;

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct BankStats {
    /// Transfers acknowledged.
    pub transfers: u64,
    /// Transactions chosen as victims of a deadlock.
    pub deadlocks: u64,
    /// Snapshots summed up.
    pub counted: u64,
    /// Crashes.
    pub crashes: u64,
}

impl BankStats {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.transfers += other.transfers;
        self.deadlocks += other.deadlocks;
        self.counted += other.counted;
        self.crashes += other.crashes;
    }
}

fn options(rng: &mut StdRng) -> Options {
    Options {
        background_jobs: 1,
        l0_stop_runs: 8,
        ..tiny(rng, CommitDurability::Sync)
    }
}

/// Runs transfers on a database in `dir` and opens it again without a close; then runs more
/// transfers and opens it again after a close. Each time, every thread makes at least `transfers`
/// transfers more.
///
/// # Errors
/// A [`Failure`] if sums or ledgers are wrong, or if a call fails.
pub fn on_disk(
    env: &Arc<dyn Env>,
    dir: &Path,
    seed: u64,
    transfers: u64,
) -> Result<BankStats, Failure> {
    let mut rng = StdRng::seed_from_u64(seed);
    let options = options(&mut rng);
    let mut tellers = tellers(seed);
    let mut stats = BankStats::default();
    let mut run = || {
        for closes in [false, true] {
            let db = open(env, dir, &options)?;
            let goal = tellers.iter().map(|t| t.acknowledged).max().unwrap_or(0) + transfers;
            business(&db, &mut tellers, goal, &mut stats)?;
            let ended = tellers.iter().find_map(|t| t.ended.as_ref());
            ensure!(ended.is_none(), "a call failed: {ended:?}");
            if closes {
                db.close().map_err(call_failed)?;
            }
            drop(db);
            let db = open(env, dir, &options)?;
            audit(&db, &mut tellers)?;
        }
        Ok(())
    };
    let done: Result<(), Failure> = run();
    done.map_err(|f| f.within(format_args!("bank seed {seed}")))?;
    Ok(stats)
}

/// Runs transfers in memory, with three power cuts or kills in the middle.
///
/// # Errors
/// A [`Failure`] if an acknowledged transfer is lost, if sums or ledgers are wrong, or if a call of
/// a live environment fails.
pub fn with_crashes(seed: u64) -> Result<BankStats, Failure> {
    let mut rng = StdRng::seed_from_u64(seed);
    let options = options(&mut rng);
    let mut tellers = tellers(seed);
    let mut stats = BankStats::default();
    let mut memory = MemEnv::new();
    memory.set_log_sectors(seed % 2 == 1);
    let mut run = || {
        for _ in 0..3 {
            let env: Arc<dyn Env> = Arc::new(memory.clone());
            let db = open(&env, Path::new("/bank"), &options)?;
            audit(&db, &mut tellers)?;
            memory.crash_at_sync(memory.sync_points() + rng.random_range(1..400));
            business(&db, &mut tellers, u64::MAX, &mut stats)?;
            drop(db);
            stats.crashes += 1;
            let end = if rng.random() {
                End::Kill
            } else {
                End::PowerCut
            };
            memory = match end {
                End::PowerCut => memory.crash(rng.random_range(0..1 << 32)),
                End::Kill => memory.kill(),
            };
        }
        let env: Arc<dyn Env> = Arc::new(memory.clone());
        audit(&open(&env, Path::new("/bank"), &options)?, &mut tellers)
    };
    let done: Result<(), Failure> = run();
    done.map_err(|f| f.within(format_args!("bank crash seed {seed}")))?;
    Ok(stats)
}

fn tellers(seed: u64) -> Vec<Teller> {
    (0..TELLERS).map(|n| Teller::new(n, seed)).collect()
}

fn call_failed(error: firn::base::Error) -> Failure {
    Failure::new(format!("a call failed: {error}"))
}

fn open(env: &Arc<dyn Env>, dir: &Path, options: &Options) -> Result<Arc<Db>, Failure> {
    let db = Db::open(Arc::clone(env), dir, options.clone(), None).map_err(call_failed)?;
    deposit(&db).map_err(call_failed)?;
    Ok(db)
}

/// Decides the prepared transfers after a restart, then checks sums, balances and ledgers.
fn audit(db: &Arc<Db>, tellers: &mut [Teller]) -> Result<(), Failure> {
    for (i, xid) in db.prepared_xids().into_iter().enumerate() {
        let known = match i % 2 {
            0 => db.commit_xid(&xid),
            _ => db.rollback_xid(&xid),
        };
        ensure!(
            known.map_err(call_failed)?,
            "prepared transfer {xid:?} is not known"
        );
    }
    let books = Books::read(&db.context().super_versions.latest()).map_err(call_failed)?;
    books.check()?;
    for teller in tellers {
        let (from, to) = (teller.acknowledged, teller.attempted);
        let found = books.transfers_of(teller.number)?;
        ensure!(
            (from..=to).contains(&found),
            "thread {} finds {found} transfers, {from} were acknowledged, {to} attempted",
            teller.number
        );
        teller.acknowledged = found;
        teller.attempted = found;
        teller.ended = None;
    }
    Ok(())
}

/// Runs the threads until each teller has `goal` acknowledged transfers or a call fails.
fn business(
    db: &Arc<Db>,
    tellers: &mut [Teller],
    goal: u64,
    stats: &mut BankStats,
) -> Result<(), Failure> {
    let before: u64 = tellers.iter().map(|t| t.acknowledged).sum();
    let closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [1, 2].map(|_| scope.spawn(|| books::keep_counting(db, &closed)));
        let tinker = scope.spawn(|| {
            while !closed.load(Ordering::Relaxed) {
                let done = db.flush().and_then(|()| db.compact_once());
                if let Err(error) = done
                    && !is_end(error.kind())
                {
                    return Err(call_failed(error));
                }
                std::thread::yield_now();
            }
            Ok(())
        });
        let at_work: Vec<_> = tellers
            .iter_mut()
            .map(|teller| scope.spawn(|| teller.work(db, goal)))
            .collect();
        let mut results = Vec::new();
        for thread in at_work {
            let victims = joined(thread.join());
            results.push(victims.map(|victims| stats.deadlocks += victims));
        }
        closed.store(true, Ordering::Relaxed);
        for reader in readers {
            results.push(joined(reader.join()).map(|counted| stats.counted += counted));
        }
        results.push(joined(tinker.join()));
        results.into_iter().collect::<Result<(), Failure>>()
    })?;
    stats.transfers += tellers.iter().map(|t| t.acknowledged).sum::<u64>() - before;
    Ok(())
}

/// Whether the error is one that calls return after the environment has died.
fn is_end(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Poisoned | ErrorKind::Io { .. })
}

fn joined<T>(result: std::thread::Result<Result<T, Failure>>) -> Result<T, Failure> {
    result.unwrap_or_else(|_| Err(Failure::new("a thread panicked")))
}
