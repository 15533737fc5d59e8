//! Shows levels, files and tables (`firn inspect`).

use crate::Outcome;
use crate::args::Inspect;
use crate::data_directory;
use crate::dump::manifest::location_name;
use crate::level_bars;
use crate::output::{Output, bytes, table};
use firn::base::blob_ref::BlobUse;
use firn::base::{IndexId, Result};
use firn::catalog::{CATALOG_INDEX, CatalogState};
use firn::db::{BlobFileReport, BlobFilesReport, ReadOnlyDb, ReadOnlyLog, ReadOnlyTree};
use firn::store::{FileKind, file_name};
use firn::table::{estimated_rows, out_of_line_bytes};
use firn::version::LEVELS;
use firn::wal::Gtid;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

#[derive(Serialize)]
struct Report {
    directory: String,
    manifest: u64,
    /// Id of the database; none if all program versions that have opened it are too old to give it
    /// one.
    database: Option<String>,
    epoch: u64,
    last_commit: u64,
    stored_bytes: u64,
    raw_bytes: u64,
    ratio: Option<f64>,
    log: LogReport,
    blobs: BlobsReport,
    levels: Vec<Level>,
    tables: Vec<TableReport>,
    /// Stored bytes of indexes that belong to no table: dropped indexes whose entries compactions
    /// have not yet removed.
    other_stored_bytes: u64,
    /// Number of server objects, such as views, that the catalog keeps.
    server_objects: usize,
    /// Number of tables of which the catalog knows the partitions.
    partitioned_tables: usize,
    /// Number of files in an object store that are still to be deleted.
    files_to_be_deleted: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<File>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blob_files: Vec<BlobFile>,
}

/// Sums over all blob files.
#[derive(Serialize)]
struct BlobsReport {
    files: usize,
    /// Bytes that the files take in the file system.
    stored_bytes: u64,
    references: u64,
    /// Stored bytes of the blobs that the references name, old versions of rows included. It is an
    /// upper bound, since several references may name one blob.
    live_bytes: u64,
    /// At least this share of `stored_bytes` is garbage.
    garbage: Option<f64>,
    missing_files: usize,
}

#[derive(Serialize)]
struct BlobFile {
    name: String,
    /// Id by which blob references name the file; none if nothing refers to it.
    logical: Option<u64>,
    size: u64,
    stored_bytes: u64,
    references: u64,
    live_bytes: u64,
}

#[derive(Serialize)]
struct LogReport {
    first_segment: u64,
    last_segment: u64,
    commits_to_replay: u64,
    bytes_to_replay: u64,
    torn_tail: bool,
    prepared_transactions: usize,
    /// The last global transaction id of each domain.
    gtids: Vec<String>,
    /// Number of files of large transactions, committed or prepared, that the log names and the
    /// manifest does not name yet.
    files: usize,
    /// Stored bytes of these files.
    stored_bytes: u64,
}

#[derive(Serialize)]
struct Level {
    level: u8,
    runs: usize,
    files: usize,
    stored_bytes: u64,
    raw_bytes: u64,
    entries: u64,
    deletes: u64,
}

#[derive(Serialize)]
struct TableReport {
    name: String,
    /// Estimated number of live rows. It is exact for few rows and for tables at rest.
    rows: u64,
    indexes: Vec<IndexReport>,
    stored_bytes: u64,
    raw_bytes: u64,
    ratio: Option<f64>,
    /// Estimated bytes in blob files that the rows refer to.
    blob_bytes: u64,
}

#[derive(Serialize)]
struct IndexReport {
    name: String,
    id: IndexId,
    entries: u64,
    deletes: u64,
    stored_bytes: u64,
    raw_bytes: u64,
}

#[derive(Serialize)]
struct File {
    name: String,
    /// Level of the file; none for a file of a large transaction that only the log names.
    level: Option<u8>,
    run: Option<u64>,
    stored_bytes: u64,
    raw_bytes: u64,
    entries: u64,
    deletes: u64,
    superseded: u64,
    min_seqno: u64,
    max_seqno: u64,
    at_rest: bool,
    tail_bytes: Option<u64>,
    location: &'static str,
    indexes: Vec<IndexId>,
}

