//! The object store of a database: its files, its cache, its uploads.

use crate::env_files::EnvFiles;
use crate::errors;
use crate::file::RemoteFile;
use crate::identity::{IdentifiedStore, OpenStore};
use crate::names::{SSTS, object_name, parse_object_name};
use crate::owner::OwnerFile;
use crate::pieces::Pieces;
use firn::base::epoch::DatabaseId;
use firn::base::{Error, ErrorKind, Result};
use firn::env::{Env, ReadClass, ReadFile};
use firn::store::{FileId, FileKind, RemoteFiles, RemoteSst, file_name};
use firn_objects::{
    CacheStats, Clock, Deadlines, Ended, FileCache, FileTraits, Files, HealthStats, Jobs,
    ObjectStore, Outcome, Retrying, Upload, UploadStats, Uploads,
};
use openssl::sha::Sha256;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// How often an upload that is waited for looks whether the database stops.
const LOOK: Duration = Duration::from_millis(100);

/// A local file is read in pieces of this size, bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// What a cold store is made of.
pub struct ColdStoreParts {
    /// How errors and reports call the store: its URL.
    pub name: String,
    /// Opens the store, which makes each request once.
    pub store: OpenStore,
    /// The file that says whether the store belongs to this directory.
    pub owner_file: OwnerFile,
    /// The clock of retries.
    pub clock: Arc<dyn Clock>,
    /// How long requests are tried again.
    pub deadlines: Deadlines,
    /// The environment of the database, which has the files to upload.
    pub env: Arc<dyn Env>,
    /// Files of the cache.
    pub cache_files: Arc<dyn Files>,
    /// Directory of the cache, which nobody else uses; created if missing.
    pub cache_dir: PathBuf,
    /// Bytes that the cache may keep.
    pub cache_bytes: u64,
    /// Threads of reads ahead.
    pub read_jobs: Arc<dyn Jobs>,
    /// Threads of uploads.
    pub upload_jobs: Arc<dyn Jobs>,
}

/// Figures of a cold store.
#[derive(Debug, Clone)]
pub struct ColdStoreStats {
    /// The file cache.
    pub cache: CacheStats,
    /// The uploads.
    pub uploads: UploadStats,
    /// The store.
    pub health: HealthStats,
}

/// See the module.
pub struct ColdStore {
    name: Arc<str>,
    identified: Arc<IdentifiedStore>,
    store: Retrying,
    env: Arc<dyn Env>,
    cache: FileCache,
    uploads: Uploads,
    pieces: Arc<Pieces>,
}

impl ColdStore {
    /// Opens the cache. Asks nothing of the store.
    ///
    /// # Errors
    /// `Io` of the cache's directory.
    pub fn open(parts: ColdStoreParts) -> Result<Arc<Self>> {
        let local = |error: &firn_objects::Error| {
            Error::new(
                ErrorKind::Io { os_errno: 0 },
                format!("the cache of files of the object store: {error}"),
            )
        };
        parts
            .cache_files
            .create_directory(&parts.cache_dir)
            .map_err(|error| Error::io(&error, parts.cache_dir.display()))?;
        let identified = IdentifiedStore::new(parts.store, parts.owner_file, &*parts.clock);
        let identified = Arc::new(identified);
        let store: Arc<dyn ObjectStore> = Arc::<IdentifiedStore>::clone(&identified);
        let store = Retrying::new(store, Arc::clone(&parts.clock), parts.deadlines);
        let cache = FileCache::open(
            parts.cache_dir,
            parts.cache_bytes,
            parts.cache_files,
            Arc::new(store.clone()),
            parts.read_jobs,
        );
        let files = Arc::new(EnvFiles(Arc::clone(&parts.env)));
        let uploads = Uploads::new(&store, files, parts.clock, parts.upload_jobs);
        Ok(Arc::new(Self {
            name: parts.name.into(),
            identified,
            store,
            env: parts.env,
            cache: cache.map_err(|error| local(&error))?,
            uploads,
            pieces: Arc::default(),
        }))
    }

