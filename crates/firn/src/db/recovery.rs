//! Recovery: the log from where the files end, back into memtables.

use crate::base::{Error, InternalKey, Result, Seqno};
use crate::catalog::Counters;
use crate::env::Env;
use crate::memtable::Memtable;
use crate::wal::{self, LogStart, Record, ReplayEnd, SegmentId};
use crate::write::Batch;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// What the log held beyond the files.
pub struct Replayed {
    /// Its commits, oldest memtable first.
    pub memtables: Vec<Arc<Memtable>>,
    /// Prepared transactions without an outcome, by xid.
    pub prepared: BTreeMap<Vec<u8>, Batch>,
    /// Last commit, of the files or of the log.
    pub last_seqno: Seqno,
    /// Commits replayed.
    pub commits: u64,
    /// Where the log ended.
    pub end: ReplayEnd,
}

struct Replay<'a> {
    memtables: Vec<Arc<Memtable>>,
    /// With the segment of the prepare record.
    prepared: BTreeMap<Vec<u8>, (SegmentId, Batch)>,
    flushed_seqno: Seqno,
    last_seqno: Seqno,
    commits: u64,
    memtable_size: u64,
    counters: &'a Counters,
}

/// Replays the segments from `first` on. Commits up to `flushed_seqno` are in the files already.
pub fn replay(
    env: &dyn Env,
    dir: &Path,
    first: SegmentId,
    flushed_seqno: Seqno,
    memtable_size: u64,
    counters: &Counters,
) -> Result<Replayed> {
    let mut state = Replay {
        memtables: Vec::new(),
        prepared: BTreeMap::new(),
        flushed_seqno,
        last_seqno: flushed_seqno,
        commits: 0,
        memtable_size,
        counters,
    };
    let end = wal::replay(env, dir, first, &mut |segment, record| {
        state.apply(segment, record)
    })?;
    Ok(Replayed {
        memtables: state.memtables,
        prepared: state
            .prepared
            .into_iter()
            .map(|(xid, (_, batch))| (xid, batch))
            .collect(),
        last_seqno: state.last_seqno,
        commits: state.commits,
        end,
    })
}

/// As [`replay`], for a damaged log. Where it is not known where the log begins, neither is what the
/// files have of it: all of it is replayed. What is missing goes to `lost`.
pub fn salvage(
    env: &dyn Env,
    dir: &Path,
    start: LogStart,
    flushed_seqno: Seqno,
    memtable_size: u64,
    counters: &Counters,
    lost: &mut dyn FnMut(Error),
) -> Result<Replayed> {
    let flushed_seqno = match start {
        LogStart::At(_) => flushed_seqno,
        LogStart::Unknown { .. } => 0,
    };
    let mut state = Replay {
        memtables: Vec::new(),
        prepared: BTreeMap::new(),
        flushed_seqno,
        last_seqno: flushed_seqno,
        commits: 0,
        memtable_size,
        counters,
    };
    let mut damaged = Vec::new();
    wal::salvage(
        env,
        dir,
        start,
        &mut |segment, record| match state.apply(segment, record) {
            Err(error) if error.is_corruption() => {
                damaged.push(error);
                Ok(())
            }
            applied => applied,
        },
        lost,
    )?;
    damaged.into_iter().for_each(lost);
    let prepared = state.prepared.into_iter();
    Ok(Replayed {
        memtables: state.memtables,
        prepared: prepared.map(|(xid, (_, batch))| (xid, batch)).collect(),
        last_seqno: state.last_seqno,
        commits: state.commits,
        end: ReplayEnd::default(),
    })
}

impl Replay<'_> {
    fn apply(&mut self, segment: SegmentId, record: Record<'_>) -> Result<()> {
        match record {
            Record::Batch { seqno, batch, .. } | Record::SchemaChange { seqno, batch, .. } => {
                self.insert(segment, seqno, &Batch::from_bytes(batch.to_vec())?)
            }
            Record::Prepare { xid, batch } => {
                let batch = Batch::from_bytes(batch.to_vec())?;
                self.prepared.insert(xid.to_vec(), (segment, batch));
                Ok(())
            }
            Record::Commit { xid, seqno, .. } => match self.prepared.remove(xid) {
                Some((prepared_in, batch)) => {
                    self.insert(segment, seqno, &batch)?;
                    // Until this memtable is flushed, the prepare record is needed, too: recovery
                    // flushes one memtable after the other, and may be cut off in between.
                    if let Some(memtable) = self.memtables.last() {
                        memtable.lower_min_segment(prepared_in);
                    }
                    Ok(())
                }
                None if seqno <= self.flushed_seqno => Ok(()),
                None => Err(Error::corruption(
                    wal::segment_name(segment),
                    0,
                    format_args!("commit {seqno} of a transaction that was never prepared"),
                )),
            },
            Record::Rollback { xid } => {
                self.prepared.remove(xid);
                Ok(())
            }
            Record::CounterMax { counter, value } => {
                self.counters.raise(counter, value);
                Ok(())
            }
            Record::RunIngest { .. } => Err(Error::unsupported(
                "the log names ingested runs, which this version cannot read",
            )),
        }
    }

    fn insert(&mut self, segment: SegmentId, seqno: Seqno, batch: &Batch) -> Result<()> {
        if seqno <= self.flushed_seqno {
            return Ok(());
        }
        let full = self
            .memtables
            .last()
            .is_none_or(|m| m.size_bytes() >= self.memtable_size);
        if full {
            // Ids below all that the new pipeline hands out.
            let id = self.memtables.len() as u64 + 1;
            let memtable = Memtable::with_capacity(id, segment, self.memtable_size);
            self.memtables.push(Arc::new(memtable));
        }
        let memtable = self.memtables.last().expect("one was just pushed");
        self.last_seqno = self.last_seqno.max(seqno);
        self.commits += 1;
        let mut inserter = memtable.inserter();
        batch.for_each(|entry| {
            inserter.insert(
                InternalKey::new(entry.user_key, seqno, entry.kind),
                entry.value,
            );
        })
    }
}
