//! Updates at full speed for many minutes on data ten times as large as the memory: shows whether
//! the engine stalls, and how much space and memory it takes. Environment: `MINUTES`, `KEYS`,
//! `THREADS`, `ENGINES`.

use crate::config::{Config, number};
use crate::data::{Random, VALUE_LEN, key, value};
use crate::engine::{Engine, Entry, Result, Settings, open, title};
use crate::svg::Lines;
use crate::{disk_probe, measure};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: f64 = (1 << 20) as f64;

/// Figures of one second of a run.
#[derive(Debug, Clone, Serialize)]
struct Second {
    /// Number of updates in this second.
    ops: u64,
    /// Longest write of the disk probe (a thread that writes to a file of its own, to show how busy
    /// the disk is) in this second, microseconds.
    probe_us: u64,
    /// Resident memory at the end of the second, bytes.
    resident_bytes: u64,
    /// Size of the files without the log, bytes.
    disk_bytes: u64,
    /// Bytes sent to the device since the start of the run.
    device_bytes: u64,
}

/// Figures of a whole run.
#[derive(Debug, Serialize)]
struct Summary {
    engine: String,
    keys: u64,
    seconds: usize,
    threads: usize,
    limit_bytes: u64,
    ops: u64,
    median_per_second: u64,
    slowest_per_second: u64,
    slowest_probe_us: u64,
    median_probe_us: u64,
    /// Number of seconds with fewer updates than half of the median.
    seconds_below_half: usize,
    /// Number of seconds that `seconds_below_half` counts and in which the disk probe was not slow.
    calm_below_half: usize,
    /// Longest update, microseconds.
    longest_us: u64,
    debt_seconds: f64,
    debt_bytes: u64,
    device_bytes: u64,
    peak_resident_bytes: u64,
    peak_disk_bytes: u64,
    paid_disk_bytes: u64,
    compacted_disk_bytes: u64,
}

struct Shared {
    stop: AtomicBool,
    ops: AtomicU64,
    longest_us: AtomicU64,
    probe_us: AtomicU64,
}

