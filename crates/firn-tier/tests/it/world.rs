//! A database, its store and a model of its rows.

use bytes::Bytes;
use firn::base::options::{MutableOptions, Options, Tier};
use firn::base::{Result, Value};
use firn::db::{Attached, Db};
use firn::env::{Env, MemEnv, ReadClass};
use firn::store::RemoteFiles;
use firn::txn::{Isolation, Transaction};
use firn::version::{FileLocation, ManifestState, PlacedFile};
use firn_objects::mem::{MemFiles, MemObjects, VirtualClock};
use firn_objects::{
    Clock, Deadlines, Files, Job, Jobs, ObjectInfo, ObjectStore, Page, PartTag, PutNew, Threads,
    UploadId, UploadInfo,
};
use firn_tier::{ColdStore, ColdStoreParts, OwnerFile, object_name};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

const DIR: &str = "/db";
pub const CACHE: &str = "/cache";
/// The file with the tokens of the owner.
pub const STORE: &str = "/STORE";
const INDEX: u32 = 1_000_000;
pub const MINUTE_US: u64 = 60_000_000;

/// Jobs that run where they are submitted.
struct Inline;

impl Jobs for Inline {
    fn submit(&self, job: Job) {
        job();
    }
}

/// Where a process dies: at the request with this number, before or after its effect. At the end of
/// its life it panics, and whoever catches that opens the database again.
pub struct MortalStore {
    store: Arc<MemObjects>,
    left: AtomicU64,
    after: bool,
    /// Uploads of files are refused.
    pub refuses_uploads: AtomicBool,
    /// Deletions are refused.
    pub refuses_deletions: AtomicBool,
}

/// The panic of a process that dies.
pub struct Death;

impl MortalStore {
    pub fn new(store: &Arc<MemObjects>, left: u64, after: bool) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            left: AtomicU64::new(left),
            after,
            refuses_uploads: AtomicBool::new(false),
            refuses_deletions: AtomicBool::new(false),
        })
    }

    fn check(refuses: &AtomicBool, name: &str) -> Answer<()> {
        if refuses.load(Ordering::SeqCst) && name.starts_with("sst/") {
            let text = format!("{name}: access denied");
            return Err(firn_objects::Error::new(
                firn_objects::ErrorKind::Refused,
                text,
            ));
        }
        Ok(())
    }

    fn request<T>(&self, request: impl FnOnce(&MemObjects) -> T) -> T {
        let left = self.left.load(Ordering::SeqCst);
        self.left.store(left.saturating_sub(1), Ordering::SeqCst);
        if left == 0 && !self.after {
            std::panic::resume_unwind(Box::new(Death));
        }
        let answer = request(&self.store);
        if left == 0 {
            std::panic::resume_unwind(Box::new(Death));
        }
        answer
    }
}

type Answer<T> = firn_objects::Result<T>;

impl ObjectStore for MortalStore {
    fn put(&self, name: &str, bytes: Bytes) -> Answer<()> {
        Self::check(&self.refuses_uploads, name)?;
        self.request(|store| store.put(name, bytes))
    }
    fn put_new(&self, name: &str, bytes: Bytes) -> Answer<PutNew> {
        self.request(|store| store.put_new(name, bytes))
    }
    fn get(&self, name: &str) -> Answer<Bytes> {
        self.request(|store| store.get(name))
    }
    fn get_range(&self, name: &str, range: Range<u64>) -> Answer<Bytes> {
        self.request(|store| store.get_range(name, range))
    }
    fn head(&self, name: &str) -> Answer<ObjectInfo> {
        self.request(|store| store.head(name))
    }
    fn list_page(&self, prefix: &str, token: Option<&str>) -> Answer<Page<ObjectInfo>> {
        self.request(|store| store.list_page(prefix, token))
    }
    fn delete(&self, name: &str) -> Answer<()> {
        Self::check(&self.refuses_deletions, name)?;
        self.request(|store| store.delete(name))
    }
    fn begin_upload(&self, name: &str) -> Answer<UploadId> {
        self.request(|store| store.begin_upload(name))
    }
    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Answer<PartTag> {
        self.request(|store| store.put_part(name, id, index, bytes))
    }
    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Answer<()> {
        self.request(|store| store.complete_upload(name, id, parts))
    }
    fn abort_upload(&self, name: &str, id: &UploadId) -> Answer<()> {
        self.request(|store| store.abort_upload(name, id))
    }
    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Answer<Page<UploadInfo>> {
        self.request(|store| store.list_uploads_page(prefix, token))
    }
}

/// A call that follows an answer.
pub type Hook = Box<dyn FnOnce() + Send>;

