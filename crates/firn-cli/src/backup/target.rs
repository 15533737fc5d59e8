//! A target of backups: a directory, or a bucket.

use super::backup_format::{ByteRange, Piece};
use super::local_error::local_error;
use super::pieces::PieceSource;
use firn::base::{Error, ErrorKind, Result};
use firn::env::{ReadClass, ReadFile};
use firn_objects::OpenSsl;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, WriteMultipart};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, block_in_place};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read or written at once; also the size of a part of an upload in parts.
const CHUNK: u64 = 8 << 20;

/// Files that are transferred at the same time.
const PARALLEL: usize = 4;

#[cfg(test)]
pub type OnList = Box<dyn Fn(&str)>;

/// A place where backups are kept.
pub struct Target {
    store: Arc<dyn ObjectStore>,
    root: ObjectPath,
    runtime: Runtime,
    name: String,
    /// Called before a folder is listed.
    #[cfg(test)]
    pub on_list: Option<OnList>,
}

/// An object to be fetched or read.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Name of the object below the root of the target, and the ranges that it holds.
    pub piece: Piece,
    /// The local file; none if the object is only read. It must exist in its full size.
    pub file: Option<PathBuf>,
}

/// A file to be sent.
#[derive(Clone)]
pub struct Upload {
    /// Name of the object below the root of the target, and the ranges of the file that it holds.
    pub piece: Piece,
    /// The file.
    pub from: UploadSource,
}

/// The place of a file to be sent.
#[derive(Clone)]
pub enum UploadSource {
    /// A local file.
    File(PathBuf),
    /// A file of an object store.
    Remote(Arc<dyn ReadFile>),
}

/// How often a file of an object store is read whose bytes were damaged on their way.
const REMOTE_TRIES: u32 = 3;

fn failed(error: &object_store::Error, what: &str) -> Error {
    let kind = match error {
        object_store::Error::NotFound { .. } => ErrorKind::NotFound,
        object_store::Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        _ => ErrorKind::Io { os_errno: 0 },
    };
    Error::new(kind, format!("{what}: {error}"))
}

