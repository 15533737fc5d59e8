//! Settings of a run, from environment variables. Child processes inherit them.

use crate::data::ENTRY_LEN;
use crate::engine::{COMMON, FURTHER, Result};
use std::path::PathBuf;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Config {
    /// `FULL=1`: measures more engines and more lines, with more keys.
    pub full: bool,
    /// `KEYS`: entries in the database.
    pub keys: u64,
    /// `SECONDS_EACH`: length of each line that has no fixed number of entries, seconds.
    pub seconds: u64,
    /// `THREADS`: number of threads that run a line, unless the line sets a number of its own.
    pub threads: usize,
    /// `BATCH`: entries of a commit.
    pub batch: usize,
    /// `ENGINES`: the engines to measure, in the order in which they take turns.
    pub engines: Vec<String>,
    /// `LINES`: the lines to measure; empty for all.
    pub lines: Vec<String>,
    /// `KEEP=1`: leaves the databases in place, and uses those of an earlier run.
    pub keep: bool,
    /// `DATA_DIR`: directory of the databases.
    pub data: PathBuf,
    /// `OUT`: directory of the results.
    pub out: PathBuf,
}

/// The number in environment variable `name`; `k` and `m` stand for thousands and millions.
pub fn number(name: &str, default: u64) -> Result<u64> {
    let Ok(text) = std::env::var(name) else {
        return Ok(default);
    };
    let text = text.trim().to_lowercase();
    if text.is_empty() {
        return Ok(default);
    }
    let (digits, unit) = match text.strip_suffix('k') {
        Some(rest) => (rest, 1000),
        None => match text.strip_suffix('m') {
            Some(rest) => (rest, 1_000_000),
            None => (text.as_str(), 1),
        },
    };
    let value: u64 = digits
        .trim()
        .parse()
        .map_err(|_| format!("{name}={text} is not a number"))?;
    Ok(value * unit)
}

/// The words in environment variable `name`, separated by commas or spaces.
pub fn words(name: &str) -> Vec<String> {
    let text = std::env::var(name).unwrap_or_default();
    text.split([',', ' '])
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// The path in environment variable `name`.
pub fn path(name: &str, default: &str) -> PathBuf {
    std::env::var_os(name).map_or_else(|| PathBuf::from(default), PathBuf::from)
}

impl Config {
    /// Reads the settings from the environment.
    pub fn from_env() -> Result<Self> {
        let full = number("FULL", 0)? != 0;
        let known: Vec<&str> = COMMON.iter().chain(FURTHER).copied().collect();
        let mut engines = words("ENGINES");
        if let Some(unknown) = engines.iter().find(|e| !known.contains(&e.as_str())) {
            return Err(format!(
                "no engine is called {unknown} (there are: {})",
                known.join(" ")
            )
            .into());
        }
        if engines.is_empty() {
            let further = if full { FURTHER } else { &[] };
            engines = COMMON
                .iter()
                .chain(further)
                .map(|name| (*name).to_owned())
                .collect();
        }
        Ok(Self {
            full,
            keys: number("KEYS", if full { 20_000_000 } else { 5_000_000 })?.max(1000),
            seconds: number("SECONDS_EACH", 15)?.max(1),
            threads: number("THREADS", 4)?.max(1) as usize,
            batch: number("BATCH", 1)?.max(1) as usize,
            engines,
            lines: words("LINES"),
            keep: number("KEEP", 0)? != 0,
            data: path("DATA_DIR", "build/bench/data"),
            out: path("OUT", "build/bench/kv"),
        })
    }

    /// Bytes of all keys and values.
    pub fn data_bytes(&self) -> u64 {
        self.keys * ENTRY_LEN
    }
}
