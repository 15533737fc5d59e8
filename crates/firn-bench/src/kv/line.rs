//! The lines of the comparison: what is measured, on which database, with how much memory.

use super::unknown;
use crate::config::Config;
use crate::engine::Result;

/// The database that a line needs at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// An empty database.
    Nothing,
    /// A database with all keys.
    Loaded,
    /// A database with all keys, fully compacted.
    Settled,
}

/// How much memory an engine gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// About half of the data's size for cache and memtables together. The cache gets three eighths
    /// of that half.
    Half,
    /// A cache that holds all data.
    All,
    /// A tenth of the data's size.
    Tenth,
}

/// The operation that a line measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// Writes all keys in order.
    LoadOrdered,
    /// Writes all keys in a random order.
    LoadRandom,
    /// Writes random keys, as many as the database has.
    Overwrite,
    /// Compacts everything.
    Compact,
    /// Reads keys, all with the same probability.
    Get,
    /// Reads keys by Zipf's law.
    GetZipf,
    /// Seeks a random key and reads a hundred entries.
    Scan,
    /// All threads but one read; the last one writes at a fixed rate.
    ReadWhileWriting,
    /// This many threads commit one entry after the other, each durable.
    Commits(usize),
    /// The core workload of YCSB with this letter.
    Ycsb(char),
}

/// One measurement of each engine, and a row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// Name of the line in `LINES`.
    pub name: &'static str,
    /// Title of the line in the table.
    pub title: &'static str,
    pub work: Work,
    pub needs: Needs,
    pub memory: Memory,
    /// Whether the line leaves the main database fully compacted.
    pub compacts_fully: bool,
    /// Whether the line runs only with `FULL=1` or if it is named.
    pub full: bool,
}

const fn line(
    name: &'static str,
    title: &'static str,
    work: Work,
    needs: Needs,
    memory: Memory,
) -> Line {
    Line {
        name,
        title,
        work,
        needs,
        memory,
        compacts_fully: matches!(work, Work::Compact),
        full: matches!(work, Work::Ycsb(_)),
    }
}

/// All lines in the order in which they run.
const LINES: &[Line] = &[
    line(
        "load-ordered",
        "load in order",
        Work::LoadOrdered,
        Needs::Nothing,
        Memory::Half,
    ),
    line(
        "load-random",
        "load in random order",
        Work::LoadRandom,
        Needs::Nothing,
        Memory::Half,
    ),
    line(
        "overwrite",
        "overwrite at random",
        Work::Overwrite,
        Needs::Loaded,
        Memory::Half,
    ),
    line(
        "compact",
        "full compaction",
        Work::Compact,
        Needs::Loaded,
        Memory::Half,
    ),
    line(
        "get",
        "point reads, cached",
        Work::Get,
        Needs::Settled,
        Memory::All,
    ),
    line(
        "scan",
        "seek + next 100, cached",
        Work::Scan,
        Needs::Settled,
        Memory::All,
    ),
    line(
        "get-10x",
        "point reads, data 10 × memory",
        Work::Get,
        Needs::Settled,
        Memory::Tenth,
    ),
    line(
        "zipf-10x",
        "point reads, Zipf(1.0), data 10 × memory",
        Work::GetZipf,
        Needs::Settled,
        Memory::Tenth,
    ),
    line(
        "read-write",
        "reads while writing, cached",
        Work::ReadWhileWriting,
        Needs::Settled,
        Memory::All,
    ),
    line(
        "commit-1",
        "durable commits, 1 thread",
        Work::Commits(1),
        Needs::Nothing,
        Memory::Half,
    ),
    line(
        "commit-16",
        "durable commits, 16 threads",
        Work::Commits(16),
        Needs::Nothing,
        Memory::Half,
    ),
    line(
        "ycsb-a",
        "YCSB A: half updates",
        Work::Ycsb('a'),
        Needs::Settled,
        Memory::Tenth,
    ),
    line(
        "ycsb-b",
        "YCSB B: 5 % updates",
        Work::Ycsb('b'),
        Needs::Settled,
        Memory::Tenth,
    ),
    line(
        "ycsb-c",
        "YCSB C: reads",
        Work::Ycsb('c'),
        Needs::Settled,
        Memory::Tenth,
    ),
    line(
        "ycsb-d",
        "YCSB D: newest reads, 5 % inserts",
        Work::Ycsb('d'),
        Needs::Settled,
        Memory::Tenth,
    ),
    line(
        "ycsb-e",
        "YCSB E: scans, 5 % inserts",
        Work::Ycsb('e'),
        Needs::Settled,
        Memory::Tenth,
    ),
    line(
        "ycsb-f",
        "YCSB F: half read-modify-write",
        Work::Ycsb('f'),
        Needs::Settled,
        Memory::Tenth,
    ),
];

impl Line {
    /// Whether the line works on the main database, which later lines use too.
    pub fn is_main(&self) -> bool {
        !matches!(self.work, Work::LoadOrdered | Work::Commits(_))
    }

    /// Whether the line leaves its database unchanged.
    pub fn is_read_only(&self) -> bool {
        matches!(
            self.work,
            Work::Get | Work::GetZipf | Work::Scan | Work::Ycsb('c')
        )
    }

    /// Whether each commit waits for the device.
    pub fn is_durable(&self) -> bool {
        matches!(self.work, Work::Commits(_))
    }

    /// Whether the run leaves this line out for an engine. LMDB maps its file into memory, which no
    /// setting limits, so it has no line with little memory. The B-trees, redb and LMDB, have no
    /// line that compacts.
    pub fn leaves_out(&self, engine: &str) -> bool {
        let tree = matches!(engine, "redb" | "lmdb");
        engine == "lmdb" && self.memory == Memory::Tenth || tree && self.work == Work::Compact
    }

    /// Sizes of cache and memtable for an engine, bytes.
    pub fn memory(&self, config: &Config) -> (u64, u64) {
        let data = config.data_bytes();
        let memtable = (data / 16).clamp(4 << 20, 64 << 20);
        match self.memory {
            Memory::Half => (data / 2 * 3 / 8, memtable),
            Memory::All => (data * 2, memtable),
            // A line without writes needs no room for memtables.
            Memory::Tenth if self.is_read_only() => (data / 10, 1 << 20),
            Memory::Tenth => {
                let memtable = (data / 80).max(1 << 20);
                ((data / 10).saturating_sub(2 * memtable), memtable)
            }
        }
    }
}

/// The line called `name`.
pub fn named(name: &str) -> Result<&'static Line> {
    let known: Vec<&str> = LINES.iter().map(|line| line.name).collect();
    LINES
        .iter()
        .find(|line| line.name == name)
        .ok_or_else(|| unknown("line", name, &known))
}

/// The lines that the settings name, in the order in which they run.
pub fn chosen(config: &Config) -> Result<Vec<Line>> {
    for name in &config.lines {
        named(name)?;
    }
    let wanted = |line: &&Line| match config.lines.is_empty() {
        true => config.full || !line.full,
        false => config.lines.iter().any(|name| name == line.name),
    };
    Ok(LINES.iter().filter(wanted).copied().collect())
}
