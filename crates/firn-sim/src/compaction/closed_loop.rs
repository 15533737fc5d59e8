//! Writers at full speed on a machine of few processors, closed over the gate: flushes and jobs of
//! the real picker take their time, and the gate lets through what it finds right. Time is virtual,
//! and an entry stands for many, so that twenty minutes take seconds.

use super::tree::{Flight, Key, Tree};
use firn::base::options::Options;
use firn::compaction::{Backlog, JobKind, RestGoal, SpaceTracker, l0_depth};
use firn::env::MemEnv;
use firn::version::LAST_LEVEL;
use firn::write::{Pressure, StallGate};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Length of a step, microseconds.
const STEP_US: u64 = 2000;

/// Bytes of an entry as a commit counts them, and as a memtable does.
const COMMITTED: f64 = 212.0;
const IN_MEMTABLE: f64 = 340.0;

/// Stored bytes of an entry in upper levels and in the last one.
const STORED: (u64, u64) = (100, 86);

/// What the work costs on the machine that the simulation is like: microseconds of a processor for
/// each entry.
const COMMIT_US: f64 = 4.8;
const FLUSH_US: f64 = 0.8;
const MERGE_US: f64 = 0.12;
const UPPER_US: f64 = 0.3;
const LAST_US: f64 = 0.5;

/// Microseconds in which a file is synced, and those for each of its bytes: nobody computes then.
const SYNC_US: f64 = 1000.0;
const SYNC_BYTE_US: f64 = 0.0005;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct MachinePlan {
    /// The seed of keys and of the machine's moods.
    pub seed: u64,
    /// Rows.
    pub keys: u64,
    /// How many rows an entry of the simulation stands for.
    pub scale: u64,
    /// Length, seconds.
    pub seconds: u64,
    /// Seconds at the start that are not judged.
    pub warm_up: u64,
    /// Writers at full speed.
    pub writers: u64,
    /// Processors.
    pub processors: f64,
    /// Compaction threads.
    pub jobs: usize,
    /// Which of so many rows the next update is for.
    pub key: fn(&mut StdRng, u64) -> u64,
}

/// Any key.
pub fn uniform(rng: &mut StdRng, keys: u64) -> u64 {
    rng.random_range(0..keys)
}

/// Half of the updates go to a hundredth of the rows, which lie scattered.
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

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Updates in each second.
    pub seconds: Vec<f64>,
    /// Stored bytes at most in each second, inputs and outputs of jobs under way included.
    pub space: Vec<f64>,
    /// Bytes of the rows after a full compaction.
    pub compacted: f64,
    /// What fits in the memtables.
    pub memory: f64,
    /// Bytes that compactions wrote for each one flushed.
    pub written: f64,
    /// Deepest L0.
    pub deepest: usize,
    /// Seconds in which writers stood.
    pub stopped: f64,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

impl Outcome {
    /// Updates of the median second.
    pub fn median(&self) -> f64 {
        median(&self.seconds)
    }

    /// The slowest second as a share of the median.
    pub fn slowest(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::MAX, f64::min) / self.median()
    }

    /// Seconds below half of the median.
    pub fn slow(&self) -> usize {
        let half = self.median() / 2.0;
        self.seconds.iter().filter(|s| **s < half).count()
    }

    /// The largest space over the compacted size.
    pub fn largest(&self) -> f64 {
        self.space.iter().copied().fold(0.0, f64::max) / self.compacted
    }

    /// What is allowed: a fifth more, and the memtables.
    pub fn allowed(&self) -> f64 {
        1.2 + self.memory / self.compacted
    }
}

/// A thread's work: what it computes, then what it waits for, microseconds.
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

/// The machine, the tree and the gate.
pub struct Machine {
    plan: MachinePlan,
    rng: StdRng,
    env: MemEnv,
    now_us: u64,
    tree: Tree,
    gate: StallGate,
    extra: SpaceTracker,
    active: f64,
    frozen: VecDeque<f64>,
    flush: Option<Flush>,
    jobs: Vec<Option<Running>>,
    owed: f64,
    mood: f64,
    entries_of_memtable: f64,
    memory: u64,
    stopped_us: u64,
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
            extra: SpaceTracker::default(),
            active: 0.0,
            frozen: VecDeque::new(),
            flush: None,
            jobs: (0..plan.jobs).map(|_| None).collect(),
            owed: 0.0,
            mood: 1.0,
            entries_of_memtable: memtable as f64 / IN_MEMTABLE,
            memory,
            stopped_us: 0,
            plan,
        }
    }

    fn tell_gate(&self) {
        let backlog = Backlog::of(
            &self.tree.version,
            &self.tree.options,
            self.memory,
            &self.extra,
        );
        let most = self.tree.options.frozen_memtables_max as f64;
        self.gate.set_pressure(self.pressure(backlog, most));
    }

    fn pressure(&self, backlog: Backlog, most: f64) -> Pressure {
        let waiting = self.frozen.len() + usize::from(self.flush.is_some());
        Pressure {
            memtables: 2.0 * waiting as f64 / most,
            l0: backlog.l0,
            debt: backlog.debt,
            space: backlog.space,
        }
    }

    fn stops(&self) -> bool {
        let backlog = Backlog {
            l0: 2.0 * l0_depth(&self.tree.version) as f64 / self.tree.options.l0_stop_runs as f64,
            ..Backlog::default()
        };
        let most = self.tree.options.frozen_memtables_max as f64;
        self.pressure(backlog, most).stops()
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
        self.gate.flushed(written.bytes, took);
        self.tell_gate();
    }

    fn begin_job(&mut self) -> Option<Running> {
        let flight = self.tree.begin(RestGoal::No)?;
        self.gate.job_begins();
        self.extra.begins(&flight.job);
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
        self.extra.ends(&job);
        self.extra.dropped(&version, &job, written.shadowed);
        self.gate.job_ends(from_l0);
        self.tell_gate();
    }

    /// One step. Returns the updates that passed.
    fn step(&mut self) -> f64 {
        self.now_us += STEP_US;
        self.env.advance_clock(STEP_US);
        let step = STEP_US as f64;
        if self.now_us.is_multiple_of(1_000_000) {
            // Neighbours and the device take their part, now more, now less.
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
            // What nobody used within the longest delay is gone.
            rate => {
                self.owed = (self.owed + rate * step / 1e6).min(rate * 0.02);
                self.owed
            }
        };
        // Processors are dealt out evenly to who wants them.
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
        self.gate.committed((passed * COMMITTED) as u64);
        self.active += passed;
        if self.active >= self.entries_of_memtable {
            self.frozen.push_back(std::mem::take(&mut self.active));
            self.tell_gate();
        }
        passed
    }

    /// Bytes in files, those being written included.
    fn space(&self) -> f64 {
        let jobs = self.jobs.iter().flatten();
        let outputs: f64 = jobs.map(|j| j.work.share() * j.bytes).sum();
        let flush = self.flush.iter();
        let flush: f64 = flush
            .map(|f| f.work.share() * f.entries * STORED.0 as f64)
            .sum();
        self.tree.version.size() as f64 + outputs + flush
    }

    /// Lets it run.
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
                let depth = l0_depth(&self.tree.version);
                outcome.deepest = outcome.deepest.max(depth);
            }
        }
        outcome.written = self.tree.compacted as f64 / self.tree.flushed.max(1) as f64;
        outcome.stopped = self.stopped_us as f64 / 1e6;
        outcome
    }
}

/// Deals `all` out: nobody gets more than asked, and who asks for more gets as much as others.
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