/// A store that calls a hook once, after the answer to the next request for the owner, or before
/// the next put of the owner is executed.
pub struct HookedStore {
    pub store: Arc<MemObjects>,
    pub after_owner: Mutex<Option<Hook>>,
    pub before_put: Mutex<Option<Hook>>,
}

impl ObjectStore for HookedStore {
    fn put(&self, name: &str, bytes: Bytes) -> Answer<()> {
        let hook = match name {
            firn_tier::OWNER => self.before_put.lock().unwrap().take(),
            _ => None,
        };
        if let Some(hook) = hook {
            hook();
        }
        self.store.put(name, bytes)
    }
    fn put_new(&self, name: &str, bytes: Bytes) -> Answer<PutNew> {
        self.store.put_new(name, bytes)
    }
    fn get(&self, name: &str) -> Answer<Bytes> {
        let answer = self.store.get(name);
        let hook = match name {
            firn_tier::OWNER => self.after_owner.lock().unwrap().take(),
            _ => None,
        };
        if let Some(hook) = hook {
            hook();
        }
        answer
    }
    fn get_range(&self, name: &str, range: Range<u64>) -> Answer<Bytes> {
        self.store.get_range(name, range)
    }
    fn head(&self, name: &str) -> Answer<ObjectInfo> {
        self.store.head(name)
    }
    fn list_page(&self, prefix: &str, token: Option<&str>) -> Answer<Page<ObjectInfo>> {
        self.store.list_page(prefix, token)
    }
    fn delete(&self, name: &str) -> Answer<()> {
        self.store.delete(name)
    }
    fn begin_upload(&self, name: &str) -> Answer<UploadId> {
        self.store.begin_upload(name)
    }
    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Answer<PartTag> {
        self.store.put_part(name, id, index, bytes)
    }
    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Answer<()> {
        self.store.complete_upload(name, id, parts)
    }
    fn abort_upload(&self, name: &str, id: &UploadId) -> Answer<()> {
        self.store.abort_upload(name, id)
    }
    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Answer<Page<UploadInfo>> {
        self.store.list_uploads_page(prefix, token)
    }
}

/// See the module.
pub struct World {
    pub env: MemEnv,
    pub clock: Arc<VirtualClock>,
    pub objects: Arc<MemObjects>,
    pub cache_files: Arc<MemFiles>,
    pub mutable: Arc<MutableOptions>,
    pub rows: BTreeMap<u64, u64>,
    pub cache_bytes: u64,
    /// Where the data directory lies.
    pub place: String,
    pub block_cache_bytes: u64,
    /// Uploads run in a thread, and not where they are submitted.
    pub has_upload_thread: bool,
    pub close_patience: Duration,
    pub target_file_size: u64,
    /// The store is on the disk of the database.
    pub shares_disk: bool,
    db: Option<(Arc<Db>, Arc<ColdStore>)>,
}

