//! Compares the costs of single calls of the C ABI with their budgets. Environment: `ROWS`,
//! `ROUNDS`, `SCANS=1` to measure scans only.

use crate::allocs;
use crate::capi::{Database, RECORD_LEN, Record, Session, row};
use crate::config::{number, path};
use crate::data::Random;
use crate::engine::Result;
use crate::measure::thread_processor_ns;
use firn_capi::cursor::firn_read_mode::{FIRN_READ_LOCK_EXCLUSIVE, FIRN_READ_SNAPSHOT};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Number of point reads in a round.
const GETS: u64 = 200_000;

/// Rows inserted by a commit of the load.
const LOAD_BATCH: u64 = 1000;

/// Cost of one operation.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Nanoseconds by the clock.
    ns: f64,
    /// The part of `ns` during which the thread ran on a processor, nanoseconds. For the rest of
    /// `ns` the thread waited.
    processor_ns: f64,
    allocations: f64,
}

/// Measures the cost of each operation and prints a table of the costs and budgets. Fails if
/// `CHECK=1` is set and a cost exceeds its budget.
pub fn run() -> Result<()> {
    let rows = number("ROWS", 200_000)?.max(1000);
    let rounds = number("ROUNDS", 9)?.max(1) as usize;
    let dir = path("DATA_DIR", "build/bench/data").join("budgets");
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir)?;
    // Memtables are small, so that updates reach L0 during the measurement.
    let bytes = rows * RECORD_LEN as u64;
    let database = Database::create(&dir, bytes * 4, (bytes / 8).max(2 << 20))?;
    eprintln!("==> loading {rows} rows");
    load(&database, rows)?;
    database.compact()?;

    eprintln!("==> measuring, {rounds} rounds");
    let mut session = database.session(FIRN_READ_SNAPSHOT)?;
    scan(&mut session, rows)?;
    let all = number("SCANS", 0)? == 0;
    let point = match all {
        true => median(rounds, |r| gets(&mut session, rows, r, false))?,
        false => Cost::default(),
    };
    let statements = match all {
        true => median(rounds, |r| gets_of(&mut session, rows, r))?,
        false => Cost::default(),
    };
    let at_rest = median(rounds, |_| scan(&mut session, rows))?;
    let (under_load, updates) = with_updates(&database, rows, 2, || {
        median(rounds, |_| scan(&mut session, rows))
    })?;
    let get_under_load = match all {
        true => {
            with_updates(&database, rows, 3, || {
                median(rounds, |r| gets(&mut session, rows, r, true))
            })?
            .0
        }
        false => Cost::default(),
    };

    println!(
        "| C ABI, {rows} cached rows of {RECORD_LEN} bytes | median, ns | on a processor, ns | budget, ns | allocations |"
    );
    println!("|---|---|---|---|---|");
    let mut over = Vec::new();
    let mut print = |what: &str, cost: Cost, budget: Option<f64>| {
        if cost.ns == 0.0 {
            return;
        }
        let limit = budget.map_or_else(String::new, |b| format!("{b:.0}"));
        println!(
            "| {what} | {:.1} | {:.1} | {limit} | {:.3} |",
            cost.ns, cost.processor_ns, cost.allocations
        );
        if budget.is_some_and(|b| cost.ns > b) {
            over.push(what.to_owned());
        }
    };
    print("point read by primary key", point, Some(1000.0));
    print("… with begin and commit of its statement", statements, None);
    print("… while rows are updated", get_under_load, None);
    print("scan, a row, at rest", at_rest, Some(60.0));
    print(
        "scan, a row, while rows are updated",
        under_load,
        Some(120.0),
    );
    println!("\nUpdates meanwhile: {updates:.0} a second.");
    drop(session);
    drop(database);
    std::fs::remove_dir_all(&dir)?;
    if !over.is_empty() && number("CHECK", 0)? != 0 {
        return Err(format!("over budget: {}", over.join(", ")).into());
    }
    Ok(())
}

fn load(database: &Database, rows: u64) -> Result<()> {
    let mut session = database.session(FIRN_READ_LOCK_EXCLUSIVE)?;
    let mut random = Random::new(1);
    for first in (0..rows).step_by(LOAD_BATCH as usize) {
        session.begin()?;
        for id in first..(first + LOAD_BATCH).min(rows) {
            session.insert(&row(id as i32, id as i32, &mut || random.next()))?;
        }
        session.commit()?;
    }
    Ok(())
}

