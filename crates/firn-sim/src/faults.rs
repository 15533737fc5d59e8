//! Injected faults: calls of the environment fail, and the promises for that case must hold.
//!
//! - A failed write or sync of the log or the manifest: the engine refuses writes until a restart.
//!   Reads, and the restart, show a state that is not before the last acknowledged one.
//! - Any other failed call: the operation that needed it fails and changes nothing.
//! - A full disk: nothing is lost, and work resumes by itself once there is room.
//! - No descriptor or no memory to open a file: the operation that needed the file is refused, and
//!   everything goes on.
//! - A panic in a background thread: as a failed write; nothing committed is lost.

use crate::crash::failure_of;
use crate::ensure;
use crate::failure::Failure;
use crate::split_env::SplitEnv;
use crate::tiny_options::{one_of, tiny};
use crate::world::{DIR, Stats, StepEnd, World, Wrap};
use firn::base::options::{CommitDurability, Options};
use firn::base::{Error, ErrorKind, FailureClass, Value};
use firn::db::Db;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv, ReadClass};
use firn::txn::Isolation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

const CLASSES: [CallClass; 6] = [
    CallClass::Read,
    CallClass::Write,
    CallClass::Sync,
    CallClass::Create,
    CallClass::Rename,
    CallClass::Remove,
];

/// The files that a full disk affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    /// All files except log segments: SSTs, blob files and manifests.
    Tree,
    /// Log segments: none can be created.
    Log,
}

/// The fault wrapper of the last start; a restart replaces it.
type Current = Rc<RefCell<Option<FaultEnv>>>;

/// Returns a function that wraps an environment in a [`FaultEnv`], which injects faults, and stores
/// that in `current`. The faults hit only calls for the files that `full` names, or all calls if
/// `full` is `None`.
fn wrap(current: &Current, full: Option<Full>) -> Wrap {
    let current = Rc::clone(current);
    Box::new(move |env: &MemEnv| {
        let plain: Arc<dyn Env> = Arc::new(env.clone());
        let faulty = FaultEnv::new(Arc::clone(&plain));
        *current.borrow_mut() = Some(faulty.clone());
        let faulty: Arc<dyn Env> = Arc::new(faulty);
        match full {
            None => faulty,
            Some(Full::Tree) => Arc::new(SplitEnv {
                log: plain,
                rest: faulty,
            }),
            Some(Full::Log) => Arc::new(SplitEnv {
                log: faulty,
                rest: plain,
            }),
        }
    })
}

/// The current fault wrapper.
fn faults(current: &Current) -> FaultEnv {
    current.borrow().clone().expect("the world was started")
}

/// Runs a world with a failing device, then one with a full disk.
///
/// # Errors
/// A [`Failure`] that describes the broken promise.
pub fn fault_run(seed: u64) -> Result<Stats, Failure> {
    let mut stats = Stats::default();
    for run in [failing_device, full_disk] {
        let done = run(seed).map_err(failure_of);
        stats.add(&done.map_err(|f| f.within(format_args!("fault seed {seed}")))?);
    }
    Ok(stats)
}

fn failing_device(seed: u64) -> Result<Stats, StepEnd> {
    let mut rng = StdRng::seed_from_u64(seed);
    let current = Current::default();
    let mut world = World::with_env(seed, CommitDurability::Sync, wrap(&current, None));
    world.recover()?;
    world.steps(rng.random_range(0..300))?;
    let fault = Fault {
        class: one_of(&mut rng, &CLASSES),
        nth: rng.random_range(1..40),
        sticky: rng.random(),
        errno: Errno::Io,
    };
    world.expect_strays();
    faults(&current).inject(fault);
    let error = match world.steps(500) {
        Ok(()) => None,
        Err(StepEnd::Engine(error)) => Some(error),
        Err(stop) => return Err(stop),
    };
    faults(&current).clear();
    let place = |stop: StepEnd| match stop {
        StepEnd::Failed(f) => f
            .within(format_args!("after {fault:?} and {error:?}"))
            .into(),
        engine => engine,
    };
    after_failure(&mut world, error.as_ref()).map_err(place)?;
    Ok(world.stats())
}

