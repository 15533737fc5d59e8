//! Test helpers: versions without files, sorted sources, and a version set with real files.

use super::{CacheHandover, JobContext, RateLimiter};
use crate::base::event_listener::Silent;
use crate::base::health::Health;
use crate::base::key::{compare, index_id_of};
use crate::base::options::Options;
use crate::base::prefix_extractor::{NoPrefixExtractors, PrefixExtractors};
use crate::base::{InternalIterator, InternalKey, Kind, Result, Seqno, Value};
use crate::env::{AlignedBuf, BLOCK, Env, PosixEnv, ReadClass};
use crate::sst::{IndexStats, SstBlockCache};
use crate::store::{FileKind, FileStore, file_name};
use crate::version::{
    Edit, FileLocation, FileMeta, FileSource, ManifestState, Version, VersionSet, VersionSetContext,
};
use std::sync::Arc;

/// User key number `n` of an index.
pub(super) fn user_key(index: u32, n: u64) -> Vec<u8> {
    let mut key = index.to_be_bytes().to_vec();
    key.extend_from_slice(&n.to_be_bytes());
    key
}

/// A source whose files cannot be opened.
pub(super) fn no_files() -> Arc<FileSource> {
    let store = FileStore::new(Arc::new(PosixEnv::new()), "/nonexistent");
    FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20)))
}

/// A test entry: user key, seqno, kind, value. The value is the seqno of the write, which survives
/// the zeroing of the entry's seqno.
pub(super) type Entry = (Vec<u8>, Seqno, Kind, [u8; 8]);

/// The entry that a commit writes.
pub(super) fn entry(key: Vec<u8>, seqno: Seqno, kind: Kind) -> Entry {
    (key, seqno, kind, seqno.to_le_bytes())
}

/// Metadata of a file with these entries.
pub(super) fn meta_of(file_id: u64, entries: &[Entry], size: u64, at_rest: bool) -> FileMeta {
    let mut per_index: Vec<IndexStats> = Vec::new();
    for (key, _, kind, _) in entries {
        let index = index_id_of(key).unwrap();
        if per_index.last().is_none_or(|s| s.index != index) {
            per_index.push(IndexStats {
                index,
                ..IndexStats::default()
            });
        }
        let stats = per_index.last_mut().unwrap();
        stats.entries += 1;
        stats.deletes += u64::from(!kind.is_put());
    }
    FileMeta {
        file_id,
        size,
        checksum: 0,
        smallest: entries[0].0.clone(),
        largest: entries[entries.len() - 1].0.clone(),
        min_seqno: entries.iter().map(|e| e.1).min().unwrap(),
        max_seqno: entries.iter().map(|e| e.1).max().unwrap(),
        entries: entries.len() as u64,
        deletes: per_index.iter().map(|s| s.deletes).sum(),
        dense_deletes: 0,
        superseded: entries.windows(2).filter(|p| p[0].0 == p[1].0).count() as u64,
        raw_bytes: size,
        at_rest,
        external_seqno: None,
        per_index,
        blobs: Vec::new(),
        location: FileLocation::Local,
        tail_len: 0,
    }
}

/// A version whose files are given as (level, run, id, smallest key, largest key, size), all of
/// index 1.
pub(super) fn version_of(files: &[(u8, u64, u64, u64, u64, u64)]) -> Version {
    let mut edit = Edit::default();
    for &(level, run, id, from, to, size) in files {
        let mut entries = vec![entry(user_key(1, from), 5, Kind::Put)];
        if from != to {
            entries.push(entry(user_key(1, to), 6, Kind::Put));
        }
        edit.added
            .push((level, run, meta_of(id, &entries, size, level == 6)));
    }
    let mut state = ManifestState::default();
    assert_eq!(state.check_edit(&edit), None);
    state.apply(&edit);
    let version = Version::of_state(&state, &no_files());
    assert_eq!(version.check_all(), None);
    version
}

/// A source over sorted entries.
pub(super) struct VecIter {
    entries: Vec<Entry>,
    at: Option<usize>,
}

impl VecIter {
    pub(super) fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
        Self { entries, at: None }
    }

    fn to(&mut self, at: Option<usize>) -> Result<bool> {
        self.at = at.filter(|&at| at < self.entries.len());
        Ok(self.at.is_some())
    }
}

