//! Log records, the messages that a group consists of.
//!
//! A record is stored as one byte for its kind, the length of its body and the body. A batch inside
//! a record is just bytes to this module.

use crate::base::{Error, Result, Seqno, varint};
use crate::env::AlignedBuf;
use std::borrow::Cow;
use std::fmt;

/// Position in the server's binary log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BinlogPosition<'a> {
    /// Name of the binary log file.
    pub name: &'a [u8],
    /// Offset in that file behind the transaction's events, bytes.
    pub pos: u64,
}

/// Names the server run that prepares transactions, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerRunName<'a> {
    /// The server run is not known.
    Unknown,
    /// The server keeps no binary log.
    NoBinlog,
    /// The server wrote this file of its binary log.
    Binlog {
        /// Path of the file, as the server names it.
        path: &'a [u8],
        /// When the server began the file, seconds since 1970.
        created: u32,
        /// Server id of the server that began the file.
        server_id: u32,
    },
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A transaction committed in one step.
    Batch {
        /// Its seqno.
        seqno: Seqno,
        /// Its changes.
        batch: &'a [u8],
    },
    /// First phase of a two-phase commit: it logs the changes of a transaction, which are not
    /// visible before its `Commit` record.
    Prepare {
        /// The transaction.
        xid: &'a [u8],
        /// Its changes.
        batch: &'a [u8],
    },
    /// First phase of a two-phase commit whose changes are SSTs that were written beforehand.
    PrepareRun {
        /// The transaction.
        xid: &'a [u8],
        /// The files, in order.
        files: Cow<'a, [u64]>,
        /// The engine's own description of the files.
        info: &'a [u8],
    },
    /// Second phase of a two-phase commit: the prepared transaction gets its seqno.
    Commit {
        /// The transaction.
        xid: &'a [u8],
        /// Its seqno.
        seqno: Seqno,
        /// Position of the transaction in the binary log, if the server reported it.
        binlog: Option<BinlogPosition<'a>>,
    },
    /// A prepared transaction is rolled back: its changes are dropped.
    Rollback {
        /// The transaction.
        xid: &'a [u8],
    },
    /// SSTs that were written beforehand become visible at one seqno.
    RunIngest {
        /// The seqno of all entries in the files.
        seqno: Seqno,
        /// The files, in order.
        files: Cow<'a, [u64]>,
        /// The engine's own description of the files.
        info: &'a [u8],
    },
    /// A counter (AUTO_INCREMENT, hidden row id) has given out values up to `value`. Replay takes
    /// the maximum of these records, so their order does not matter. The batch that uses the value
    /// follows in the same append, so both are replayed or neither.
    CounterMax {
        /// Id of the counter.
        counter: u64,
        /// Largest value that the counter has given out.
        value: u64,
    },
    /// A counter was set to a value: a new generation of it begins, and values of older generations
    /// no longer count. Replay takes the largest value of the newest generation, whatever the order
    /// of the records.
    CounterSet {
        /// Id of the counter.
        counter: u64,
        /// How often the counter was set; at least 1.
        generation: u64,
        /// Largest value that the counter has given out since it was set.
        value: u64,
    },
    /// A change of the catalog, such as CREATE TABLE.
    SchemaChange {
        /// Its seqno.
        seqno: Seqno,
        /// The SQL statement, for people and tools that read the log. Recovery ignores it.
        description: &'a [u8],
        /// Its changes.
        batch: &'a [u8],
    },
    /// SSTs that an edit of the manifest has installed. A recovery to a point in time begins with
    /// an older manifest, which does not name them, and installs them from this record. Other
    /// recoveries skip the record. It is only written while the log is archived.
    Load {
        /// The files, in order.
        files: Cow<'a, [u64]>,
        /// The engine's own description of the files.
        info: &'a [u8],
    },
    /// The wall-clock time just before the records that follow in the log were appended. A recovery
    /// to a point in time uses it. The record is only written while the log is archived.
    Clock {
        /// Milliseconds since 1970.
        wall_ms: u64,
        /// The end of the server's binary log at the time `wall_ms`, if the server reported it.
        binlog: Option<BinlogPosition<'a>>,
    },
    /// The global transaction id (GTID) that the server has given a commit. This record follows
    /// that commit's own record in the same append.
    Gtid {
        /// The seqno of the commit.
        seqno: Seqno,
        /// The global transaction id.
        gtid: Gtid,
    },
    /// Bytes of a blob file that is not sealed, for a reader of the log who does not have that blob
    /// file, such as the log archive. The log of a database that recovers with its own blob files
    /// does not need this record: those files are synced before the log names them.
    BlobSpan {
        /// Id of the blob file.
        file: u64,
        /// Offset of the bytes in the blob file.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// An epoch begins: the records that follow belong to it.
    Epoch {
        /// Number of the epoch.
        epoch: u64,
        /// The commits of the epoch have larger seqnos than this one.
        after: Seqno,
    },
    /// Transactions that are prepared after this record belong to the server run `run`.
    ServerRun {
        /// Name of the server run.
        run: ServerRunName<'a>,
    },
}

