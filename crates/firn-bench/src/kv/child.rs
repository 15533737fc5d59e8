//! Measures one line on one engine in this process.

use super::line::{self, Line, Memory, Needs, Work};
use super::outcome::{Outcome, Side};
use crate::config::Config;
use crate::data::{Permutation, Random, VALUE_LEN, Zipf, is_value_of, key, value};
use crate::engine::{self, Engine, Result, Session, Settings, load_batch};
use crate::load_driver::{Call, Calls, Tally, ThreadGroup, Until, drive};
use crate::measure;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of entries that a scan reads after its seek.
const SCAN: usize = 100;

/// Writes per second of the writer in the line that reads while writing.
const WRITES_PER_SECOND: f64 = 10_000.0;

/// State that the calls of a line share.
struct Cx<'a> {
    config: &'a Config,
    engine: &'a dyn Engine,
    batch: usize,
    /// Seed of the values. It differs between lines, so that an overwrite writes new values.
    seed: u64,
    next: AtomicU64,
    permutation: Permutation,
    /// Number of existing keys, inserts of YCSB included.
    keys: AtomicU64,
}

/// Runs line `name` on `engine_name` in `dir` and prints the outcome as JSON.
pub fn run(config: &Config, name: &str, engine_name: &str, dir: &Path) -> Result<()> {
    let line = line::named(name)?;
    let (cache, memtable) = line.memory(config);
    let settings = Settings {
        dir: dir.to_owned(),
        cache,
        memtable,
        durable: line.is_durable(),
    };
    let engine = engine::open(engine_name, &settings)?;
    let is_load = matches!(line.work, Work::LoadOrdered | Work::LoadRandom);
    let cx = Cx {
        config,
        engine: &*engine,
        batch: match is_load {
            true => load_batch(engine_name, config.batch),
            false => config.batch,
        },
        seed: name.bytes().fold(1, |sum, b| sum * 31 + u64::from(b)),
        next: AtomicU64::new(0),
        permutation: Permutation::new(config.keys),
        keys: AtomicU64::new(config.keys),
    };
    if line.memory == Memory::All {
        warm(&cx)?;
    }
    let written_before = measure::device_written()?;
    let processor_before = measure::processor_seconds()?;
    let began = Instant::now();
    let tallies = match line.work {
        Work::Compact => {
            engine.compact()?;
            Vec::new()
        }
        _ => uncached(line, &*engine, dir, || measured(line, &cx))?,
    };
    let worked = began.elapsed().as_secs_f64();
    let processor = measure::processor_seconds()? - processor_before;
    let (resident_bytes, peak_resident_bytes) = measure::resident()?;
    let state = engine.state();
    let began = Instant::now();
    let pays = !line.is_read_only() && line.work != Work::Compact && line.needs != Needs::Settled
        || is_load;
    if pays {
        engine.pay()?;
    }
    let paid_seconds = if pays {
        began.elapsed().as_secs_f64()
    } else {
        0.0
    };
    let device_bytes = measure::device_written()? - written_before;
    let reads_directly = engine.reads_directly();
    let disk_bytes = measure::disk_bytes(dir, &|file| engine.is_log(file));
    engine.close()?;
    let (first, second) = (tallies.first(), tallies.get(1));
    let outcome = Outcome {
        line: name.to_owned(),
        engine: engine_name.to_owned(),
        ops: first.map_or(0, |t| t.ops),
        seconds: first.map_or(worked, |t| t.seconds),
        per_second: first.map_or(0.0, Tally::per_second),
        p50_us: first.map_or(0.0, |t| t.micros(0.5)),
        p99_us: first.map_or(0.0, |t| t.micros(0.99)),
        p999_us: first.map_or(0.0, |t| t.micros(0.999)),
        max_us: first.map_or(0.0, |t| t.latency.max() as f64 / 1000.0),
        processor_seconds: processor,
        paid_seconds,
        device_bytes,
        disk_bytes,
        resident_bytes,
        peak_resident_bytes,
        memory_bytes: cache + 4 * memtable,
        reads_directly,
        second_group: second.map(|t| Side {
            per_second: t.per_second(),
            p99_us: t.micros(0.99),
        }),
        state,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// Runs `work`. A line may measure an engine with little memory. If the engine reads through the
/// page cache, that cache would be additional memory, so a thread keeps it empty during `work`.
fn uncached<R>(
    line: &Line,
    engine: &dyn Engine,
    dir: &Path,
    work: impl FnOnce() -> Result<R>,
) -> Result<R> {
    if line.memory != Memory::Tenth || engine.reads_directly() {
        return work();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| measure::keep_uncached(dir, &stop));
        let result = work();
        stop.store(true, Ordering::Relaxed);
        keeper
            .join()
            .map_err(|_| "the page cache's keeper panicked")?;
        result
    })
}