/// Whether the engine must refuse writes after this error: a write or sync of its log or manifest
/// failed.
fn must_poison(error: &Error) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| error.message().contains(word));
    // Files of an unfinished checkpoint have another path: their errors do not poison the engine.
    let ours = [format!("write {DIR}/"), format!("sync {DIR}/")];
    let decisive = says(&[".wal", "MANIFEST"]) && says(&ours.each_ref().map(String::as_str));
    *error.kind() == ErrorKind::Poisoned || decisive
}

fn after_failure(world: &mut World, error: Option<&Error>) -> Result<(), StepEnd> {
    world.check_readable()?;
    let healthy = world.accepts_writes()?;
    ensure!(!(healthy && error.is_some_and(must_poison)), "writes go on");
    world.check_readable()?;
    if healthy {
        world.find_outcome_alive()?;
        world.steps(100)?;
        world.check_latest()?;
    } else {
        let compacted = world.db().compact_once().map_err(|e| e.kind().clone());
        ensure!(
            compacted == Err(ErrorKind::Poisoned),
            "a compaction with writes refused: {compacted:?}"
        );
    }
    let end = world.random_end();
    world.crash(end, false)?;
    world.steps(60)?;
    world.check_latest()?;
    world.reopen()
}

fn full_disk(seed: u64) -> Result<Stats, StepEnd> {
    let mut rng = StdRng::seed_from_u64(seed);
    let full = one_of(&mut rng, &[Full::Tree, Full::Log]);
    let current = Current::default();
    let mut world = World::with_env(seed, CommitDurability::Sync, wrap(&current, Some(full)));
    world.recover()?;
    world.steps(rng.random_range(0..300))?;
    world.expect_strays();
    let class = match full {
        Full::Tree => one_of(&mut rng, &[CallClass::Write, CallClass::Create]),
        Full::Log => CallClass::Create,
    };
    faults(&current).inject(Fault {
        class,
        nth: rng.random_range(1..20),
        sticky: true,
        errno: Errno::NoSpace,
    });
    let mut refused = 0;
    for _ in 0..400 {
        match world.steps(1) {
            Ok(()) => {}
            Err(StepEnd::Engine(error)) if *error.kind() == ErrorKind::NoSpace => {
                refused += 1;
                world.end_sessions();
            }
            Err(stop) => return Err(stop),
        }
    }
    let place = |stop: StepEnd| match stop {
        StepEnd::Failed(f) => f
            .within(format_args!(
                "{full:?} full for {class:?}, {refused} calls refused"
            ))
            .into(),
        engine => engine,
    };
    room_again(&mut world, &faults(&current)).map_err(place)?;
    Ok(world.stats())
}

/// From a random moment on, lets the `nth` call that opens a file fail, and in some runs also all
/// such calls after it.
///
/// # Errors
/// A [`Failure`] if a call fails with another error, if the engine refuses writes afterwards, or if
/// anything is lost.
pub fn descriptor_run(seed: u64, nth: u64) -> Result<Stats, Failure> {
    let run = || -> Result<Stats, StepEnd> {
        let mut rng = StdRng::seed_from_u64(seed);
        let current = Current::default();
        let mut world = World::with_env(seed, CommitDurability::Sync, wrap(&current, None));
        world.recover()?;
        world.steps(rng.random_range(0..200))?;
        let fault = Fault {
            class: CallClass::Open,
            nth,
            sticky: rng.random(),
            errno: one_of(
                &mut rng,
                &[
                    Errno::NoMemory,
                    Errno::SystemTableFull,
                    Errno::ProcessTableFull,
                ],
            ),
        };
        world.expect_strays();
        faults(&current).inject(fault);
        let mut refused = 0;
        for _ in 0..200 {
            match world.steps(1) {
                Ok(()) => {}
                Err(StepEnd::Engine(error)) if *error.kind() == ErrorKind::NoDescriptor => {
                    refused += 1;
                    if !world.is_open() {
                        break;
                    }
                    world.end_sessions();
                }
                Err(stop) => return Err(stop),
            }
        }
        let place = |stop: StepEnd| match stop {
            StepEnd::Failed(f) => f
                .within(format_args!("{fault:?}, {refused} calls refused"))
                .into(),
            engine => engine,
        };
        faults(&current).clear();
        if !world.is_open() {
            // The engine refused to start. The next start must find everything.
            let end = world.random_end();
            world.crash(end, false).map_err(place)?;
        }
        room_again(&mut world, &faults(&current)).map_err(place)?;
        Ok(world.stats())
    };
    let done = run().map_err(failure_of);
    done.map_err(|f| f.within(format_args!("descriptor seed {seed}, call {nth}")))
}