/// A global transaction id of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gtid {
    /// The replication domain.
    pub domain: u32,
    /// The server where the transaction was first committed.
    pub server: u32,
    /// Number of the transaction in the domain.
    pub sequence: u64,
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

const BATCH: u8 = 1;
const PREPARE: u8 = 2;
const COMMIT: u8 = 3;
const ROLLBACK: u8 = 4;
const RUN_INGEST: u8 = 5;
const COUNTER_MAX: u8 = 6;
const SCHEMA_CHANGE: u8 = 7;
const PREPARE_RUN: u8 = 8;
const LOAD: u8 = 9;
const CLOCK: u8 = 10;
const GTID: u8 = 11;
const BLOB_SPAN: u8 = 12;
const EPOCH: u8 = 13;
const COUNTER_SET: u8 = 14;
const SERVER_RUN: u8 = 15;

/// A destination of encoded bytes. There are two: a buffer, and [`Counted`], which only counts the
/// bytes to find the length of a record.
trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn number(&mut self, mut value: u64) {
        let mut bytes = [0; varint::MAX_LEN];
        let mut len = 0;
        while value >= 0x80 {
            bytes[len] = value as u8 | 0x80;
            value >>= 7;
            len += 1;
        }
        bytes[len] = value as u8;
        self.put(&bytes[..=len]);
    }

    fn sized(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.put(bytes);
    }
}

impl Sink for AlignedBuf {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

struct Counted(usize);

impl Sink for Counted {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

impl<'a> Record<'a> {
    /// Number of bytes that [`Record::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        let body = self.body_len();
        let mut all = Counted(1 + body);
        all.number(body as u64);
        all.0
    }

    /// Appends the encoded record to `out`.
    pub fn encode(&self, out: &mut AlignedBuf) {
        out.put(&[self.kind()]);
        out.number(self.body_len() as u64);
        self.body(out);
    }

