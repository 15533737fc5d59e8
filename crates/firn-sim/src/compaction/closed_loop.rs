//! Writers at full speed on a machine of few processors, in a closed loop: the real stall gate
//! limits the writers by the backlog of flushes and of the real picker's jobs, and these compete
//! with the writers for the processors. Time is virtual, and an entry stands for many rows, so that
//! twenty minutes take seconds.
//!
//! Each step of [`Machine`] advances the clock by 2 ms:
//!
//! 1. Begin a flush and jobs where a thread is free.
//! 2. Ask the gate for its rate, which bounds the updates of this step.
//! 3. Divide the processors evenly among jobs, flush and writers that want them.
//! 4. Advance jobs and flush, end those that are done, and report the new backlog to the gate.
//! 5. Commit the updates; freeze the memtable when it is full.
//!
//! The model assumes that writers that sleep at the gate lose nothing of its rate (a test of
//! `write/stall` checks that), and processor costs that were measured once.

use super::tree::{Flight, Key, Tree};
use firn::base::options::Options;
use firn::compaction::{Backlog, JobKind, RestGoal, SpaceTracker};
use firn::env::MemEnv;
use firn::version::LAST_LEVEL;
use firn::write::{CommitTotals, Pressure, StallGate, StallInput};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Length of a step, microseconds.
const STEP_US: u64 = 2000;

/// Bytes of an update as the gate counts them at its commit.
const COMMITTED: f64 = 212.0;
/// Bytes of an update as a memtable counts its entries.
const IN_MEMTABLE: f64 = 340.0;

/// Stored bytes of a row in the upper levels and in the last level.
const STORED: (u64, u64) = (100, 86);

/// Processor time of the commit of a row, microseconds. This constant and the next four were
/// measured on a real machine.
const COMMIT_US: f64 = 4.8;
/// Processor time of the flush of a row, microseconds.
const FLUSH_US: f64 = 0.8;
/// Processor time of the merge of an input row of a job, microseconds.
const MERGE_US: f64 = 0.12;
/// Processor time of writing an output row into an upper level, microseconds.
const UPPER_US: f64 = 0.3;
/// Processor time of writing an output row into the last level, microseconds.
const LAST_US: f64 = 0.5;

/// Time of the sync of a file, whatever its length, microseconds. A sync takes no processor.
const SYNC_US: f64 = 1000.0;
/// Further time of a sync for each byte of the file, microseconds.
const SYNC_BYTE_US: f64 = 0.0005;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct MachinePlan {
    /// The seed of keys and of the machine's varying speed.
    pub seed: u64,
    /// Number of rows.
    pub keys: u64,
    /// Number of rows that an entry of the simulation stands for.
    pub scale: u64,
    /// Length, seconds of virtual time.
    pub seconds: u64,
    /// Seconds at the start that the outcome leaves out.
    pub warm_up: u64,
    /// Number of writers at full speed.
    pub writers: u64,
    /// Number of processors.
    pub processors: f64,
    /// Number of compaction threads.
    pub jobs: usize,
    /// Chooses the row of the next update, out of the given number of rows.
    pub key: fn(&mut StdRng, u64) -> u64,
}

/// Chooses each row with the same probability.
pub fn uniform(rng: &mut StdRng, keys: u64) -> u64 {
    rng.random_range(0..keys)
}

/// Chooses rows by a power law: the logarithm of a row's rank is uniform. Of a million rows, the
/// thousand hottest get half of the updates. Multiplication by a constant scatters them.
pub fn skewed(rng: &mut StdRng, keys: u64) -> u64 {
    let u: f64 = rng.random();
    let rank = (keys as f64).powf(u) as u64;
    rank.wrapping_mul(2_654_435_761) % keys
}

