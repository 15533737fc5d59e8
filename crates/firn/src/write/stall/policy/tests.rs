use super::super::drain::{CommitTotals, Drain};
use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const MB: f64 = 1e6;
const MEMTABLE: f64 = 64.0 * MB;
const PLACES: usize = 16;
const BASE_TARGET: f64 = 80.0 * MB;
const STORED: f64 = 0.6;

/// A model of writers, flushes and one compaction thread as flows of bytes. Their backlog
/// determines the rate at which the gate lets writers pass.
struct Model {
    rng: StdRng,
    wanted: f64,
    flush_speed: f64,
    compaction_speed: f64,
    now_us: u64,
    committed: f64,
    active: f64,
    frozen: Vec<f64>,
    flushed: f64,
    flush_us: u64,
    depth: [u32; PLACES],
    base: f64,
    job: Option<Job>,
    drain: Drain,
    stops: u32,
}

struct Job {
    left: f64,
    place: Option<usize>,
    runs: u32,
}

impl Model {
    fn new(seed: u64, wanted: f64, compaction_speed: f64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            wanted,
            flush_speed: 90.0 * MB,
            compaction_speed,
            now_us: 0,
            committed: 0.0,
            active: 0.0,
            frozen: Vec::new(),
            flushed: 0.0,
            flush_us: 0,
            depth: [0; PLACES],
            base: 0.0,
            job: None,
            drain: Drain::default(),
            stops: 0,
        }
    }

    fn pressure(&self) -> Pressure {
        let deepest = self.depth.iter().max().copied().unwrap_or(0);
        Pressure {
            memtables: 2.0 * self.frozen.len() as f64 / 4.0,
            l0: 2.0 * f64::from(deepest) / 24.0,
            space: self.base / (1.6 * BASE_TARGET),
            ..Pressure::default()
        }
    }

    fn piece(&self) -> f64 {
        MEMTABLE * STORED / PLACES as f64
    }

    /// Picks L0 or the base level as the real picker does: L0 if it is fuller than the base level,
    /// relative to the level that follows each.
    fn pick(&mut self) -> Option<Job> {
        let place = (0..PLACES).max_by_key(|&i| self.depth[i])?;
        let l0 = f64::from(self.depth[place]) / 4.0;
        let base = self.base / BASE_TARGET;
        let noise = self.rng.random_range(0.7..1.3);
        if l0 >= 1.0 && l0 / base.max(0.01) >= base {
            let bytes = f64::from(self.depth[place]) * self.piece();
            return Some(Job {
                left: noise * (bytes + self.base / PLACES as f64),
                place: Some(place),
                runs: self.depth[place],
            });
        }
        (base >= 1.0).then(|| Job {
            left: noise * 9.0 * BASE_TARGET / PLACES as f64,
            place: None,
            runs: 0,
        })
    }

    fn step(&mut self, us: u64) -> f64 {
        let seconds = us as f64 / 1e6;
        self.now_us += us;
        let pressure = self.pressure();
        let passed = match decide(&pressure, &self.drain.rates()) {
            Limit::Open => self.wanted * seconds,
            Limit::Rate { rate, .. } => self.wanted.min(rate as f64) * seconds,
            Limit::Stop { .. } => {
                self.stops += 1;
                0.0
            }
        };
        self.committed += passed;
        self.active += passed;
        if self.active >= MEMTABLE {
            self.frozen.push(std::mem::take(&mut self.active));
        }
        if !self.frozen.is_empty() {
            self.flushed += self.flush_speed * seconds;
            self.flush_us += us;
            if self.flushed >= self.frozen[0] {
                let stored = (self.frozen.remove(0) * STORED) as u64;
                self.depth.iter_mut().for_each(|d| *d += 1);
                let took = std::mem::take(&mut self.flush_us);
                let committed = CommitTotals {
                    commits: self.committed as u64 / 1000,
                    bytes: self.committed as u64,
                };
                self.drain.flushed(committed, stored, took);
                self.flushed = 0.0;
            }
        }
        if self.job.is_none() {
            self.job = self.pick();
            if self.job.is_some() {
                self.drain.job_begins(self.now_us);
            }
        }
        if let Some(mut job) = self.job.take() {
            job.left -= self.compaction_speed * seconds;
            if job.left > 0.0 {
                self.job = Some(job);
                return passed;
            }
            let mut l0_bytes = 0.0;
            match job.place {
                Some(place) => {
                    self.depth[place] -= job.runs;
                    l0_bytes = f64::from(job.runs) * self.piece();
                    self.base += l0_bytes;
                }
                None => self.base -= BASE_TARGET / PLACES as f64,
            }
            self.drain.job_ends(self.now_us, l0_bytes as u64);
        }
        passed
    }

    /// Bytes that pass the gate in each of `seconds` seconds.
    fn run(&mut self, seconds: usize) -> Vec<f64> {
        let second = |model: &mut Self| (0..100).map(|_| model.step(10_000)).sum();
        (0..seconds).map(|_| second(self)).collect()
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[test]
fn no_second_falls_below_half_the_median() {
    for seed in 0..12 {
        println!("seed {seed}");
        let speed = [30.0, 80.0, 200.0][seed as usize % 3] * MB;
        let wanted = [25.0, 60.0][seed as usize % 2] * MB;
        let mut model = Model::new(seed, wanted, speed);
        let seconds = model.run(1500);
        let steady = &seconds[300..];
        let middle = median(steady);
        let slowest = steady.iter().copied().fold(f64::MAX, f64::min);
        assert!(slowest >= middle / 2.0, "{slowest} of {middle}");
        assert_eq!(model.stops, 0, "a delay was too late");
        // Check that the rate does not sink over time: as many bytes pass late as early, and as
        // many as the compactions can take.
        let (early, late) = steady.split_at(steady.len() / 2);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        assert!(
            mean(late) > 0.9 * mean(early),
            "{} {}",
            mean(late),
            mean(early)
        );
        // The factor counts the bytes that compactions write for each stored byte: 10, and one more
        // for the move into the base level.
        let able = speed / (STORED * 11.0);
        assert!(
            mean(steady) > 0.8 * able.min(wanted),
            "{} of {able}",
            mean(steady)
        );
    }
}

#[test]
fn a_slow_start_recovers_at_once() {
    // The device is a tenth as fast for a minute; then the rate follows within the window.
    let mut model = Model::new(1, 40.0 * MB, 80.0 * MB);
    let before = median(&model.run(600)[300..]);
    model.compaction_speed /= 10.0;
    model.run(60);
    model.compaction_speed *= 10.0;
    model.run(60);
    let after = median(&model.run(120));
    assert!(after > 0.8 * before, "{after} of {before}");
}

#[test]
fn the_gain_is_smooth() {
    assert_eq!([0.5, 1.0, 2.0, 4.0].map(gain), [2.0, 1.0, 0.5, 0.25]);
    for p in 1..=3000 {
        let p = f64::from(p) / 1000.0;
        let (here, next) = (gain(p), gain(p + 0.001));
        assert!(next <= here && here - next < 0.003, "{p}: {here} {next}");
    }
}

const MIB: u64 = 1 << 20;

/// Nothing is behind; the limits are those of the options, with a last level of 10 GiB and
/// memtables of 256 MiB in all.
const IDLE: StallInput = StallInput {
    frozen_memtables: 0,
    frozen_memtables_max: 4,
    l0_runs: 0,
    l0_stop_runs: 36,
    debt: 0,
    garbage: 0,
    last_level: 10 << 30,
    memtables_capacity: 256 * MIB,
    frozen_bytes: 0,
    frozen_room: None,
};

/// Flushes drain 100 MB/s, compactions 20 MB/s.
const DRAINED: Drained = [Some(100e6), Some(20e6), Some(20e6), Some(20e6), Some(100e6)];

fn rate(rate: u64, reason: StallReason) -> Limit {
    Limit::Rate { rate, reason }
}

fn stop(reason: StallReason) -> Limit {
    Limit::Stop { reason }
}

/// The rule of stalls, as a table: where each reason begins to slow writers, slows them to what is
/// drained, and stops them.
#[test]
fn the_rule_is_this_table() {
    use StallReason::*;
    let memtables = |frozen_memtables| StallInput {
        frozen_memtables,
        ..IDLE
    };
    let l0 = |l0_runs| StallInput { l0_runs, ..IDLE };
    let debt = |debt| StallInput { debt, ..IDLE };
    let garbage = |garbage| StallInput { garbage, ..IDLE };
    let memory = |frozen_bytes, room: u64| StallInput {
        frozen_bytes,
        frozen_room: Some(room),
        ..IDLE
    };
    // A fifth of the last level and the memtables may be garbage; seven tenths of that are the aim.
    let aim = (0.7 * (0.2 * (10u64 << 30) as f64 + (256 * MIB) as f64)) as u64;
    let table = [
        (IDLE, Limit::Open),
        (memtables(1), rate(200_000_000, Memtables)),
        (memtables(2), rate(100_000_000, Memtables)),
        (memtables(3), rate(75_000_000, Memtables)),
        (memtables(4), stop(Memtables)),
        (memtables(9), stop(Memtables)),
        (l0(8), Limit::Open),
        (l0(9), rate(40_000_000, L0)),
        (l0(18), rate(20_000_000, L0)),
        (l0(27), rate(15_000_000, L0)),
        (l0(35), rate(10_555_555, L0)),
        (l0(36), stop(L0)),
        // Debt up to the last level's size is free. At four times it, the pressure is 1.
        (debt(10 << 30), Limit::Open),
        (debt(19 << 30), Limit::Open),
        (debt(40 << 30), rate(20_000_000, Debt)),
        // Debt and space never stop writers: the rate falls as the pressure grows.
        (debt(160 << 30), rate(10_000_000, Debt)),
        (debt(10_000 << 30), rate(4_013_000, Debt)),
        (garbage(aim / 2 - 10), Limit::Open),
        (garbage(aim), rate(20_000_000, Space)),
        (garbage(4 * aim), rate(5_000_000, Space)),
        // However much garbage there is, writers keep a quarter of a MiB a second.
        (garbage(1000 * aim), rate(256 << 10, Space)),
        (memory(0, 0), Limit::Open),
        (memory(24 * MIB, 100 * MIB), Limit::Open),
        (memory(50 * MIB, 100 * MIB), rate(100_000_000, Memory)),
        (memory(100 * MIB, 100 * MIB), stop(Memory)),
        // Write sets have taken all room: any frozen memtable stops writers until it is flushed.
        (memory(MIB, 0), stop(Memory)),
        // The lowest rate counts, and a stop before all rates.
        (
            StallInput {
                l0_runs: 18,
                ..memtables(2)
            },
            rate(20_000_000, L0),
        ),
        (
            StallInput {
                l0_runs: 36,
                ..memtables(2)
            },
            stop(L0),
        ),
        (
            StallInput {
                l0_runs: 36,
                ..memtables(4)
            },
            stop(Memtables),
        ),
    ];
    for (input, expected) in table {
        let limit = decide(&Pressure::of(&input), &DRAINED);
        match (limit, expected) {
            (
                Limit::Rate { rate, reason },
                Limit::Rate {
                    rate: wanted,
                    reason: other,
                },
            ) => {
                let near = wanted - wanted / 1000..=wanted + wanted / 1000;
                assert!(
                    near.contains(&rate) && reason == other,
                    "{input:?}: {limit:?}"
                );
            }
            _ => assert_eq!(limit, expected, "{input:?}"),
        }
    }
}

#[test]
fn what_is_not_measured_limits_nobody() {
    let deep = Pressure::of(&StallInput {
        l0_runs: 30,
        ..IDLE
    });
    let unknown = [None; STALL_REASONS.len()];
    assert_eq!(decide(&deep, &unknown), Limit::Open);
    let slow = DRAINED.map(|rate| rate.map(|_| 1.0));
    assert_eq!(decide(&deep, &slow), rate(256 << 10, StallReason::L0));
    let full = Pressure::of(&StallInput {
        l0_runs: 36,
        ..IDLE
    });
    assert_eq!(decide(&full, &unknown), stop(StallReason::L0));
}
