//! Whose store it is: the object `db` has the id of the database.
//!
//! A URL with a slip of the pen may lead to the files of another database. Their ids are the same
//! numbers, and blocks have no name of their database, so reads would return that one's rows. So
//! the first request of a process reads `db` first, and the first upload creates it. Then the
//! process becomes the owner, unless the store is that of another copy: see [`crate::owner`]. A
//! database that has files in a store never takes an empty one for it.

use crate::names::{IDENTITY, OWNER};
use crate::owner::{OwnerFile, refused};
use bytes::Bytes;
use firn::base::epoch::DatabaseId;
use firn_objects::{
    Clock, Error, ErrorKind, ObjectInfo, ObjectStore, Page, PartTag, PutNew, Result, UploadId,
    UploadInfo,
};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A store that answers only if it belongs to the database.
pub struct IdentifiedStore {
    open: OpenStore,
    store: OnceLock<Arc<dyn ObjectStore>>,
    /// The database, and whether its manifest names objects.
    database: OnceLock<(DatabaseId, bool)>,
    owner_file: OwnerFile,
    /// The token of this process.
    token: String,
    /// The tokens of this process and earlier ones, once this process is the owner.
    tokens: Mutex<Vec<String>>,
    is_ours: AtomicBool,
    /// Another copy has become the owner.
    is_lost: AtomicBool,
}

/// Opens the store. It may be called again if it fails: a shared directory may not be mounted yet
/// when the database opens.
pub type OpenStore = Box<dyn Fn() -> Result<Arc<dyn ObjectStore>> + Send + Sync>;

fn nobodys() -> Error {
    let text = "no database has files there; is it the right store, and is it mounted?";
    Error::new(ErrorKind::Invalid, text)
}

/// Whose a store is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ours,
    Nobody,
}

impl IdentifiedStore {
    pub fn new(open: OpenStore, owner_file: OwnerFile, clock: &dyn Clock) -> Self {
        Self {
            open,
            store: OnceLock::new(),
            database: OnceLock::new(),
            owner_file,
            token: format!("{:016x}{:016x}", clock.random(), clock.random()),
            tokens: Mutex::default(),
            is_ours: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Tells whose the store must be, and whether the database names objects, which are there then.
    pub fn belongs_to(&self, database: DatabaseId, names_objects: bool) {
        // A second call comes from a second open with the same store, which no caller makes.
        let _ = self.database.set((database, names_objects));
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
        if self.is_lost.load(Ordering::Acquire) {
            return Err(refused("another copy has taken the store over"));
        }
        if self.is_ours.load(Ordering::Acquire) {
            return Ok(Owner::Ours);
        }
        match self.store()?.get(IDENTITY) {
            Ok(found) if found == self.text()? => {
                self.become_owner()?;
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

    /// The token of the owner.
    fn owner_token(&self) -> Result<Option<String>> {
        match self.store()?.get(OWNER) {
            Ok(found) => {
                let text = String::from_utf8_lossy(&found);
                let token = text.strip_prefix("firn owner ").unwrap_or(&text);
                Ok(Some(token.trim_end().to_owned()))
            }
            Err(error) if error.kind() == ErrorKind::Absent => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes this process the owner, if the owner so far was a process of this directory.
    fn become_owner(&self) -> Result<()> {
        let mut tokens = self.tokens.lock();
        if !tokens.is_empty() {
            return Ok(());
        }
        let known = self.owner_file.known()?;
        let found = self.owner_token()?;
        let is_known = |token: &String| *token == self.token || known.tokens.contains(token);
        if found.as_ref().is_some_and(|token| !is_known(token)) {
            let why = known.copied.as_deref();
            return Err(refused(why.unwrap_or("a copy has used the store since")));
        }
        // Durable before the store has it. A put that fails now may be executed later.
        let all = [self.token.clone()].into_iter().chain(found);
        let kept = self.owner_file.write(all.chain(known.tokens))?;
        let text = Bytes::from(format!("firn owner {}\n", self.token));
        self.store()?.put(OWNER, text)?;
        *tokens = kept;
        Ok(())
    }

    /// Learns whether this process is still the owner. Once another one is, all requests are
    /// refused. Without an owner, the store may come back: as a directory that is not mounted.
    pub fn check_owner(&self) -> Result<()> {
        let Some(found) = self.owner_token()? else {
            let text = format!("its object {OWNER} is gone: is it the right store?");
            return Err(Error::new(ErrorKind::Invalid, text));
        };
        if !self.tokens.lock().contains(&found) {
            self.is_lost.store(true, Ordering::Release);
            return Err(refused("another copy has taken the store over"));
        }
        Ok(())
    }

    /// An answer to a read. If the object is gone, the reason may be that another copy has become
    /// the owner.
    fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        if matches!(&answer, Err(error) if error.kind() == ErrorKind::Absent) {
            self.check_owner()?;
        }
        answer
    }

    fn named(&self) -> Result<(DatabaseId, bool)> {
        self.database.get().copied().ok_or_else(|| {
            let text = "a request before the database was identified";
            Error::new(ErrorKind::Invalid, text)
        })
    }

    fn text(&self) -> Result<Bytes> {
        let (database, _) = self.named()?;
        Ok(Bytes::from(format!("firn database {database}\n")))
    }

    /// Before a request that stores nothing.
    fn ask(&self) -> Result<&dyn ObjectStore> {
        match self.owner()? {
            Owner::Ours => self.store(),
            Owner::Nobody => Err(nobodys()),
        }
    }

    /// Before a request that changes what the store has.
    fn change(&self) -> Result<&dyn ObjectStore> {
        let store = self.ask()?;
        self.check_owner()?;
        Ok(store)
    }

    /// Before a request that stores something.
    fn claim(&self) -> Result<&dyn ObjectStore> {
        if self.owner()? == Owner::Nobody {
            // A directory that is not mounted looks like a new store.
            if self.named()?.1 {
                return Err(nobodys());
            }
            // Whoever has created it meanwhile is found by the next look.
            self.store()?.put_new(IDENTITY, self.text()?)?;
        }
        self.change()
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
        self.answer(self.ask()?.get(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.answer(self.ask()?.get_range(name, range))
    }

    fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.answer(self.ask()?.get_ranges(name, ranges))
    }

    fn head(&self, name: &str) -> Result<ObjectInfo> {
        self.ask()?.head(name)
    }

    fn list_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<ObjectInfo>> {
        self.ask()?.list_page(prefix, token)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.change()?.delete(name)
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
        self.change()?.abort_upload(name, id)
    }

    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<UploadInfo>> {
        self.ask()?.list_uploads_page(prefix, token)
    }

    fn close(&self) {
        if let Some(store) = self.store.get() {
            store.close();
        }
    }
}