    /// Changes how many bytes the cache may keep.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.cache.set_bytes_max(bytes);
    }

    /// Figures.
    pub fn stats(&self) -> ColdStoreStats {
        ColdStoreStats {
            cache: self.cache.stats(),
            uploads: self.uploads.stats(),
            health: self.store.stats(),
        }
    }

    fn failed(&self, error: &firn_objects::Error) -> Error {
        errors::of_request(&self.name, error)
    }

    /// Waits for the end of an upload.
    fn ended(&self, name: &str, stopping: &AtomicBool, upload: Upload) -> Result<[u8; 32]> {
        let ticket = self.uploads.enqueue(upload);
        let ticket = ticket.map_err(|error| self.failed(&error))?;
        while !self.uploads.wait_for(ticket, LOOK) {
            if stopping.load(Ordering::Relaxed) {
                self.uploads.abort(ticket);
                return Err(Error::new(ErrorKind::Interrupted, "the database stops"));
            }
        }
        let mut ended = self.uploads.take_ended().into_iter();
        match ended.rfind(|ended| ended.ticket == ticket) {
            Some(Ended {
                outcome: Outcome::Stored { sha256 },
                ..
            }) => Ok(sha256),
            Some(Ended {
                outcome: Outcome::Failed(error),
                ..
            }) => {
                let what = format!("{name} cannot be uploaded: {error}");
                Err(Error::new(ErrorKind::Io { os_errno: 0 }, what))
            }
            _ => {
                let what = format!("the upload of {name} was aborted");
                Err(Error::new(ErrorKind::Interrupted, what))
            }
        }
    }

    /// The two checksums of a local file: that of the store and that of the manifest.
    fn sums(&self, path: &Path, bytes: u64) -> Result<([u8; 32], u64)> {
        let file = self.env.open(path)?;
        let (mut sha, mut xxh, mut piece) = (Sha256::new(), Xxh3::new(), Vec::new());
        for offset in (0..bytes).step_by(PIECE_BYTES as usize) {
            piece.resize(PIECE_BYTES.min(bytes - offset) as usize, 0);
            file.read_exact_at(ReadClass::Compaction, offset, &mut piece)?;
            sha.update(&piece);
            xxh.update(&piece);
        }
        Ok((sha.finish(), xxh.digest()))
    }
}

impl RemoteFiles for ColdStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn belongs_to(&self, database: DatabaseId, names_objects: bool) {
        self.identified.belongs_to(database, names_objects);
    }

    fn open(&self, file: &RemoteSst) -> Result<Arc<dyn ReadFile>> {
        let traits = FileTraits {
            bytes: file.bytes,
            tail_bytes: file.tail_bytes,
            is_hot: false,
        };
        let cached = self.cache.file(&object_name(file.id), traits);
        Ok(Arc::new(RemoteFile::new(
            file_name(FileKind::Sst, file.id),
            Arc::clone(&self.name),
            cached.map_err(|error| self.failed(&error))?,
            Arc::new(self.store.clone()),
            Arc::clone(&self.pieces),
        )))
    }

    fn upload(&self, file: &RemoteSst, path: &Path, stopping: &AtomicBool) -> Result<()> {
        let name = file_name(FileKind::Sst, file.id);
        let upload = Upload {
            name: object_name(file.id),
            path: path.to_owned(),
            bytes: file.bytes,
        };
        let stored = self.ended(&name, stopping, upload)?;
        let (sha256, checksum) = self.sums(path, file.bytes)?;
        if checksum != file.checksum {
            let what = "the file has another checksum than the manifest says: it stays here";
            return Err(Error::corruption(name, 0, what));
        }
        if stored != sha256 {
            let what = format!("{}: {name} was not stored as it is", self.name);
            return Err(Error::new(ErrorKind::Unreachable, what));
        }
        // The bytes may have gone into a directory that is not mounted any more.
        let confirmed = self.identified.check_owner();
        confirmed.map_err(|error| self.failed(&error))
    }

    fn release(&self, id: FileId) {
        self.uploads.release(&object_name(id));
    }

    fn delete(&self, id: FileId) -> Result<()> {
        let name = object_name(id);
        let deleted = self.store.delete(&name);
        deleted.map_err(|error| self.failed(&error))?;
        self.cache.forget(&name);
        self.pieces.forget(&name);
        Ok(())
    }

    fn stop(&self) {
        self.uploads.close();
        self.store.close();
    }

    fn sweep(&self, is_named: &dyn Fn(FileId) -> bool) -> Result<u64> {
        let is_named = |name: &str| parse_object_name(name).is_none_or(is_named);
        for name in self.cache.names() {
            if !is_named(&name) {
                self.cache.forget(&name);
            }
        }
        let failed = |error: firn_objects::Error| self.failed(&error);
        if !self.identified.is_taken().map_err(failed)? {
            return Ok(0);
        }
        let swept = self.uploads.sweep(SSTS, &is_named).map_err(failed)?;
        Ok(swept.objects.len() as u64)
    }
}
