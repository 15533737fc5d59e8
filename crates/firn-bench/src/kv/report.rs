//! Formats results as a table and writes them to files.

use super::chart;
use super::line::{Line, Work};
use super::outcome::{Outcome, relative};
use crate::config::Config;
use crate::engine::{Result, title};
use std::fmt::Write;
use std::time::Duration;

const MIB: f64 = (1 << 20) as f64;

/// The outcome in one line of text.
pub fn in_short(outcome: &Outcome) -> String {
    let mut text = match outcome.ops {
        0 => format!("{:.1} s", outcome.seconds),
        _ => format!(
            "{} /s, p99 {:.1} µs",
            thousands(outcome.per_second),
            outcome.p99_us
        ),
    };
    let _ = write!(
        text,
        ", written {:.0} MiB, on disk {:.0} MiB, resident {:.0} MiB, paid in {:.1} s [{}]",
        outcome.device_bytes as f64 / MIB,
        outcome.disk_bytes as f64 / MIB,
        outcome.resident_bytes as f64 / MIB,
        outcome.paid_seconds,
        outcome.state
    );
    text
}

/// The results as Markdown.
pub fn table(config: &Config, lines: &[Line], outcomes: &[Outcome], took: Duration) -> String {
    let mut text = format!(
        "{} keys of 16 bytes with values of 180 ({:.0} MiB), {} threads, {} entries a commit, {} s a timed line; the \
         whole run took {:.0} min.\n\n",
        thousands(config.keys as f64),
        config.data_bytes() as f64 / MIB,
        config.threads,
        config.batch,
        config.seconds,
        took.as_secs_f64() / 60.0
    );
    text.push_str(
        "| line | engine | per second | of RocksDB | p99, µs | CPU, µs/op | written, MiB | paid, s | on disk, MiB | \
         resident, MiB |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for line in lines {
        let of_line = |engine: &str| {
            outcomes
                .iter()
                .find(|o| o.line == line.name && o.engine == engine)
        };
        let baseline = of_line("rocksdb");
        for engine in &config.engines {
            if let Some(outcome) = of_line(engine) {
                row(&mut text, line, outcome, baseline);
            }
        }
    }
    text
}

fn row(text: &mut String, line: &Line, outcome: &Outcome, baseline: Option<&Outcome>) {
    let speed = match line.work {
        Work::Compact => format!("{:.1} s", outcome.seconds),
        _ => thousands(outcome.per_second),
    };
    let ratio = baseline.map_or_else(String::new, |b| format!("{:.2}", relative(outcome, b)));
    let writes = outcome.device_bytes > 1 << 20;
    let figure = |shown: bool, number: f64, digits: usize| match shown {
        true => format!("{number:.digits$}"),
        false => String::new(),
    };
    let _ = writeln!(
        text,
        "| {} | {} | {speed} | {ratio} | {} | {} | {} | {} | {:.0} | {:.0} |",
        line.title,
        title(&outcome.engine),
        figure(outcome.ops > 0, outcome.p99_us, 1),
        figure(
            outcome.ops > 0,
            outcome.processor_seconds * 1e6 / outcome.ops.max(1) as f64,
            2
        ),
        figure(writes, outcome.device_bytes as f64 / MIB, 0),
        figure(outcome.paid_seconds > 0.0, outcome.paid_seconds, 1),
        outcome.disk_bytes as f64 / MIB,
        outcome.resident_bytes as f64 / MIB,
    );
    if let Some(side) = &outcome.second_group {
        let _ = writeln!(
            text,
            "| … its writer | {} | {} | | {:.1} | | | | | |",
            title(&outcome.engine),
            thousands(side.per_second),
            side.p99_us
        );
    }
}

/// A number with a comma at each thousand.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes the table and the charts.
pub fn write(config: &Config, lines: &[Line], outcomes: &[Outcome], took: Duration) -> Result<()> {
    std::fs::write(
        config.out.join("results.md"),
        table(config, lines, outcomes, took),
    )?;
    for (name, svg) in chart::of(config, lines, outcomes) {
        std::fs::write(config.out.join(name), svg)?;
    }
    Ok(())
}