    /// Decodes a record at the front of `input` and removes it from `input`. `file` and `offset`
    /// are the place of the record's group; they serve only for error messages.
    ///
    /// # Errors
    /// `Corruption` for damaged bytes; `Unsupported` for an unknown kind of record. Such a record
    /// is never skipped.
    pub fn decode(input: &mut &'a [u8], file: &str, offset: u64) -> Result<Self> {
        let head = varint::take_u8(input).zip(varint::take_bytes(input));
        let (kind, mut body) =
            head.ok_or_else(|| Error::corruption(file, offset, "a record is cut off"))?;
        if !matches!(kind, BATCH..=SERVER_RUN) {
            return Err(Error::unsupported(format!(
                "log record kind {kind} in {file} at offset {offset}"
            )));
        }
        Self::decode_body(kind, &mut body)
            .filter(|_| body.is_empty())
            .ok_or_else(|| {
                Error::corruption(file, offset, format!("a record of kind {kind} is damaged"))
            })
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Batch { .. } => BATCH,
            Self::Prepare { .. } => PREPARE,
            Self::PrepareRun { .. } => PREPARE_RUN,
            Self::Commit { .. } => COMMIT,
            Self::Rollback { .. } => ROLLBACK,
            Self::RunIngest { .. } => RUN_INGEST,
            Self::CounterMax { .. } => COUNTER_MAX,
            Self::CounterSet { .. } => COUNTER_SET,
            Self::SchemaChange { .. } => SCHEMA_CHANGE,
            Self::Load { .. } => LOAD,
            Self::Clock { .. } => CLOCK,
            Self::Gtid { .. } => GTID,
            Self::BlobSpan { .. } => BLOB_SPAN,
            Self::Epoch { .. } => EPOCH,
            Self::ServerRun { .. } => SERVER_RUN,
        }
    }

    fn body_len(&self) -> usize {
        let mut counted = Counted(0);
        self.body(&mut counted);
        counted.0
    }

    fn body(&self, out: &mut impl Sink) {
        match self {
            Self::Batch { seqno, batch } => {
                out.number(*seqno);
                out.put(batch);
            }
            Self::Prepare { xid, batch } => {
                out.sized(xid);
                out.put(batch);
            }
            Self::Commit { xid, seqno, binlog } => {
                out.sized(xid);
                out.number(*seqno);
                put_binlog(out, binlog.as_ref());
            }
            Self::Rollback { xid } => out.sized(xid),
            Self::RunIngest { seqno, files, info } => {
                out.number(*seqno);
                put_files(out, files, info);
            }
            Self::PrepareRun { xid, files, info } => {
                out.sized(xid);
                put_files(out, files, info);
            }
            Self::CounterMax { counter, value } => {
                out.number(*counter);
                out.number(*value);
            }
            Self::CounterSet {
                counter,
                generation,
                value,
            } => {
                out.number(*counter);
                out.number(*generation);
                out.number(*value);
            }
            Self::SchemaChange {
                seqno,
                description,
                batch,
            } => {
                out.number(*seqno);
                out.sized(description);
                out.put(batch);
            }
            Self::Load { files, info } => put_files(out, files, info),
            Self::Clock { wall_ms, binlog } => {
                out.number(*wall_ms);
                put_binlog(out, binlog.as_ref());
            }
            Self::Gtid { seqno, gtid } => {
                out.number(*seqno);
                out.number(u64::from(gtid.domain));
                out.number(u64::from(gtid.server));
                out.number(gtid.sequence);
            }
            Self::BlobSpan {
                file,
                offset,
                bytes,
            } => {
                out.number(*file);
                out.number(*offset);
                out.put(bytes);
            }
            Self::Epoch { epoch, after } => {
                out.number(*epoch);
                out.number(*after);
            }
            Self::ServerRun { run } => put_run(out, run),
        }
    }

