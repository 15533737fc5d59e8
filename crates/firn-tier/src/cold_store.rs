//! The object store of a database: its files, its cache, its uploads.

use crate::env_files::EnvFiles;
use crate::errors;
use crate::file::{RemoteFile, Shared};
use crate::identity::{IdentifiedStore, OpenStore, Ownership};
use crate::lazy_cache::LazyCache;
use crate::names::{SSTS, object_name, objects_of, parse_object_name};
use crate::owner::OwnerFile;
use firn::base::epoch::DatabaseId;
use firn::base::{Error, ErrorKind, Result};
use firn::env::{ClassReads, Env, ReadClass, ReadFile};
use firn::store::{FileId, FileKind, RemoteFiles, RemoteSst, file_name};
use firn_objects::{
    CacheStats, Clock, Deadlines, Ended, ErrorKind as StoreKind, FileTraits, Files, HealthState,
    HealthStats, Jobs, Metered, ObjectInfo, ObjectStore, Outcome, RequestKind, RequestMeter,
    RequestStats, Retrying, Upload, UploadStats, Uploads, for_each_page,
};
use openssl::sha::Sha256;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// How often an upload that is waited for looks whether the database stops.
const LOOK: Duration = Duration::from_millis(100);

/// An upload that fails again and again for so long is given up for this time, microseconds.
const PATIENCE_US: u64 = 60_000_000;

/// A local file is read in pieces of this size, bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// The parts of a cold store.
pub struct ColdStoreParts {
    /// How errors and reports call the store: its URL.
    pub name: String,
    /// Opens the store, which makes each request once.
    pub store: OpenStore,
    /// Whether the store is on the disk of a local directory.
    pub shares_disk_with: SharesDisk,
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
    /// Directory of the cache, which nobody else uses; created if missing. `None` for no cache.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that the cache may keep.
    pub cache_bytes: u64,
    /// How long a close waits for a store that may not answer.
    pub close_patience: Duration,
    /// Threads of reads ahead.
    pub read_jobs: Arc<dyn Jobs>,
    /// Threads of uploads.
    pub upload_jobs: Arc<dyn Jobs>,
}

/// Whether a store is on the disk that has a local directory.
pub type SharesDisk = Box<dyn Fn(&Path) -> bool + Send + Sync>;

/// Figures of a cold store.
#[derive(Debug, Clone)]
pub struct ColdStoreStats {
    /// The file cache.
    pub cache: CacheStats,
    /// The uploads.
    pub uploads: UploadStats,
    /// How the store does.
    pub health: HealthStats,
    /// Requests that read objects, and their bytes.
    pub gets: RequestStats,
    /// Requests that store objects, and their bytes.
    pub puts: RequestStats,
    /// Requests that list objects.
    pub lists: RequestStats,
    /// Requests that delete objects.
    pub deletes: RequestStats,
    /// Whose the store is.
    pub ownership: Ownership,
    /// Why there is no file cache, although there should be one.
    pub cache_failure: Option<String>,
}

/// See the module.
pub struct ColdStore {
    name: Arc<str>,
    identified: Arc<IdentifiedStore>,
    store: Retrying,
    env: Arc<dyn Env>,
    clock: Arc<dyn Clock>,
    uploads: Uploads,
    shared: Shared,
    meter: Arc<RequestMeter>,
    close_patience: Duration,
    shares_disk_with: SharesDisk,
}

/// Counts the requests to the store that `open` opens.
fn metered(open: OpenStore, clock: &Arc<dyn Clock>, meter: &Arc<RequestMeter>) -> OpenStore {
    let (clock, meter) = (Arc::clone(clock), Arc::clone(meter));
    Box::new(move || {
        let (clock, meter) = (Arc::clone(&clock), Arc::clone(&meter));
        Ok(Arc::new(Metered::new(open()?, clock, meter)))
    })
}