/// Shows the state of the database.
pub fn run(args: &Inspect, out: &Output) -> Result<Outcome> {
    let db = data_directory::open_read_only(&args.directory)?;
    let tree = db.tree()?;
    let log = db.log(&tree)?;
    let known = db.tables(&log.point)?;
    let blobs = db.blobs(&tree, &log)?;
    let report = report(&db, &tree, &log, &known, &blobs, args.files);
    out.print(&report, text);
    Ok(Outcome::Well)
}

fn report(
    db: &ReadOnlyDb,
    tree: &ReadOnlyTree,
    log: &ReadOnlyLog,
    known: &CatalogState,
    blobs: &BlobFilesReport,
    with_files: bool,
) -> Report {
    let levels: Vec<Level> = (0..LEVELS as u8)
        .map(|level| level_of(tree, level))
        .collect();
    let all: Vec<_> = known.tables.values().map(Arc::clone).collect();
    let by_index: HashMap<_, _> = all
        .iter()
        .map(|t| (t.clustered.id, Arc::clone(t)))
        .collect();
    let tables: Vec<TableReport> = all
        .iter()
        .map(|entry| {
            let indexes: Vec<IndexReport> = entry
                .index_ids()
                .into_iter()
                .map(|id| index_of(tree, entry, id))
                .collect();
            let sum = |of: fn(&IndexReport) -> u64| indexes.iter().map(of).sum();
            let (stored_bytes, raw_bytes) = (sum(|i| i.stored_bytes), sum(|i| i.raw_bytes));
            let clustered = entry.clustered.id;
            let rows = estimated_rows(&log.point, clustered);
            TableReport {
                name: entry.name.clone(),
                rows,
                blob_bytes: out_of_line_bytes(&log.point.super_version, clustered, rows, |index| {
                    by_index.get(&index).cloned()
                }),
                indexes,
                stored_bytes,
                raw_bytes,
                ratio: ratio(stored_bytes, raw_bytes),
            }
        })
        .collect();
    let of_all: u64 = tree.version.all_index_stats().map(|s| s.stored_bytes).sum();
    let catalog = tree.version.index_stats(CATALOG_INDEX).stored_bytes;
    let of_tables: u64 = tables.iter().map(|t| t.stored_bytes).sum();
    let stored_bytes = tree.version.size();
    let raw_bytes = levels.iter().map(|level| level.raw_bytes).sum();
    Report {
        directory: db.dir().display().to_string(),
        manifest: tree.manifest_id,
        database: tree.state.identity.map(|i| i.database.to_string()),
        epoch: tree.state.epoch(),
        last_commit: log.point.seqno,
        stored_bytes,
        raw_bytes,
        ratio: ratio(stored_bytes, raw_bytes),
        log: LogReport {
            first_segment: tree.state.log_number,
            last_segment: log.end.last_segment,
            commits_to_replay: log.commits,
            bytes_to_replay: log.end.bytes,
            torn_tail: log.end.torn_tail,
            prepared_transactions: log.prepared.len(),
            gtids: log.gtids.values().map(Gtid::to_string).collect(),
            files: log.files.len(),
            stored_bytes: log.files.iter().map(|file| file.size).sum(),
        },
        blobs: blobs_of(blobs),
        levels,
        other_stored_bytes: of_all.saturating_sub(of_tables + catalog),
        tables,
        server_objects: known.objects.len(),
        partitioned_tables: known.partitionings.len(),
        files_to_be_deleted: tree.state.deferred.len(),
        files: match with_files {
            true => files_of(tree, log),
            false => Vec::new(),
        },
        blob_files: match with_files {
            true => blobs.files.iter().map(blob_file).collect(),
            false => Vec::new(),
        },
    }
}

