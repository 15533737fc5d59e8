//! Dumps a log segment, group by group.

use super::split;
use crate::Outcome;
use crate::args::DumpWal;
use crate::output::{Output, bytes, hex};
use firn::base::{Error, Kind, Result};
use firn::env::PosixEnv;
use firn::wal::{Record, SegmentPiece, ServerRunName, dump_segment, parse_segment_name};
use firn::write::Batch;
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
struct Report {
    file: String,
    size: u64,
    header: Option<Header>,
    pieces: Vec<PieceReport>,
    /// Number of groups that are not listed.
    more: u64,
}

#[derive(Serialize)]
struct Header {
    segment: u64,
    run_began_in: u64,
    continues_segment: u64,
    continues_group: u64,
    prepared_size: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum PieceReport {
    Group {
        offset: u64,
        bytes: u64,
        number: u64,
        known_synced: u64,
        records: Vec<RecordReport>,
    },
    Gap {
        offset: u64,
        bytes: u64,
        blank: bool,
    },
}

#[derive(Serialize)]
struct RecordReport {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seqno: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    kind: &'static str,
    key: String,
    value_bytes: usize,
}

pub(super) fn run(args: &DumpWal, out: &Output) -> Result<Outcome> {
    let (dir, name) = split(&args.file)?;
    let id = parse_segment_name(name)
        .ok_or_else(|| Error::invalid(format_args!("{name} is not the name of a log segment")))?;
    let mut pieces = Vec::new();
    let mut more = 0;
    let (header, size) = dump_segment(&PosixEnv::new(), dir, id, &mut |piece| match (
        piece,
        (pieces.len() as u64) < args.limit,
    ) {
        (SegmentPiece::Group { .. }, false) => more += 1,
        (SegmentPiece::Gap { .. }, false) => {}
        (piece, true) => pieces.push(piece_report(&piece, args.entries)),
    })?;
    let report = Report {
        file: name.to_owned(),
        size,
        header: header.map(|header| Header {
            segment: header.id,
            run_began_in: header.incarnation,
            continues_segment: header.base.segment,
            continues_group: header.base.group,
            prepared_size: header.size,
        }),
        pieces,
        more,
    };
    out.print(&report, text);
    Ok(Outcome::Well)
}

fn piece_report(piece: &SegmentPiece<'_>, entries: bool) -> PieceReport {
    match piece {
        SegmentPiece::Group {
            offset,
            len,
            header,
            records,
        } => PieceReport::Group {
            offset: *offset,
            bytes: *len,
            number: header.number,
            known_synced: header.known_synced,
            records: records.iter().map(|r| record_report(r, entries)).collect(),
        },
        SegmentPiece::Gap { from, to, blank } => PieceReport::Gap {
            offset: *from,
            bytes: to - from,
            blank: *blank,
        },
    }
}

fn record_report(record: &Record<'_>, with_entries: bool) -> RecordReport {
    let mut report = RecordReport {
        kind: "",
        seqno: None,
        xid: None,
        note: None,
        changes: None,
        entries: Vec::new(),
    };
    let mut of_batch = None;
    match record {
        Record::Batch { seqno, batch } => {
            (report.kind, report.seqno) = ("commit", Some(*seqno));
            of_batch = Some(*batch);
        }
        Record::Prepare { xid, batch } => {
            (report.kind, report.xid) = ("prepare", Some(hex(xid)));
            of_batch = Some(*batch);
        }
        Record::PrepareRun { xid, files, .. } => {
            (report.kind, report.xid) = ("prepare", Some(hex(xid)));
            report.note = Some(format!("files {files:?}"));
        }
        Record::Commit { xid, seqno, binlog } => {
            (report.kind, report.seqno) = ("commit of a prepared transaction", Some(*seqno));
            report.xid = Some(hex(xid));
            report.note = binlog.map(|at| {
                format!(
                    "binary log {} at {}",
                    String::from_utf8_lossy(at.name),
                    at.pos
                )
            });
        }
        Record::Rollback { xid } => (report.kind, report.xid) = ("rollback", Some(hex(xid))),
        Record::RunIngest { seqno, files, .. } => {
            (report.kind, report.seqno) = ("ingest", Some(*seqno));
            report.note = Some(format!("files {files:?}"));
        }
        Record::CounterMax { counter, value } => {
            report.kind = "counter";
            report.note = Some(format!("counter {counter} is at least {value}"));
        }
        Record::CounterSet {
            counter,
            generation,
            value,
        } => {
            report.kind = "counter set";
            report.note = Some(format!(
                "counter {counter} is at least {value} since it was set, generation {generation}"
            ));
        }
        Record::Load { files, .. } => {
            report.kind = "load";
            report.note = Some(format!("files {files:?}"));
        }
        Record::ServerRun { run } => {
            report.kind = "server run";
            report.note = Some(match run {
                ServerRunName::Unknown => "not known".into(),
                ServerRunName::NoBinlog => "without a binary log".into(),
                ServerRunName::Binlog {
                    path,
                    created,
                    server_id,
                } => format!(
                    "binary log {} begun at {created} by server {server_id}",
                    String::from_utf8_lossy(path)
                ),
            });
        }
        Record::Clock { wall_ms, binlog } => {
            report.kind = "clock";
            let at = binlog.map(|at| {
                let name = String::from_utf8_lossy(at.name);
                format!(", binary log {name} at {}", at.pos)
            });
            report.note = Some(format!("{wall_ms} ms{}", at.unwrap_or_default()));
        }
        Record::Gtid { seqno, gtid } => {
            (report.kind, report.seqno) = ("gtid", Some(*seqno));
            report.note = Some(gtid.to_string());
        }
        Record::BlobSpan {
            file,
            offset,
            bytes,
        } => {
            report.kind = "blob span";
            report.note = Some(format!("{} bytes at {offset} of file {file}", bytes.len()));
        }
        Record::Epoch { epoch, after } => {
            report.kind = "epoch";
            report.note = Some(format!("{epoch}, its commits come after {after}"));
        }
        Record::SchemaChange {
            seqno,
            description,
            batch,
        } => {
            (report.kind, report.seqno) = ("schema change", Some(*seqno));
            report.note = Some(String::from_utf8_lossy(description).into_owned());
            of_batch = Some(*batch);
        }
    }
    if let Some(bytes) = of_batch {
        match Batch::from_bytes(bytes.to_vec()) {
            Ok(batch) => {
                report.changes = Some(batch.count());
                if with_entries {
                    report.entries = entries_of(&batch);
                }
            }
            Err(error) => report.note = Some(format!("damaged batch: {error}")),
        }
    }
    report
}

fn entries_of(batch: &Batch) -> Vec<Entry> {
    let mut entries = Vec::new();
    let listed = batch.for_each(|entry| {
        entries.push(Entry {
            kind: kind_name(entry.kind),
            key: hex(entry.user_key),
            value_bytes: entry.value.len(),
        });
    });
    debug_assert!(listed.is_ok(), "the batch was checked when it was read");
    entries
}

/// The kind of an entry as one word.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Delete => "delete",
        Kind::Put => "put",
        Kind::PutBlobs => "put with blobs",
        Kind::RangeDelete => "range delete",
    }
}

