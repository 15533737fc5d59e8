//! Whose store it is: the object `db` has the id of the database.
//!
//! A URL with a slip of the pen may lead to the files of another database. Their ids are the same
//! numbers, and blocks have no name of their database, so reads would return that one's rows. So
//! the first request of a process reads `db` first, and the first upload creates it. Before its
//! first change a process becomes the owner, unless another copy is: see [`crate::owner`]. A
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
    clock: Arc<dyn Clock>,
    ownership: Mutex<OwnerState>,
    is_ours: AtomicBool,
    /// Another copy has become the owner.
    is_lost: AtomicBool,
    /// This process is the owner, unless it has lost that.
    is_owner: AtomicBool,
    /// Another copy was the owner when this process asked last.
    is_refused: AtomicBool,
    /// The process says that it is gone, and changes nothing any more.
    leaves: AtomicBool,
    /// Held around each put of the token, so that no beat follows the word that the owner is gone.
    putting: Mutex<()>,
}

/// Whose a store is, as far as a process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// This process has changed nothing yet.
    Unknown,
    /// This process may change the store.
    Ours,
    /// Another copy of the database may.
    Others,
}

/// How the object of the owner begins, and what an owner says that has closed.
const OWNER_HEAD: &str = "firn owner ";
/// See [`OWNER_HEAD`].
const GONE: &str = "gone";

/// How often an owner shows that it lives, microseconds.
const BEAT_US: u64 = 60_000_000;
/// How long an owner must be silent before another process of its directory becomes the owner,
/// microseconds.
const SILENT_US: u64 = 120_000_000;

/// A beat that ends later than this after the one before, microseconds, shows nothing: another
/// process may have become the owner meanwhile, and lost its token to this very beat.
const SURE_US: u64 = SILENT_US / 4 * 3;

/// A look at the owner is good for a change that begins within this time, microseconds. A process
/// that was stopped for longer may have lost the store meanwhile.
const LOOK_US: u64 = 10_000_000;
/// How often a process looks that is stopped again and again.
const LOOKS_MAX: u32 = 3;

/// The contents of the object of the owner.
struct FoundOwner {
    token: String,
    is_gone: bool,
    text: String,
}

/// This process's knowledge of the owner.
struct OwnerState {
    /// The token of this process.
    token: String,
    /// This token and earlier ones; none until this process is the owner.
    tokens: Vec<String>,
    /// How often this owner has shown that it lives, and when the last put of it began, by both
    /// clocks.
    beats: u64,
    beaten: (u64, u64),
    /// The last words of another owner, and since when it says them.
    watched: Option<(String, u64)>,
}

fn new_token(clock: &dyn Clock) -> String {
    format!("{:016x}{:016x}", clock.random(), clock.random())
}

impl OwnerState {
    fn new(clock: &dyn Clock) -> Self {
        Self {
            token: new_token(clock),
            tokens: Vec::new(),
            beats: 0,
            beaten: (0, 0),
            watched: None,
        }
    }

    fn await_silence(&mut self, found: &FoundOwner, now_us: u64) -> Result<()> {
        match &self.watched {
            Some((text, since_us)) if *text == found.text => {
                if now_us.saturating_sub(*since_us) >= SILENT_US {
                    return Ok(());
                }
            }
            _ => self.watched = Some((found.text.clone(), now_us)),
        }
        let text = "its owner was not closed and may still live: nothing is changed before it has been silent for two \
                    minutes";
        Err(Error::new(ErrorKind::Refused, text))
    }
}

fn too_slow() -> Error {
    let text = "this process, or the store, is too slow to know who the owner is";
    Error::new(ErrorKind::Unreachable, text)
}

fn is_late() -> Error {
    let text = "this process, or the store, was stopped for so long that another process may have become the owner: \
                nothing is changed before the owner has been silent for two minutes";
    Error::new(ErrorKind::Unreachable, text)
}

fn closes() -> Error {
    Error::new(ErrorKind::Unreachable, "the database closes")
}

fn taken_over() -> Error {
    refused("it has taken the store over")
}

/// Opens the store. It may be called again if it fails: a shared directory may not be mounted yet
/// when the database opens.
pub type OpenStore = Box<dyn Fn() -> Result<Arc<dyn ObjectStore>> + Send + Sync>;

fn nobodys() -> Error {
    let text = "no database has files there; is it the right store, and is it mounted? If it was emptied on \
                purpose, stop the server and remove the file STORE from its data directory";
    Error::new(ErrorKind::Invalid, text)
}

/// Whose a store is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ours,
    Nobody,
}

