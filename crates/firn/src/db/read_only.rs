//! Reads a data directory from outside, without opening the database.
//!
//! Opening recovers: it writes a new manifest, removes files that nothing names, and flushes the
//! replayed memtables. An inspection must change nothing, so that damage stays as it is. So this
//! module writes nothing. It has a function for each part (manifest, log, catalog, blob files), so
//! that damage in one part leaves the others readable.

mod blob_files;

pub use blob_files::{BlobFileReport, BlobFilesReport};

use super::recovery::{self, Replayed};
use crate::base::blob_ref::BlobUses;
use crate::base::{Error, ErrorKind, Result};
use crate::blob::BlobStore;
use crate::cache::{BlockCache, RowCache};
use crate::catalog::{CatalogState, Counters};
use crate::env::Env;
use crate::memtable::Memtable;
use crate::read::{ReadPoint, SuperVersions};
use crate::store::{FileStore, RemoteFiles};
use crate::version::{
    self, FileHandle, FileSource, Flushable, LoadedManifest, ManifestState, Version,
    parse_manifest_name,
};
use crate::wal::{self, Gtid, LogStart, ReplayEnd};
use crate::write::Changes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Capacity of the block cache, bytes.
const CACHE_SIZE: u64 = 64 << 20;

/// Size at which a replayed memtable is full, bytes.
const MEMTABLE_SIZE: u64 = 64 << 20;

/// A locked data directory: no server has it open, and none can open it meanwhile.
pub struct ReadOnlyDb {
    env: Arc<dyn Env>,
    dir: PathBuf,
    source: Arc<FileSource>,
    _lock: Box<dyn Send + Sync>,
}

/// The tree that the manifest describes.
pub struct ReadOnlyTree {
    /// The sum of the manifest's edits.
    pub state: ManifestState,
    /// Id of the current manifest.
    pub manifest_id: u64,
    /// Bytes of a torn write at the end of the manifest; recovery drops them.
    pub torn: u64,
    /// The files of the tree.
    pub version: Arc<Version>,
}

/// The log, replayed over the tree of files.
pub struct ReadOnlyLog {
    /// A read point that shows all commits of the tree and the log.
    pub point: ReadPoint,
    /// Prepared transactions without an outcome, by xid.
    pub prepared: BTreeMap<Vec<u8>, Arc<Changes>>,
    /// Blob references of tree, log and prepared transactions, old versions of rows included.
    pub blob_uses: BlobUses,
    /// The files of large transactions, committed or prepared, that the log names and the manifest
    /// does not name yet.
    pub files: Vec<Arc<FileHandle>>,
    /// The last global transaction id of each replication domain, as far as manifest and log tell.
    pub gtids: BTreeMap<u32, Gtid>,
    /// Number of commits that are only in the log.
    pub commits: u64,
    /// End of the log.
    pub end: ReplayEnd,
}

impl ReadOnlyDb {
    /// Takes the lock of the database in `dir`.
    ///
    /// # Errors
    /// `NotFound` if `dir` holds no database, `Busy` while a server has it open; `Io`.
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

