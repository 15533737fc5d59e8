//! Files in an object store as the engine sees them.

use super::file_name::FileId;
use crate::base::Result;
use crate::base::epoch::DatabaseId;
use crate::env::{PrefetchBatch, ReadClass, ReadFile};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The file in the data directory of a database that has used an object store. It says whether the
/// store belongs to this directory.
pub const OWNER_FILE: &str = "STORE";

/// An SST that is in the object store, or is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteSst {
    /// Its id, from which the name of the object derives.
    pub id: FileId,
    /// Its size, bytes.
    pub bytes: u64,
    /// The checksum of all its bytes, from the manifest.
    pub checksum: u64,
    /// Bytes behind its data blocks; 0 if that is not known.
    pub tail_bytes: u64,
}

/// Where a database keeps files that nobody reads often: an object store behind a local cache.
///
/// An object is written once and never changes, as the SST that it holds. It is stored whole or not
/// at all, and durable when [`Self::upload`] returns.
///
/// # Errors
/// Of all methods: `Unreachable` if the store does not answer or refuses, and a later call may
/// succeed; `Interrupted` if `stopping` was set; `Corruption` if the store does not have the bytes
/// that were stored; `InvalidArgument` if the store belongs to another database.
#[allow(clippy::missing_errors_doc)] // Named once, above.
pub trait RemoteFiles: Send + Sync + 'static {
    /// How errors and reports call the store: its URL.
    fn name(&self) -> &str;

    /// Tells whose files these are, before any other call, and whether the manifest names objects.
    /// The first request to the store checks that it belongs to this database. A store that belongs
    /// to nobody becomes the store of the database with the first upload, unless there should be
    /// objects already.
    fn belongs_to(&self, database: DatabaseId, names_objects: bool);

    /// Opens an SST for reading. Asks nobody: a read does.
    fn open(&self, file: &RemoteSst) -> Result<Arc<dyn ReadFile>>;

    /// Whether the store has the object of an SST, with any bytes.
    fn is_there(&self, file: &RemoteSst) -> Result<bool>;

    /// Stores the local file at `path`, and verifies that the store has the bytes of this checksum.
    /// Waits as long as the store needs. From here until [`Self::release`] the object is no stray.
    fn upload(&self, file: &RemoteSst, path: &Path, stopping: &AtomicBool) -> Result<()>;

    /// The manifest names the object of an upload that has ended in any way, or never will.
    fn release(&self, file: &RemoteSst);

    /// Deletes the objects with the id of an SST, and what the local cache has of them. It is no
    /// error if there is none.
    fn delete(&self, id: FileId) -> Result<()>;

    /// The database closes: calls under way, and those to come, end soon with an error.
    fn stop(&self);

    /// Deletes strays, which are old objects with ids and checksums that `is_named` does not know,
    /// and the chunks of such files in the local cache. Returns the number of objects.
    fn sweep(&self, is_named: &dyn Fn(FileId, u64) -> bool) -> Result<u64>;

    /// Whether the store takes room of the disk that has the local directory `dir`: then a file
    /// that moves there frees none.
    fn shares_disk_with(&self, dir: &Path) -> bool;

    /// Shows others that this process still uses the store. Call it at least once a minute.
    fn beat(&self);
}

/// A file, and something that is kept as long as it is open.
struct KeptAlive {
    file: Arc<dyn ReadFile>,
    _life: Arc<dyn Send + Sync>,
}

/// Lets `file` keep `life` as long as it is open.
pub(super) fn kept_alive(file: Arc<dyn ReadFile>, life: Arc<dyn Send + Sync>) -> Arc<dyn ReadFile> {
    Arc::new(KeptAlive { file, _life: life })
}

impl ReadFile for KeptAlive {
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(class, offset, buf)
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }

    fn distrust(&self) -> bool {
        self.file.distrust()
    }

    fn prefetch(&self, offset: u64, len: u64, reads: &mut PrefetchBatch) {
        self.file.prefetch(offset, len, reads);
    }
}
