//! The object store of cold files, from the configuration.

use firn::base::options::Tier;
use firn::base::{Error, ErrorKind};
use firn::env::Env;
use firn::store::OWNER_FILE;
use firn_objects::{
    Clock, Deadlines, Environment, Files, Open, StorageUrl, SystemClock, SystemFiles, Threads,
    open_store,
};
use firn_tier::{ColdStore, ColdStoreParts, OwnerFile};
use std::path::Path;
use std::sync::Arc;

/// The directory of the file cache, in that of the database.
const CACHE_DIR: &str = "file-cache";

/// Has an id of the machine.
const MACHINE_ID: &str = "/etc/machine-id";

/// Threads that read ahead, and threads that upload.
const READ_THREADS: usize = 4;
const UPLOAD_THREADS: usize = 1;

/// The tier of this number; see `firn_config`.
pub(crate) fn tier_of(number: u64) -> Result<Tier, Error> {
    match number {
        0 => Ok(Tier::Local),
        1 => Ok(Tier::Cold),
        2 => Err(Error::unsupported("firn_tier=all is not supported yet")),
        other => Err(Error::invalid(format_args!("firn_tier {other}"))),
    }
}

/// Where `dir` lies, in one line.
fn place_of(dir: &Path, files: &dyn Files) -> Result<String, Error> {
    let whole = dir.canonicalize();
    let whole = whole.map_err(|error| Error::io(&error, dir.display()))?;
    let machine = files.open(Path::new(MACHINE_ID), Open::Read);
    let machine = machine.and_then(|file| {
        let mut id = [0; 64];
        let count = file.read_at(&mut id, 0)?;
        Ok(String::from_utf8_lossy(&id[..count]).trim().to_owned())
    });
    // Containers mostly have none, or an empty one.
    let machine = machine.unwrap_or_default();
    let place = format!("{} on machine {machine}", whole.display());
    Ok(place.replace(char::is_control, "?"))
}

/// The settings of the store at `url`, for the database in `dir`. Asks nothing of the store.
pub(crate) fn open_cold_store(
    url: &str,
    cache_bytes: u64,
    env: &Arc<dyn Env>,
    dir: &Path,
) -> Result<Arc<ColdStore>, Error> {
    let wrong =
        |error: firn_objects::Error| Error::invalid(format_args!("firn_storage_url: {error}"));
    StorageUrl::parse(url).map_err(wrong)?;
    env.create_dir_all(dir)?;
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let threads = |name, count| {
        let started = Threads::start(name, count).map(Arc::new);
        started.map_err(|error| {
            let what = format!("no thread for the object store: {error}");
            Error::new(ErrorKind::Io { os_errno: 0 }, what)
        })
    };
    let (store_url, store_files, store_clock) =
        (url.to_owned(), Arc::clone(&files), Arc::clone(&clock));
    Ok(ColdStore::new(ColdStoreParts {
        name: url.to_owned(),
        store: Box::new(move || {
            let (files, clock) = (Arc::clone(&store_files), Arc::clone(&store_clock));
            open_store(&store_url, &Environment::of_process(), files, clock)
        }),
        owner_file: OwnerFile {
            path: dir.join(OWNER_FILE),
            place: place_of(dir, &*files)?,
            store: url.replace(char::is_control, "?"),
            files: Arc::clone(&files),
        },
        clock,
        deadlines: Deadlines::default(),
        env: Arc::clone(env),
        cache_files: files,
        cache_dir: dir.join(CACHE_DIR),
        cache_bytes,
        read_jobs: threads("firn-fetch", READ_THREADS)?,
        upload_jobs: threads("firn-upload", UPLOAD_THREADS)?,
    }))
}