    fn decode_body(kind: u8, body: &mut &'a [u8]) -> Option<Self> {
        Some(match kind {
            BATCH => Self::Batch {
                seqno: varint::take_u64(body)?,
                batch: std::mem::take(body),
            },
            PREPARE => Self::Prepare {
                xid: varint::take_bytes(body)?,
                batch: std::mem::take(body),
            },
            COMMIT => Self::Commit {
                xid: varint::take_bytes(body)?,
                seqno: varint::take_u64(body)?,
                binlog: take_binlog(body)?,
            },
            ROLLBACK => Self::Rollback {
                xid: varint::take_bytes(body)?,
            },
            RUN_INGEST => {
                let seqno = varint::take_u64(body)?;
                let (files, info) = take_files(body)?;
                Self::RunIngest { seqno, files, info }
            }
            PREPARE_RUN => {
                let xid = varint::take_bytes(body)?;
                let (files, info) = take_files(body)?;
                Self::PrepareRun { xid, files, info }
            }
            COUNTER_MAX => Self::CounterMax {
                counter: varint::take_u64(body)?,
                value: varint::take_u64(body)?,
            },
            COUNTER_SET => Self::CounterSet {
                counter: varint::take_u64(body)?,
                generation: varint::take_u64(body).filter(|generation| *generation > 0)?,
                value: varint::take_u64(body)?,
            },
            SCHEMA_CHANGE => Self::SchemaChange {
                seqno: varint::take_u64(body)?,
                description: varint::take_bytes(body)?,
                batch: std::mem::take(body),
            },
            LOAD => {
                let (files, info) = take_files(body)?;
                Self::Load { files, info }
            }
            CLOCK => Self::Clock {
                wall_ms: varint::take_u64(body)?,
                binlog: take_binlog(body)?,
            },
            GTID => Self::Gtid {
                seqno: varint::take_u64(body)?,
                gtid: Gtid {
                    domain: varint::take_u32(body)?,
                    server: varint::take_u32(body)?,
                    sequence: varint::take_u64(body)?,
                },
            },
            BLOB_SPAN => Self::BlobSpan {
                file: varint::take_u64(body)?,
                offset: varint::take_u64(body)?,
                bytes: std::mem::take(body),
            },
            EPOCH => Self::Epoch {
                epoch: varint::take_u64(body)?,
                after: varint::take_u64(body)?,
            },
            SERVER_RUN => Self::ServerRun {
                run: take_run(body)?,
            },
            _ => return None,
        })
    }
}

fn put_binlog(out: &mut impl Sink, binlog: Option<&BinlogPosition<'_>>) {
    if let Some(binlog) = binlog {
        out.sized(binlog.name);
        out.number(binlog.pos);
    }
}

/// Decodes the rest of a record's body: a position in the binary log, or `Some(None)` if the body
/// has ended. The outer `None` stands for damaged bytes.
fn take_binlog<'a>(body: &mut &'a [u8]) -> Option<Option<BinlogPosition<'a>>> {
    if body.is_empty() {
        return Some(None);
    }
    Some(Some(BinlogPosition {
        name: varint::take_bytes(body)?,
        pos: varint::take_u64(body)?,
    }))
}

fn put_run(out: &mut impl Sink, run: &ServerRunName<'_>) {
    match run {
        ServerRunName::Unknown => {}
        ServerRunName::NoBinlog => out.sized(b""),
        ServerRunName::Binlog {
            path,
            created,
            server_id,
        } => {
            out.sized(path);
            out.number(u64::from(*created));
            out.number(u64::from(*server_id));
        }
    }
}

fn take_run<'a>(body: &mut &'a [u8]) -> Option<ServerRunName<'a>> {
    if body.is_empty() {
        return Some(ServerRunName::Unknown);
    }
    Some(match varint::take_bytes(body)? {
        [] => ServerRunName::NoBinlog,
        path => ServerRunName::Binlog {
            path,
            created: u32::try_from(varint::take_u64(body)?).ok()?,
            server_id: u32::try_from(varint::take_u64(body)?).ok()?,
        },
    })
}

fn put_files(out: &mut impl Sink, files: &[u64], info: &[u8]) {
    out.number(files.len() as u64);
    for file in files {
        out.number(*file);
    }
    out.put(info);
}

fn take_files<'a>(body: &mut &'a [u8]) -> Option<(Cow<'a, [u64]>, &'a [u8])> {
    let count = varint::take_u64(body)?;
    // Each file id takes one byte at least. This check keeps a damaged count from allocating more
    // ids than the body can hold.
    if count > body.len() as u64 {
        return None;
    }
    let files: Option<Vec<u64>> = (0..count).map(|_| varint::take_u64(body)).collect();
    Some((Cow::Owned(files?), std::mem::take(body)))
}

#[cfg(test)]
mod tests;
