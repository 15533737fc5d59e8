//! One atomic change of the tree, and its encoding.
//!
//! An edit is a list of fields, each `tag, length, bytes`. A reader refuses an edit with an unknown
//! tag. So a later format may use a new tag only for a field that an older engine must not ignore.

use super::FileMeta;
use crate::base::epoch::DatabaseId;
use crate::base::varint::{
    put_bytes, put_u64, take_bytes, take_exact, take_u8, take_u32, take_u64,
};
use crate::base::{CounterValue, Error, Result, Seqno};
use crate::store::FileKind;
use crate::wal::Gtid;

const TAG_ADDED: u64 = 1;
const TAG_REMOVED: u64 = 2;
const TAG_LOG_NUMBER: u64 = 3;
const TAG_NEXT_FILE_ID: u64 = 4;
const TAG_NEXT_RUN_NUMBER: u64 = 5;
const TAG_LAST_SEQNO: u64 = 6;
const TAG_COUNTER: u64 = 7;
const TAG_TIME_PAIR: u64 = 8;
const TAG_BLOBS_MOVED: u64 = 10;
const TAG_IDENTITY: u64 = 11;
const TAG_DEFERRED: u64 = 12;
const TAG_COUNTER_SET: u64 = 13;
const TAG_GTID: u64 = 14;

/// Identifies the database and the epoch of its current writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseIdentity {
    /// The writer's epoch.
    pub epoch: u64,
    /// Commits of this epoch have seqnos above this one. Commits of earlier epochs have this seqno
    /// or smaller ones.
    pub after: Seqno,
    /// The random id of the database.
    pub database: DatabaseId,
}

/// A file in an object store that an edit has removed from the tree while other readers may still
/// use it, or whose copy in the data directory is in the tree now. It is deleted once no reader
/// uses it. `epoch` and `slot` are the position of the removal in the log that a writer shares with
/// its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeferredDeletion {
    /// Whether the file is an SST or a blob file.
    pub kind: FileKind,
    /// File id.
    pub file: u64,
    /// Epoch of the position, in the log that the writer shares with its readers, at which the file
    /// was removed.
    pub epoch: u64,
    /// Number of the slot in the shared log at which the file was removed, counted from 1 in each
    /// epoch. In an edit, 0 means that the file has been deleted, so the deferred deletion is
    /// dropped from the state.
    pub slot: u64,
}

impl DeferredDeletion {
    /// The deletion of the object of an SST, by a writer that shares no log: it has no positions.
    pub fn of_object(file: u64, epoch: u64) -> Self {
        Self {
            kind: FileKind::Sst,
            file,
            epoch,
            slot: 1,
        }
    }

    /// Says that the file is deleted.
    pub fn done(self) -> Self {
        Self { slot: 0, ..self }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self.kind {
            FileKind::Blob => 1,
            FileKind::Sst | FileKind::Sort => 0,
        });
        for number in [self.file, self.epoch, self.slot] {
            put_u64(out, number);
        }
    }

    /// Decodes a deferred deletion from the front of `field`; `Ok(None)` if it is malformed.
    fn take(field: &mut &[u8]) -> Result<Option<Self>> {
        let (Some(kind), Some(file), Some(epoch), Some(slot)) = (
            take_u8(field),
            take_u64(field),
            take_u64(field),
            take_u64(field),
        ) else {
            return Ok(None);
        };
        let kind = match kind {
            0 => FileKind::Sst,
            1 => FileKind::Blob,
            other => {
                return Err(Error::unsupported(format!(
                    "deletion of file {file} of kind {other} in the manifest"
                )));
            }
        };
        Ok(Some(Self {
            kind,
            file,
            epoch,
            slot,
        }))
    }
}

