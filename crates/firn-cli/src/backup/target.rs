//! Where backups lie: a directory, or a bucket.

use firn::base::{Error, ErrorKind, Result};
use object_store::aws::AmazonS3Builder;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use xxhash_rust::xxh3::Xxh3;

/// Bytes read and written at once; a part of an upload in parts.
const CHUNK: usize = 8 << 20;

/// Files on their way at the same time.
const PARALLEL: usize = 4;

/// A place for backups.
pub struct Target {
    store: Arc<dyn ObjectStore>,
    root: ObjectPath,
    runtime: Runtime,
    name: String,
}

/// Bytes of a file to be sent, or that were fetched.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// The object's name, below the root.
    pub object: String,
    /// The file here.
    pub file: std::path::PathBuf,
    /// So many bytes of it, from the start.
    pub len: u64,
}

fn failed(error: &object_store::Error, what: &str) -> Error {
    let kind = match error {
        object_store::Error::NotFound { .. } => ErrorKind::NotFound,
        object_store::Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        _ => ErrorKind::Io { os_errno: 0 },
    };
    Error::new(kind, format!("{what}: {error}"))
}

fn local(error: &std::io::Error, path: &Path) -> Error {
    Error::io(error, path.display())
}

impl Target {
    /// The target that `text` names: a directory, `file:///…` or `s3://bucket/prefix`. A directory is made if it
    /// is missing and `create` is given. Keys, region and endpoint of a bucket come from the environment, as the
    /// `AWS_…` variables.
    ///
    /// # Errors
    /// `Unsupported` for other schemes, `NotFound` for a directory that is not there.
    pub fn open(text: &str, create: bool) -> Result<Self> {
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
            let endpoint = ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"]
                .iter()
                .find_map(|name| std::env::var(name).ok());
            if endpoint.is_some_and(|url| url.starts_with("http://")) {
                builder = builder.with_allow_http(true);
            }
            let store = builder.build().map_err(|e| failed(&e, text))?;
            let root = ObjectPath::parse(prefix)
                .map_err(|e| Error::invalid(format_args!("{text}: {e}")))?;
            return Self::over(Arc::new(store), root, text);
        }
        let path = match text.split_once("://") {
            Some(("file", path)) => path,
            Some((scheme, _)) => {
                return Err(Error::unsupported(format_args!(
                    "{scheme}:// is no target: a directory, file:// or s3://"
                )));
            }
            None => text,
        };
        if create {
            std::fs::create_dir_all(path).map_err(|e| local(&e, Path::new(path)))?;
        }
        let store = LocalFileSystem::new_with_prefix(path).map_err(|e| match Path::new(path) {
            missing if !missing.exists() => {
                Error::new(ErrorKind::NotFound, format!("{text}: no such directory"))
            }
            _ => failed(&e, text),
        })?;
        Self::over(
            Arc::new(store.with_fsync(true)),
            ObjectPath::default(),
            text,
        )
    }

    /// Objects below `root` of a store.
    pub fn over(store: Arc<dyn ObjectStore>, root: ObjectPath, name: &str) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| Error::io(&e, "start the transfer threads"))?;
        Ok(Self {
            store,
            root,
            runtime,
            name: name.to_owned(),
        })
    }

    /// What it was opened with.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self, object: &str) -> ObjectPath {
        let parts = self.root.parts().map(|part| part.as_ref().to_owned());
        ObjectPath::from_iter(parts.chain(object.split('/').map(str::to_owned)))
    }

    /// Names and sizes of the objects in a folder, ascending.
    pub fn list(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        let path = self.path(folder);
        let listed = self
            .runtime
            .block_on(self.store.list_with_delimiter(Some(&path)));
        let listed = listed.map_err(|e| failed(&e, folder))?;
        let mut found: Vec<(String, u64)> = listed
            .objects
            .into_iter()
            .filter_map(|meta| Some((meta.location.filename()?.to_owned(), meta.size)))
            .collect();
        found.sort();
        Ok(found)
    }

    /// Puts a small object in place; `AlreadyExists` if there is one.
    pub fn put_new(&self, object: &str, bytes: Vec<u8>) -> Result<()> {
        let path = self.path(object);
        let options = PutOptions {
            mode: PutMode::Create,
            ..PutOptions::default()
        };
        let put = self.store.put_opts(&path, PutPayload::from(bytes), options);
        let done = self.runtime.block_on(put);
        done.map(drop).map_err(|e| failed(&e, object))
    }

    /// The content of a small object.
    pub fn get(&self, object: &str) -> Result<Vec<u8>> {
        let path = self.path(object);
        let done = self.runtime.block_on(async {
            let found = self.store.get(&path).await?;
            found.bytes().await
        });
        done.map(|bytes| bytes.to_vec())
            .map_err(|e| failed(&e, object))
    }

    /// Removes an object; one that is not there is gone already.
    pub fn remove(&self, object: &str) -> Result<()> {
        let path = self.path(object);
        match self.runtime.block_on(self.store.delete(&path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(failed(&e, object)),
        }
    }

    /// Sends files; returns their checksums, in order. `sent` hears of bytes on the way.
    pub fn send(&self, files: &[Transfer], sent: &(dyn Fn(u64) + Sync)) -> Result<Vec<u64>> {
        let jobs = files.iter().map(|file| {
            let path = self.path(&file.object);
            upload(Arc::clone(&self.store), path, file.clone())
        });
        self.all(jobs, true, sent).into_iter().collect()
    }

    /// Fetches objects, into files, not synced, or only to read them (`keep`). Returns the checksums, in order; after the first
    /// error nothing more is begun if `keep`.
    pub fn fetch(
        &self,
        files: &[Transfer],
        keep: bool,
        received: &(dyn Fn(u64) + Sync),
    ) -> Vec<Result<u64>> {
        let jobs = files.iter().map(|file| {
            let path = self.path(&file.object);
            download(Arc::clone(&self.store), path, file.clone(), keep)
        });
        self.all(jobs, keep, received)
    }

    /// Runs the jobs, a few at a time; with `stop`, none begins after one has failed.
    fn all<J>(
        &self,
        jobs: impl Iterator<Item = J>,
        stop: bool,
        done: &(dyn Fn(u64) + Sync),
    ) -> Vec<Result<u64>>
    where
        J: Future<Output = Result<(u64, u64)>> + Send + 'static,
    {
        self.runtime.block_on(async {
            let mut results: Vec<Result<u64>> = Vec::new();
            let mut running: JoinSet<(usize, Result<(u64, u64)>)> = JoinSet::new();
            let mut jobs = jobs.enumerate();
            let mut failed = false;
            loop {
                while running.len() < PARALLEL
                    && !(stop && failed)
                    && let Some((at, job)) = jobs.next()
                {
                    let unknown = Error::new(ErrorKind::ShutDown, "the transfer was broken off");
                    results.push(Err(unknown));
                    running.spawn(async move { (at, job.await) });
                }
                match running.join_next().await {
                    None => return results,
                    Some(Ok((at, result))) => {
                        failed |= result.is_err();
                        results[at] = result.map(|(sum, len)| {
                            done(len);
                            sum
                        });
                    }
                    // It panicked: its result says that it was broken off.
                    Some(Err(_)) => failed = true,
                }
            }
        })
    }
}