impl Target {
    /// Opens the target that `text` names: a directory, `file:///…` or `s3://bucket/prefix`. A
    /// missing directory is created if `create` is set. Keys, region and endpoint of a bucket come
    /// from the environment, as the `AWS_…` variables. Retries of failed requests are those of
    /// `object_store`, with its defaults.
    ///
    /// # Errors
    /// `Unsupported` for other schemes, `NotFound` for a missing directory.
    pub fn open(text: &str, create: bool) -> Result<Self> {
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let mut builder = AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_crypto_provider(Arc::new(OpenSsl));
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
            std::fs::create_dir_all(path).map_err(|e| local_error(&e, Path::new(path)))?;
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

    /// A target of the objects below `root` in a store.
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
            #[cfg(test)]
            on_list: None,
        })
    }

    /// The name with which the target was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self, object: &str) -> ObjectPath {
        below(&self.root, object)
    }

    /// Names and sizes of the objects in a folder, ascending by name.
    pub fn list(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        #[cfg(test)]
        if let Some(on_list) = &self.on_list {
            on_list(folder);
        }
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

    /// Creates a small object. Fails with `AlreadyExists` if the object exists.
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

    /// Removes an object. A missing one is no error.
    pub fn remove(&self, object: &str) -> Result<()> {
        let path = self.path(object);
        match self.runtime.block_on(self.store.delete(&path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(failed(&e, object)),
        }
    }

    /// Sends files. An object appears when it is complete and its checksum is right. `sent` is
    /// called with the number of bytes of each file that was sent.
    ///
    /// # Errors
    /// `Corruption` if the checksum of a file differs from that of its piece.
    pub fn send(&self, files: &[Upload], sent: &(dyn Fn(u64) + Sync)) -> Result<()> {
        let jobs = files.iter().map(|file| {
            let path = self.path(&file.piece.object);
            let (store, file) = (Arc::clone(&self.store), file.clone());
            async move {
                let mut sent = upload(&store, &path, &file).await;
                for _ in 1..REMOTE_TRIES {
                    match (&sent, &file.from) {
                        (Err(error), UploadSource::Remote(remote))
                            if error.is_corruption() && remote.distrust() =>
                        {
                            sent = upload(&store, &path, &file).await;
                        }
                        _ => break,
                    }
                }
                sent
            }
        });
        self.all(jobs, true, sent).into_iter().collect()
    }

    /// Reads the parts and sends each as a piece, unless `there` (names and sizes of existing
    /// objects) has the piece already. Returns for each part, in order, its piece and whether it
    /// was sent; `None` for a part of zeros.
    pub fn send_parts(
        &self,
        parts: &[PieceSource],
        there: &Arc<HashMap<String, u64>>,
        sent: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Option<(Piece, bool)>>> {
        let jobs = parts.iter().map(|part| {
            let (store, root) = (Arc::clone(&self.store), self.root.clone());
            let (part, there) = (part.clone(), Arc::clone(there));
            async move {
                let Some((piece, bytes)) = part.read()? else {
                    return Ok((None, part.len));
                };
                let missing = there.get(&piece.object) != Some(&piece.len());
                if missing {
                    let put = store.put(&below(&root, &piece.object), bytes.into()).await;
                    put.map_err(|e| failed(&e, &piece.object))?;
                }
                Ok((Some((piece, missing)), part.len))
            }
        });
        self.all(jobs, true, sent).into_iter().collect()
    }

    /// Fetches objects into their files, without a sync, or only reads them. Returns for each
    /// object whether it is as it was sent. With `stop`, no further object is begun after the first
    /// error.
    pub fn fetch(
        &self,
        files: &[Transfer],
        stop: bool,
        received: &(dyn Fn(u64) + Sync),
    ) -> Vec<Result<()>> {
        let jobs = files.iter().map(|file| {
            let path = self.path(&file.piece.object);
            download(Arc::clone(&self.store), path, file.clone())
        });
        self.all(jobs, stop, received)
    }

    /// Runs jobs, a few at a time. A job returns its result and a number of bytes, which is passed
    /// to `done`. With `stop`, no further job begins after one has failed.
    fn all<T, J>(
        &self,
        jobs: impl Iterator<Item = J>,
        stop: bool,
        done: &(dyn Fn(u64) + Sync),
    ) -> Vec<Result<T>>
    where
        T: Send + 'static,
        J: Future<Output = Result<(T, u64)>> + Send + 'static,
    {
        self.runtime.block_on(async {
            let mut results: Vec<Result<T>> = Vec::new();
            let mut running: JoinSet<(usize, Result<(T, u64)>)> = JoinSet::new();
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
                        results[at] = result.map(|(value, len)| {
                            done(len);
                            value
                        });
                    }
                    // The job panicked. When it began, `results` got an error that stands for an
                    // unknown outcome of this job; that error stays.
                    Some(Err(_)) => failed = true,
                }
            }
        })
    }
}

fn below(root: &ObjectPath, object: &str) -> ObjectPath {
    let parts = root.parts().map(|part| part.as_ref().to_owned());
    ObjectPath::from_iter(parts.chain(object.split('/').map(str::to_owned)))
}

