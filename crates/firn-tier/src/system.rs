//! Stores of this machine's databases, with files, clock and threads of the operating system.

use crate::cold_store::{ColdStore, ColdStoreParts, SharesDisk};
use crate::identity::OpenStore;
use crate::owner::OwnerFile;
use firn::base::{Error, ErrorKind, Result};
use firn::env::{Env, PosixEnv};
use firn::store::OWNER_FILE;
use firn_objects::{
    Clock, Deadlines, Environment, Files, Job, Jobs, Open, StorageUrl, SystemClock, SystemFiles,
    Threads, open_store,
};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The directory of the file cache, in that of the database.
const CACHE_DIR: &str = "file-cache";

/// Has an id of the machine.
const MACHINE_ID: &str = "/etc/machine-id";

/// Threads that read ahead, and threads that upload.
const READ_THREADS: usize = 4;
const UPLOAD_THREADS: usize = 1;

/// How long a close waits for a store that may not answer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Where `dir` lies, in one line.
fn place_of(dir: &Path, files: &dyn Files) -> Result<String> {
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

fn check_url(url: &str) -> Result<()> {
    let wrong =
        |error: firn_objects::Error| Error::invalid(format_args!("firn_storage_url: {error}"));
    StorageUrl::parse(url).map(|_| ()).map_err(wrong)
}

fn opener(url: &str, files: &Arc<dyn Files>, clock: &Arc<dyn Clock>) -> OpenStore {
    let (url, files, clock) = (url.to_owned(), Arc::clone(files), Arc::clone(clock));
    Box::new(move || {
        let (files, clock) = (Arc::clone(&files), Arc::clone(&clock));
        open_store(&url, &Environment::of_process(), files, clock)
    })
}

/// A directory may be a mount, so this looks when it is asked.
fn shares_disk(url: &str) -> SharesDisk {
    let Ok(StorageUrl::Directory(store)) = StorageUrl::parse(url) else {
        return Box::new(|_| false);
    };
    let device = |dir: &Path| std::fs::metadata(dir).map(|found| found.dev()).ok();
    Box::new(move |dir| device(&store).is_some_and(|found| Some(found) == device(dir)))
}

fn owner_file(url: &str, dir: &Path, files: &Arc<dyn Files>) -> Result<OwnerFile> {
    Ok(OwnerFile {
        path: dir.join(OWNER_FILE),
        place: place_of(dir, &**files)?,
        store: url.replace(char::is_control, "?"),
        files: Arc::clone(files),
    })
}

/// The store at `url` for the database in `dir`, with a cache of `cache_bytes` in its directory.
/// Asks nothing of the store.
///
/// # Errors
/// `InvalidArgument` if that is no URL of a store; `Io`.
pub fn open_cold_store(
    url: &str,
    cache_bytes: u64,
    env: &Arc<dyn Env>,
    dir: &Path,
) -> Result<Arc<ColdStore>> {
    check_url(url)?;
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
    Ok(ColdStore::new(ColdStoreParts {
        name: url.to_owned(),
        store: opener(url, &files, &clock),
        shares_disk_with: shares_disk(url),
        owner_file: owner_file(url, dir, &files)?,
        clock,
        deadlines: Deadlines::default(),
        env: Arc::clone(env),
        cache_files: files,
        cache_dir: Some(dir.join(CACHE_DIR)),
        cache_bytes,
        close_patience: CLOSE_PATIENCE,
        read_jobs: threads("firn-fetch", READ_THREADS)?,
        upload_jobs: threads("firn-upload", UPLOAD_THREADS)?,
    }))
}

/// Jobs of a store that is only read: there are none.
struct NoJobs;

impl Jobs for NoJobs {
    fn submit(&self, job: Job) {
        drop(job);
    }
}

/// The store at `url` for a tool that reads files of the database in `dir` and changes nothing,
/// neither there nor in the store. It has no cache.
///
/// # Errors
/// As [`open_cold_store`].
pub fn open_to_read(url: &str, dir: &Path) -> Result<Arc<ColdStore>> {
    check_url(url)?;
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Ok(ColdStore::new(ColdStoreParts {
        name: url.to_owned(),
        store: opener(url, &files, &clock),
        shares_disk_with: shares_disk(url),
        owner_file: owner_file(url, dir, &files)?,
        clock,
        deadlines: Deadlines::default(),
        env: Arc::new(PosixEnv::new()),
        cache_files: files,
        cache_dir: None,
        cache_bytes: 0,
        close_patience: CLOSE_PATIENCE,
        read_jobs: Arc::new(NoJobs),
        upload_jobs: Arc::new(NoJobs),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_beside_the_database_is_on_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let shares = shares_disk(&url);
        assert!(shares(&std::env::temp_dir()));
        assert!(!shares(&dir.path().join("missing")));
        assert!(!shares_disk("s3://bucket")(dir.path()));
        if std::env::temp_dir().metadata().unwrap().dev()
            != Path::new("/proc").metadata().unwrap().dev()
        {
            assert!(!shares(Path::new("/proc")));
        }
    }
}
