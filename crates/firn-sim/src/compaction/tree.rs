//! An LSM tree without files: the real picker, drop rule and splitter over entries in memory.
//!
//! Each file is a `FileMeta` in a real [`Version`] plus a vector of its entries, in the order of
//! keys and of descending seqnos. An entry has a fixed stored size, one for the upper levels and
//! one for the last level. Jobs begin and end in separate calls, so several can be under way at
//! once, and each uses the version and the snapshots that were current when it began.

use firn::base::key::SEQNO_MAX;
use firn::base::options::Options;
use firn::base::{Error, IndexId, InternalKey, Kind, Seqno};
use firn::cache::BlockCache;
use firn::compaction::{
    Backlog, DropDecision, DropReason, DropRule, FlushSplits, Job, LevelTargets, PickerContext,
    RestGoal, RetiredIndexes, RunningJobs, Snapshots, SpaceTracker, Splitter, pick,
};
use firn::env::MemEnv;
use firn::sst::IndexStats;
use firn::store::FileStore;
use firn::version::{
    DamagedFile, Edit, FileLocation, FileMeta, FileSource, LAST_LEVEL, ManifestState, Version,
};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

const LAST: u8 = LAST_LEVEL as u8;

/// A key: index id and number.
pub type Key = (IndexId, u64);

/// A version of a key.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The seqno as stored: 0 once every snapshot sees the entry.
    pub seqno: Seqno,
    /// Whether it is a put; else it is a deletion.
    pub put: bool,
    /// The seqno of the commit, also after `seqno` has become 0.
    pub wrote: Seqno,
}

/// The encoded key; its bytes order as the keys do.
pub fn bytes_of(key: Key) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&key.0.to_be_bytes());
    bytes[4..].copy_from_slice(&key.1.to_be_bytes());
    bytes
}

/// A running job, with the version and the snapshots that were current when the job began.
pub struct Flight {
    /// The job.
    pub job: Job,
    ticket: u64,
    version: Arc<Version>,
    reads: Snapshots,
}

/// The output of a job or flush.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobOutput {
    /// Stored bytes.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Files.
    pub files: u64,
    /// Entries dropped because a newer version of their key shadows them.
    pub shadowed: u64,
}

/// The tree, its entries, and the jobs on it.
pub struct Tree {
    state: ManifestState,
    /// The current version.
    pub version: Arc<Version>,
    source: Arc<FileSource>,
    /// Entries by file id.
    data: HashMap<u64, Vec<Entry>>,
    /// The newest commit.
    pub seqno: Seqno,
    /// Seqnos of the live snapshots. Reads at the newest commit need none.
    pub snapshots: Vec<Seqno>,
    /// Dropped indexes, with the seqno of the drop.
    pub retired: RetiredIndexes,
    running: RunningJobs,
    /// Sizes and thresholds.
    pub options: Options,
    /// Stored bytes of an entry in the upper levels and in the last level.
    pub entry_bytes: (u64, u64),
    /// Stored bytes that flushes wrote.
    pub flushed: u64,
    /// Stored bytes that compactions wrote.
    pub compacted: u64,
}

impl Tree {
    /// An empty tree.
    pub fn new(options: Options, entry_bytes: (u64, u64)) -> Self {
        let store = FileStore::new(Arc::new(MemEnv::new()), "/none");
        Self {
            state: ManifestState::default(),
            version: Arc::default(),
            source: FileSource::new(store, Arc::new(BlockCache::new(1 << 20))),
            data: HashMap::new(),
            seqno: 0,
            snapshots: Vec::new(),
            retired: RetiredIndexes::new(),
            running: RunningJobs::default(),
            options,
            entry_bytes,
            flushed: 0,
            compacted: 0,
        }
    }

    fn reads(&self) -> Snapshots {
        Snapshots::new(self.seqno, self.snapshots.iter().copied())
    }

    /// The target sizes of the levels.
    pub fn level_targets(&self) -> LevelTargets {
        LevelTargets::of(&self.version, self.options.base_level_size)
    }

    fn apply(&mut self, edit: &Edit) {
        assert_eq!(self.state.check_edit(edit), None);
        self.version = Arc::new(
            self.version
                .with(edit, &self.source)
                .expect("the files of the version"),
        );
        assert_eq!(self.version.check_all(), None);
        self.state.apply(edit);
        for (_, id) in &edit.removed {
            if !self.state.files.contains_key(id) {
                self.data.remove(id);
            }
        }
    }