/// Reads all entries once; each thread reads a part of them.
fn warm(cx: &Cx<'_>) -> Result<()> {
    let (keys, threads) = (cx.config.keys, cx.config.threads as u64);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                scope.spawn(move || {
                    let (first, end) = (keys * part / threads, keys * (part + 1) / threads);
                    let mut session = cx.engine.session()?;
                    let mut at = first;
                    while at < end {
                        let wanted = (end - at).min(10_000);
                        let read = session.scan(&key(at), wanted as usize, &mut |_, _| {})?;
                        if read as u64 != wanted {
                            return Err(format!("{read} of {wanted} entries from {at} on").into());
                        }
                        at += wanted;
                    }
                    Ok(())
                })
            })
            .collect();
        parts.into_iter().try_for_each(|part| {
            part.join()
                .map_err(|_| engine::Error::from("a warming thread panicked"))?
        })
    })
}

fn measured(line: &Line, cx: &Cx<'_>) -> Result<Vec<Tally>> {
    let threads = cx.config.threads;
    let time = Until::Time {
        warm: Duration::from_secs((cx.config.seconds / 3).clamp(1, 5)),
        measured: Duration::from_secs(cx.config.seconds),
    };
    let one = |threads: usize, call: Calls<'_, '_>, until: Until| {
        let group = ThreadGroup {
            threads,
            rate: None,
            call,
        };
        drive(cx.engine, &[group], until)
    };
    let keys = Some(cx.config.keys);
    match line.work {
        Work::LoadOrdered => one(threads, &|_| load(cx, |_, i| i), Until::Done),
        Work::LoadRandom => one(threads, &|_| load(cx, |p, i| p.at(i)), Until::Done),
        Work::Overwrite => one(threads, &|t| overwrite(cx, t, keys), Until::Done),
        Work::Get => one(threads, &|t| get(cx, t, None), time),
        Work::GetZipf => one(threads, &|t| get(cx, t, Some(1.0)), time),
        Work::Scan => one(threads, &|t| scan(cx, t), time),
        Work::Commits(threads) => one(threads, &|_| append(cx), time),
        Work::Ycsb(letter) => one(threads, &|t| ycsb(cx, t, letter), time),
        Work::Compact => Ok(Vec::new()),
        Work::ReadWhileWriting => {
            let readers = ThreadGroup {
                threads: threads.max(2) - 1,
                rate: None,
                call: &|t| get(cx, t, None),
            };
            let writer = ThreadGroup {
                threads: 1,
                rate: Some(WRITES_PER_SECOND),
                call: &|t| overwrite(cx, 100 + t, None),
            };
            drive(cx.engine, &[readers, writer], time)
        }
    }
}

/// Returns the function that the threads of a load repeat. All calls together write each key once;
/// the i-th write has the key with the number `place(permutation, i)`.
fn load<'a>(cx: &'a Cx<'_>, place: impl Fn(&Permutation, u64) -> u64 + Send + 'a) -> Call<'a> {
    let mut random = Random::new(0);
    let mut entries = Vec::with_capacity(cx.batch);
    Box::new(move |session| {
        let first = cx.next.fetch_add(cx.batch as u64, Ordering::Relaxed);
        let end = (first + cx.batch as u64).min(cx.config.keys);
        if first >= end {
            return Ok(0);
        }
        entries.clear();
        for i in first..end {
            let number = place(&cx.permutation, i);
            random.clone_from(&Random::new(cx.seed ^ number << 8));
            entries.push(entry(number, &mut random));
        }
        session.put(&entries)?;
        Ok(end - first)
    })
}

fn entry(number: u64, random: &mut Random) -> engine::Entry {
    let mut bytes = [0; VALUE_LEN];
    value(number, random, &mut bytes);
    (key(number), bytes)
}