/// A change of the tree and of the numbers stored with it. It takes effect as a whole or not at
/// all.
///
/// An edit moves a file to another level by removing it and adding it with the same file id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// Added files: level, run number (0 except in L0), metadata of the file.
    pub added: Vec<(u8, u64, FileMeta)>,
    /// Removed files: level, file id.
    pub removed: Vec<(u8, u64)>,
    /// No recovery needs log segments with numbers below this one. The number never decreases.
    pub log_number: Option<u64>,
    /// All file ids that may be in use are below this one. The version set sets the field in each
    /// edit.
    pub next_file_id: Option<u64>,
    /// All run numbers that may be in use are below this one. The version set sets the field in
    /// each edit.
    pub next_run_number: Option<u64>,
    /// All commits up to this seqno are in SSTs of the tree. The seqno never decreases.
    pub last_seqno: Option<Seqno>,
    /// Counters (auto-increment values, row ids): counter id, new value. If the state has a larger
    /// value, or one of a later generation, that value stays.
    pub counters: Vec<(u64, CounterValue)>,
    /// Pairs of a seqno and the wall clock time, in microseconds since 1970, at which this seqno
    /// was the newest.
    pub time_pairs: Vec<(Seqno, u64)>,
    /// Blob files whose blobs were moved. The first id is the one that blob references contain; the
    /// second is the file that now holds the blobs, or 0 if no reference is left.
    pub blobs_moved: Vec<(u64, u64)>,
    /// The database and the epoch that begins with this edit. An edit with another database or an
    /// earlier epoch is refused.
    pub identity: Option<DatabaseIdentity>,
    /// Deferred deletions that begin or, with slot 0, are done.
    pub deferred: Vec<DeferredDeletion>,
    /// The last global transaction id of each replication domain in the log. Once this edit is
    /// durable, segments of the log may be deleted, so the manifest keeps these ids. The version
    /// set fills this in.
    pub gtids: Vec<Gtid>,
}

