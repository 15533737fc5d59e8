//! Reports on indexes, files, jobs and delays, for views that administrators read.

use super::Db;
use super::background::JobReport;
use crate::env::ClassReads;
use crate::store::{FileKind, file_name};
use crate::table::IndexSums;
use crate::version::{FileLocation, FilesAndBytes, LEVELS};
use crate::write::STALL_REASONS;
use std::path::PathBuf;

/// One index of a table, with counts of its stored entries.
#[derive(Debug, Clone)]
pub struct IndexDetail {
    /// `database/table`.
    pub table: String,
    /// Name of the index.
    pub index: String,
    /// Id of the index, by which files and locks name it.
    pub id: u64,
    /// Whether the index is unique: no two rows have the same values in all columns of its
    /// definition.
    pub unique: bool,
    /// Whether it holds the rows.
    pub clustered: bool,
    /// Number of key parts that the definition of the index names; 0 for a hidden key.
    pub parts: u64,
    /// Sums over files and memtables.
    pub sums: IndexSums,
    /// Number of the entries that are in memtables.
    pub entries_in_memory: u64,
}

/// A table file.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// Name in the directory of the database.
    pub name: String,
    /// Level.
    pub level: u8,
    /// Position of the file's run in the level, 0 for the newest run.
    pub run: u64,
    /// Where the file is.
    pub location: FileLocation,
    /// Stored bytes.
    pub size: u64,
    /// Entries, deletions and old versions included.
    pub entries: u64,
    /// Deletions.
    pub deletes: u64,
    /// Number of entries for which the same file has a newer version of the same key.
    pub superseded: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// Number of indexes with entries in the file.
    pub indexes: u64,
    /// Smallest seqno.
    pub min_seqno: u64,
    /// Largest seqno.
    pub max_seqno: u64,
    /// Smallest key in words.
    pub smallest: String,
    /// Largest key in words.
    pub largest: String,
}

/// Table files in the data directory and in the object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacesReport {
    /// Files in the data directory.
    pub local: FilesAndBytes,
    /// Files in the object store.
    pub remote: FilesAndBytes,
    /// Files whose objects are to be deleted, or are deleted and not forgotten yet.
    pub objects_to_delete: u64,
}

/// Delays of writers for one reason.
#[derive(Debug, Clone, Copy)]
pub struct StallReport {
    /// The reason, as `SHOW ENGINE FIRN STATUS` names it.
    pub reason: &'static str,
    /// Statements delayed or stopped.
    pub count: u64,
    /// Their time, microseconds.
    pub total_us: u64,
}

impl Db {
    /// Reports every index.
    pub fn index_details(&self) -> Vec<IndexDetail> {
        let super_version = self.cx.super_versions.pin();
        let mut all = Vec::new();
        for entry in self.catalog.list("") {
            let schemas = entry.schema.indexes.iter();
            let mut of = Vec::new();
            for (ids, schema) in entry.indexes.iter().zip(schemas) {
                let parts = schema.parts.len() as u64;
                of.push((ids.id, schema.name.clone(), schema.unique, parts));
            }
            if !of.iter().any(|(id, ..)| *id == entry.clustered.id) {
                of.insert(0, (entry.clustered.id, "(hidden)".to_owned(), true, 0));
            }
            for (id, index, unique, parts) in of {
                let sums = IndexSums::of(&super_version, id);
                let in_files = super_version.version.index_stats(id).entries;
                all.push(IndexDetail {
                    table: entry.name.clone(),
                    index,
                    id: u64::from(id),
                    unique,
                    clustered: id == entry.clustered.id,
                    parts,
                    sums,
                    entries_in_memory: sums.entries.saturating_sub(in_files),
                });
            }
        }
        all
    }

    /// Reports every table file, newest level first.
    pub fn file_reports(&self) -> Vec<FileReport> {
        let version = self.work.versions.current();
        let words = |key: &[u8]| {
            let key = self.catalog.describe_key(key);
            let index = match key.index.is_empty() {
                true => key.table,
                false => format!("{}.{}", key.table, key.index),
            };
            format!("{index} ({})", key.values.join(", "))
        };
        let mut all = Vec::new();
        for level in 0..LEVELS as u8 {
            for (run, files) in version.runs(level).iter().enumerate() {
                all.extend(files.files.iter().map(|file| FileReport {
                    name: file_name(FileKind::Sst, file.file_id),
                    level,
                    run: run as u64,
                    location: file.location,
                    size: file.size,
                    entries: file.entries,
                    deletes: file.deletes,
                    superseded: file.superseded,
                    raw_bytes: file.raw_bytes,
                    indexes: file.per_index.len() as u64,
                    min_seqno: file.min_seqno,
                    max_seqno: file.max_seqno,
                    smallest: words(&file.smallest),
                    largest: words(&file.largest),
                }));
            }
        }
        all
    }

    /// Reads of files since the database was opened, by class; also those of its ephemeral
    /// databases.
    pub fn file_reads(&self) -> impl Iterator<Item = ClassReads> {
        self.io.file_reads().by_class()
    }

    /// Blocks that came from the memory pool since the database was opened, by class. The time of
    /// a batch is divided among its blocks.
    pub fn pool_reads(&self) -> impl Iterator<Item = ClassReads> {
        let classes = self.io.pool_reads().by_class();
        classes.filter(|reads| reads.class.is_of_query())
    }

    /// Where the table files are.
    pub fn places(&self) -> PlacesReport {
        let version = self.work.versions.current();
        let levels = (0..LEVELS as u8).map(|level| version.level_sums(level));
        let (files, bytes) = levels.fold((0, 0), |(files, bytes), sums| {
            (files + sums.files, sums.size.saturating_add(bytes))
        });
        let remote = version.remote();
        PlacesReport {
            local: FilesAndBytes {
                files: files.saturating_sub(remote.files),
                bytes: bytes.saturating_sub(remote.bytes),
            },
            remote,
            objects_to_delete: self.work.versions.objects_to_delete(),
        }
    }

    /// The checkpoint for which no object is deleted from the object store, if there is one.
    pub fn objects_held_by(&self) -> Option<PathBuf> {
        self.work.versions.objects_held_by()
    }

    /// Delays of writers since the database was opened, by reason.
    pub fn stall_reports(&self) -> Vec<StallReport> {
        let stats = self.work.stall.stats();
        let reasons = STALL_REASONS.iter().zip(stats.by_reason);
        let report =
            |((_, reason), (count, total_us)): (&(_, &'static str), (u64, u64))| StallReport {
                reason,
                count,
                total_us,
            };
        reasons.map(report).collect()
    }

    /// The last flushes and compactions, oldest first.
    pub fn job_reports(&self) -> Vec<JobReport> {
        self.work.history.list()
    }
}
