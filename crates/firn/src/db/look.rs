//! A database seen from outside: read without being opened.
//!
//! Opening recovers: it writes a new manifest, removes strays, flushes what the log holds. Whoever
//! wants to know what is there, damage included, must leave all that alone. So nothing is written
//! here, and each part is read by a call of its own: damage in one leaves the others readable.

mod blobs;

pub use blobs::{BlobFileReport, BlobFiles};

use super::recovery::{self, Replayed};
use crate::base::{Error, ErrorKind, Result};
use crate::blob::BlobStore;
use crate::cache::{BlockCache, RowCache};
use crate::catalog::{Counters, Known};
use crate::env::Env;
use crate::memtable::Memtable;
use crate::read::{ReadPoint, Views};
use crate::rowcode::BlobUses;
use crate::store::FileStore;
use crate::version::{
    self, FileHandle, FileSource, Frozen, Loaded, State, Version, parse_manifest_name,
};
use crate::wal::{self, Gtid, LogStart, ReplayEnd};
use crate::write::Changes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Blocks kept in memory while looking.
const CACHE_SIZE: u64 = 64 << 20;

/// Frozen memtables of a replay have at least this size.
const MEMTABLE_SIZE: u64 = 64 << 20;

/// A data directory that no server has open, and none can open meanwhile.
pub struct Look {
    env: Arc<dyn Env>,
    dir: PathBuf,
    source: Arc<FileSource>,
    _lock: Box<dyn Send + Sync>,
}

/// The tree that the manifest describes.
pub struct Tree {
    /// The sum of the manifest's edits.
    pub state: State,
    /// The manifest in force.
    pub manifest_id: u64,
    /// Bytes of a torn write at the manifest's end; recovery drops them.
    pub torn: u64,
    /// The files.
    pub version: Arc<Version>,
}

/// What the log adds to the tree.
pub struct Log {
    /// The commits it holds, as a view of tree and log reads them.
    pub point: ReadPoint,
    /// Prepared transactions without an outcome, by xid.
    pub prepared: BTreeMap<Vec<u8>, Changes>,
    /// What it and the tree refer to in blob files, old versions of rows and prepared transactions included.
    pub blob_uses: BlobUses,
    /// Files that it names and the manifest does not: of commits, and of prepared transactions.
    pub files: Vec<Arc<FileHandle>>,
    /// The last global transaction id of each replication domain, as far as manifest and log tell.
    pub gtids: BTreeMap<u32, Gtid>,
    /// Commits that are not in the files yet.
    pub commits: u64,
    /// Where the log ends.
    pub end: ReplayEnd,
}

