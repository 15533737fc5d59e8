//! Recovery: replays the commits of the log that are not in the files yet into memtables.
//!
//! The result is a list of flushables in the order of their commits: memtables, and the ingested
//! runs of large transactions. The caller flushes it in order. A record counts only if its seqno is
//! above the last flushed one. A transaction counts at its commit record, wherever its prepare
//! record lies: so a memtable needs the log from the earliest prepare record of its commits on, and
//! a prepared transaction from its own record and the one that names its server run.

use crate::backup::RecoveryPoint;
use crate::base::epoch::{EPOCH_MAX, end_of_ids, end_of_names, first_id};
use crate::base::key::SEQNO_COMMITTED_MAX;
use crate::base::{CounterValue, Error, InternalKey, Result, Seqno};
use crate::binlog::{BinlogFile, ServerRun};
use crate::catalog::Counters;
use crate::env::Env;
use crate::memtable::Memtable;
use crate::version::{FileMeta, FileSource, Flushable, IngestedRun, VersionSet};
use crate::wal::{self, Gtid, LogStart, Record, ReplayEnd, SegmentId, ServerRunName};
use crate::write::{Batch, Changes};
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The log's contents beyond the files.
pub struct Replayed {
    /// The commits that recovery has read from the log and that are not in the tree yet, oldest
    /// first: as memtables, and as ingested runs.
    pub queue: Vec<Flushable>,
    /// Prepared transactions without an outcome, by xid.
    pub prepared: BTreeMap<Vec<u8>, Arc<Changes>>,
    /// The server runs that prepared the transactions in `prepared`, by xid, as far as the log
    /// names the runs.
    pub runs: BTreeMap<Vec<u8>, Arc<ServerRun>>,
    /// Whether the server run is known at the end of the log. If so, a prepare record that follows
    /// would belong to that server run.
    pub names_run: bool,
    /// The first segment of the replay.
    pub first: SegmentId,
    /// An id above every file id that the log names, whether or not the files exist.
    pub next_file_id: u64,
    /// The seqno of the last commit, in the files or in the log.
    pub last_seqno: Seqno,
    /// Files of loads that the manifest lacks, by load. Only a recovery to a point finds any.
    pub loads: Vec<Vec<FileMeta>>,
    /// The last epoch that begins in the log, and the seqno above which its commits lie.
    pub epoch: Option<(u64, Seqno)>,
    /// The last global transaction id of each replication domain.
    pub gtids: BTreeMap<u32, Gtid>,
    /// Number of commits replayed.
    pub commits: u64,
    /// The end of the log.
    pub end: ReplayEnd,
}

struct Replay<'a> {
    source: &'a Arc<FileSource>,
    queue: Vec<Flushable>,
    /// Prepared transactions by xid, each with the first segment that it needs: that of its prepare
    /// record, or an earlier one that names its server run.
    prepared: BTreeMap<Vec<u8>, (SegmentId, Changes)>,
    /// The current server run, and the segment whose record names it.
    run: Option<(SegmentId, Arc<ServerRun>)>,
    /// The server run of each prepared transaction, by xid.
    runs: BTreeMap<Vec<u8>, Arc<ServerRun>>,
    next_file_id: u64,
    loads: Vec<Vec<FileMeta>>,
    flushed_seqno: Seqno,
    last_seqno: Seqno,
    epoch: Option<(u64, Seqno)>,
    gtids: BTreeMap<u32, Gtid>,
    commits: u64,
    memtable_size: u64,
    counters: &'a Counters,
    point: Option<RecoveryPoint>,
    /// The segment of the last record read, and how many of its records were read so far.
    seen: (SegmentId, u64),
}