impl Edit {
    /// Whether the edit changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Encodes the edit as described in `docs/formats/manifest.md`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut field = Vec::new();
        let mut put = |tag: u64, fill: &dyn Fn(&mut Vec<u8>)| {
            field.clear();
            fill(&mut field);
            put_u64(&mut out, tag);
            put_bytes(&mut out, &field);
        };
        for (level, file_id) in &self.removed {
            put(TAG_REMOVED, &|f| {
                f.push(*level);
                put_u64(f, *file_id);
            });
        }
        for (level, run, meta) in &self.added {
            put(TAG_ADDED, &|f| {
                f.push(*level);
                put_u64(f, *run);
                meta.encode(f);
            });
        }
        for (tag, number) in [
            (TAG_LOG_NUMBER, self.log_number),
            (TAG_NEXT_FILE_ID, self.next_file_id),
            (TAG_NEXT_RUN_NUMBER, self.next_run_number),
            (TAG_LAST_SEQNO, self.last_seqno),
        ] {
            if let Some(number) = number {
                put(tag, &|f| put_u64(f, number));
            }
        }
        for (counter, CounterValue { generation, value }) in &self.counters {
            let tag = match generation {
                0 => TAG_COUNTER,
                _ => TAG_COUNTER_SET,
            };
            put(tag, &|f| {
                put_u64(f, *counter);
                if *generation > 0 {
                    put_u64(f, *generation);
                }
                put_u64(f, *value);
            });
        }
        for (tag, pairs) in [
            (TAG_TIME_PAIR, &self.time_pairs),
            (TAG_BLOBS_MOVED, &self.blobs_moved),
        ] {
            for (a, b) in pairs {
                put(tag, &|f| {
                    put_u64(f, *a);
                    put_u64(f, *b);
                });
            }
        }
        if let Some(identity) = &self.identity {
            put(TAG_IDENTITY, &|f| {
                put_u64(f, identity.epoch);
                put_u64(f, identity.after);
                f.extend_from_slice(&identity.database.0);
            });
        }
        for deferred in &self.deferred {
            put(TAG_DEFERRED, &|f| deferred.encode(f));
        }
        for gtid in &self.gtids {
            put(TAG_GTID, &|f| {
                put_u64(f, u64::from(gtid.domain));
                put_u64(f, u64::from(gtid.server));
                put_u64(f, gtid.sequence);
            });
        }
        out
    }

    /// Decodes the payload of a record of manifest `file` that starts at `offset`.
    ///
    /// # Errors
    /// `Corruption` with file and offset if the bytes are malformed, `Unsupported` for an unknown
    /// tag or flag.
    pub fn decode(mut input: &[u8], file: &str, offset: u64) -> Result<Self> {
        let mut edit = Self::default();
        while !input.is_empty() {
            let Some((tag, mut field)) = take_field(&mut input) else {
                return Err(Error::corruption(file, offset, "cut field in an edit"));
            };
            let whole = edit.take(tag, &mut field)?;
            if whole.is_none() || !field.is_empty() {
                let what = format!("malformed field {tag} in an edit");
                return Err(Error::corruption(file, offset, what));
            }
        }
        Ok(edit)
    }

    /// Decodes one field into the edit; `Ok(None)` if it is malformed.
    fn take(&mut self, tag: u64, field: &mut &[u8]) -> Result<Option<()>> {
        match tag {
            TAG_ADDED => {
                let (Some(level), Some(run)) = (take_u8(field), take_u64(field)) else {
                    return Ok(None);
                };
                let meta = FileMeta::decode(field)?;
                return Ok(meta.map(|meta| self.added.push((level, run, meta))));
            }
            TAG_REMOVED => {
                let (Some(level), Some(file_id)) = (take_u8(field), take_u64(field)) else {
                    return Ok(None);
                };
                self.removed.push((level, file_id));
                return Ok(Some(()));
            }
            TAG_COUNTER_SET => {
                let (Some(counter), Some(generation), Some(value)) =
                    (take_u64(field), take_u64(field), take_u64(field))
                else {
                    return Ok(None);
                };
                let value = CounterValue { generation, value };
                self.counters.push((counter, value));
                return Ok((generation > 0).then_some(()));
            }
            TAG_COUNTER | TAG_TIME_PAIR | TAG_BLOBS_MOVED => {
                let (Some(a), Some(b)) = (take_u64(field), take_u64(field)) else {
                    return Ok(None);
                };
                match tag {
                    TAG_COUNTER => self.counters.push((a, b.into())),
                    TAG_TIME_PAIR => self.time_pairs.push((a, b)),
                    _ => self.blobs_moved.push((a, b)),
                }
                return Ok(Some(()));
            }
            TAG_IDENTITY => {
                self.identity = take_identity(field);
                return Ok(self.identity.map(|_| ()));
            }
            TAG_DEFERRED => {
                let deferred = DeferredDeletion::take(field)?;
                return Ok(deferred.map(|deferred| self.deferred.push(deferred)));
            }
            TAG_GTID => {
                let (Some(domain), Some(server), Some(sequence)) =
                    (take_u32(field), take_u32(field), take_u64(field))
                else {
                    return Ok(None);
                };
                self.gtids.push(Gtid {
                    domain,
                    server,
                    sequence,
                });
                return Ok(Some(()));
            }
            _ => {}
        }
        let slot = match tag {
            TAG_LOG_NUMBER => &mut self.log_number,
            TAG_NEXT_FILE_ID => &mut self.next_file_id,
            TAG_NEXT_RUN_NUMBER => &mut self.next_run_number,
            TAG_LAST_SEQNO => &mut self.last_seqno,
            _ => {
                return Err(Error::unsupported(format!(
                    "field {tag} in a manifest edit"
                )));
            }
        };
        *slot = take_u64(field);
        Ok(slot.map(|_| ()))
    }
}

fn take_identity(field: &mut &[u8]) -> Option<DatabaseIdentity> {
    Some(DatabaseIdentity {
        epoch: take_u64(field)?,
        after: take_u64(field)?,
        database: DatabaseId(take_exact(field, 16)?.try_into().ok()?),
    })
}

fn take_field<'a>(input: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    Some((take_u64(input)?, take_bytes(input)?))
}

#[cfg(test)]
mod tests;