impl Look {
    /// Takes the lock of the database in `dir`.
    ///
    /// # Errors
    /// `NotFound` if `dir` holds no database, `Busy` while a server has it open.
    pub fn open(env: Arc<dyn Env>, dir: &Path) -> Result<Self> {
        let names = env.list_dir(dir)?;
        let ours = |name: &String| {
            name == "CURRENT"
                || parse_manifest_name(name).is_some()
                || wal::parse_segment_name(name).is_some()
                || crate::store::parse_file_name(name).is_some()
        };
        if !names.iter().any(ours) {
            let message = format!("{} holds no Firn database", dir.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let lock = env.lock(&dir.join("LOCK"))?;
        let store = FileStore::new(Arc::clone(&env), dir);
        let cache = Arc::new(BlockCache::new(CACHE_SIZE));
        Ok(Self {
            env,
            dir: dir.to_owned(),
            source: FileSource::new(store, cache),
            _lock: lock,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The environment it lies in.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Where files are read from.
    pub fn source(&self) -> &Arc<FileSource> {
        &self.source
    }

    /// Reads the manifest. The files themselves are not touched. A database whose creation was cut
    /// short is an empty one.
    ///
    /// # Errors
    /// `Corruption` if `CURRENT` or the manifest is damaged or missing, or describes an impossible tree.
    pub fn tree(&self) -> Result<Tree> {
        match version::load(&*self.env, &self.dir)? {
            Some(loaded) => self.tree_of(loaded),
            None => Ok(Tree {
                state: State::default(),
                manifest_id: 0,
                torn: 0,
                version: Arc::default(),
            }),
        }
    }

    /// As [`Self::tree`], where `CURRENT` is damaged and the newest manifest is not.
    ///
    /// # Errors
    /// As [`Self::tree`].
    pub fn newest_tree(&self) -> Result<Tree> {
        self.tree_of(version::load_newest(&*self.env, &self.dir)?)
    }

    fn tree_of(&self, loaded: Loaded) -> Result<Tree> {
        let version = Version::of_state(&loaded.state, &self.source);
        match version.check_all() {
            Some(what) => Err(Error::corruption(loaded.reader.name(), 0, what)),
            None => Ok(Tree {
                state: loaded.state,
                manifest_id: loaded.manifest_id,
                torn: loaded.torn,
                version: Arc::new(version),
            }),
        }
    }

    /// Replays the log into memory, on top of `tree`.
    ///
    /// # Errors
    /// `Corruption` of the log.
    pub fn log(&self, tree: &Tree) -> Result<Log> {
        let counters = Counters::default();
        let replayed = recovery::replay(
            &*self.env,
            &self.dir,
            &self.source,
            tree.state.log_number,
            tree.state.last_seqno,
            MEMTABLE_SIZE,
            &counters,
            None,
        )?;
        let files = self.files_named(&replayed);
        Ok(Log {
            point: point_over(&self.source, tree, &replayed),
            files,
            blob_uses: super::blobs::uses_recovered(&tree.version, &replayed)?,
            prepared: replayed.prepared,
            gtids: {
                let mut gtids = tree.state.gtids.clone();
                gtids.extend(replayed.gtids);
                gtids
            },
            commits: replayed.commits,
            end: replayed.end,
        })
    }

    /// Files of large transactions that the log names, as far as it can be read.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn files_left(&self, tree: &Tree) -> Result<Vec<Arc<FileHandle>>> {
        let left = recovery::salvage(
            &*self.env,
            &self.dir,
            &self.source,
            LogStart::At(tree.state.log_number),
            tree.state.last_seqno,
            MEMTABLE_SIZE,
            &Counters::default(),
            &mut |_| {},
        )?;
        Ok(self.files_named(&left))
    }

    fn files_named(&self, replayed: &Replayed) -> Vec<Arc<FileHandle>> {
        let queued = replayed.queue.iter().filter_map(Frozen::run);
        let mut files: Vec<_> = queued.flat_map(|run| run.run().files.clone()).collect();
        for changes in replayed.prepared.values() {
            // No commit yet: any seqno will do to read them.
            let metas = changes.files().iter();
            let metas = metas.map(|f| f.clone().with_external_seqno(0));
            let handle = |meta| FileHandle::new(Arc::new(meta), Arc::clone(&self.source));
            files.extend(metas.map(handle));
        }
        files
    }

    /// A view of the files alone, at their last commit: where the log cannot be read.
    pub fn files_only(&self, tree: &Tree) -> ReadPoint {
        let nothing = Replayed {
            first: 0,
            queue: Vec::new(),
            prepared: BTreeMap::new(),
            runs: BTreeMap::new(),
            names_run: false,
            next_file_id: 0,
            loads: Vec::new(),
            last_seqno: tree.state.last_seqno,
            epoch: None,
            gtids: BTreeMap::new(),
            commits: 0,
            end: ReplayEnd::default(),
        };
        point_over(&self.source, tree, &nothing)
    }

    /// The tables at `point`.
    ///
    /// # Errors
    /// As [`Known::read`].
    pub fn tables(&self, point: &ReadPoint) -> Result<Known> {
        Known::read(point)
    }
}

fn point_over(source: &FileSource, tree: &Tree, replayed: &Replayed) -> ReadPoint {
    let blobs = BlobStore::read_only(source.store().clone(), 0);
    blobs.set_moved(tree.state.blobs_moved.clone());
    let active = Memtable::with_capacity(replayed.queue.len() as u64 + 1, 0, 0);
    // As an open does: an epoch may have begun behind the last commit.
    let after = tree.state.identity.map_or(0, |identity| identity.after);
    let views = Views::new(
        Arc::new(active),
        Arc::clone(&tree.version),
        Arc::new(AtomicU64::new(replayed.last_seqno.max(after))),
        Arc::new(RowCache::new(0)),
        Arc::new(blobs),
    );
    views.recovered(&replayed.queue);
    views.latest()
}