/// The calls that fail, each with the errors that it can fail with on a real system.
const FAILING_CALLS: [(CallClass, &[Errno]); 7] = {
    use Errno::{Io, NoMemory, NoSpace, ProcessTableFull, SystemTableFull};
    [
        (
            CallClass::Open,
            &[Io, NoMemory, NoSpace, ProcessTableFull, SystemTableFull],
        ),
        (CallClass::Read, &[Io, NoMemory]),
        (CallClass::Write, &[Io, NoMemory, NoSpace]),
        (CallClass::Sync, &[Io, NoMemory, NoSpace]),
        (CallClass::Create, &[Io, NoMemory, NoSpace]),
        (CallClass::Rename, &[Io, NoMemory, NoSpace]),
        (CallClass::Remove, &[Io, NoMemory]),
    ]
};

/// Lets a call of any class fail with any error, once or from then on. Goes on after refusals.
/// The class of the error decides whether the engine may refuse writes afterwards.
///
/// # Errors
/// A [`Failure`] if the engine refuses writes after an error without an effect or for want of room,
/// if it goes on writing after a failed write or sync, or if anything is lost.
pub fn errno_run(seed: u64) -> Result<Stats, Failure> {
    let mut rng = StdRng::seed_from_u64(seed ^ 0xe440);
    // Consecutive seeds go through all calls and errors.
    let all: Vec<(CallClass, Errno)> = FAILING_CALLS
        .iter()
        .flat_map(|(class, errnos)| errnos.iter().map(move |errno| (*class, *errno)))
        .collect();
    let (class, errno) = all[seed as usize % all.len()];
    let fault = Fault {
        class,
        nth: rng.random_range(1..60),
        sticky: rng.random(),
        errno,
    };
    let mut refused = 0;
    let mut run = || -> Result<Stats, StepEnd> {
        let current = Current::default();
        let mut world = World::with_env(seed, CommitDurability::Sync, wrap(&current, None));
        world.recover()?;
        world.steps(rng.random_range(0..200))?;
        world.expect_strays();
        faults(&current).inject(fault);
        let mut failed = None;
        for _ in 0..300 {
            match world.steps(1) {
                Ok(()) => {}
                Err(StepEnd::Engine(error)) => {
                    let refusal = error.class() != FailureClass::Poison;
                    refused += u64::from(refusal);
                    if !refusal || !world.is_open() {
                        failed = Some(error);
                        break;
                    }
                    world.end_sessions();
                }
                Err(stop) => return Err(stop),
            }
        }
        faults(&current).clear();
        match failed {
            Some(_) if !world.is_open() => {
                // The engine refused to start. The next start must find everything.
                let end = world.random_end();
                world.crash(end, false)?;
                room_again(&mut world, &faults(&current))?;
            }
            Some(error) => after_failure(&mut world, Some(&error))?,
            None => room_again(&mut world, &faults(&current))?,
        }
        Ok(world.stats())
    };
    let done = run().map_err(failure_of);
    done.map_err(|f| {
        f.within(format_args!(
            "errno seed {seed}, {fault:?}, {refused} refused"
        ))
    })
}

