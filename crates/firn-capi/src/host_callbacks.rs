//! Callbacks from the core into the server.

use crate::schema::{firn_collation, firn_collator, host_collation};
use firn::base::event_listener::{EventListener, Severity};
use firn::catalog::{CollationSchema, Collations, MetadataLocks, VirtualColumns};
use firn::txn::{WaitObserver, WaitReports};
use firn::wal::Acknowledgement;
use std::cmp::Ordering;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Callbacks into the server. They may be called from any thread; any may be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct firn_host {
    /// Writes a line to the error log; severity 0 note, 1 warning, 2 error.
    pub log: Option<unsafe extern "C" fn(severity: c_int, message: *const c_char)>,
    /// The blockers of which the server wants to hear by `lock_wait` when the session waits for a
    /// lock: 0 none, 1 those right ahead of it, 2 all. If this is NULL, none. Called on the thread
    /// of the session, and while it waits from other threads with locks of the core held, so the
    /// callback must not wait.
    pub lock_wait_reports: Option<unsafe extern "C" fn(waiter: *mut c_void) -> c_int>,
    /// Tells the server that the session `waiter` waits for a lock that the session `blocker`
    /// holds. The arguments are the `host` pointers of both sessions. The waiter's thread makes the
    /// call when the wait begins; the blocker's thread makes it when the blocker gets the lock
    /// while the waiter already waits. The thread holds locks of the core, so the callback must not
    /// call the core.
    pub lock_wait: Option<unsafe extern "C" fn(waiter: *mut c_void, blocker: *mut c_void)>,
    /// Whether the order in which the transactions of two sessions commit is fixed. If so, an
    /// insert of the one does not wait for gap locks of the other. Asked only if
    /// `lock_wait_reports` is 2 for the first one. The core may hold its own locks during the call,
    /// so the callback must not wait.
    pub order_is_fixed: Option<unsafe extern "C" fn(one: *mut c_void, other: *mut c_void) -> bool>,
    /// Which of two sessions in a deadlock is preferred as the victim: below 0 the first, above 0
    /// the second, 0 neither. The core may hold its own locks during the call, so the callback must
    /// not wait.
    pub preferred_victim:
        Option<unsafe extern "C" fn(one: *mut c_void, other: *mut c_void) -> c_int>,
    /// Tells the server that a lock wait begins. The calling thread is that of the waiting session,
    /// and is going to sleep for at most `timeout_us` microseconds. Returns the timeout to use
    /// instead, microseconds.
    pub wait_begins: Option<unsafe extern "C" fn(host: *mut c_void, timeout_us: u64) -> u64>,
    /// Tells the server that a lock wait has ended. The calling thread is that of the session that
    /// waited.
    pub wait_ends: Option<unsafe extern "C" fn(host: *mut c_void)>,
    /// Tells the server that the calling thread, which is that of the session, is going to sleep
    /// until flushes and compactions catch up with the writers.
    pub stall_begins: Option<unsafe extern "C" fn(host: *mut c_void)>,
    /// Tells the server that the sleep announced by `stall_begins` is over.
    pub stall_ends: Option<unsafe extern "C" fn(host: *mut c_void)>,
    /// Tells the server that the calling thread, which is that of the session, waits until a commit
    /// is durable.
    pub commit_wait_begins: Option<unsafe extern "C" fn(host: *mut c_void)>,
    /// Tells the server that the wait announced by `commit_wait_begins` is over.
    pub commit_wait_ends: Option<unsafe extern "C" fn(host: *mut c_void)>,
    /// Whether the server can hold back its answer to the session, whose thread calls, and does
    /// nothing else for it before that answer. Then a commit does not wait until it is durable.
    pub may_hold_answer: Option<unsafe extern "C" fn(host: *mut c_void) -> bool>,
    /// Makes the server hold back its answer to the session, whose thread calls, until
    /// `release_answer` was called. Returns whether the server does so. `host` must stay valid
    /// until then. The core holds locks of its own during the call, so the callback must not wait.
    pub hold_answer: Option<unsafe extern "C" fn(host: *mut c_void) -> bool>,
    /// Ends one `hold_answer` of the session. If `durable` is false, the server must not answer but
    /// close the connection, because the outcome of the commit is unknown. Called on a thread of
    /// the core.
    pub release_answer: Option<unsafe extern "C" fn(host: *mut c_void, durable: bool)>,
    /// Writes the SQL text that a session executes to `text`, at most `size` bytes. Returns the
    /// length of the text; 0 if there is none, or if the callback would have to wait for it, which
    /// it must not do.
    pub statement:
        Option<unsafe extern "C" fn(host: *mut c_void, text: *mut c_char, size: usize) -> usize>,
    /// Describes the collation with the server's number `id`. Returns the functions that compute
    /// its weights; NULL if there is no such collation.
    pub collation:
        Option<unsafe extern "C" fn(id: u32, out: *mut firn_collation) -> *const firn_collator>,
    /// Whether a session has locked the metadata of a table (`database/table`) so that it may read
    /// the table; with `writes`, so that it may write it, too. Called on the thread of the session.
    pub holds_metadata_lock: Option<
        unsafe extern "C" fn(host: *mut c_void, table_name: *const c_char, writes: bool) -> bool,
    >,
    /// Computes the indexed virtual columns of a record of a table (`database/table`) in place, for
    /// a row that a foreign key's action changes. Values of blobs stay valid until the next call.
    /// Returns false after it has given the session an error. Called on the thread of the session.
    pub compute_virtual: Option<
        unsafe extern "C" fn(
            host: *mut c_void,
            table_name: *const c_char,
            record: *mut u8,
            record_len: usize,
        ) -> bool,
    >,
}