impl IdentifiedStore {
    pub fn new(open: OpenStore, owner_file: OwnerFile, clock: Arc<dyn Clock>) -> Self {
        Self {
            open,
            store: OnceLock::new(),
            database: OnceLock::new(),
            owner_file,
            ownership: Mutex::new(OwnerState::new(&*clock)),
            clock,
            is_ours: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            is_owner: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            putting: Mutex::new(()),
        }
    }

    /// Whose the store is. Asks nobody, and waits for nobody.
    pub fn ownership(&self) -> Ownership {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        match is(&self.is_owner) {
            _ if is(&self.is_lost) || is(&self.is_refused) => Ownership::Others,
            true => Ownership::Ours,
            false => Ownership::Unknown,
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
            // The store is missing, not an object.
            ErrorKind::Absent => Error::new(ErrorKind::Unreachable, error.to_string()),
            _ => error,
        })?;
        Ok(&**self.store.get_or_init(|| opened))
    }

    /// Whose the store is, as it has said once.
    fn owner(&self) -> Result<Owner> {
        if self.is_ours.load(Ordering::Acquire) {
            return Ok(Owner::Ours);
        }
        self.identity()
    }

    /// Whose the store is, as it says now.
    fn identity(&self) -> Result<Owner> {
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

    /// The object of the owner: its token, and what it says of itself.
    fn found_owner(&self) -> Result<Option<FoundOwner>> {
        match self.store()?.get(OWNER) {
            Ok(found) => {
                let text = String::from_utf8_lossy(&found).into_owned();
                let rest = text.strip_prefix(OWNER_HEAD).unwrap_or(&text).trim_end();
                let (token, state) = rest.split_once(' ').unwrap_or((rest, ""));
                Ok(Some(FoundOwner {
                    token: token.to_owned(),
                    is_gone: state == GONE,
                    text,
                }))
            }
            Err(error) if error.kind() == ErrorKind::Absent => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes this process the owner, if the owner so far is none, or was a process of this
    /// directory.
    fn become_owner(&self) -> Result<()> {
        let mut ownership = self.ownership.lock();
        if !ownership.tokens.is_empty() {
            return Ok(());
        }
        let known = self.owner_file.known()?;
        let asked = self.times();
        let found = self.found_owner()?;
        if let Some(found) = &found
            && found.token != ownership.token
        {
            if !known.tokens.contains(&found.token) {
                self.is_refused.store(true, Ordering::Release);
                let why = known.copied.as_deref();
                return Err(refused(why.unwrap_or("a copy has used the store since")));
            }
            if !found.is_gone {
                ownership.await_silence(found, self.clock.now_us())?;
            }
        }
        // Durable before the store has it. A put that fails now may be executed later.
        let all = [ownership.token.clone()].into_iter();
        let all = all
            .chain(found.map(|found| found.token))
            .chain(known.tokens);
        let tokens = self.owner_file.write(all)?;
        if !self.is_recent(asked) {
            return Err(too_slow());
        }
        let begun = self.times();
        self.put_owner(&ownership.token, "0")?;
        if !self.is_recent(asked) {
            self.begin_anew(&mut ownership);
            return Err(is_late());
        }
        ownership.tokens = tokens;
        ownership.beaten = begun;
        self.is_refused.store(false, Ordering::Release);
        self.is_owner.store(true, Ordering::Release);
        Ok(())
    }

    /// From here on, this process is one that does not know whether it is the owner, as one that
    /// has just started: a new token shows which put is of when.
    fn begin_anew(&self, ownership: &mut OwnerState) {
        *ownership = OwnerState::new(&*self.clock);
        self.is_owner.store(false, Ordering::Release);
    }

    fn put_owner(&self, token: &str, state: &str) -> Result<()> {
        let text = format!("{OWNER_HEAD}{token} {state}\n");
        self.store()?.put(OWNER, Bytes::from(text))
    }

    /// Learns whether this process is still the owner. Once another one is, all changes are
    /// refused. Without an owner, the store may come back: as a directory that is not mounted.
    ///
    /// The answer is no older than [`LOOK_US`] at the return, so that a process that was stopped
    /// between question and answer changes nothing by it. An earlier process of this directory that
    /// was stopped may have put its token again: then this one puts its own, so that the other one
    /// learns of it before its next change.
    pub fn check_owner(&self) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            let asked = self.times();
            let Some(found) = self.found_owner()? else {
                let text = format!("its object {OWNER} is gone: is it the right store?");
                return Err(Error::new(ErrorKind::Invalid, text));
            };
            let is_shown = {
                let ownership = self.ownership.lock();
                if ownership.tokens.is_empty() {
                    return Err(is_late());
                }
                if !ownership.tokens.contains(&found.token) {
                    self.is_lost.store(true, Ordering::Release);
                    return Err(taken_over());
                }
                found.token == ownership.token
            };
            if !self.is_recent(asked) {
                continue;
            }
            if is_shown {
                return Ok(());
            }
            self.put_beat()?;
        }
        Err(too_slow())
    }

    /// Now, by both clocks: the one that goes on evenly may stand still while the machine sleeps.
    fn times(&self) -> (u64, u64) {
        (self.clock.now_us(), self.clock.unix_s())
    }

    fn is_recent(&self, since: (u64, u64)) -> bool {
        self.is_within(since, LOOK_US)
    }

    /// Whether less than `us` have passed, by both clocks.
    fn is_within(&self, (since_us, since_s): (u64, u64), us: u64) -> bool {
        let (now_us, now_s) = self.times();
        now_us.saturating_sub(since_us) < us && now_s.saturating_sub(since_s) <= us / 1_000_000
    }

    /// Shows that the owner lives, if this process is the owner and it is time.
    pub fn beat(&self) -> Result<()> {
        if !self.is_beat_due() {
            return Ok(());
        }
        self.check_owner()?;
        self.put_beat()
    }

    fn is_beat_due(&self) -> bool {
        self.is_owner() && !self.is_within(self.ownership.lock().beaten, BEAT_US)
    }

    /// Whether no other process can have become the owner since the last beat.
    fn is_sure(&self) -> bool {
        let ownership = self.ownership.lock();
        !ownership.tokens.is_empty() && self.is_within(ownership.beaten, SURE_US)
    }

    /// Puts the token again. If that ends too late, the store may have become another's meanwhile,
    /// and its look behind this put would see this token. So this process begins anew.
    fn put_beat(&self) -> Result<()> {
        let leaves = || self.leaves.load(Ordering::Acquire);
        if leaves() {
            return Err(closes());
        }
        let _one = self.putting.lock();
        if leaves() {
            return Err(closes());
        }
        let (token, beats) = {
            let ownership = self.ownership.lock();
            if ownership.tokens.is_empty() {
                return Err(is_late());
            }
            (ownership.token.clone(), ownership.beats + 1)
        };
        let begun = self.times();
        self.put_owner(&token, &beats.to_string())?;
        let mut ownership = self.ownership.lock();
        if ownership.token != token || !self.is_within(ownership.beaten, SURE_US) {
            self.begin_anew(&mut ownership);
            return Err(is_late());
        }
        (ownership.beaten, ownership.beats) = (begun, beats);
        Ok(())
    }

    /// Whether this process is the owner, as far as it knows.
    pub fn is_owner(&self) -> bool {
        self.ownership() == Ownership::Ours
    }

    /// Says that the owner is gone, if this process is the owner: the next one need not wait.
    pub fn leave(&self) -> Result<()> {
        self.leaves.store(true, Ordering::Release);
        let _one = self.putting.lock();
        if !self.is_owner() {
            return Ok(());
        }
        self.check_owner()?;
        if !self.is_sure() {
            return Err(is_late());
        }
        let token = self.ownership.lock().token.clone();
        self.put_owner(&token, GONE)
    }

    /// An answer to a read. An object that is gone is damage only if the store is still ours: a
    /// directory may not be mounted any more, and another owner may have deleted the object.
    fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        if !matches!(&answer, Err(error) if error.kind() == ErrorKind::Absent) {
            return answer;
        }
        if self.identity()? == Owner::Nobody {
            return Err(nobodys());
        }
        if let Some(found) = self.found_owner()? {
            let ours = self.ownership.lock().tokens.contains(&found.token);
            if !ours && !self.owner_file.known()?.tokens.contains(&found.token) {
                return Err(taken_over());
            }
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
    pub fn change(&self) -> Result<&dyn ObjectStore> {
        if self.is_lost.load(Ordering::Acquire) {
            return Err(taken_over());
        }
        if self.leaves.load(Ordering::Acquire) {
            return Err(closes());
        }
        let store = self.ask()?;
        self.become_owner()?;
        self.check_owner()?;
        if self.is_beat_due() {
            let beaten = self.put_beat();
            if !self.is_sure() {
                // Another process may take this one for dead at any moment.
                beaten?;
            }
            self.check_owner()?;
        }
        match self.is_sure() {
            true => Ok(store),
            false => Err(is_late()),
        }
    }

    /// Makes the store that of this database, and this process the owner, if they are not yet.
    pub fn prepare(&self) -> Result<()> {
        self.claim().map(|_| ())
    }

    /// Before a request that stores something.
    fn claim(&self) -> Result<&dyn ObjectStore> {
        if self.owner()? == Owner::Nobody {
            // A directory that is not mounted looks like a new store, and so does a store that was
            // emptied. Once the store is this database's, it never becomes nobody's by itself.
            if self.named()?.1 || self.owner_file.known()?.used {
                return Err(nobodys());
            }
            // The next look finds another process that has created it meanwhile.
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