/// A file that is open to be sent.
enum OpenSource<'a> {
    File(File, &'a Path),
    Remote(&'a Arc<dyn ReadFile>),
}

impl<'a> OpenSource<'a> {
    fn of(source: &'a UploadSource) -> Result<Self> {
        Ok(match source {
            UploadSource::File(name) => {
                let file = File::open(name).map_err(|e| local_error(&e, name))?;
                Self::File(file, name)
            }
            UploadSource::Remote(file) => Self::Remote(file),
        })
    }

    fn read(&self, at: u64, chunk: &mut [u8]) -> Result<()> {
        match self {
            Self::File(file, name) => {
                let done = file.read_exact_at(chunk, at);
                done.map_err(|e| local_error(&e, name))
            }
            // A store waits in a runtime of its own, which a thread of this one must not enter.
            Self::Remote(file) => {
                block_in_place(|| file.read_exact_at(ReadClass::Backup, at, chunk))
            }
        }
    }
}

/// Uploads a file. The reads of its chunks block a worker thread of the runtime, which sends
/// nothing while it waits for the disk. That limits the load that a backup puts on the machine.
async fn upload(
    store: &Arc<dyn ObjectStore>,
    path: &ObjectPath,
    from: &Upload,
) -> Result<((), u64)> {
    let object = &from.piece.object;
    let source = OpenSource::of(&from.from)?;
    let name = match &source {
        OpenSource::File(_, name) => name.display().to_string(),
        OpenSource::Remote(_) => object.clone(),
    };
    let mut hash = Xxh3::new();
    let read = |hash: &mut Xxh3, at: u64, len: u64| -> Result<Vec<u8>> {
        let mut chunk = vec![0; len as usize];
        source.read(at, &mut chunk)?;
        hash.update(&chunk);
        Ok(chunk)
    };
    let len = from.piece.len();
    let chunks = chunks(&from.piece.runs);
    if len <= CHUNK {
        let mut bytes = Vec::new();
        for (at, len) in chunks {
            bytes.append(&mut read(&mut hash, at, len)?);
        }
        expect(&hash, &from.piece, &name)?;
        let put = store.put(path, bytes.into()).await;
        return put.map(|_| ((), len)).map_err(|e| failed(&e, object));
    }
    let upload = store.put_multipart(path).await;
    let upload = upload.map_err(|e| failed(&e, object))?;
    let mut writer = WriteMultipart::new_with_chunk_size(upload, CHUNK as usize);
    let sent = async {
        for (at, len) in chunks {
            let ready = writer.wait_for_capacity(2).await;
            ready.map_err(|e| failed(&e, object))?;
            writer.put(read(&mut hash, at, len)?.into());
        }
        expect(&hash, &from.piece, &name)
    }
    .await;
    match sent {
        // Now the object appears, as a whole.
        Ok(()) => writer.finish().await.map(drop),
        Err(error) => {
            // Report the first error, not one of the abort.
            let _ = writer.abort().await;
            return Err(error);
        }
    }
    .map_err(|e| failed(&e, object))?;
    Ok(((), len))
}

/// Splits the ranges `runs` into chunks of at most [`CHUNK`] bytes: offset and length of each.
fn chunks(runs: &[ByteRange]) -> impl Iterator<Item = ByteRange> {
    runs.iter().flat_map(|&(at, len)| {
        let starts = (0..len).step_by(CHUNK as usize);
        starts.map(move |from| (at + from, CHUNK.min(len - from)))
    })
}

fn expect(hash: &Xxh3, piece: &Piece, name: &str) -> Result<()> {
    match format!("{:016x}", hash.digest()) == piece.checksum {
        true => Ok(()),
        false => Err(Error::corruption(
            name,
            0,
            "not as it was written: its checksum differs",
        )),
    }
}

async fn download(
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    to: Transfer,
) -> Result<((), u64)> {
    let Piece { object, runs, .. } = &to.piece;
    let name = to.file.clone().unwrap_or_default();
    let file = match name.as_os_str().is_empty() {
        false => Some(File::options().write(true).open(&name)),
        true => None,
    };
    let file = file.transpose().map_err(|e| local_error(&e, &name))?;
    let meta = store.head(&path).await.map_err(|e| missing(&e, object))?;
    let len = to.piece.len();
    if meta.size != len {
        let what = format!("{} bytes, the backup says {len}", meta.size);
        return Err(Error::corruption(object, meta.size.min(len), what));
    }
    let mut hash = Xxh3::new();
    // The bytes of one object may go to several ranges of the file.
    let mut places = runs.iter().copied();
    let (mut place, mut left) = places.next().unwrap_or_default();
    let mut at = 0;
    while at < len {
        let end = len.min(at + CHUNK);
        let part = store.get_range(&path, at..end).await;
        let part = part.map_err(|e| missing(&e, object))?;
        if part.len() as u64 != end - at {
            return Err(Error::corruption(object, at, "the object ends early"));
        }
        hash.update(&part);
        let mut rest = &part[..];
        while let Some(file) = &file
            && !rest.is_empty()
        {
            while left == 0 {
                (place, left) = places.next().unwrap_or((0, u64::MAX));
            }
            let (now, later) = rest.split_at(rest.len().min(left as usize));
            file.write_all_at(now, place)
                .map_err(|e| local_error(&e, &name))?;
            (place, left) = (place + now.len() as u64, left - now.len() as u64);
            rest = later;
        }
        at = end;
    }
    expect(&hash, &to.piece, object)?;
    Ok(((), len))
}

/// Returns the error for an object. A missing object is damage, because a backup names the object.
fn missing(error: &object_store::Error, object: &str) -> Error {
    match error {
        object_store::Error::NotFound { .. } => {
            Error::corruption(object, 0, "the object is missing")
        }
        _ => failed(error, object),
    }
}
