//! `firn-sim`: long runs of the simulation.
//!
//! `firn-sim KIND [--runs N | --seconds S] [--seed N] [--steps N]` runs consecutive seeds from
//! `--seed` (1): `--runs` (100) of them, or as many as fit into `--seconds`. A failure prints its
//! seed, and the process exits with 1. The kinds:
//!
//! - `model`: random work against the model, without crashes (`--steps`, 20000).
//! - `crash`: crashes at random syncs. `sync`: a power cut at each sync of a workload (`--steps`,
//!   300).
//! - `cold`: crashes while files move to and from an object store with faults.
//! - `full`: crashes at random syncs and changes of names, and during opens, on a full disk.
//! - `fault`: injected failures. `rot`: flipped bits, and damaged files under steady writes
//!   (`--steps`, 600).
//! - `point`: backups recovered to points in the log archive.
//! - `load`: bulk loads and index changes. `load-point`: the same with point-in-time recovery.
//! - `bank`: threads and crashes, checked by sums and ledgers. `concurrent`: threads and crashes,
//!   judged by their history.
//! - `compaction`: prints the costs of the picker's decisions, and the throughput and space that
//!   writers at full speed see in `--seconds` (1200) of virtual time. It runs one seed.
//! - `scale`: counts the files and tables that a commit, a freeze, the choice of a compaction, an
//!   edit of the manifest and other such steps visit in a database of `--files` (300000) invented
//!   files and `--tables` (10000) tables. It fails if a step visits more than its budget allows.
//!   `--dir` makes the files, empty, in a directory; without it they are in memory.

use firn::env::{Env, PosixEnv};
use firn_sim::bank::{self, BankStats};
use firn_sim::bit_rot::{self, RotStats};
use firn_sim::bulk_loads::{self, LoadStats};
use firn_sim::concurrent::{self, ConcurrentStats};
use firn_sim::damaged_files::{self, DamageStats};
use firn_sim::scale::ScalePlan;
use firn_sim::world::Stats;
use firn_sim::{Failure, compaction, crash, faults, point_in_time, scale};
use std::fmt::Debug;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: firn-sim crash|sync|cold|full|fault|rot|model|point|load|load-point|bank|concurrent|compaction|scale [--runs N | --seconds S] [--seed N] [--steps N] [--files N] [--tables N] [--dir PATH]";

struct Args {
    kind: String,
    runs: u64,
    seed: u64,
    seconds: Option<u64>,
    steps: Option<u64>,
    scale: ScalePlan,
    dir: Option<PathBuf>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args {
        kind: words.next()?,
        runs: 100,
        seed: 1,
        seconds: None,
        steps: None,
        scale: ScalePlan::FULL,
        dir: None,
    };
    while let Some(name) = words.next() {
        if name == "--dir" {
            args.dir = Some(PathBuf::from(words.next()?));
            continue;
        }
        let value: u64 = words.next()?.parse().ok()?;
        match name.as_str() {
            "--runs" => args.runs = value,
            "--seed" => args.seed = value,
            "--seconds" => args.seconds = Some(value),
            "--steps" => args.steps = Some(value),
            "--files" => args.scale.files = value,
            "--tables" => args.scale.tables = value.try_into().ok()?,
            _ => return None,
        }
    }
    Some(args)
}

impl Args {
    fn steps_or(&self, steps: u64) -> usize {
        self.steps.unwrap_or(steps) as usize
    }

    /// Runs consecutive seeds until the number of runs or the time is reached, and sums up their
    /// statistics. Failures are printed and counted; later seeds still run.
    fn series<S: Debug + Default>(
        &self,
        run: impl Fn(u64) -> Result<S, Failure>,
        add: impl Fn(&mut S, &S),
    ) -> ExitCode {
        let clock = PosixEnv::new();
        let started = clock.monotonic_micros();
        let seconds = || (clock.monotonic_micros() - started) / 1_000_000;
        let (mut stats, mut runs, mut failures) = (S::default(), 0, 0);
        while self.seconds.map_or(runs < self.runs, |s| seconds() < s) {
            match run(self.seed + runs) {
                Ok(done) => add(&mut stats, &done),
                Err(failure) => {
                    failures += 1;
                    println!("FAILED {failure}");
                }
            }
            runs += 1;
        }
        println!(
            "{}: {runs} runs from seed {}, {failures} failures, {} s: {stats:?}",
            self.kind,
            self.seed,
            seconds()
        );
        ExitCode::from(u8::from(failures > 0))
    }
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match args.kind.as_str() {
        "crash" => args.series(crash::crash_run, Stats::add),
        "cold" => args.series(crash::cold_files_run, Stats::add),
        "full" => args.series(crash::full_disk_run, Stats::add),
        "sync" => args.series(
            |seed| crash::every_sync_run(seed, args.steps_or(300)),
            Stats::add,
        ),
        "fault" => args.series(
            |seed| {
                let mut stats = faults::fault_run(seed)?;
                stats.add(&faults::errno_run(seed)?);
                Ok(stats)
            },
            Stats::add,
        ),
        "rot" => args.series(
            |seed| {
                let damage = damaged_files::damage_run(seed, args.steps_or(600))?;
                Ok((bit_rot::rot_run(seed)?, damage))
            },
            |sum: &mut (RotStats, DamageStats), (rot, damage)| {
                sum.0.add(rot);
                sum.1.add(damage);
            },
        ),
        "model" => args.series(
            |seed| crash::model_run(seed, args.steps_or(20_000)),
            Stats::add,
        ),
        "point" => args.series(point_in_time::point_run, Stats::add),
        "load-point" => args.series(bulk_loads::load_point_run, LoadStats::add),
        "load" => args.series(bulk_loads::load_run, LoadStats::add),
        "bank" => args.series(bank::with_crashes, BankStats::add),
        "concurrent" => args.series(concurrent::run, ConcurrentStats::add),
        "compaction" => {
            compaction::print_costs(args.seed);
            println!();
            compaction::print_closed(args.seed, args.seconds.unwrap_or(1200));
            ExitCode::SUCCESS
        }
        "scale" => {
            let costs = scale::costs(args.scale, args.dir.as_deref());
            costs.print();
            ExitCode::from(u8::from(!costs.over_budget().is_empty()))
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