/// Replays the segments from `first` on. Commits up to `flushed_seqno` are in the files already.
/// `source` reads the files that the log names.
///
/// `progress` is told how far the replay is. With a `point`, replay ends there. Segments may then
/// be archived copies that end behind their last group. The files of loads that segments after the
/// backup name are added to the result, since the backup's manifest lacks them.
///
/// # Errors
/// `Corruption` of the log, or of a record's contents; `Unsupported` for a newer format or for
/// bytes of a blob file; `Io`.
#[allow(clippy::too_many_arguments)] // The log's place, the state of the files, and the end.
pub fn replay(
    env: &dyn Env,
    dir: &Path,
    source: &Arc<FileSource>,
    first: SegmentId,
    flushed_seqno: Seqno,
    memtable_size: u64,
    counters: &Counters,
    point: Option<RecoveryPoint>,
    progress: &mut wal::Progress<'_>,
) -> Result<Replayed> {
    let mut state = Replay::new(source, flushed_seqno, memtable_size, counters);
    state.point = point;
    let mut apply = |segment: SegmentId, record: Record<'_>| state.apply(segment, record);
    let end = match point {
        None => wal::replay_reporting(env, dir, first, &mut apply, progress)?,
        Some(point) => wal::replay_archived(env, dir, first, point.segment, &mut apply)?,
    };
    Ok(Replayed {
        first,
        ..state.end(end)
    })
}

/// As [`replay`], for a damaged log. If `start` is unknown, the last flushed seqno is unknown, too,
/// and every commit is replayed. Calls `lost` with each loss.
///
/// # Errors
/// `Io`; `Unsupported` for a newer format. Damage is no error.
#[allow(clippy::too_many_arguments)] // As for `replay`, and a sink for losses.
pub fn salvage(
    env: &dyn Env,
    dir: &Path,
    source: &Arc<FileSource>,
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
    let mut state = Replay::new(source, flushed_seqno, memtable_size, counters);
    let mut damaged = Vec::new();
    // The records that were lost may have named another server run. So behind a hole in the log the
    // server run is unknown.
    let run_is_unknown = Cell::new(false);
    wal::salvage_log(
        env,
        dir,
        start,
        &mut |segment, record| {
            if run_is_unknown.take() {
                state.run = None;
            }
            match state.apply(segment, record) {
                Err(error) if error.is_corruption() => {
                    damaged.push(error);
                    state.run = None;
                    Ok(())
                }
                applied => applied,
            }
        },
        &mut |error| {
            run_is_unknown.set(true);
            lost(error);
        },
    )?;
    damaged.into_iter().for_each(lost);
    Ok(state.end(ReplayEnd::default()))
}

/// A segment id of the current epoch, above those of all segments ever used. Files with the names
/// of later epochs' segments are ignored if they were never used.
///
/// # Errors
/// `Corruption` if a later epoch has used a segment; those of the file system.
pub fn new_segment(
    env: &dyn Env,
    dir: &Path,
    versions: &VersionSet,
    replayed: &Replayed,
) -> Result<SegmentId> {
    let epoch = versions.identity().epoch;
    let (end, found) = (end_of_names(epoch), &replayed.end);
    if found.max_segment_id_used >= end {
        let name = wal::segment_name(found.max_segment_id_used);
        let what = format!("the segment is of no epoch up to {epoch}, and that is the last one");
        return Err(Error::corruption(name, 0, what));
    }
    let seen = match found.max_segment_id_seen {
        seen if seen < end => seen,
        _ => wal::largest_below(env, dir, end)?,
    };
    let used = versions.log_number().max(seen);
    Ok((used + 1).max(first_id(epoch)))
}

/// Takes over an epoch that began in the log and that the manifest does not know yet. Later
/// commits, files and segments belong to it.
///
/// # Errors
/// `Corruption` if the log names files beyond the epoch; those of writing the manifest (`NoSpace`,
/// `Poisoned`, `Io`).
pub fn take_epoch(versions: &VersionSet, replayed: &mut Replayed) -> Result<()> {
    if let Some((epoch, after)) = replayed.epoch
        && epoch > versions.identity().epoch
    {
        versions.begin_epoch(epoch, after)?;
    }
    let identity = versions.identity();
    replayed.last_seqno = replayed.last_seqno.max(identity.after);
    if replayed.next_file_id >= end_of_ids(identity.epoch) {
        let what = format!("it names files beyond epoch {}", identity.epoch);
        return Err(Error::corruption("the log", 0, what));
    }
    Ok(())
}

impl Replayed {
    /// Ids of the files that the log needs.
    pub fn named_files(&self) -> HashSet<u64> {
        let queued = self.queue.iter().filter_map(Flushable::run);
        let queued = queued.flat_map(|run| &run.run().files);
        let prepared = self.prepared.values().flat_map(|changes| changes.files());
        let prepared = prepared.map(|file| file.file_id);
        let loaded = self.loads.iter().flatten().map(|file| file.file_id);
        let queued = queued.map(|file| file.file_id);
        queued.chain(prepared).chain(loaded).collect()
    }
}