/// Bytes of an SQL text that reports show.
const STATEMENT_BYTES_MAX: usize = 1024;

/// Writes messages of the core to the error log of the server.
pub(crate) struct HostLog {
    host: firn_host,
}

impl HostLog {
    pub(crate) fn new(host: &firn_host) -> Self {
        Self { host: *host }
    }
}

impl EventListener for HostLog {
    fn log(&self, severity: Severity, message: &str) {
        if let Some(log) = self.host.log
            && let Ok(message) = CString::new(message.replace('\0', " "))
        {
            // SAFETY: the host keeps its callbacks valid while the database is open.
            unsafe { log(severity as c_int, message.as_ptr()) };
        }
    }
}

/// The collations of the server, for tables that it has not opened.
pub(crate) struct HostCollations {
    host: firn_host,
}

impl HostCollations {
    pub(crate) fn new(host: &firn_host) -> Self {
        Self { host: *host }
    }
}

impl Collations for HostCollations {
    fn find(&self, id: u32) -> Option<CollationSchema> {
        let call = self.host.collation?;
        let mut described = MaybeUninit::<firn_collation>::zeroed();
        // SAFETY: the host keeps its callbacks valid while the database is open, and writes a whole
        // description unless it returns NULL. Its collations live as long as the server.
        unsafe {
            let functions = call(id, described.as_mut_ptr());
            if functions.is_null() {
                return None;
            }
            host_collation(described.as_ptr(), functions).ok()
        }
    }
}

/// The metadata locks of the server.
pub(crate) struct HostMetadataLocks {
    host: firn_host,
}

impl HostMetadataLocks {
    pub(crate) fn new(host: &firn_host) -> Self {
        Self { host: *host }
    }
}

impl MetadataLocks for HostMetadataLocks {
    fn is_held(&self, host: u64, table: &str, writes: bool) -> bool {
        let Some(call) = self.host.holds_metadata_lock else {
            return true;
        };
        let Ok(table) = CString::new(table) else {
            return false;
        };
        // SAFETY: the host keeps its callbacks valid while the database is open; `host` is the
        // `host` pointer of the session that works on this very thread; the string is valid.
        unsafe { call(host as usize as *mut c_void, table.as_ptr(), writes) }
    }
}

/// The virtual columns of the server's tables.
pub(crate) struct HostVirtualColumns {
    host: firn_host,
}

impl HostVirtualColumns {
    pub(crate) fn new(host: &firn_host) -> Self {
        Self { host: *host }
    }
}

impl VirtualColumns for HostVirtualColumns {
    fn compute(&self, host: u64, table: &str, record: &mut [u8]) -> bool {
        let (Some(call), Ok(table)) = (self.host.compute_virtual, CString::new(table)) else {
            return false;
        };
        let host = host as usize as *mut c_void;
        // SAFETY: the host keeps its callbacks valid while the database is open; `host` is the
        // `host` pointer of the session that works on this very thread; the string is valid, and
        // the record has the length that is passed.
        unsafe { call(host, table.as_ptr(), record.as_mut_ptr(), record.len()) }
    }
}

/// Reports lock waits to the server.
pub(crate) struct HostWaits {
    host: firn_host,
}

impl HostWaits {
    pub(crate) fn new(host: &firn_host) -> Self {
        Self { host: *host }
    }
}

impl WaitObserver for HostWaits {
    fn wanted_reports(&self, waiter: u64) -> WaitReports {
        let (Some(call), true) = (self.host.lock_wait_reports, waiter != 0) else {
            return WaitReports::None;
        };
        // SAFETY: the host keeps its callbacks valid while the database is open; `waiter` is the
        // session of this thread, or one whose wait cannot end during this call, because the caller
        // holds the lock of its lock queue.
        match unsafe { call(waiter as usize as *mut c_void) } {
            0 => WaitReports::None,
            1 => WaitReports::Nearest,
            _ => WaitReports::All,
        }
    }

