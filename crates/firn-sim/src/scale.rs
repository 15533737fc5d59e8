//! Counts the work of the engine's control paths when a database has very many files and tables. A
//! control path is work that needs no entries of the files: opening the manifest, picking a job,
//! installing an edit, statistics, DDL.
//!
//! The files are invented: the manifest names them, and none exists. They go through the real
//! version set, picker, backlog, catalog and database. Each measured operation has a budget in
//! counts of work ([`WorkCount`]), which are the same on every machine. Times are printed beside
//! the counts and never judged.
//!
//! A budget is a constant, or grows with the files of the job and the logarithm of all files. So
//! the budgets that hold for a few thousand files must hold for three hundred thousand.

mod database;
mod invented;
mod place;
mod tree;

use firn::base::work_count::{WorkCount, counted};
use firn::env::{Env, PosixEnv};
use place::Place;
use std::path::Path;

/// Size of the invented database.
#[derive(Debug, Clone, Copy)]
pub struct ScalePlan {
    /// Number of files.
    pub files: u64,
    /// Number of tables, each with a primary key and one secondary index.
    pub tables: u32,
}

impl ScalePlan {
    /// A size for each run of the tests.
    pub const SMALL: Self = Self {
        files: 20_000,
        tables: 500,
    };
    /// The size that the engine is built for.
    pub const FULL: Self = Self {
        files: 300_000,
        tables: 10_000,
    };

    /// About the binary logarithm of the number of files: the steps of one bisection.
    fn log(&self) -> u64 {
        u64::from(self.files.max(2).ilog2()) + 1
    }
}

/// Upper bounds of the work of one operation: the objects that it visits or copies, and the bytes
/// that it writes. By default, each bound is 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    /// Accesses to the metadata of files.
    pub files: u64,
    /// Nodes of persistent lists created or copied.
    pub nodes: u64,
    /// Tables or their counters looked at in loops.
    pub tables: u64,
    /// Blob files looked at in loops.
    pub blob_files: u64,
    /// Bytes written to the manifest.
    pub bytes: u64,
}

/// One measured operation.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The operation.
    pub what: String,
    /// Its work; the largest of several repetitions.
    pub work: WorkCount,
    /// Bytes it wrote to the manifest.
    pub bytes: u64,
    /// Its longest time in microseconds.
    pub us: u64,
    /// Its budget; `None` if only its time is of interest.
    pub budget: Option<Budget>,
}

impl Measured {
    /// Whether the operation touched more than its budget allows.
    pub fn exceeds(&self) -> bool {
        self.budget.is_some_and(|budget| {
            let work = &self.work;
            work.files > budget.files
                || work.nodes > budget.nodes
                || work.tables > budget.tables
                || work.blob_files > budget.blob_files
                || self.bytes > budget.bytes
        })
    }
}

/// All measured operations of a run.
#[derive(Debug, Default)]
pub struct Costs {
    /// The operations in the order in which they ran.
    pub all: Vec<Measured>,
}

impl Costs {
    /// Runs `f` and records its work.
    fn measure<T>(&mut self, what: &str, budget: Option<Budget>, f: impl FnOnce() -> T) -> T {
        self.measure_bytes(what, budget, || (f(), 0))
    }

    /// As [`Self::measure`], for an `f` that also returns the number of bytes that it wrote.
    fn measure_bytes<T>(
        &mut self,
        what: &str,
        budget: Option<Budget>,
        f: impl FnOnce() -> (T, u64),
    ) -> T {
        let clock = PosixEnv::new();
        let begin = clock.monotonic_micros();
        let ((result, bytes), work) = counted(f);
        let us = clock.monotonic_micros() - begin;
        self.record(Measured {
            what: what.to_owned(),
            work,
            bytes,
            us,
            budget,
        });
        result
    }

    /// Adds an operation. If an operation with this name exists already, sets its time and each of
    /// its counts to the larger of both values.
    fn record(&mut self, one: Measured) {
        match self.all.iter_mut().find(|m| m.what == one.what) {
            Some(known) => {
                known.work.files = known.work.files.max(one.work.files);
                known.work.nodes = known.work.nodes.max(one.work.nodes);
                known.work.tables = known.work.tables.max(one.work.tables);
                known.work.blob_files = known.work.blob_files.max(one.work.blob_files);
                known.bytes = known.bytes.max(one.bytes);
                known.us = known.us.max(one.us);
            }
            None => self.all.push(one),
        }
    }

    /// The operations that touched more than their budgets allow.
    pub fn over_budget(&self) -> Vec<&Measured> {
        self.all.iter().filter(|m| m.exceeds()).collect()
    }

    /// Prints a Markdown table: for each operation its work, its budget and its time.
    pub fn print(&self) {
        println!("| operation | files | nodes | tables | blob files | bytes | budget | µs |");
        println!("|---|---|---|---|---|---|---|---|");
        for m in &self.all {
            let budget = m.budget.map_or("—".to_owned(), |b| {
                let Budget {
                    files,
                    nodes,
                    tables,
                    blob_files,
                    bytes,
                } = b;
                format!("{files} / {nodes} / {tables} / {blob_files} / {bytes}")
            });
            let w = m.work;
            println!(
                "| {}{} | {} | {} | {} | {} | {} | {budget} | {} |",
                m.what,
                if m.exceeds() { " **over**" } else { "" },
                w.files,
                w.nodes,
                w.tables,
                w.blob_files,
                m.bytes,
                m.us
            );
        }
    }
}

/// Measures the work and the time of each control path (opens, picks, installs, statistics, DDL) in
/// an invented database of the size of `plan`. The database is in memory, or in the directory
/// `dir`, which is then left with hundreds of thousands of empty files.
pub fn costs(plan: ScalePlan, dir: Option<&Path>) -> Costs {
    let mut costs = Costs::default();
    let place = Place::new(dir);
    tree::measure(plan, &place, &mut costs);
    database::measure(plan, &place, &mut costs);
    costs
}