/// The median of `rounds` measurements, after one that is not counted.
fn median(rounds: usize, mut measure: impl FnMut(u64) -> Result<Cost>) -> Result<Cost> {
    measure(0)?;
    let mut costs = (1..=rounds as u64)
        .map(&mut measure)
        .collect::<Result<Vec<_>>>()?;
    costs.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    Ok(costs[costs.len() / 2])
}

/// Runs `work`, which does `count` operations, and returns the average cost of an operation.
fn cost(count: u64, work: impl FnOnce() -> Result<()>) -> Result<Cost> {
    let on_processor = thread_processor_ns()?;
    let (begun, before) = (Instant::now(), allocs::count());
    work()?;
    let (took, allocations) = (begun.elapsed(), allocs::count() - before);
    let of_one = |sum: u64| sum as f64 / count as f64;
    Ok(Cost {
        ns: of_one(took.as_nanos() as u64),
        processor_ns: of_one(thread_processor_ns()? - on_processor),
        allocations: of_one(allocations),
    })
}

fn get_one(session: &mut Session<'_>, random: &mut Random, rows: u64) -> Result<()> {
    let mut record: Record = [0; RECORD_LEN];
    let id = random.below(rows) as i32;
    session.get(id, &mut record)?;
    if record[1..5] == id.to_le_bytes() && record[RECORD_LEN - 2] != b' ' {
        return Ok(());
    }
    Err(format!("row {id} reads {record:?}").into())
}

/// Measures point reads. With `short`, a new statement begins after each thousand reads; otherwise
/// all reads belong to one statement. A statement keeps its snapshot, so if another thread writes,
/// each read of a long statement passes over more versions than the one before.
fn gets(session: &mut Session<'_>, rows: u64, round: u64, short: bool) -> Result<Cost> {
    let mut random = Random::new(round);
    session.begin()?;
    let result = cost(GETS, || {
        for number in 0..GETS {
            if short && number % 1000 == 999 {
                session.commit()?;
                session.begin()?;
            }
            get_one(session, &mut random, rows)?;
        }
        Ok(())
    });
    session.commit()?;
    result
}

/// Measures point reads, each a statement of its own.
fn gets_of(session: &mut Session<'_>, rows: u64, round: u64) -> Result<Cost> {
    let mut random = Random::new(round);
    cost(GETS, || {
        for _ in 0..GETS {
            session.begin()?;
            get_one(session, &mut random, rows)?;
            session.commit()?;
        }
        Ok(())
    })
}

/// Measures a scan of the whole table that decodes all columns.
fn scan(session: &mut Session<'_>, rows: u64) -> Result<Cost> {
    let mut record: Record = [0; RECORD_LEN];
    session.begin()?;
    let result = cost(rows, || {
        let mut count = 0;
        while session.step(count == 0, &mut record)? {
            count += 1;
        }
        match count == rows && record[1..5] == (rows as i32 - 1).to_le_bytes() {
            true => Ok(()),
            false => Err(format!("a scan found {count} rows of {rows}").into()),
        }
    });
    session.commit()?;
    result
}

/// Runs `work` while another thread updates random rows as fast as it can. Also returns the number
/// of updates per second.
fn with_updates<R>(
    database: &Database,
    rows: u64,
    seed: u64,
    work: impl FnOnce() -> Result<R>,
) -> Result<(R, f64)> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let updates = || {
            let mut session = database.session(FIRN_READ_LOCK_EXCLUSIVE)?;
            // The seed differs between calls: an update to the same value as before would change
            // nothing.
            let mut random = Random::new(seed);
            while !stop.load(Ordering::Relaxed) {
                update(&mut session, &mut random, rows)?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, crate::engine::Error>(())
        };
        let updater = scope.spawn(updates);
        // Before the first round, wait until some rows have newer versions in the memtable and in
        // L0.
        while done.load(Ordering::Relaxed) < rows / 2 && !updater.is_finished() {
            std::thread::yield_now();
        }
        let (begun, before) = (Instant::now(), done.load(Ordering::Relaxed));
        let result = work();
        let rate = (done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        updater
            .join()
            .map_err(|_| "the updating thread panicked")??;
        Ok((result?, rate))
    })
}

fn update(session: &mut Session<'_>, random: &mut Random, rows: u64) -> Result<()> {
    let id = random.below(rows) as i32;
    let mut old: Record = [0; RECORD_LEN];
    session.begin()?;
    session.get(id, &mut old)?;
    let new = row(id, id, &mut || random.next());
    session.update(&old, &new)?;
    session.commit()
}