    /// Puts `keys` keys of an index into the last level, as a full compaction leaves them.
    pub fn fill(&mut self, index: IndexId, keys: u64) {
        self.seqno += 1;
        let seqno = self.seqno;
        let entry = |n| Entry {
            key: (index, n),
            seqno,
            put: true,
            wrote: seqno,
        };
        let entries: Vec<Entry> = (0..keys).map(entry).collect();
        let stored = keys * self.entry_bytes.1;
        let target = self.options.target_file_size;
        let size =
            LevelTargets::of_size(stored, self.options.base_level_size).file_size(LAST, target);
        let splitter = Splitter::new(size, Vec::new());
        let (version, reads) = (self.version.clone(), self.reads());
        let (metas, _) = self.write(&version, &reads, vec![entries], LAST, splitter);
        self.apply(&Edit {
            added: metas.into_iter().map(|meta| (LAST, 0, meta)).collect(),
            ..Edit::default()
        });
    }

    /// Merges `inputs` and writes the entries that the drop rule keeps into files of `level`. The
    /// drop rule may drop a tombstone if no level of `version` below `level` holds its key.
    fn write(
        &mut self,
        version: &Version,
        reads: &Snapshots,
        inputs: Vec<Vec<Entry>>,
        level: u8,
        mut splitter: Splitter,
    ) -> (Vec<FileMeta>, JobOutput) {
        let mut rule = DropRule::new(reads, &self.retired, level == LAST);
        let below = &version.levels[usize::from(level)..];
        let bytes = match level {
            LAST => self.entry_bytes.1,
            _ => self.entry_bytes.0,
        };
        let mut source: Vec<Entry> = inputs.concat();
        source.sort_by_key(|e| (e.key, Reverse(e.seqno)));
        let mut files: Vec<Vec<Entry>> = Vec::new();
        let mut written = JobOutput::default();
        for entry in source {
            let key = bytes_of(entry.key);
            let kind = if entry.put { Kind::Put } else { Kind::Delete };
            let nothing_below =
                |key: &[u8]| level != 0 && below.iter().all(|run| run.find(key).is_none());
            let asked = InternalKey::new(&key, entry.seqno, kind);
            let seqno = match rule.decide(asked, nothing_below).expect("in order") {
                DropDecision::Keep(seqno) => seqno,
                DropDecision::Drop(why) => {
                    written.shadowed += u64::from(why == DropReason::Shadowed);
                    continue;
                }
            };
            let entry = Entry { seqno, ..entry };
            match files.last_mut() {
                Some(file)
                    if {
                        let last = file[file.len() - 1].key;
                        let size = file.len() as u64 * bytes;
                        last == entry.key || !splitter.should_split(&bytes_of(last), &key, size)
                    } =>
                {
                    file.push(entry);
                }
                _ => files.push(vec![entry]),
            }
        }
        let mut metas = Vec::new();
        for file in files {
            let id = self.state.next_file_id;
            self.state.next_file_id += 1;
            let meta = meta_of(id, &file, bytes, level == LAST);
            written.bytes += meta.size;
            written.entries += meta.entries;
            written.files += 1;
            metas.push(meta);
            self.data.insert(id, file);
        }
        (metas, written)
    }

    /// Commits a batch and flushes it into a new run of L0.
    pub fn flush(&mut self, batch: &[(Key, bool)]) -> JobOutput {
        let mut entries = Vec::with_capacity(batch.len());
        for &(key, put) in batch {
            self.seqno += 1;
            let seqno = self.seqno;
            entries.push(Entry {
                key,
                seqno,
                put,
                wrote: seqno,
            });
        }
        let (version, reads) = (self.version.clone(), self.reads());
        let level_targets = self.level_targets();
        let size = level_targets.file_size(0, self.options.target_file_size);
        let cuts = FlushSplits::of(&version, self.options.mutable.freeze_at(), size);
        let splitter = cuts.splitter(size);
        let (metas, written) = self.write(&version, &reads, vec![entries], 0, splitter);
        self.flushed += written.bytes;
        let run = self.state.next_run_number;
        self.apply(&Edit {
            added: metas.into_iter().map(|meta| (0, run, meta)).collect(),
            ..Edit::default()
        });
        written
    }

    /// Puts a file into quarantine, as a compaction that meets damage in it does. Its entries stay
    /// readable, so that the order of all versions can be checked.
    ///
    /// # Panics
    /// If `level` does not have the file, or if the file is in quarantine already.
    pub fn damage(&mut self, level: u8, file: &Arc<FileMeta>) {
        let damaged = DamagedFile {
            level,
            meta: Arc::clone(file),
            error: Error::corruption("a file", 0, "damaged"),
            unreadable: false,
        };
        let next = self.version.with_quarantine(damaged);
        self.version = Arc::new(next.expect("an undamaged file of the version"));
    }

    /// The next job, if one is due.
    pub fn pick(&self, rest: RestGoal) -> Option<Job> {
        pick(&PickerContext {
            version: &self.version,
            options: &self.options,
            running: &self.running,
            retired: &self.retired,
            oldest_read: self.reads().oldest(),
            reported: &[],
            rest,
        })
    }

    /// Begins the next job.
    pub fn begin(&mut self, rest: RestGoal) -> Option<Flight> {
        let job = self.pick(rest)?;
        Some(Flight {
            ticket: self.running.begin(&job),
            job,
            version: self.version.clone(),
            reads: self.reads(),
        })
    }