fn blobs_of(blobs: &BlobFilesReport) -> BlobsReport {
    let files = &blobs.files;
    let used = |of: fn(&BlobUse) -> u64| files.iter().filter_map(|f| f.used.as_ref()).map(of).sum();
    let stored_bytes = files.iter().map(|file| file.allocated).sum();
    let dead = |file: &BlobFileReport| {
        let live = file.used.map_or(0, |used| used.bytes);
        file.allocated.saturating_sub(live)
    };
    BlobsReport {
        files: files.len(),
        stored_bytes,
        references: used(|used| used.refs),
        live_bytes: used(|used| used.bytes),
        garbage: ratio(files.iter().map(dead).sum(), stored_bytes),
        missing_files: blobs.missing.len(),
    }
}

fn blob_file(file: &BlobFileReport) -> BlobFile {
    BlobFile {
        name: file_name(FileKind::Blob, file.file),
        logical: file.used.map(|used| used.file),
        size: file.len,
        stored_bytes: file.allocated,
        references: file.used.map_or(0, |used| used.refs),
        live_bytes: file.used.map_or(0, |used| used.bytes),
    }
}

fn level_of(tree: &ReadOnlyTree, level: u8) -> Level {
    let runs = tree.version.runs(level);
    let files = || runs.iter().flat_map(|run| &run.files);
    Level {
        level,
        runs: runs.iter().filter(|run| !run.files.is_empty()).count(),
        files: files().count(),
        stored_bytes: files().map(|f| f.size).sum(),
        raw_bytes: files().map(|f| f.raw_bytes).sum(),
        entries: files().map(|f| f.entries).sum(),
        deletes: files().map(|f| f.deletes).sum(),
    }
}

fn index_of(tree: &ReadOnlyTree, entry: &firn::catalog::TableEntry, id: IndexId) -> IndexReport {
    let stats = tree.version.index_stats(id);
    let named = entry.indexes.iter().position(|index| index.id == id);
    IndexReport {
        name: named.map_or("(hidden)".to_owned(), |i| {
            entry.schema.indexes[i].name.clone()
        }),
        id,
        entries: stats.entries,
        deletes: stats.deletes,
        stored_bytes: stats.stored_bytes,
        raw_bytes: stats.raw_bytes,
    }
}

fn files_of(tree: &ReadOnlyTree, log: &ReadOnlyLog) -> Vec<File> {
    let named = log.files.iter().map(|file| (None, None, file));
    let placed = (0..LEVELS as u8).flat_map(|level| {
        let runs = tree.version.runs(level).iter();
        runs.flat_map(move |run| {
            let files = run.files.iter();
            files.map(move |file| (Some(level), Some(run.number), file))
        })
    });
    let all = named.chain(placed);
    all.map(|(level, run, file)| File {
        name: file_name(FileKind::Sst, file.file_id),
        level,
        run,
        stored_bytes: file.size,
        raw_bytes: file.raw_bytes,
        entries: file.entries,
        deletes: file.deletes,
        superseded: file.superseded,
        min_seqno: file.min_seqno,
        max_seqno: file.max_seqno,
        at_rest: file.at_rest,
        tail_bytes: (file.tail_len > 0).then_some(file.tail_len),
        location: location_name(file.location),
        indexes: file.per_index.iter().map(|s| s.index).collect(),
    })
    .collect()
}

fn ratio(stored: u64, raw: u64) -> Option<f64> {
    (raw > 0).then(|| stored as f64 / raw as f64)
}

fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    let r = report;
    let _ = writeln!(out, "{}", r.directory);
    if let Some(database) = &r.database {
        let _ = writeln!(out, "database {database}, epoch {}", r.epoch);
    }
    let (stored, raw) = (bytes(r.stored_bytes), bytes(r.raw_bytes));
    let ratio = ratio_text(r.ratio);
    let _ = writeln!(
        out,
        "{stored} stored for {raw} of keys and values, ratio {ratio}; last commit {}",
        r.last_commit
    );
    let torn = if r.log.torn_tail {
        ", its end torn as a crash leaves it"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "log: segments {} to {}, {} commits ({}) beyond the files{torn}; {} prepared transactions",
        r.log.first_segment,
        r.log.last_segment.max(r.log.first_segment),
        r.log.commits_to_replay,
        bytes(r.log.bytes_to_replay),
        r.log.prepared_transactions,
    );
    if r.log.files > 0 {
        let _ = writeln!(
            out,
            "large transactions that are not in the levels yet: {} files ({})",
            r.log.files,
            bytes(r.log.stored_bytes),
        );
    }
    if r.blobs.files + r.blobs.missing_files > 0 {
        let missing = match r.blobs.missing_files {
            0 => String::new(),
            count => format!("; {count} files are MISSING"),
        };
        let _ = writeln!(
            out,
            "values out of line: {} files ({}), {} references to {}, {:.0} % garbage{missing}",
            r.blobs.files,
            bytes(r.blobs.stored_bytes),
            r.blobs.references,
            bytes(r.blobs.live_bytes),
            100.0 * r.blobs.garbage.unwrap_or(0.0),
        );
    }
    let sizes: Vec<u64> = r.levels.iter().map(|level| level.stored_bytes).collect();
    let bars = level_bars::bars(&sizes);
    let rows = r
        .levels
        .iter()
        .zip(bars)
        .filter(|(level, _)| level.files > 0);
    let rows = rows.map(|(level, bar)| {
        vec![
            format!("L{}", level.level),
            bar,
            bytes(level.stored_bytes),
            level.runs.to_string(),
            level.files.to_string(),
            level.entries.to_string(),
            level.deletes.to_string(),
            ratio_text(self::ratio(level.stored_bytes, level.raw_bytes)),
        ]
    });
    let headings = [
        "level", "", "stored", "runs", "files", "entries", "deletes", "ratio",
    ];
    let _ = write!(out, "\n{}", table(&headings, 2, rows.collect()));
    let rows = r.tables.iter().flat_map(|t| {
        let first = vec![
            t.name.clone(),
            t.rows.to_string(),
            bytes(t.stored_bytes),
            bytes(t.raw_bytes),
            ratio_text(t.ratio),
            match t.blob_bytes {
                0 => String::new(),
                blobs => bytes(blobs),
            },
        ];
        let indexes = t.indexes.iter().map(|i| {
            vec![
                format!("  {} ({})", i.name, i.id),
                i.entries.saturating_sub(i.deletes).to_string(),
                bytes(i.stored_bytes),
                bytes(i.raw_bytes),
                ratio_text(self::ratio(i.stored_bytes, i.raw_bytes)),
                String::new(),
            ]
        });
        std::iter::once(first).chain(indexes).collect::<Vec<_>>()
    });
    let headings = [
        "table",
        "rows, about",
        "stored",
        "raw",
        "ratio",
        "out of line",
    ];
    let _ = write!(out, "\n{}", table(&headings, 1, rows.collect()));
    if r.other_stored_bytes > 0 {
        let _ = writeln!(out, "of dropped tables: {}", bytes(r.other_stored_bytes));
    }
    if !r.files.is_empty() {
        let rows = r.files.iter().map(|f| {
            let indexes: Vec<String> = f.indexes.iter().map(u32::to_string).collect();
            vec![
                f.name.clone(),
                f.level
                    .map_or("log".to_owned(), |level| format!("L{level}")),
                indexes.join(","),
                f.run.map_or(String::new(), |run| run.to_string()),
                bytes(f.stored_bytes),
                f.entries.to_string(),
                f.deletes.to_string(),
                format!("{}–{}", f.min_seqno, f.max_seqno),
            ]
        });
        let headings = [
            "file", "level", "indexes", "run", "stored", "entries", "deletes", "commits",
        ];
        let _ = write!(out, "\n{}", table(&headings, 3, rows.collect()));
    }
    if !r.blob_files.is_empty() {
        let rows = r.blob_files.iter().map(|f| {
            vec![
                f.name.clone(),
                f.logical.map_or("none".to_owned(), |id| id.to_string()),
                bytes(f.size),
                bytes(f.stored_bytes),
                f.references.to_string(),
                bytes(f.live_bytes),
            ]
        });
        let headings = [
            "blob file",
            "blobs of",
            "size",
            "stored",
            "references",
            "referred to",
        ];
        let _ = write!(out, "\n{}", table(&headings, 1, rows.collect()));
    }
    out
}