impl<'a> Replay<'a> {
    fn new(
        source: &'a Arc<FileSource>,
        flushed_seqno: Seqno,
        memtable_size: u64,
        counters: &'a Counters,
    ) -> Self {
        Self {
            source,
            queue: Vec::new(),
            prepared: BTreeMap::new(),
            run: None,
            runs: BTreeMap::new(),
            next_file_id: 0,
            loads: Vec::new(),
            flushed_seqno,
            last_seqno: flushed_seqno,
            epoch: None,
            gtids: BTreeMap::new(),
            commits: 0,
            memtable_size,
            counters,
            point: None,
            seen: (0, 0),
        }
    }

    /// Counts the record that was read, and returns whether it must be replayed: always, or in a
    /// recovery to a point only if it lies before the point.
    fn counts(&mut self, segment: SegmentId) -> bool {
        if self.seen.0 != segment {
            self.seen = (segment, 0);
        }
        self.seen.1 += 1;
        self.point
            .is_none_or(|point| self.seen <= (point.segment, point.records))
    }

    fn end(mut self, end: ReplayEnd) -> Replayed {
        self.runs.retain(|xid, _| self.prepared.contains_key(xid));
        let prepared = self.prepared.into_iter();
        Replayed {
            first: 0,
            queue: self.queue,
            prepared: prepared
                .map(|(xid, (_, changes))| (xid, Arc::new(changes)))
                .collect(),
            runs: self.runs,
            names_run: self.run.is_some(),
            next_file_id: self.next_file_id,
            loads: self.loads,
            last_seqno: self.last_seqno,
            epoch: self.epoch,
            gtids: self.gtids,
            commits: self.commits,
            end,
        }
    }

