//! The charts of a comparison.

use super::line::{Line, Work};
use super::outcome::{Outcome, relative};
use crate::config::Config;
use crate::engine::title;
use crate::svg::Bars;

/// Names and contents of the SVG files.
pub fn of(config: &Config, lines: &[Line], outcomes: &[Outcome]) -> Vec<(&'static str, String)> {
    let engines: Vec<&str> = config.engines.iter().map(|e| title(e)).collect();
    let find = |line: &Line, engine: &str| {
        outcomes
            .iter()
            .find(|o| o.line == line.name && o.engine == engine)
    };
    // Ratios are to RocksDB, or to the first engine if RocksDB was not measured.
    let base = config.engines.iter().find(|e| *e == "rocksdb");
    let Some(base) = base.or(config.engines.first()) else {
        return Vec::new();
    };
    let groups = |value: &dyn Fn(&Line, &Outcome) -> Option<f64>| {
        let mut groups = Vec::new();
        for line in lines {
            let values: Vec<Option<f64>> = config
                .engines
                .iter()
                .map(|engine| find(line, engine).and_then(|o| value(line, o)))
                .collect();
            if values.iter().any(Option::is_some) {
                groups.push((line.title.to_owned(), values));
            }
        }
        groups
    };
    let user_bytes = |o: &Outcome| o.ops as f64 * crate::data::ENTRY_LEN as f64;
    let charts = [
        (
            "throughput.svg",
            format!("Throughput over that of {} (more is better)", title(base)),
            groups(&|line, o| find(line, base).map(|b| relative(o, b))),
        ),
        (
            "written.svg",
            "Bytes written to the device per byte of the user's (less is better)".to_owned(),
            groups(&|line, o| {
                matches!(
                    line.work,
                    Work::LoadOrdered | Work::LoadRandom | Work::Overwrite
                )
                .then(|| o.device_bytes as f64 / user_bytes(o))
            }),
        ),
        (
            "disk.svg",
            "Bytes on disk per byte of the user's, log left out (less is better)".to_owned(),
            groups(&|line, o| {
                matches!(
                    line.work,
                    Work::LoadOrdered | Work::LoadRandom | Work::Overwrite | Work::Compact
                )
                .then(|| o.disk_bytes as f64 / config.data_bytes() as f64)
            }),
        ),
    ];
    charts
        .into_iter()
        .filter(|(_, _, groups)| !groups.is_empty())
        .map(|(name, heading, groups)| {
            let bars = Bars {
                title: &heading,
                series: &engines,
                groups: &groups,
            };
            (name, bars.draw())
        })
        .collect()
}