/// Runs the updates on each engine that `ENGINES` names; without `ENGINES`, on Firn alone.
pub fn run(mut config: Config) -> Result<()> {
    if crate::config::words("ENGINES").is_empty() {
        config.engines = vec!["firn".to_owned()];
    }
    config.out = crate::config::path("OUT", "build/bench/steady");
    std::fs::create_dir_all(&config.out)?;
    let minutes = number("MINUTES", 20)?.max(1);
    for name in config.engines.clone() {
        let dir = config.data.join(&name).join("steady");
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        load(&name, &dir)?;
        eprintln!("==> {} min of updates: {}", minutes, title(&name));
        one(&config, &name, &dir, Duration::from_secs(minutes * 60))?;
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// Loads the data in a process of its own, so that its memory is not counted here.
fn load(name: &str, dir: &Path) -> Result<()> {
    eprintln!("==> load: {}", title(name));
    let loaded = Command::new(std::env::current_exe()?)
        .args(["child", "load-random", name])
        .arg(dir)
        .stdout(Stdio::null())
        .status()?;
    match loaded.success() {
        true => Ok(()),
        false => Err(format!("the load failed: {loaded}").into()),
    }
}

fn one(config: &Config, name: &str, dir: &Path, length: Duration) -> Result<()> {
    let limit = config.data_bytes() / 10;
    let memtable = (limit / 10).max(1 << 20);
    let settings = Settings {
        dir: dir.to_owned(),
        cache: limit.saturating_sub(4 * memtable),
        memtable,
        durable: false,
    };
    let engine = open(name, &settings)?;
    let shared = Shared {
        stop: AtomicBool::new(false),
        ops: AtomicU64::new(0),
        longest_us: AtomicU64::new(0),
        probe_us: AtomicU64::new(0),
    };
    let written = measure::device_written()?;
    let seconds = std::thread::scope(|scope| {
        let probe_file = config.data.join("probe");
        let shared = &shared;
        let mut threads =
            vec![scope.spawn(move || disk_probe::run(&probe_file, &shared.stop, &shared.probe_us))];
        let engine = &*engine;
        for thread in 0..config.threads as u64 {
            threads.push(scope.spawn(move || updates(config, engine, thread, shared)));
        }
        let seen = watch(engine, dir, length, written, shared);
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        seen
    })?;
    eprintln!("==> paying the debt [{}]", engine.state());
    let (begun, before) = (Instant::now(), measure::device_written()?);
    engine.pay()?;
    let debt_seconds = begun.elapsed().as_secs_f64();
    let debt_bytes = measure::device_written()? - before;
    let (_, peak_resident_bytes) = measure::resident()?;
    let space = || measure::disk_bytes(dir, &|file| engine.is_log(file));
    let paid_disk_bytes = space();
    engine.compact()?;
    let compacted_disk_bytes = space();
    engine.close()?;

    let mut rates: Vec<u64> = seconds.iter().map(|s| s.ops).collect();
    rates.sort_unstable();
    let mut probes: Vec<u64> = seconds.iter().map(|s| s.probe_us).collect();
    probes.sort_unstable();
    let (median_rate, median_probe) = (rates[rates.len() / 2], probes[probes.len() / 2]);
    let slowest = seconds
        .iter()
        .min_by_key(|s| s.ops)
        .ok_or("no second passed")?;
    let slow = seconds.iter().filter(|s| s.ops * 2 < median_rate);
    let summary = Summary {
        engine: name.to_owned(),
        keys: config.keys,
        seconds: seconds.len(),
        threads: config.threads,
        limit_bytes: limit,
        ops: rates.iter().sum(),
        median_per_second: median_rate,
        slowest_per_second: slowest.ops,
        slowest_probe_us: slowest.probe_us,
        median_probe_us: median_probe,
        seconds_below_half: slow.clone().count(),
        calm_below_half: slow.filter(|s| s.probe_us <= median_probe * 3).count(),
        longest_us: shared.longest_us.load(Ordering::Relaxed),
        debt_seconds,
        debt_bytes,
        device_bytes: seconds.last().map_or(0, |s| s.device_bytes),
        peak_resident_bytes,
        peak_disk_bytes: seconds.iter().map(|s| s.disk_bytes).max().unwrap_or(0),
        paid_disk_bytes,
        compacted_disk_bytes,
    };
    report(config, &summary, &seconds)
}

/// Updates random rows until the end of the run.
fn updates(config: &Config, engine: &dyn Engine, thread: u64, shared: &Shared) -> Result<()> {
    let mut session = engine.session()?;
    let mut random = Random::new(1000 + thread);
    let mut entries: Vec<Entry> = Vec::with_capacity(config.batch);
    while !shared.stop.load(Ordering::Relaxed) {
        entries.clear();
        for _ in 0..config.batch {
            let number = random.below(config.keys);
            let mut bytes = [0; VALUE_LEN];
            value(number, &mut random, &mut bytes);
            entries.push((key(number), bytes));
        }
        let begun = Instant::now();
        session.put(&entries)?;
        let took = begun.elapsed().as_micros() as u64;
        if took > shared.longest_us.load(Ordering::Relaxed) {
            shared.longest_us.fetch_max(took, Ordering::Relaxed);
        }
        shared
            .ops
            .fetch_add(entries.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn watch(
    engine: &dyn Engine,
    dir: &Path,
    length: Duration,
    written: u64,
    shared: &Shared,
) -> Result<Vec<Second>> {
    let begun = Instant::now();
    let mut seconds = Vec::new();
    let mut before = 0;
    shared.probe_us.store(0, Ordering::Relaxed);
    while begun.elapsed() < length {
        let next = Duration::from_secs(seconds.len() as u64 + 1);
        std::thread::sleep(next.saturating_sub(begun.elapsed()));
        let ops = shared.ops.load(Ordering::Relaxed);
        seconds.push(Second {
            ops: ops - before,
            probe_us: shared.probe_us.swap(0, Ordering::Relaxed),
            resident_bytes: measure::resident()?.0,
            disk_bytes: measure::disk_bytes(dir, &|file| engine.is_log(file)),
            device_bytes: measure::device_written()? - written,
        });
        before = ops;
        if seconds.len() % 30 == 0 {
            let last = &seconds[seconds.len() - 1];
            eprintln!(
                "      {} s: {} /s, on disk {:.0} MiB, resident {:.0} MiB [{}]",
                seconds.len(),
                last.ops,
                last.disk_bytes as f64 / MIB,
                last.resident_bytes as f64 / MIB,
                engine.state()
            );
        }
    }
    Ok(seconds)
}

fn report(config: &Config, summary: &Summary, seconds: &[Second]) -> Result<()> {
    let out = |name: &str| config.out.join(format!("{}-{name}", summary.engine));
    let mut raw = std::fs::File::create(out("seconds.jsonl"))?;
    for second in seconds {
        writeln!(raw, "{}", serde_json::to_string(second)?)?;
    }
    std::fs::write(out("summary.json"), serde_json::to_string_pretty(summary)?)?;
    let mib = |f: &dyn Fn(&Second) -> u64| -> Vec<f64> {
        seconds.iter().map(|s| f(s) as f64 / MIB).collect()
    };
    let rates: Vec<f64> = seconds.iter().map(|s| s.ops as f64).collect();
    let probes: Vec<f64> = seconds.iter().map(|s| s.probe_us as f64 / 1000.0).collect();
    let charts = [
        (
            "throughput.svg",
            Lines {
                title: "Updates in each second",
                series: &[("updates/s", &rates)],
                limit: None,
            }
            .draw(),
        ),
        (
            "probe.svg",
            Lines {
                title: "Longest write of the control probe in each second, ms",
                series: &[("4 KiB, O_DIRECT | O_DSYNC", &probes)],
                limit: None,
            }
            .draw(),
        ),
        (
            "space.svg",
            Lines {
                title: "Files without the log, MiB",
                series: &[("on disk", &mib(&|s| s.disk_bytes))],
                limit: Some(("fully compacted", summary.compacted_disk_bytes as f64 / MIB)),
            }
            .draw(),
        ),
        (
            "memory.svg",
            Lines {
                title: "Resident memory, MiB",
                series: &[("resident", &mib(&|s| s.resident_bytes))],
                limit: Some(("memory limit", summary.limit_bytes as f64 / MIB)),
            }
            .draw(),
        ),
    ];
    for (name, svg) in charts {
        std::fs::write(out(name), svg)?;
    }
    let text = table(summary);
    std::fs::write(out("steady.md"), &text)?;
    println!("{text}");
    eprintln!("==> results: {}", config.out.display());
    Ok(())
}

fn table(s: &Summary) -> String {
    let user_bytes = s.ops * crate::data::ENTRY_LEN;
    let rows = [
        (
            "updates a second, median",
            format!("{}", s.median_per_second),
        ),
        (
            "slowest second",
            format!(
                "{} ({:.2} of the median; probe {:.1} ms, median {:.1} ms)",
                s.slowest_per_second,
                s.slowest_per_second as f64 / s.median_per_second.max(1) as f64,
                s.slowest_probe_us as f64 / 1000.0,
                s.median_probe_us as f64 / 1000.0
            ),
        ),
        (
            "seconds below half of the median",
            format!(
                "{} ({} with a probe below three times its median)",
                s.seconds_below_half, s.calm_below_half
            ),
        ),
        (
            "longest commit, ms",
            format!("{:.1}", s.longest_us as f64 / 1000.0),
        ),
        (
            "debt at the end",
            format!(
                "{:.1} s, {:.0} MiB written",
                s.debt_seconds,
                s.debt_bytes as f64 / MIB
            ),
        ),
        (
            "written to the device per byte of the user's, debt included",
            format!(
                "{:.2}",
                (s.device_bytes + s.debt_bytes) as f64 / user_bytes.max(1) as f64
            ),
        ),
        (
            "space at most over fully compacted",
            format!(
                "{:.2} ({:.0} of {:.0} MiB; debt paid: {:.2})",
                s.peak_disk_bytes as f64 / s.compacted_disk_bytes.max(1) as f64,
                s.peak_disk_bytes as f64 / MIB,
                s.compacted_disk_bytes as f64 / MIB,
                s.paid_disk_bytes as f64 / s.compacted_disk_bytes.max(1) as f64
            ),
        ),
        (
            "resident memory at most",
            format!(
                "{:.0} MiB (limit {:.0} MiB)",
                s.peak_resident_bytes as f64 / MIB,
                s.limit_bytes as f64 / MIB
            ),
        ),
    ];
    let mut text = format!(
        "{}: {} keys, {} threads, {} s of updates.\n\n| what | value |\n|---|---|\n",
        title(&s.engine),
        s.keys,
        s.threads,
        s.seconds
    );
    for (what, value) in rows {
        text.push_str(&format!("| {what} | {value} |\n"));
    }
    text
}