impl World {
    /// A new database, not open yet. Files are cold as soon as they are in the last level.
    pub fn new(seed: u64) -> Self {
        let clock = Arc::new(VirtualClock::new(seed));
        let store_clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&clock);
        let mutable = MutableOptions::default();
        mutable.cold_after_s.store(0, Ordering::Relaxed);
        Self {
            env: MemEnv::new(),
            objects: Arc::new(MemObjects::new(seed, store_clock)),
            clock,
            cache_files: Arc::new(MemFiles::new(seed, &["/"])),
            mutable: Arc::new(mutable),
            rows: BTreeMap::new(),
            cache_bytes: 4 << 20,
            place: "here".to_owned(),
            // Blocks come from files.
            block_cache_bytes: 16 << 10,
            has_upload_thread: false,
            close_patience: Duration::from_secs(5),
            target_file_size: 32 << 10,
            shares_disk: false,
            db: None,
        }
    }

    fn options(&self) -> Options {
        Options {
            background_jobs: 0,
            wal_segment_size: 64 << 10,
            target_file_size: self.target_file_size,
            block_size: 512,
            block_cache_size: self.block_cache_bytes,
            row_cache_size: 0,
            mutable: Arc::clone(&self.mutable),
            ..Options::default()
        }
    }

    /// A cold store over `store`, as one process has it.
    pub fn cold_store(&self, store: Arc<dyn ObjectStore>) -> Arc<ColdStore> {
        let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&self.clock);
        ColdStore::new(ColdStoreParts {
            name: "mem://store".to_owned(),
            store: Box::new(move || Ok(Arc::clone(&store))),
            shares_disk_with: {
                let shares_disk = self.shares_disk;
                Box::new(move |_| shares_disk)
            },
            owner_file: OwnerFile {
                files: Arc::<MemFiles>::clone(&self.cache_files),
                path: STORE.into(),
                place: self.place.clone(),
                store: "mem:store".to_owned(),
            },
            clock,
            deadlines: Deadlines::default(),
            env: Arc::new(self.env.clone()),
            cache_files: Arc::<MemFiles>::clone(&self.cache_files),
            cache_dir: Some(CACHE.into()),
            cache_bytes: self.cache_bytes,
            close_patience: self.close_patience,
            read_jobs: Arc::new(Inline),
            upload_jobs: match self.has_upload_thread {
                true => Arc::new(Threads::start("upload", 1).unwrap()),
                false => Arc::new(Inline),
            },
        })
    }

    /// Opens the database in `dir`, which needs no store.
    pub fn open_without_store(&self, dir: &str) -> Result<Arc<Db>> {
        let env: Arc<dyn Env> = Arc::new(self.env.clone());
        Db::open(env, Path::new(dir), self.options(), None)
    }

    /// Opens the database with `store` as its object store.
    pub fn try_open(&mut self, store: Arc<dyn ObjectStore>) -> Result<()> {
        let cold = self.cold_store(store);
        let attached = Attached {
            remote: Some(Arc::<ColdStore>::clone(&cold)),
            ..Attached::default()
        };
        let env: Arc<dyn Env> = Arc::new(self.env.clone());
        let db = Db::open_with(env, Path::new(DIR), self.options(), None, attached)?;
        self.db = Some((db, cold));
        Ok(())
    }

    pub fn open(&mut self) {
        let store: Arc<dyn ObjectStore> = Arc::<MemObjects>::clone(&self.objects);
        self.try_open(store).unwrap();
    }

    pub fn db(&self) -> &Arc<Db> {
        &self.db.as_ref().unwrap().0
    }

    pub fn cold(&self) -> &Arc<ColdStore> {
        &self.db.as_ref().unwrap().1
    }

    pub fn close(&mut self) {
        let (db, cold) = self.db.take().unwrap();
        db.close().unwrap();
        cold.stop();
    }

    /// The process is gone, and with the power what was not synced.
    pub fn crash(&mut self, seed: u64) {
        let env = self.env.crash(seed);
        // A dead process ends with changes of files that nobody sees.
        std::mem::forget(self.db.take());
        self.env = env;
        self.cache_files.crash();
    }

    /// Whether the file cache was ever opened.
    pub fn has_cache(&self) -> bool {
        let entries = self.cache_files.list(Path::new("/")).unwrap();
        entries.iter().any(|entry| CACHE.ends_with(&entry.name))
    }

    /// Id and name of the object of each file, wherever the file is.
    pub fn object_names(&self) -> Vec<(u64, String)> {
        let files = self.manifest().files;
        let name = |placed: &PlacedFile, id| object_name(id, placed.meta.checksum);
        let named = files.iter().map(|(id, placed)| (*id, name(placed, *id)));
        named.collect()
    }

    pub fn set_tier(&self, tier: Tier) {
        self.mutable.set_tier(tier);
    }

    fn begin(&self) -> Transaction {
        Self::begin_in(self.db())
    }

    fn begin_in(db: &Arc<Db>) -> Transaction {
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 1_000_000, false);
        txn
    }

    /// Writes rows, or deletes them: `None`. The model has them once they are committed.
    pub fn try_write(&mut self, rows: &[(u64, Option<u64>)]) -> Result<()> {
        let mut txn = self.begin();
        for (n, value) in rows {
            match value {
                Some(value) => {
                    let text = text_of(*n, *value);
                    txn.put(&key(*n), Value::split(text.as_bytes(), b""))?;
                }
                None => txn.delete(&key(*n))?,
            }
        }
        txn.commit()?;
        for &(n, value) in rows {
            match value {
                Some(value) => self.rows.insert(n, value),
                None => self.rows.remove(&n),
            };
        }
        Ok(())
    }

    /// Rows from `range` with `value`, at rest in the last level.
    pub fn load(&mut self, range: Range<u64>, value: u64) {
        let rows: Vec<_> = range.map(|n| (n, Some(value))).collect();
        self.try_write(&rows).unwrap();
        self.db().compact_all().unwrap();
    }

    pub fn read(&self, n: u64) -> Result<Option<u64>> {
        Self::read_of(self.db(), n)
    }

    /// A row of another database.
    pub fn read_of(db: &Arc<Db>, n: u64) -> Result<Option<u64>> {
        let mut txn = Self::begin_in(db);
        let point = txn.read_point();
        let read = |key: firn::base::InternalKey<'_>, value: Value<'_>| {
            key.kind.is_put().then(|| {
                let text = String::from_utf8(value.head.to_vec()).unwrap();
                let value = text.split('.').next().unwrap().parse().unwrap();
                assert_eq!(text, text_of(n, value));
                value
            })
        };
        Ok(txn.get(&point, &key(n), ReadClass::Point, read)?.flatten())
    }

    /// All rows are those of the model.
    pub fn check_rows(&self, end: u64) {
        for n in 0..end {
            let found = self
                .read(n)
                .unwrap_or_else(|error| panic!("row {n}: {error}"));
            assert_eq!(found, self.rows.get(&n).copied(), "row {n}");
        }
    }

    /// The content of the manifest.
    pub fn manifest(&self) -> ManifestState {
        let loaded = firn::version::load(&self.env, Path::new(DIR)).unwrap();
        loaded.map(|loaded| loaded.state).unwrap_or_default()
    }

    /// Numbers of files in the data directory and in the store, as the manifest says.
    pub fn places(&self) -> (usize, usize) {
        let state = self.manifest();
        let is_remote = |id: &&u64| state.files[*id].meta.location == FileLocation::ObjectStore;
        let remote = state.files.keys().filter(is_remote).count();
        (state.files.len() - remote, remote)
    }

    /// Each file is where the manifest says, with its bytes.
    pub fn check_places(&self) {
        let (state, objects) = (self.manifest(), self.objects.contents());
        for (id, placed) in &state.files {
            let bytes = match placed.meta.location {
                FileLocation::Local => self
                    .env
                    .read(&Path::new(DIR).join(format!("{id:010}.sst")))
                    .unwrap_or_else(|error| panic!("file {id}: {error}")),
                FileLocation::ObjectStore => {
                    let object = objects.get(&object_name(*id, placed.meta.checksum));
                    object.unwrap_or_else(|| panic!("no object {id}")).to_vec()
                }
            };
            assert_eq!(xxh3_64(&bytes), placed.meta.checksum, "file {id}");
        }
    }

    /// Nothing but what the manifest names is in the data directory and in the store, once the time
    /// has passed after which each leftover goes.
    pub fn check_nothing_left(&self) {
        for round in 0..10 {
            match self.db().tier_step() {
                // Changes wait at first if the owner before was not closed, or could not say so.
                Err(error) if round < 3 && error.is_unreachable() => {}
                done => drop(done.unwrap()),
            }
            self.pass(25 * 60 * MINUTE_US);
            self.db().compact_once().unwrap();
        }
        let state = self.manifest();
        let names = self.env.list_dir(Path::new(DIR)).unwrap();
        let local = names.iter().filter(|name| name.ends_with(".sst")).count();
        let is_local = |id: &&u64| state.files[*id].meta.location == FileLocation::Local;
        assert_eq!(local, state.files.keys().filter(is_local).count());
        assert!(state.deferred.is_empty(), "{:?}", state.deferred);
        let mut objects = self.objects.contents();
        objects.remove(firn_tier::IDENTITY);
        objects.remove(firn_tier::OWNER);
        let name = |id: &u64| object_name(*id, state.files[id].meta.checksum);
        let remote = state.files.keys().filter(|id| !is_local(id));
        let named: Vec<String> = remote.map(name).collect();
        objects.retain(|name, _| !named.contains(name));
        // A stray of a file that is local now stays until the file goes.
        let live: Vec<String> = state.files.keys().map(name).collect();
        let left: Vec<_> = objects.keys().filter(|name| !live.contains(name)).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.objects.uploads(), 0);
    }

    /// Time passes, on the server's clock and on the store's. A server that is open shows that it
    /// lives meanwhile.
    pub fn pass(&self, us: u64) {
        let mut left = us;
        while left > 0 {
            let step = left.min(MINUTE_US);
            self.stop_for(step);
            if let Some((_, cold)) = &self.db {
                cold.beat();
            }
            left -= step;
        }
    }

    /// Time passes in which the server is stopped.
    pub fn stop_for(&self, us: u64) {
        self.env.advance_clock(us);
        self.clock.sleep_us(us);
    }

    /// Moves files until none is to move. After a crash, changes wait for two minutes.
    pub fn move_all(&self) -> usize {
        let (mut moved, mut waited) = (0, false);
        loop {
            match self.db().tier_step() {
                Ok(true) => moved += 1,
                Ok(false) => break,
                Err(error) if waited => panic!("{error}"),
                Err(_) => {
                    waited = true;
                    self.pass(3 * MINUTE_US);
                }
            }
        }
        moved
    }
}

fn key(n: u64) -> Vec<u8> {
    [&INDEX.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

/// A value that compresses badly, so that files are several blocks.
fn text_of(n: u64, value: u64) -> String {
    let mut text = format!("{value}.");
    for part in 0..6 {
        text += &format!(
            "{:016x}",
            xxh3_64(&[n, value, part].map(u64::to_le_bytes).concat())
        );
    }
    text
}
