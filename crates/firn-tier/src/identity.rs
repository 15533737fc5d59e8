//! Whose store it is: the object `db` has the id of the database.
//!
//! A URL with a slip of the pen may lead to the files of another database. Their ids are the same
//! numbers, and blocks have no name of their database, so reads would return that one's rows. So
//! the first request of a process reads `db` first, and the first upload creates it.

use crate::names::IDENTITY;
use bytes::Bytes;
use firn::base::epoch::DatabaseId;
use firn_objects::{
    Error, ErrorKind, ObjectInfo, ObjectStore, Page, PartTag, PutNew, Result, UploadId, UploadInfo,
};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A store that answers only if it belongs to the database.
pub struct IdentifiedStore {
    open: OpenStore,
    store: OnceLock<Arc<dyn ObjectStore>>,
    database: OnceLock<DatabaseId>,
    is_ours: AtomicBool,
}

/// Opens the store. It may be called again if it fails: a shared directory may not be mounted yet
/// when the database opens.
pub type OpenStore = Box<dyn Fn() -> Result<Arc<dyn ObjectStore>> + Send + Sync>;

/// Whose a store is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ours,
    Nobody,
}

impl IdentifiedStore {
    pub fn new(open: OpenStore) -> Self {
        Self {
            open,
            store: OnceLock::new(),
            database: OnceLock::new(),
            is_ours: AtomicBool::new(false),
        }
    }

    /// Tells whose the store must be.
    pub fn belongs_to(&self, database: DatabaseId) {
        // A second call comes from a second open with the same store, which no caller makes.
        let _ = self.database.set(database);
    }

    /// Whether the store has an identity. It is that of this database then.
    pub fn is_taken(&self) -> Result<bool> {
        Ok(self.owner()? == Owner::Ours)
    }

    /// The store, which is opened if necessary.
    fn store(&self) -> Result<&dyn ObjectStore> {
        if let Some(store) = self.store.get() {
            return Ok(&**store);
        }
        let opened = (self.open)().map_err(|error| match error.kind() {
            // What is missing is the store, not an object.
            ErrorKind::Absent => Error::new(ErrorKind::Unreachable, error.to_string()),
            _ => error,
        })?;
        Ok(&**self.store.get_or_init(|| opened))
    }

    fn owner(&self) -> Result<Owner> {
        if self.is_ours.load(Ordering::Acquire) {
            return Ok(Owner::Ours);
        }
        match self.store()?.get(IDENTITY) {
            Ok(found) if found == self.text()? => {
                self.is_ours.store(true, Ordering::Release);
                Ok(Owner::Ours)
            }
            Ok(found) => {
                let found = String::from_utf8_lossy(&found[..found.len().min(100)]).into_owned();
                let text = format!("it belongs to another database: {}", found.trim_end());
                Err(Error::new(ErrorKind::Invalid, text))
            }
            Err(error) if error.kind() == ErrorKind::Absent => Ok(Owner::Nobody),
            Err(error) => Err(error),
        }
    }

    fn text(&self) -> Result<Bytes> {
        let Some(database) = self.database.get() else {
            let text = "a request before the database was identified";
            return Err(Error::new(ErrorKind::Invalid, text));
        };
        Ok(Bytes::from(format!("firn database {database}\n")))
    }

    /// Before a request that stores nothing.
    fn ask(&self) -> Result<&dyn ObjectStore> {
        match self.owner()? {
            Owner::Ours => self.store(),
            Owner::Nobody => {
                let text = "no database has files there; is the URL right?";
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }

    /// Before a request that stores something.
    fn claim(&self) -> Result<&dyn ObjectStore> {
        if self.owner()? == Owner::Nobody {
            // Whoever has created it meanwhile is found by the next look.
            self.store()?.put_new(IDENTITY, self.text()?)?;
            return self.ask();
        }
        self.store()
    }
}

impl ObjectStore for IdentifiedStore {
    fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.claim()?.put(name, bytes)
    }

    fn put_new(&self, name: &str, bytes: Bytes) -> Result<PutNew> {
        self.claim()?.put_new(name, bytes)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.ask()?.get(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.ask()?.get_range(name, range)
    }

    fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.ask()?.get_ranges(name, ranges)
    }

    fn head(&self, name: &str) -> Result<ObjectInfo> {
        self.ask()?.head(name)
    }

    fn list_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<ObjectInfo>> {
        self.ask()?.list_page(prefix, token)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.ask()?.delete(name)
    }

    fn begin_upload(&self, name: &str) -> Result<UploadId> {
        self.claim()?.begin_upload(name)
    }

    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Result<PartTag> {
        self.claim()?.put_part(name, id, index, bytes)
    }

    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Result<()> {
        self.claim()?.complete_upload(name, id, parts)
    }

    fn abort_upload(&self, name: &str, id: &UploadId) -> Result<()> {
        self.ask()?.abort_upload(name, id)
    }

    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<UploadInfo>> {
        self.ask()?.list_uploads_page(prefix, token)
    }
}