fn room_again(world: &mut World, faults: &FaultEnv) -> Result<(), StepEnd> {
    world.check_latest()?;
    faults.clear();
    ensure!(
        world.accepts_writes()?,
        "writes are refused though there is room"
    );
    world.steps(200)?;
    world.check_latest()?;
    let end = world.random_end();
    world.crash(end, false)?;
    world.steps(60)?;
    world.reopen()
}

/// Fills the memtables while the disk is full, so that flushes cannot make room: writers must fail
/// with `NoSpace` instead of waiting forever, and succeed again once there is room.
///
/// # Errors
/// A [`Failure`] if a writer fails with another kind, or if another call fails.
pub fn stalled_run(seed: u64) -> Result<(), Failure> {
    let run = || -> Result<(), StepEnd> {
        let current = Current::default();
        let env = wrap(&current, Some(Full::Tree))(&MemEnv::new());
        let options = Options {
            background_jobs: 1,
            ..tiny(&mut StdRng::seed_from_u64(seed), CommitDurability::Sync)
        };
        let db = Db::open(env, Path::new(DIR), options, None)?;
        faults(&current).inject(Fault {
            class: CallClass::Create,
            nth: 1,
            sticky: true,
            errno: Errno::NoSpace,
        });
        let refused = (1..100_000).find_map(|n| put(&db, n).err());
        let kind = refused.map(|error| error.kind().clone());
        ensure!(kind == Some(ErrorKind::NoSpace), "refused with {kind:?}");
        faults(&current).clear();
        // The background thread may retry its flush only after a second.
        for n in 100_000.. {
            match put(&db, n) {
                Ok(()) => break,
                Err(error) if *error.kind() == ErrorKind::NoSpace => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(db.close()?)
    };
    run().map_err(failure_of)
}

/// Panics in a background thread: writes must fail with `Poisoned`, reads go on, and a restart must
/// find everything committed.
///
/// # Errors
/// A [`Failure`] if writes fail with another kind, or if committed data is missing.
pub fn panic_run(seed: u64) -> Result<(), Failure> {
    let run = || -> Result<(), StepEnd> {
        let disk = MemEnv::new();
        let current = Current::default();
        let options = Options {
            background_jobs: 1,
            ..tiny(&mut StdRng::seed_from_u64(seed), CommitDurability::Sync)
        };
        let env = wrap(&current, Some(Full::Tree))(&disk);
        let db = Db::open(env, Path::new(DIR), options.clone(), None)?;
        faults(&current).inject(Fault {
            class: CallClass::Create,
            nth: 1,
            sticky: false,
            errno: Errno::Panic,
        });
        let mut committed = 0;
        let refused = (0..100_000).find_map(|n| match put(&db, n) {
            Ok(()) => {
                committed = n + 1;
                None
            }
            Err(error) => Some(error.kind().clone()),
        });
        ensure!(
            refused == Some(ErrorKind::Poisoned),
            "writes are refused with {refused:?} after the panic"
        );
        ensure!(holds(&db, committed)?, "what was committed does not read");
        drop(db);
        let env: Arc<dyn Env> = Arc::new(disk.crash(seed));
        let db = Db::open(env, Path::new(DIR), options, None)?;
        ensure!(holds(&db, committed)?, "what was committed is lost");
        put(&db, committed)?;
        Ok(db.close()?)
    };
    run()
        .map_err(failure_of)
        .map_err(|failure| failure.within(format_args!("panic seed {seed}")))
}

fn key_of(n: u32) -> Vec<u8> {
    [1_000_000_u32.to_be_bytes(), n.to_be_bytes()].concat()
}

fn put(db: &Db, n: u32) -> firn::base::Result<()> {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
    txn.before_write()?;
    txn.put(&key_of(n), Value::whole(&[7; 500]))?;
    txn.commit()
}

/// Whether the database returns the values of the first `count` puts.
fn holds(db: &Db, count: u32) -> firn::base::Result<bool> {
    let point = db.context().super_versions.latest();
    for n in 0..count {
        let found = firn::read::get(
            &point.super_version,
            &key_of(n),
            point.seqno,
            ReadClass::Point,
            |key, value| key.kind.is_put() && value.len() == 500,
        )?;
        if found != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}
