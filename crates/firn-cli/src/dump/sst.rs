//! Dumps an SST.

use super::split;
use super::wal::kind_name;
use crate::Outcome;
use crate::args::DumpSst;
use crate::output::{Output, bytes, hex, table};
use firn::base::{Error, InternalIterator, Result};
use firn::cache::BlockCache;
use firn::env::{Env, PosixEnv, ReadClass};
use firn::sst::SstReader;
use firn::store::{FileKind, parse_file_name};
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;

/// Capacity of the block cache, bytes. It is small, because the file is read once, in order.
const CACHE_SIZE: u64 = 16 << 20;

#[derive(Serialize)]
struct Report {
    file: String,
    size: u64,
    entries: u64,
    deletes: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    data_blocks: u64,
    data_bytes: u64,
    block_size: u64,
    codec: String,
    smallest: String,
    largest: String,
    min_seqno: u64,
    max_seqno: u64,
    /// The stored seqnos are not those of commits: the manifest or the log has one seqno for all
    /// entries.
    external_seqno: bool,
    created_micros: u64,
    indexes: Vec<Index>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<Block>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listed: Vec<Entry>,
}

#[derive(Serialize)]
struct Index {
    index: u32,
    entries: u64,
    deletes: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

#[derive(Serialize)]
struct Block {
    separator: String,
    bytes: u64,
    entries: u64,
    deletes: u64,
    min_seqno: u64,
    max_seqno: u64,
}

#[derive(Serialize)]
struct Entry {
    key: String,
    seqno: u64,
    kind: &'static str,
    value_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

pub(super) fn run(args: &DumpSst, out: &Output) -> Result<Outcome> {
    let (_, name) = split(&args.file)?;
    let Some((FileKind::Sst, id)) = parse_file_name(name) else {
        return Err(Error::invalid(format_args!(
            "{name} is not the name of an SST"
        )));
    };
    let file = PosixEnv::new().open(&args.file)?;
    let cache = Arc::new(BlockCache::new(CACHE_SIZE));
    let reader = SstReader::open(file, id, name.to_owned(), cache)?;
    let report = report(&reader, args)?;
    out.print(&report, text);
    Ok(Outcome::Well)
}

fn report(reader: &Arc<SstReader>, args: &DumpSst) -> Result<Report> {
    let p = reader.properties();
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut report = Report {
        file: reader.name().to_owned(),
        size: reader.size(),
        entries: p.entries,
        deletes: p.deletes,
        raw_key_bytes: p.raw_key_bytes,
        raw_value_bytes: p.raw_value_bytes,
        data_blocks: p.data_blocks,
        data_bytes: p.data_bytes,
        block_size: p.block_size,
        codec: p.codec.clone(),
        smallest: hex(&p.smallest),
        largest: hex(&p.largest),
        min_seqno: p.min_seqno,
        max_seqno: p.max_seqno,
        external_seqno: p.external_seqno,
        created_micros: p.created_micros,
        indexes: p
            .per_index
            .iter()
            .map(|s| Index {
                index: s.index,
                entries: s.entries,
                deletes: s.deletes,
                raw_bytes: s.raw_bytes,
                stored_bytes: s.stored_bytes,
            })
            .collect(),
        blocks: Vec::new(),
        listed: Vec::new(),
    };
    if args.blocks {
        let blocks = reader.blocks()?;
        let each = blocks.iter().take(limit).map(|block| Block {
            separator: hex(block.separator),
            bytes: block.bytes,
            entries: block.entries,
            deletes: block.deletes,
            min_seqno: block.min_seqno,
            max_seqno: block.max_seqno,
        });
        report.blocks = each.collect();
    }
    if args.entries {
        let mut iter = reader.iter(ReadClass::Verify, false);
        let mut more = iter.seek_to_first()?;
        while more && report.listed.len() < limit {
            let (key, value) = (iter.key(), iter.value());
            report.listed.push(Entry {
                key: hex(key.user_key),
                seqno: key.seqno,
                kind: kind_name(key.kind),
                value_bytes: value.len(),
                value: args.values.then(|| hex(value.head) + &hex(value.tail)),
            });
            more = iter.next()?;
        }
    }
    Ok(report)
}

fn text(r: &Report) -> String {
    let mut out = format!(
        "{}: {}, {} entries, {} of them deletions\n",
        r.file,
        bytes(r.size),
        r.entries,
        r.deletes
    );
    let raw = r.raw_key_bytes + r.raw_value_bytes;
    let _ = writeln!(
        out,
        "{} blocks of {} raw: {} stored for {} ({} keys, {} values); codec {}",
        r.data_blocks,
        bytes(r.block_size),
        bytes(r.data_bytes),
        bytes(raw),
        bytes(r.raw_key_bytes),
        bytes(r.raw_value_bytes),
        r.codec
    );
    let _ = match r.external_seqno {
        true => writeln!(
            out,
            "one commit, which manifest or log name; stored numbers say nothing of it"
        ),
        false => writeln!(out, "commits {} to {}", r.min_seqno, r.max_seqno),
    };
    let _ = writeln!(out, "keys {} to {}", r.smallest, r.largest);
    let rows = r.indexes.iter().map(|i| {
        vec![
            i.index.to_string(),
            i.entries.to_string(),
            i.deletes.to_string(),
            bytes(i.raw_bytes),
            bytes(i.stored_bytes),
        ]
    });
    let _ = write!(
        out,
        "\n{}",
        table(
            &["index", "entries", "deletes", "raw", "stored"],
            0,
            rows.collect()
        )
    );
    if !r.blocks.is_empty() {
        let rows = r.blocks.iter().map(|b| {
            vec![
                b.separator.clone(),
                bytes(b.bytes),
                b.entries.to_string(),
                b.deletes.to_string(),
                format!("{}–{}", b.min_seqno, b.max_seqno),
            ]
        });
        let headings = ["block up to", "stored", "entries", "deletes", "commits"];
        let _ = write!(out, "\n{}", table(&headings, 1, rows.collect()));
    }
    if !r.listed.is_empty() {
        let rows = r.listed.iter().map(|e| {
            vec![
                e.key.clone(),
                e.kind.to_owned(),
                e.seqno.to_string(),
                e.value_bytes.to_string(),
                e.value.clone().unwrap_or_default(),
            ]
        });
        let headings = ["key", "kind", "commit", "value bytes", "value"];
        let _ = write!(out, "\n{}", table(&headings, 2, rows.collect()));
    }
    out
}