    fn waits_for(&self, waiter: u64, blocker: u64) {
        if let (Some(call), true) = (self.host.lock_wait, waiter != 0 && blocker != 0) {
            // SAFETY: the host keeps its callbacks valid while the database is open. Both `host`
            // pointers are valid: one is the session of this thread, and the end of the other
            // session waits until this call has returned (`LockOwner::detach_host`). That the
            // blocker holds a lock would prove nothing: a prepared transaction keeps its lock
            // without a session, and a session that ends may have released the lock since it was
            // found among the blockers.
            unsafe {
                call(
                    waiter as usize as *mut c_void,
                    blocker as usize as *mut c_void,
                )
            };
        }
    }

    fn commits_in_fixed_order(&self, one: u64, other: u64) -> bool {
        let Some(call) = self.host.order_is_fixed else {
            return false;
        };
        // SAFETY: the host keeps its callbacks valid while the database is open. Both `host`
        // pointers are valid. `one` is the session of this thread, or a session whose wait cannot
        // end during this call, because the caller holds the lock of its lock queue. The end of
        // session `other` waits until this call has returned (`LockOwner::detach_host`).
        unsafe { call(one as usize as *mut c_void, other as usize as *mut c_void) }
    }

    fn preferred_victim(&self, one: u64, other: u64) -> Ordering {
        let Some(call) = self.host.preferred_victim else {
            return Ordering::Equal;
        };
        // SAFETY: the host keeps its callbacks valid while the database is open. Both sessions wait
        // for locks, and no wait ends before the core has chosen the victim, so both are alive.
        let preferred = unsafe { call(one as usize as *mut c_void, other as usize as *mut c_void) };
        preferred.cmp(&0)
    }

    fn sleeps(&self, waiter: u64, timeout: Duration) -> Duration {
        let (Some(call), true) = (self.host.wait_begins, waiter != 0) else {
            return timeout;
        };
        // SAFETY: the host keeps its callbacks valid while the database is open; `waiter` is the
        // `host` pointer of the session that waits on this very thread.
        let timeout_us = unsafe { call(waiter as usize as *mut c_void, micros(timeout)) };
        Duration::from_micros(timeout_us)
    }

    fn wakes(&self, waiter: u64) {
        tell(self.host.wait_ends, waiter);
    }

    fn stalls(&self, waiter: u64) {
        tell(self.host.stall_begins, waiter);
    }

    fn resumes(&self, waiter: u64) {
        tell(self.host.stall_ends, waiter);
    }

    fn commit_waits(&self, waiter: u64) {
        tell(self.host.commit_wait_begins, waiter);
    }

    fn commit_resumes(&self, waiter: u64) {
        tell(self.host.commit_wait_ends, waiter);
    }

    fn may_hold_answer(&self, waiter: u64) -> bool {
        let Some(call) = self.host.may_hold_answer.filter(|_| waiter != 0) else {
            return false;
        };
        // SAFETY: the host keeps its callbacks valid while the database is open; `waiter` is the
        // `host` pointer of the session that works on this very thread.
        unsafe { call(waiter as usize as *mut c_void) }
    }

    fn hold_answer(&self, waiter: u64) -> Option<Acknowledgement> {
        let hold = self.host.hold_answer.filter(|_| waiter != 0)?;
        let release = self.host.release_answer?;
        // SAFETY: the host keeps its callbacks valid while the database is open; `waiter` is the
        // `host` pointer of the session that works on this very thread.
        let held = unsafe { hold(waiter as usize as *mut c_void) };
        // SAFETY: as above; and the pointer stays valid until the answer is released, which happens
        // once, since an acknowledgement calls its function once.
        let release = move |durable| unsafe { release(waiter as usize as *mut c_void, durable) };
        held.then(|| Acknowledgement::new(release))
    }

    fn statement(&self, host: u64) -> Option<String> {
        let call = self.host.statement.filter(|_| host != 0)?;
        let mut text = vec![0; STATEMENT_BYTES_MAX];
        // SAFETY: the host keeps its callbacks valid; the session is alive, since its end waits for
        // this call (`LockOwner::detach_host`); the buffer has the size that is passed.
        let len = unsafe {
            call(
                host as usize as *mut c_void,
                text.as_mut_ptr().cast(),
                text.len(),
            )
        };
        text.truncate(len);
        (len > 0).then(|| String::from_utf8_lossy(&text).into_owned())
    }
}

/// Calls `call`, if the server has set it, with the `host` pointer of the session that works on
/// this thread, if it has one.
fn tell(call: Option<unsafe extern "C" fn(host: *mut c_void)>, session: u64) {
    if let (Some(call), true) = (call, session != 0) {
        // SAFETY: the host keeps its callbacks valid while the database is open; the pointer is
        // valid, since its session works on this very thread.
        unsafe { call(session as usize as *mut c_void) };
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