impl ColdStore {
    /// Asks nothing of the store, and leaves the cache alone before the first read.
    pub fn new(parts: ColdStoreParts) -> Arc<Self> {
        let meter = Arc::new(RequestMeter::default());
        let opened = metered(parts.store, &parts.clock, &meter);
        let identified = IdentifiedStore::new(opened, parts.owner_file, Arc::clone(&parts.clock));
        let identified = Arc::new(identified);
        let clock = Arc::clone(&parts.clock);
        let store: Arc<dyn ObjectStore> = Arc::<IdentifiedStore>::clone(&identified);
        let store = Retrying::new(store, Arc::clone(&parts.clock), parts.deadlines);
        let cache = Arc::new(LazyCache::new(
            (parts.cache_dir, parts.cache_bytes),
            parts.cache_files,
            Arc::new(store.clone()),
            parts.read_jobs,
            Arc::clone(&parts.clock),
        ));
        let files = Arc::new(EnvFiles(Arc::clone(&parts.env)));
        let uploads = Uploads::new(&store, files, parts.clock, parts.upload_jobs);
        let name: Arc<str> = parts.name.into();
        let shared = Shared {
            store_name: Arc::clone(&name),
            store: Arc::new(store.clone()),
            clock: Arc::clone(&clock),
            cache,
            pieces: Arc::default(),
            reads: Arc::default(),
        };
        Arc::new(Self {
            name,
            identified,
            store,
            env: parts.env,
            clock,
            uploads,
            shared,
            meter,
            close_patience: parts.close_patience,
            shares_disk_with: parts.shares_disk_with,
        })
    }

    fn cache(&self) -> &LazyCache {
        &self.shared.cache
    }