    /// Lets files be read that are in the object store `remote`.
    #[must_use]
    pub fn with_remote(self, remote: Arc<dyn RemoteFiles>) -> Self {
        let store = self.source.store().clone().with_remote(remote);
        let source = FileSource::new(store, Arc::clone(self.source.cache()));
        Self { source, ..self }
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The environment of the data directory.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Opens the SSTs of the directory and caches their blocks.
    pub fn source(&self) -> &Arc<FileSource> {
        &self.source
    }

    /// Reads the manifest, and no other file. If the creation of the database was interrupted, the
    /// tree is empty.
    ///
    /// # Errors
    /// `Corruption` if `CURRENT` or the manifest is damaged or missing, or describes an impossible
    /// tree; `Unsupported` for a newer format; `Io`.
    pub fn tree(&self) -> Result<ReadOnlyTree> {
        match version::load(&*self.env, &self.dir)? {
            Some(loaded) => self.tree_of(loaded),
            None => Ok(ReadOnlyTree {
                state: ManifestState::default(),
                manifest_id: 0,
                torn: 0,
                version: Arc::default(),
            }),
        }
    }

    /// As [`Self::tree`], from the newest manifest instead of the one that `CURRENT` names. For a
    /// damaged `CURRENT`.
    ///
    /// # Errors
    /// As [`Self::tree`].
    pub fn newest_tree(&self) -> Result<ReadOnlyTree> {
        self.tree_of(version::load_newest_manifest(&*self.env, &self.dir)?)
    }

    fn tree_of(&self, loaded: LoadedManifest) -> Result<ReadOnlyTree> {
        if let (Some(remote), Some(identity)) =
            (self.source.store().remote(), loaded.state.identity)
        {
            remote.belongs_to(identity.database, true);
        }
        let version = Version::of_state(&loaded.state, &self.source);
        match version.check_all() {
            Some(what) => Err(Error::corruption(loaded.reader.name(), 0, what)),
            None => Ok(ReadOnlyTree {
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
    /// `Corruption` of the log; `Unsupported` for a newer format; `Io`.
    pub fn log(&self, tree: &ReadOnlyTree) -> Result<ReadOnlyLog> {
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
            &mut |_, _| {},
        )?;
        let files = self.files_named(&replayed);
        Ok(ReadOnlyLog {
            point: point_over(&self.source, tree, &replayed),
            files,
            blob_uses: super::background::blob_gc::uses_recovered(&tree.version, &replayed)?,
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

    /// The files of large transactions that the log names. Reads a damaged log as far as possible.
    ///
    /// # Errors
    /// `Io`; `Unsupported` for a newer format. Damage of the log is passed over.
    pub fn files_left(&self, tree: &ReadOnlyTree) -> Result<Vec<Arc<FileHandle>>> {
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
        let queued = replayed.queue.iter().filter_map(Flushable::run);
        let mut files: Vec<_> = queued
            .flat_map(|run| run.run().files.span().to_vec())
            .collect();
        for changes in replayed.prepared.values() {
            // The spilled files of a prepared transaction: their entries get a seqno only when the
            // transaction commits. Until then any seqno serves to read them.
            let metas = changes.files().iter();
            let metas = metas.map(|f| f.clone().with_external_seqno(0));
            let handle = |meta| FileHandle::new(Arc::new(meta), Arc::clone(&self.source));
            files.extend(metas.map(handle));
        }
        files
    }

    /// A read point that shows the files without the log, at their last commit. For use if the log
    /// cannot be read.
    pub fn files_only(&self, tree: &ReadOnlyTree) -> ReadPoint {
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
    /// Those of [`CatalogState::read`].
    pub fn tables(&self, point: &ReadPoint) -> Result<CatalogState> {
        CatalogState::read(point)
    }
}

fn point_over(source: &FileSource, tree: &ReadOnlyTree, replayed: &Replayed) -> ReadPoint {
    let blobs = BlobStore::read_only(source.store().clone(), 0);
    blobs.set_moved(tree.state.blobs_moved.clone());
    let active = Memtable::with_capacity(replayed.queue.len() as u64 + 1, 0, 0);
    // If the current epoch has no commit yet, its seqnos begin above `after`, which is larger than
    // the last seqno. Read at `after` then, as an opened database does.
    let after = tree.state.identity.map_or(0, |identity| identity.after);
    let super_versions = SuperVersions::new(
        Arc::new(active),
        Arc::clone(&tree.version),
        Arc::new(AtomicU64::new(replayed.last_seqno.max(after))),
        Arc::new(RowCache::new(0)),
        Arc::new(blobs),
    );
    super_versions.recovered(&replayed.queue);
    super_versions.latest()
}