impl Default for MachinePlan {
    fn default() -> Self {
        Self {
            seed: 1,
            keys: 5_000_000,
            scale: 50,
            seconds: 1200,
            warm_up: 30,
            writers: 4,
            processors: 2.0,
            jobs: 1,
            key: uniform,
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Number of updates in each second.
    pub seconds: Vec<f64>,
    /// Largest stored size in each second, bytes, inputs and outputs of running jobs included.
    pub space: Vec<f64>,
    /// Size of the rows after a full compaction, bytes.
    pub compacted: f64,
    /// Size of all memtables, bytes.
    pub memory: f64,
    /// Bytes that compactions wrote for each byte flushed.
    pub written: f64,
    /// Largest number of L0 runs over one key.
    pub deepest: usize,
    /// Time in which writers were stopped, seconds.
    pub stopped: f64,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

impl Outcome {
    /// Number of updates in the median second.
    pub fn median(&self) -> f64 {
        median(&self.seconds)
    }

    /// The slowest second, as a share of the median.
    pub fn slowest(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::MAX, f64::min) / self.median()
    }

    /// Number of seconds below half of the median.
    pub fn slow(&self) -> usize {
        let half = self.median() / 2.0;
        self.seconds.iter().filter(|s| **s < half).count()
    }

    /// The largest stored size, as a multiple of the compacted size.
    pub fn largest(&self) -> f64 {
        self.space.iter().copied().fold(0.0, f64::max) / self.compacted
    }

    /// The largest stored size that is allowed, as a multiple of the compacted size: 1.2, plus the
    /// size of the memtables.
    pub fn allowed(&self) -> f64 {
        1.2 + self.memory / self.compacted
    }
}

/// The remaining work of a flush or a job, microseconds: it first computes, then waits for syncs.
struct Work {
    computes: f64,
    waits: f64,
    whole: f64,
}

impl Work {
    fn new(computes: f64, waits: f64) -> Self {
        Self {
            computes,
            waits,
            whole: computes + waits,
        }
    }

    fn done(&self) -> bool {
        self.computes <= 0.0 && self.waits <= 0.0
    }

    fn share(&self) -> f64 {
        1.0 - (self.computes + self.waits).max(0.0) / self.whole.max(1.0)
    }

    fn step(&mut self, computes_us: f64, waits_us: f64) {
        if self.computes > 0.0 {
            self.computes -= computes_us;
        } else {
            self.waits -= waits_us;
        }
    }
}

struct Flush {
    work: Work,
    entries: f64,
    began_us: u64,
}

struct Running {
    flight: Flight,
    work: Work,
    bytes: f64,
}

/// The simulated machine, with the tree and the gate; see the top of this file.
pub struct Machine {
    plan: MachinePlan,
    rng: StdRng,
    env: MemEnv,
    now_us: u64,
    tree: Tree,
    gate: StallGate,
    space_tracker: SpaceTracker,
    /// Updates in the active memtable.
    active: f64,
    /// Updates in each frozen memtable, oldest first.
    frozen: VecDeque<f64>,
    flush: Option<Flush>,
    /// The running job of each compaction thread.
    jobs: Vec<Option<Running>>,
    /// Number of updates that the gate's rate has allowed and that no writer has made yet.
    owed: f64,
    /// Share of their full speed that the processors have in this second.
    mood: f64,
    entries_of_memtable: f64,
    memory: u64,
    stopped_us: u64,
    committed: CommitTotals,
}

impl Machine {
    /// A machine with all rows in the last level.
    pub fn new(plan: MachinePlan) -> Self {
        let options = Options::default();
        let limit = plan.keys * 196 / 10;
        let memtable = limit / 10;
        options
            .mutable
            .memtable_size
            .store(memtable, Ordering::Relaxed);
        let memory = memtable * (options.frozen_memtables_max as u64);
        let stored = (STORED.0 * plan.scale, STORED.1 * plan.scale);
        let mut tree = Tree::new(options, stored);
        tree.fill(1, plan.keys / plan.scale);
        let env = MemEnv::new();
        Self {
            rng: StdRng::seed_from_u64(plan.seed),
            now_us: 0,
            gate: StallGate::new(Arc::new(env.clone())),
            env,
            tree,
            space_tracker: SpaceTracker::default(),
            active: 0.0,
            frozen: VecDeque::new(),
            flush: None,
            jobs: (0..plan.jobs).map(|_| None).collect(),
            owed: 0.0,
            mood: 1.0,
            entries_of_memtable: memtable as f64 / IN_MEMTABLE,
            memory,
            stopped_us: 0,
            committed: CommitTotals::default(),
            plan,
        }
    }

    fn set_gate_pressure(&self) {
        let options = &self.tree.options;
        let backlog = Backlog::of(&self.tree.version, options, &self.space_tracker);
        self.gate.set_pressure(self.pressure(&backlog));
    }

    fn pressure(&self, backlog: &Backlog) -> Pressure {
        let options = &self.tree.options;
        Pressure::of(&StallInput {
            frozen_memtables: self.frozen.len() + usize::from(self.flush.is_some()),
            frozen_memtables_max: options.frozen_memtables_max,
            l0_runs: backlog.l0_runs,
            l0_stop_runs: options.l0_stop_runs,
            debt: backlog.debt,
            garbage: backlog.garbage,
            last_level: backlog.last_level,
            memtables_capacity: self.memory,
            frozen_bytes: 0,
            frozen_room: None,
        })
    }

    fn stops(&self) -> bool {
        let backlog = Backlog {
            l0_runs: self.tree.version.l0_depth(),
            ..Backlog::default()
        };
        self.pressure(&backlog).stop().is_some()
    }

    fn sync_us(files: u64, bytes: f64) -> f64 {
        files as f64 * SYNC_US + bytes * SYNC_BYTE_US
    }

    fn begin_flush(&mut self) {
        let Some(entries) = self.frozen.pop_front() else {
            return;
        };
        let bytes = entries * STORED.0 as f64;
        let level_targets = self.tree.level_targets();
        let size = level_targets.file_size(0, self.tree.options.target_file_size);
        let files = (bytes / (size as f64 / 8.0)).min(16.0) as u64 + 1;
        self.flush = Some(Flush {
            work: Work::new(entries * FLUSH_US, Self::sync_us(files, bytes)),
            entries,
            began_us: self.now_us,
        });
    }

    fn end_flush(&mut self, flush: &Flush) {
        let keys = self.plan.keys / self.plan.scale;
        let count = (flush.entries / self.plan.scale as f64).round() as u64;
        let key = self.plan.key;
        let batch: Vec<(Key, bool)> = (0..count)
            .map(|_| ((1, key(&mut self.rng, keys)), true))
            .collect();
        let written = self.tree.flush(&batch);
        let took = self.now_us - flush.began_us;
        self.gate.flushed(self.committed, written.bytes, took);
        self.set_gate_pressure();
    }

    fn begin_job(&mut self) -> Option<Running> {
        let flight = self.tree.begin(RestGoal::No)?;
        self.gate.job_begins();
        self.space_tracker.begins(&flight.job);
        let work = match flight.job.kind {
            JobKind::Compact => {
                let output = self.tree.foresee(&flight);
                let scale = self.plan.scale as f64;
                let read: u64 = flight.job.files().map(|(_, f)| f.entries).sum();
                let last = usize::from(flight.job.output_level) == LAST_LEVEL;
                let write_us = if last { LAST_US } else { UPPER_US };
                let computes = scale * (read as f64 * MERGE_US + output.entries as f64 * write_us);
                let bytes = output.bytes as f64;
                let work = Work::new(computes, Self::sync_us(output.files, bytes));
                (work, bytes)
            }
            _ => (Work::new(0.0, SYNC_US), 0.0),
        };
        Some(Running {
            flight,
            work: work.0,
            bytes: work.1,
        })
    }

    fn end_job(&mut self, running: Running) {
        let from_l0 = running.flight.job.files().filter(|(level, _)| *level == 0);
        let from_l0 = from_l0.map(|(_, f)| f.size).sum();
        let (version, job) = (self.tree.version.clone(), running.flight.job.clone());
        let written = self.tree.finish(running.flight);
        self.space_tracker.ends(&job);
        self.space_tracker.dropped(&version, &job, written.shadowed);
        self.gate.job_ends(from_l0);
        self.set_gate_pressure();
    }

    /// Runs one step. Returns the number of updates that the gate let through.
    fn step(&mut self) -> f64 {
        self.now_us += STEP_US;
        self.env.advance_clock(STEP_US);
        let step = STEP_US as f64;
        if self.now_us.is_multiple_of(1_000_000) {
            // On a real machine, other programs and the device take a varying share of the
            // processor time. So, once a second of virtual time, choose anew which share is left
            // for the engine.
            self.mood = self.rng.random_range(0.8..1.0);
        }
        if self.flush.is_none() {
            self.begin_flush();
        }
        for at in 0..self.jobs.len() {
            if self.jobs[at].is_none() {
                self.jobs[at] = self.begin_job();
            }
        }
        let stops = self.stops();
        let rate = self.gate.stats().rate as f64 / COMMITTED;
        let room = match rate {
            _ if stops => 0.0,
            0.0 => f64::MAX,
            // Unused allowance expires after 20 ms, as at the gate.
            rate => {
                self.owed = (self.owed + rate * step / 1e6).min(rate * 0.02);
                self.owed
            }
        };
        // `wants` has the claims on the processors in the order in which the shares are taken
        // below: jobs, flush, writers.
        let working = |work: &Work| if work.computes > 0.0 { 1.0 } else { 0.0 };
        let mut wants: Vec<f64> = self
            .jobs
            .iter()
            .flatten()
            .map(|j| working(&j.work))
            .collect();
        wants.extend(self.flush.iter().map(|f| working(&f.work)));
        let others = wants.len();
        let each = (room * COMMIT_US / step / self.plan.writers as f64).min(1.0);
        wants.extend((0..self.plan.writers).map(|_| each));
        let shares = deal(self.plan.processors * self.mood, &wants);
        let given: f64 = shares[others..].iter().sum();
        let passed = given * step / COMMIT_US;
        self.owed -= if rate > 0.0 { passed } else { self.owed };
        if stops {
            self.stopped_us += STEP_US;
        }
        let mut shares = shares.into_iter();
        let mut ended = Vec::new();
        for job in &mut self.jobs {
            if let Some(running) = job {
                running.work.step(shares.next().unwrap_or(0.0) * step, step);
                if running.work.done() {
                    ended.extend(job.take());
                }
            }
        }
        let flushed = match &mut self.flush {
            Some(flush) => {
                flush.work.step(shares.next().unwrap_or(0.0) * step, step);
                flush.work.done()
            }
            None => false,
        };
        if flushed && let Some(flush) = self.flush.take() {
            self.end_flush(&flush);
        }
        ended.into_iter().for_each(|job| self.end_job(job));
        self.committed.commits += passed as u64;
        self.committed.bytes += (passed * COMMITTED) as u64;
        self.active += passed;
        if self.active >= self.entries_of_memtable {
            self.frozen.push_back(std::mem::take(&mut self.active));
            self.set_gate_pressure();
        }
        passed
    }

    /// Stored bytes, with the outputs written so far by running jobs and the flush.
    fn space(&self) -> f64 {
        let jobs = self.jobs.iter().flatten();
        let outputs: f64 = jobs.map(|j| j.work.share() * j.bytes).sum();
        let flush = self.flush.iter();
        let flush: f64 = flush
            .map(|f| f.work.share() * f.entries * STORED.0 as f64)
            .sum();
        self.tree.version.size() as f64 + outputs + flush
    }

    /// Runs the plan.
    pub fn run(mut self) -> Outcome {
        let mut outcome = Outcome {
            compacted: (self.plan.keys * STORED.1) as f64,
            memory: self.memory as f64,
            ..Outcome::default()
        };
        for second in 0..self.plan.seconds {
            let (mut passed, mut space) = (0.0, 0.0f64);
            for _ in 0..1_000_000 / STEP_US {
                passed += self.step();
                space = space.max(self.space());
            }
            if second >= self.plan.warm_up {
                outcome.seconds.push(passed);
                outcome.space.push(space);
                let depth = self.tree.version.l0_depth();
                outcome.deepest = outcome.deepest.max(depth);
            }
        }
        outcome.written = self.tree.compacted as f64 / self.tree.flushed.max(1) as f64;
        outcome.stopped = self.stopped_us as f64 / 1e6;
        outcome
    }
}

/// Divides `all` by max-min fairness: a claim that is at most an even share is met, and the larger
/// claims share the rest evenly.
fn deal(all: f64, wants: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|a, b| wants[*a].total_cmp(&wants[*b]));
    let (mut left, mut shares) = (all, vec![0.0; wants.len()]);
    for (served, &at) in order.iter().enumerate() {
        shares[at] = wants[at].min(left / (wants.len() - served) as f64);
        left -= shares[at];
    }
    shares
}