    /// Changes how many bytes the cache may keep.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.cache().set_bytes_max(bytes);
    }

    /// Figures.
    pub fn stats(&self) -> ColdStoreStats {
        ColdStoreStats {
            cache: self.cache().stats(),
            uploads: self.uploads.stats(),
            health: self.store.stats(),
            gets: self.meter.stats(RequestKind::Get),
            puts: self.meter.stats(RequestKind::Put),
            lists: self.meter.stats(RequestKind::List),
            deletes: self.meter.stats(RequestKind::Delete),
            ownership: self.identified.ownership(),
            cache_failure: self.cache().failure(),
        }
    }

    /// Reads of remote files that the file cache has served, by class.
    pub fn cached_reads(&self) -> impl Iterator<Item = ClassReads> {
        let classes = self.shared.reads.cached.by_class();
        classes.filter(|reads| reads.class.is_of_query())
    }

    /// Reads of remote files that have waited for the store, by class.
    pub fn fetched_reads(&self) -> impl Iterator<Item = ClassReads> {
        self.shared.reads.fetched.by_class()
    }

    fn failed(&self, error: &firn_objects::Error) -> Error {
        errors::of_request(&self.name, error)
    }

    /// Waits for the end of an upload.
    fn ended(&self, name: &str, stopping: &AtomicBool, upload: Upload) -> Result<[u8; 32]> {
        let begun_us = self.clock.now_us();
        let retries = self.uploads.stats().retries;
        let ticket = self.uploads.enqueue(upload);
        let ticket = ticket.map_err(|error| self.failed(&error))?;
        let mut failure = None;
        while !self.uploads.wait_for(ticket, LOOK) {
            self.beat();
            if stopping.load(Ordering::Relaxed) {
                self.uploads.abort(ticket);
                return Err(Error::new(ErrorKind::Interrupted, "the database stops"));
            }
            let stats = self.uploads.stats();
            let lasts = self.clock.now_us() - begun_us >= PATIENCE_US;
            if lasts && stats.retries > retries && failure.is_none() {
                failure = stats.last_error;
                self.uploads.abort(ticket);
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
            _ if failure.is_some() => {
                let failure = failure.unwrap_or_default();
                let what = format!("{}: {name} cannot be uploaded: {failure}", self.name);
                Err(Error::new(ErrorKind::Unreachable, what))
            }
            _ => {
                let what = format!("the upload of {name} was aborted");
                Err(Error::new(ErrorKind::Interrupted, what))
            }
        }
    }

    /// Says that the owner is gone, in a thread that is left to itself if the store does not answer
    /// for a while: a network file system may keep a call for ever.
    fn leave(&self) {
        if !self.identified.is_owner() {
            return;
        }
        let (alive, ended) = mpsc::channel::<()>();
        let identified = Arc::clone(&self.identified);
        let leaving = move || {
            let _alive = alive;
            // The next owner waits then.
            let _ = identified.leave();
        };
        let started = thread::Builder::new().name("firn-leave".to_owned());
        if started.spawn(leaving).is_ok() {
            let _ = ended.recv_timeout(self.close_patience);
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
        Ok(Arc::new(RemoteFile::new(
            file_name(FileKind::Sst, file.id),
            object_name(file.id, file.checksum),
            traits,
            self.shared.clone(),
        )))
    }

    fn is_there(&self, file: &RemoteSst) -> Result<bool> {
        // A read that finds nothing asks whose the store is.
        let object = object_name(file.id, file.checksum);
        match self.store.get_range(&object, 0..1) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == StoreKind::Absent => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn upload(&self, file: &RemoteSst, path: &Path, stopping: &AtomicBool) -> Result<()> {
        let name = file_name(FileKind::Sst, file.id);
        // Whether the store is ours is an error at once. The upload itself is tried again.
        let prepared = self.identified.prepare();
        prepared.map_err(|error| self.failed(&error))?;
        let object = object_name(file.id, file.checksum);
        let upload = Upload {
            name: object.clone(),
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
        let confirmed = self.identified.change().map(|_| ());
        confirmed.map_err(|error| self.failed(&error))?;
        let found = self.store.head(&object);
        let found = found.map_err(|error| self.failed(&error))?;
        if found.bytes != file.bytes {
            let what = format!("{}: {name} was not stored whole", self.name);
            return Err(Error::new(ErrorKind::Unreachable, what));
        }
        Ok(())
    }

    fn release(&self, file: &RemoteSst) {
        self.uploads.release(&object_name(file.id, file.checksum));
    }

    fn delete(&self, id: FileId) -> Result<()> {
        // The list of a directory that is not mounted any more is empty.
        let checked = self.identified.change().map(|_| ());
        checked.map_err(|error| self.failed(&error))?;
        let prefix = objects_of(id);
        let mut names = Vec::new();
        let listed = for_each_page(
            |token| self.store.list_page(&prefix, token),
            |object: ObjectInfo| names.push(object.name),
        );
        listed.map_err(|error| self.failed(&error))?;
        names.retain(|name| parse_object_name(name).is_some_and(|(found, _)| found == id));
        for name in names {
            let deleted = self.store.delete(&name);
            deleted.map_err(|error| self.failed(&error))?;
            if let Some(cache) = self.cache().opened() {
                cache.forget(&name);
            }
            self.shared.pieces.forget(&name);
        }
        Ok(())
    }

    fn shares_disk_with(&self, dir: &Path) -> bool {
        (self.shares_disk_with)(dir)
    }

    fn beat(&self) {
        // Another beat follows. Each change finds out by itself whether this is still the owner.
        let _ = self.identified.beat();
    }

    fn stop(&self) {
        self.uploads.close();
        if self.store.health() != HealthState::Down {
            self.leave();
        }
        self.store.close();
    }

    fn sweep(&self, is_named: &dyn Fn(FileId, u64) -> bool) -> Result<u64> {
        let is_named = |name: &str| {
            // A list of many objects takes its time.
            self.beat();
            parse_object_name(name).is_none_or(|(id, checksum)| is_named(id, checksum))
        };
        let failed = |error: firn_objects::Error| self.failed(&error);
        if !self.identified.is_taken().map_err(failed)? {
            return Ok(0);
        }
        let prepared = self.identified.change().map(|_| ());
        prepared.map_err(failed)?;
        if let Some(cache) = self.cache().get() {
            let names = cache.names().into_iter();
            names
                .filter(|name| !is_named(name))
                .for_each(|name| cache.forget(&name));
        }
        let swept = self.uploads.sweep(SSTS, &is_named).map_err(failed)?;
        Ok(swept.objects.len() as u64)
    }
}