/// Returns checksum and length. The chunks are read in place: a worker thread that waits for the disk is one that
/// sends nothing, which is what bounds the load.
async fn upload(
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    from: Transfer,
) -> Result<(u64, u64)> {
    let mut file = File::open(&from.file).map_err(|e| local(&e, &from.file))?;
    let mut writer = BufWriter::with_capacity(store, path, CHUNK).with_max_concurrency(2);
    let mut hash = Xxh3::new();
    let mut left = from.len;
    let mut chunk = vec![0; CHUNK.min(left as usize)];
    while left > 0 {
        let part = &mut chunk[..CHUNK.min(left as usize)];
        file.read_exact(part).map_err(|e| local(&e, &from.file))?;
        hash.update(part);
        let written = writer.write_all(part).await;
        written.map_err(|e| Error::io(&e, &from.object))?;
        left -= part.len() as u64;
    }
    // The object appears now, as a whole.
    let done = writer.shutdown().await;
    done.map_err(|e| Error::io(&e, &from.object))?;
    Ok((hash.digest(), from.len))
}

async fn download(
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    to: Transfer,
    keep: bool,
) -> Result<(u64, u64)> {
    let mut file = match keep {
        true => Some(File::create_new(&to.file).map_err(|e| local(&e, &to.file))?),
        false => None,
    };
    let meta = store
        .head(&path)
        .await
        .map_err(|e| missing(&e, &to.object))?;
    if meta.size != to.len {
        let what = format!("{} bytes, the backup says {}", meta.size, to.len);
        return Err(Error::corruption(&to.object, meta.size.min(to.len), what));
    }
    let mut hash = Xxh3::new();
    let mut at = 0;
    while at < to.len {
        let end = to.len.min(at + CHUNK as u64);
        let part = store.get_range(&path, at..end).await;
        let part = part.map_err(|e| missing(&e, &to.object))?;
        if part.len() as u64 != end - at {
            return Err(Error::corruption(&to.object, at, "the object ends early"));
        }
        hash.update(&part);
        if let Some(file) = &mut file {
            file.write_all(&part).map_err(|e| local(&e, &to.file))?;
        }
        at = end;
    }
    Ok((hash.digest(), to.len))
}

/// An object that a backup names and that is not there is damage.
fn missing(error: &object_store::Error, object: &str) -> Error {
    match error {
        object_store::Error::NotFound { .. } => {
            Error::corruption(object, 0, "the object is missing")
        }
        _ => failed(error, object),
    }
}