    /// Estimates the output of a job: one entry for each distinct key of its input. Older versions
    /// that a snapshot keeps, and entries that the drop rule leaves out, are not considered.
    pub fn foresee(&self, flight: &Flight) -> JobOutput {
        let mut keys: Vec<Key> = flight
            .job
            .files()
            .flat_map(|(_, f)| self.data[&f.file_id].iter().map(|e| e.key))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let bytes = match flight.job.output_level {
            LAST => self.entry_bytes.1,
            _ => self.entry_bytes.0,
        };
        let bytes = bytes * keys.len() as u64;
        let target = self.options.target_file_size;
        let size = self
            .level_targets()
            .file_size(flight.job.output_level, target);
        JobOutput {
            bytes,
            entries: keys.len() as u64,
            files: bytes / size + 1,
            ..JobOutput::default()
        }
    }

    /// Ends a job: writes its output and installs the new version.
    pub fn finish(&mut self, flight: Flight) -> JobOutput {
        let job = &flight.job;
        let mut written = JobOutput::default();
        let edit = job.edit_without_output().unwrap_or_else(|| {
            let files = job.files().map(|(_, f)| self.data[&f.file_id].clone());
            let inputs = files.collect();
            let level = job.output_level;
            let next = flight.version.levels.get(usize::from(level));
            let boundaries = next.into_iter().flat_map(|run| &run.files);
            let boundaries = boundaries.map(|f| f.smallest.clone()).collect();
            let level_targets = LevelTargets::of(&flight.version, self.options.base_level_size);
            let size = level_targets.file_size(level, self.options.target_file_size);
            let splitter =
                Splitter::new(size, boundaries).with_cuts(flight.version.edges(level).to_vec());
            let (metas, wrote) =
                self.write(&flight.version, &flight.reads, inputs, level, splitter);
            written = wrote;
            job.edit(metas)
        });
        self.compacted += written.bytes;
        self.apply(&edit);
        self.running.end(flight.ticket, job);
        written
    }

    /// Reads `key` at seqno `at`, run by run from the newest. Returns the seqno of the commit that
    /// wrote the visible version; `None` if no version is visible or the visible one is a deletion.
    pub fn read(&self, key: Key, at: Seqno) -> Option<Seqno> {
        let bytes = bytes_of(key);
        let runs = self.version.l0.iter().chain(&self.version.levels);
        let files = runs.filter_map(|run| run.find(&bytes));
        let seen = files.filter_map(|f| {
            let entries = &self.data[&f.file_id];
            let from = entries.partition_point(|e| e.key < key);
            let of = entries[from..].iter().take_while(|e| e.key == key);
            { of }.find(|e| e.seqno <= at)
        });
        let newest = { seen }.next()?;
        newest.put.then_some(newest.wrote)
    }

    /// How far compactions lag behind, as the stall gate sees it.
    pub fn backlog(&self) -> Backlog {
        Backlog::of(&self.version, &self.options, &SpaceTracker::default())
    }

    /// Number of files whose key range contains `key`: a point read may have to ask each of them.
    pub fn asked(&self, key: Key) -> usize {
        let bytes = bytes_of(key);
        let runs = self.version.l0.iter().chain(&self.version.levels);
        runs.filter(|run| run.find(&bytes).is_some()).count()
    }
}

fn meta_of(file_id: u64, entries: &[Entry], bytes: u64, at_rest: bool) -> FileMeta {
    let mut per_index: Vec<IndexStats> = Vec::new();
    for entry in entries {
        if per_index.last().is_none_or(|s| s.index != entry.key.0) {
            per_index.push(IndexStats {
                index: entry.key.0,
                ..IndexStats::default()
            });
        }
        if let Some(stats) = per_index.last_mut() {
            stats.entries += 1;
            stats.deletes += u64::from(!entry.put);
            stats.stored_bytes += bytes;
        }
    }
    let size = entries.len() as u64 * bytes;
    let seqnos = || entries.iter().map(|e| e.seqno);
    FileMeta {
        file_id,
        size,
        checksum: 0,
        smallest: bytes_of(entries[0].key).to_vec(),
        largest: bytes_of(entries[entries.len() - 1].key).to_vec(),
        min_seqno: seqnos().min().unwrap_or(SEQNO_MAX),
        max_seqno: seqnos().max().unwrap_or(0),
        entries: entries.len() as u64,
        deletes: per_index.iter().map(|s| s.deletes).sum(),
        dense_deletes: 0,
        superseded: entries.windows(2).filter(|p| p[0].key == p[1].key).count() as u64,
        raw_bytes: size,
        at_rest,
        external_seqno: None,
        per_index,
        blobs: Vec::new(),
        location: FileLocation::Local,
        tail_len: 0,
    }
}
