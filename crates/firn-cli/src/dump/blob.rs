//! Dumps a blob file by the headers of its blobs. Only the tables know which blobs are live.

use super::split;
use crate::Outcome;
use crate::args::DumpBlob;
use crate::output::{Output, bytes, table};
use firn::base::blob_ref::{BLOB_HEADER_LEN, BlobCodec};
use firn::base::{Error, Result};
use firn::blob::{BlobFileIds, DATA_START, scan_blobs};
use firn::env::{Env, PosixEnv, ReadClass, ReadFile};
use firn::store::{FileKind, parse_file_name};
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    file: String,
    size: u64,
    allocated: u64,
    /// Id by which blob references name the file.
    logical: u64,
    blobs: u64,
    stored_bytes: u64,
    value_bytes: u64,
    listed: Vec<Blob>,
}

#[derive(Serialize)]
struct Blob {
    offset: u64,
    value_bytes: u64,
    stored_bytes: u64,
    codec: &'static str,
    encrypted: bool,
}

pub(super) fn run(args: &DumpBlob, out: &Output) -> Result<Outcome> {
    let (_, name) = split(&args.file)?;
    let Some((FileKind::Blob, id)) = parse_file_name(name) else {
        let what = format_args!("{name} is not the name of a blob file");
        return Err(Error::invalid(what));
    };
    let env = PosixEnv::new();
    let usage = env.usage(&args.file)?;
    let file = env.open(&args.file)?;
    let mut report = Report {
        file: name.to_owned(),
        size: usage.len,
        allocated: usage.allocated,
        logical: BlobFileIds::read(&*file, id, name)?.logical,
        blobs: 0,
        stored_bytes: 0,
        value_bytes: 0,
        listed: Vec::new(),
    };
    let mut read = |at: u64, len: usize| read_some(&*file, usage.len, at, len);
    let mut at = DATA_START;
    while let Some(blob) = scan_blobs(at, &mut read)? {
        report.blobs += 1;
        report.stored_bytes += blob.stored;
        report.value_bytes += blob.len;
        if report.blobs <= args.limit {
            report.listed.push(Blob {
                offset: blob.offset,
                value_bytes: blob.len,
                stored_bytes: blob.stored,
                codec: match blob.codec {
                    BlobCodec::None => "none",
                    BlobCodec::Zstd => "zstd",
                    BlobCodec::Chunks => "chunks",
                },
                encrypted: blob.encrypted,
            });
        }
        // Saturate, because bytes that only look like a header may give any length.
        let len = BLOB_HEADER_LEN.saturating_add(blob.stored);
        at = blob.offset.saturating_add(len);
        if at > usage.len {
            break;
        }
    }
    out.print(&report, text);
    Ok(Outcome::Well)
}

fn read_some(file: &dyn ReadFile, size: u64, at: u64, len: usize) -> Result<Vec<u8>> {
    let len = size.saturating_sub(at).min(len as u64);
    let mut some = vec![0; len as usize];
    file.read_exact_at(ReadClass::Blob, at, &mut some)?;
    Ok(some)
}

fn text(r: &Report) -> String {
    let head = format!(
        "{}: {}, of which {} are allocated; holds the blobs of file {}\n{} blobs found, {} stored for {} of values\n",
        r.file,
        bytes(r.size),
        bytes(r.allocated),
        r.logical,
        r.blobs,
        bytes(r.stored_bytes),
        bytes(r.value_bytes)
    );
    let rows = r.listed.iter().map(|blob| {
        vec![
            blob.offset.to_string(),
            blob.value_bytes.to_string(),
            blob.stored_bytes.to_string(),
            match blob.encrypted {
                true => format!("{}, encrypted", blob.codec),
                false => blob.codec.to_owned(),
            },
        ]
    });
    let headings = ["offset", "value bytes", "stored bytes", "codec"];
    head + &table(&headings, 0, rows.collect())
}