impl InternalIterator for VecIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.to(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.to(self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        let before = |e: &Entry| compare(&e.0, e.1, user_key, seqno).is_lt();
        self.to(Some(self.entries.partition_point(before)))
    }
    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        let after = self.entries.partition_point(|e| e.0.as_slice() < user_key);
        self.to(after.checked_sub(1))
    }
    fn next(&mut self) -> Result<bool> {
        self.to(self.at.map(|at| at + 1))
    }
    fn prev(&mut self) -> Result<bool> {
        self.to(self.at.and_then(|at| at.checked_sub(1)))
    }
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> InternalKey<'_> {
        let (key, seqno, kind, _) = &self.entries[self.at.unwrap()];
        InternalKey::new(key, *seqno, *kind)
    }
    fn value(&self) -> Value<'_> {
        match &self.entries[self.at.unwrap()] {
            (_, _, Kind::Delete, _) => Value::EMPTY,
            (.., wrote) => Value::whole(wrote),
        }
    }
}

/// A version set with real files in a temporary directory.
pub(super) struct Db {
    dir: tempfile::TempDir,
    pub(super) versions: VersionSet,
    pub(super) options: Options,
    pub(super) handover: CacheHandover,
    pub(super) limiter: RateLimiter,
    pub(super) prefix_extractors: Arc<dyn PrefixExtractors>,
}

impl Db {
    pub(super) fn new() -> Self {
        Self::with(|store| store)
    }

    /// A version set whose store `change` has changed.
    pub(super) fn with(change: impl FnOnce(FileStore) -> FileStore) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let env = Arc::new(PosixEnv::new());
        let store = change(FileStore::new(env.clone(), dir.path()));
        let versions = VersionSet::open(VersionSetContext {
            env,
            dir: dir.path().to_path_buf(),
            source: FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20))),
            health: Arc::new(Health::new()),
            listener: Arc::new(Silent),
        });
        let options = Options {
            target_file_size: 16 << 10,
            base_level_size: 64 << 10,
            block_size: 1 << 10,
            ..Options::default()
        };
        Self {
            dir,
            versions: versions.unwrap(),
            limiter: RateLimiter::new(Arc::new(PosixEnv::new()), Arc::clone(&options.mutable)),
            options,
            handover: CacheHandover::default(),
            prefix_extractors: Arc::new(NoPrefixExtractors),
        }
    }

    pub(super) fn context(&self) -> JobContext<'_> {
        JobContext {
            versions: &self.versions,
            options: &self.options,
            handover: &self.handover,
            limiter: &self.limiter,
            prefix_extractors: &self.prefix_extractors,
            in_reserve: false,
        }
    }

    pub(super) fn install_run(&self, files: Vec<FileMeta>) {
        let run = self.versions.new_run_number();
        let added = files.into_iter().map(|meta| (0, run, meta)).collect();
        let edit = Edit {
            added,
            ..Edit::default()
        };
        self.versions.apply(edit).unwrap();
    }

    /// All entries of all files, sorted.
    pub(super) fn scan(&self) -> Vec<Entry> {
        let mut all = Vec::new();
        for (_, file) in self.versions.current().files() {
            let mut iter = file.reader().unwrap().iter(ReadClass::Verify, false);
            let mut on = iter.seek_to_first().unwrap();
            while on {
                let key = iter.key();
                let wrote = iter.value().head.try_into().unwrap_or_default();
                all.push((key.user_key.to_vec(), key.seqno, key.kind, wrote));
                on = iter.next().unwrap();
            }
        }
        all.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
        all
    }

    /// Flips a bit in the first block of a file.
    pub(super) fn damage(&self, file_id: u64) {
        let path = self.dir.path().join(file_name(FileKind::Sst, file_id));
        let env = PosixEnv::new();
        let file = env.open(&path).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(ReadClass::Verify, 0, &mut bytes)
            .unwrap();
        bytes[100] ^= 4;
        let log = env.open_log(&path, false, false).unwrap();
        let mut block = AlignedBuf::new();
        block.extend_from_slice(&bytes[..BLOCK]);
        log.write_at(0, &block).unwrap();
    }
}