/// Returns the function that a thread repeats to write random keys. The work ends when all threads
/// together have written `total` entries; with `None` it never ends.
fn overwrite<'a>(cx: &'a Cx<'_>, thread: usize, total: Option<u64>) -> Call<'a> {
    let mut random = Random::new(cx.seed + thread as u64);
    let mut entries = Vec::with_capacity(cx.batch);
    Box::new(move |session| {
        let first = cx.next.fetch_add(cx.batch as u64, Ordering::Relaxed);
        if total.is_some_and(|total| first >= total) {
            return Ok(0);
        }
        entries.clear();
        for _ in 0..cx.batch {
            let number = random.below(cx.config.keys);
            entries.push(entry(number, &mut random));
        }
        session.put(&entries)?;
        Ok(cx.batch as u64)
    })
}

/// A call that commits one new entry.
fn append<'a>(cx: &'a Cx<'_>) -> Call<'a> {
    let mut random = Random::new(0);
    Box::new(move |session| {
        let i = cx.next.fetch_add(1, Ordering::Relaxed);
        random.clone_from(&Random::new(i));
        session.put(&[entry(cx.permutation.at(i % cx.config.keys), &mut random)])?;
        Ok(1)
    })
}

fn read(session: &mut dyn Session, number: u64, out: &mut Vec<u8>) -> Result<()> {
    if session.get(&key(number), out)? && is_value_of(number, out) {
        return Ok(());
    }
    Err(format!(
        "key {number} reads {} bytes that are not its value",
        out.len()
    )
    .into())
}

/// Draws the numbers of keys, with equal probability or by Zipf's law with the frequent ones
/// scattered over all keys.
fn chooser<'a>(cx: &'a Cx<'_>, zipf: Option<f64>) -> impl FnMut(&mut Random) -> u64 + Send + 'a {
    let zipf = zipf.map(|s| Zipf::new(cx.config.keys, s));
    move |random| match &zipf {
        None => random.below(cx.config.keys),
        Some(zipf) => cx.permutation.at(zipf.sample(random)),
    }
}

fn get<'a>(cx: &'a Cx<'_>, thread: usize, zipf: Option<f64>) -> Call<'a> {
    let mut random = Random::new(cx.seed + thread as u64);
    let mut choose = chooser(cx, zipf);
    let mut out = Vec::new();
    Box::new(move |session| {
        read(session, choose(&mut random), &mut out)?;
        Ok(1)
    })
}

fn scan<'a>(cx: &'a Cx<'_>, thread: usize) -> Call<'a> {
    let mut random = Random::new(cx.seed + thread as u64);
    let last = cx.config.keys.saturating_sub(SCAN as u64);
    Box::new(move |session| {
        let from = random.below(last + 1);
        let mut sum = 0;
        let mut expected = from;
        let read = session.scan(&key(from), SCAN, &mut |_, value| {
            sum += u64::from(is_value_of(expected, value));
            expected += 1;
        })?;
        if read != SCAN || sum != SCAN as u64 {
            return Err(format!("a scan from {from} read {read} entries, {sum} right").into());
        }
        Ok(1)
    })
}

/// A call of a core workload of YCSB. Keys follow Zipf(0.99); workload D prefers the keys inserted
/// last.
fn ycsb<'a>(cx: &'a Cx<'_>, thread: usize, letter: char) -> Call<'a> {
    let mut random = Random::new(cx.seed + thread as u64);
    let mut choose = chooser(cx, Some(0.99));
    let latest = Zipf::new(cx.config.keys, 0.99);
    let mut out = Vec::new();
    let reads = match letter {
        'a' | 'f' => 0.5,
        'c' => 1.0,
        _ => 0.95,
    };
    Box::new(move |session| {
        let is_read = random.unit() < reads;
        match (letter, is_read) {
            ('d', true) => {
                let newest = cx.keys.load(Ordering::Acquire);
                let number = newest - 1 - latest.sample(&mut random).min(newest - 1);
                // Another thread takes a key's number before it commits the entry, so the newest
                // numbers may have no entry yet: a miss is no error.
                session.get(&key(number), &mut out)?;
            }
            ('e', true) => {
                let length = 1 + random.below(SCAN as u64) as usize;
                session.scan(&key(choose(&mut random)), length, &mut |_, _| {})?;
            }
            ('d' | 'e', false) => {
                let number = cx.keys.fetch_add(1, Ordering::AcqRel);
                session.put(&[entry(number, &mut random)])?;
            }
            (_, true) => read(session, choose(&mut random), &mut out)?,
            (_, false) => {
                let number = choose(&mut random);
                if letter == 'f' {
                    read(session, number, &mut out)?;
                }
                session.put(&[entry(number, &mut random)])?;
            }
        }
        Ok(1)
    })
}