    fn apply(&mut self, segment: SegmentId, record: Record<'_>) -> Result<()> {
        if !self.counts(segment) {
            return Ok(());
        }
        match record {
            Record::Batch { seqno, batch, .. } | Record::SchemaChange { seqno, batch, .. } => {
                self.insert(segment, seqno, &Batch::from_bytes(batch.to_vec())?)
            }
            Record::Prepare { xid, batch } => {
                let batch = Batch::from_bytes(batch.to_vec())?;
                self.prepare(segment, xid, Changes::Batch(batch));
                Ok(())
            }
            Record::PrepareRun { xid, files, info } => {
                let changes = Changes::Run(self.files(segment, &files, info)?);
                self.prepare(segment, xid, changes);
                Ok(())
            }
            Record::RunIngest { seqno, files, info } => {
                let files = self.files(segment, &files, info)?;
                self.queue_run(seqno, files, segment);
                Ok(())
            }
            Record::Commit { xid, seqno, .. } => match self.prepared.remove(xid) {
                Some((prepared_in, Changes::Batch(batch))) => {
                    self.insert(segment, seqno, &batch)?;
                    // The changes of this transaction are in its prepare record, so the log must
                    // keep that record until this memtable is flushed. Otherwise a crash between
                    // the flushes of two recovered memtables would lose the changes: the next
                    // recovery could not find them.
                    if let Some(Flushable::Memtable(memtable)) = self.queue.last() {
                        memtable.lower_min_segment(prepared_in);
                    }
                    Ok(())
                }
                Some((prepared_in, Changes::Run(files))) => {
                    self.queue_run(seqno, files, prepared_in);
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
                self.counters.learn(counter, value.into());
                Ok(())
            }
            Record::CounterSet {
                counter,
                generation,
                value,
            } => {
                let value = CounterValue { generation, value };
                self.counters.learn(counter, value);
                Ok(())
            }
            Record::Load { files, info } => {
                if self
                    .point
                    .is_some_and(|point| segment > point.backup_segment)
                {
                    let files = self.files(segment, &files, info)?;
                    self.loads.push(files);
                }
                Ok(())
            }
            Record::Clock { .. } => Ok(()),
            Record::ServerRun { run } => {
                self.run = server_run(run).map(|run| (segment, Arc::new(run)));
                Ok(())
            }
            Record::Gtid { gtid, .. } => {
                self.gtids.insert(gtid.domain, gtid);
                Ok(())
            }
            Record::BlobSpan { file, .. } => Err(Error::unsupported(format_args!(
                "{} holds bytes of blob file {file}, as the log of a shared store does: it cannot be replayed here",
                wal::segment_name(segment)
            ))),
            Record::Epoch { epoch, after } => self.begin_epoch(segment, epoch, after),
        }
    }

    fn prepare(&mut self, segment: SegmentId, xid: &[u8], changes: Changes) {
        let mut needed = segment;
        match &self.run {
            Some((named_in, run)) => {
                // Keep the segment whose record names the server run: otherwise a later recovery
                // would not know which run prepared the transaction.
                needed = needed.min(*named_in);
                self.runs.insert(xid.to_vec(), Arc::clone(run));
            }
            None => drop(self.runs.remove(xid)),
        }
        self.prepared.insert(xid.to_vec(), (needed, changes));
    }

    /// Begins an epoch. All later commits get seqnos above `after`, so that no commit of this epoch
    /// has a seqno that an earlier epoch may have used.
    fn begin_epoch(&mut self, segment: SegmentId, epoch: u64, after: Seqno) -> Result<()> {
        let (last, _) = self.epoch.unwrap_or_default();
        if epoch > EPOCH_MAX || epoch < last || after > SEQNO_COMMITTED_MAX {
            let name = wal::segment_name(segment);
            let what = format_args!("epoch {epoch} begins behind epoch {last}");
            return Err(Error::corruption(name, 0, what));
        }
        self.epoch = Some((epoch, after));
        self.last_seqno = self.last_seqno.max(after);
        Ok(())
    }

    /// Decodes the metadata of the files that a record names, and checks that they have the ids
    /// `ids`.
    fn files(&mut self, segment: SegmentId, ids: &[u64], info: &[u8]) -> Result<Vec<FileMeta>> {
        let files = FileMeta::decode_all(info)?;
        let files = files.filter(|files| files.iter().map(|f| f.file_id).eq(ids.iter().copied()));
        let Some(files) = files else {
            let name = wal::segment_name(segment);
            return Err(Error::corruption(name, 0, "files that a record names"));
        };
        files.iter().try_for_each(FileMeta::check_local)?;
        let next = ids.iter().map(|id| id.saturating_add(1)).max();
        self.next_file_id = self.next_file_id.max(next.unwrap_or(0));
        Ok(files)
    }

    /// Adds the files of a large transaction to the queue as an ingested run, as its commit did.
    fn queue_run(&mut self, seqno: Seqno, files: Vec<FileMeta>, min_segment: SegmentId) {
        if seqno <= self.flushed_seqno {
            return;
        }
        let id = self.queue.len() as u64 + 1;
        let run = IngestedRun::new(id, seqno, files, self.source, min_segment, 0);
        self.queue.push(Flushable::Run(Arc::new(run)));
        self.last_seqno = self.last_seqno.max(seqno);
        self.commits += 1;
    }

    fn insert(&mut self, segment: SegmentId, seqno: Seqno, batch: &Batch) -> Result<()> {
        if seqno <= self.flushed_seqno {
            return Ok(());
        }
        let newest = self.queue.last().and_then(Flushable::memtable);
        let memtable = match newest.filter(|m| m.size_bytes() < self.memtable_size) {
            Some(memtable) => Arc::clone(memtable),
            None => {
                // Memtable ids begin at 1. After recovery the pipeline goes on with larger ids.
                let id = self.queue.len() as u64 + 1;
                let memtable = Memtable::with_capacity(id, segment, self.memtable_size);
                let memtable = Arc::new(memtable);
                self.queue.push(Flushable::Memtable(Arc::clone(&memtable)));
                memtable
            }
        };
        self.last_seqno = self.last_seqno.max(seqno);
        self.commits += 1;
        memtable.set_last_commit(seqno);
        let mut inserter = memtable.inserter();
        batch.for_each(|entry| {
            inserter.insert(
                InternalKey::new(entry.user_key, seqno, entry.kind),
                entry.value,
            );
        })
    }
}

fn server_run(run: ServerRunName<'_>) -> Option<ServerRun> {
    match run {
        ServerRunName::Unknown => None,
        ServerRunName::NoBinlog => Some(ServerRun::NoBinlog),
        ServerRunName::Binlog {
            path,
            created,
            server_id,
        } => Some(ServerRun::Binlog(BinlogFile {
            path: PathBuf::from(OsStr::from_bytes(path)),
            created,
            server_id,
        })),
    }
}