fn text(report: &Report) -> String {
    let mut out = format!("{}: {}", report.file, bytes(report.size));
    match &report.header {
        Some(header) => {
            let _ = writeln!(
                out,
                ", segment {} of the run that began in {}, after group {} of segment {}",
                header.segment,
                header.run_began_in,
                header.continues_group,
                header.continues_segment
            );
        }
        None => out.push_str(", without an intact header\n"),
    }
    for piece in &report.pieces {
        match piece {
            PieceReport::Gap {
                offset,
                bytes,
                blank,
            } => {
                let what = if *blank {
                    "never written"
                } else {
                    "no intact group"
                };
                let _ = writeln!(out, "{offset:>10}  {bytes} bytes: {what}");
            }
            PieceReport::Group {
                offset,
                bytes,
                number,
                known_synced,
                records,
            } => {
                let _ = writeln!(
                    out,
                    "{offset:>10}  group {number}, {bytes} bytes, knows {known_synced} to be durable"
                );
                records
                    .iter()
                    .for_each(|record| record_text(record, &mut out));
            }
        }
    }
    if report.more > 0 {
        let _ = writeln!(out, "and {} groups more (--limit)", report.more);
    }
    out
}

fn record_text(record: &RecordReport, out: &mut String) {
    let _ = write!(out, "            {}", record.kind);
    if let Some(seqno) = record.seqno {
        let _ = write!(out, " {seqno}");
    }
    if let Some(xid) = &record.xid {
        let _ = write!(out, ", xid {xid}");
    }
    if let Some(changes) = record.changes {
        let _ = write!(out, ", {changes} changes");
    }
    if let Some(note) = &record.note {
        let _ = write!(out, ": {note}");
    }
    let _ = writeln!(out);
    for entry in &record.entries {
        let _ = writeln!(
            out,
            "              {} {} ({} bytes)",
            entry.kind, entry.key, entry.value_bytes
        );
    }
}
