#![allow(clippy::disallowed_methods)] // A test has a directory of its own.

use super::*;
use crate::database::{firn_close, firn_config, firn_open};
use crate::host_callbacks::firn_host;
use crate::host_callbacks::tests::SILENT;
use firn::base::Value;
use firn::txn::LockMode;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `host` pointers of sessions that have not ended. A callback must get no other pointer.
static LIVE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
static TOLD: AtomicU64 = AtomicU64::new(0);
static TOLD_OF_THE_DEAD: AtomicU64 = AtomicU64::new(0);
/// While false, the callback `lock_wait` waits. A test sets it to true when another thread is about
/// to end the blocker's session.
static ENDING: AtomicBool = AtomicBool::new(true);
/// All tests share the callbacks, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn is_live(host: *mut c_void) -> bool {
    LIVE.lock().unwrap().contains(&(host as usize))
}

unsafe extern "C" fn all_lock_waits(_: *mut c_void) -> c_int {
    2
}

unsafe extern "C" fn lock_wait(waiter: *mut c_void, blocker: *mut c_void) {
    let begun = is_live(waiter) && is_live(blocker);
    TOLD.fetch_add(1, Ordering::SeqCst);
    while !ENDING.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    // Give the other thread time to end its session, in case that does not wait for this callback.
    for _ in 0..1000 {
        std::thread::yield_now();
    }
    if !begun || !is_live(blocker) {
        TOLD_OF_THE_DEAD.fetch_add(1, Ordering::SeqCst);
    }
}

struct Server {
    db: *mut firn_db,
    dir: PathBuf,
}

// SAFETY: all threads may use a database.
unsafe impl Sync for Server {}

impl Server {
    fn open(name: &str) -> Self {
        let id = std::process::id();
        let dir = std::env::temp_dir().join(format!("firn-capi-{name}-{id}"));
        let path = CString::new(dir.to_str().unwrap()).unwrap();
        // SAFETY: every member may be zero.
        let mut config: firn_config = unsafe { std::mem::zeroed() };
        config.dir = path.as_ptr();
        let host = firn_host {
            lock_wait_reports: Some(all_lock_waits),
            lock_wait: Some(lock_wait),
            ..SILENT
        };
        let mut db = std::ptr::null_mut();
        // SAFETY: the pointers are valid.
        let status = unsafe { firn_open(&config, &host, &mut db) };
        assert_eq!(status, firn_status::FIRN_OK);
        TOLD.store(0, Ordering::SeqCst);
        TOLD_OF_THE_DEAD.store(0, Ordering::SeqCst);
        ENDING.store(true, Ordering::SeqCst);
        Self { db, dir }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: the database is open, and its sessions have ended.
        unsafe { firn_close(self.db) };
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A connection of the server: its session and its `host` pointer. When the session has ended, the
/// core must not use the pointer any more.
struct Connection(*mut firn_session, usize);

impl Connection {
    fn new(server: &Server, host: usize) -> Self {
        LIVE.lock().unwrap().insert(host);
        let mut session = std::ptr::null_mut();
        // SAFETY: the database is open; the host pointer is only compared.
        let status = unsafe { firn_session_new(server.db, host as *mut c_void, 0, &mut session) };
        assert_eq!(status, firn_status::FIRN_OK);
        let connection = Self(session, host);
        connection
            .transaction()
            .begin_statement(1, Isolation::ReadCommitted, 50_000_000, false);
        connection
    }

    #[allow(clippy::mut_from_ref)] // Of one thread.
    fn transaction(&self) -> &mut Transaction {
        // SAFETY: the session is live and used by this thread.
        unsafe { &mut (*self.0).transaction }
    }

    fn lock(&self, key: &[u8]) -> bool {
        self.transaction()
            .lock(key, LockMode::Exclusive, None)
            .is_ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the session is live, and nobody uses it any more.
        unsafe { firn_session_free(self.0) };
        LIVE.lock().unwrap().remove(&self.1);
    }
}

const ROW: &[u8] = b"\0\0\0\x09row";

#[test]
fn a_prepared_transaction_outlives_the_pointer_to_its_session() {
    let _alone = ALONE.lock().unwrap();
    let server = Server::open("prepared");
    let prepared = Connection::new(&server, 0x10);
    assert!(prepared.lock(ROW));
    let value = Value {
        head: b"",
        tail: b"v",
    };
    prepared.transaction().put(ROW, value).unwrap();
    prepared.transaction().prepare_to_stay(b"xid").unwrap();
    drop(prepared);

    let waiter = Connection::new(&server, 0x20);
    let brief = firn::txn::WaitPolicy::Wait { timeout_micros: 1 };
    let waited = waiter
        .transaction()
        .lock(ROW, LockMode::Exclusive, Some(brief));
    assert!(waited.is_err(), "the prepared transaction holds its row");
    drop(waiter);
    assert_eq!(TOLD.load(Ordering::SeqCst), 0);
}

#[test]
fn a_disconnect_waits_for_a_callback_that_names_the_session() {
    let _alone = ALONE.lock().unwrap();
    let server = Server::open("disconnect");
    for round in 0..20 {
        ENDING.store(false, Ordering::SeqCst);
        TOLD.store(0, Ordering::SeqCst);
        let blocker = Connection::new(&server, 0x100 + round);
        assert!(blocker.lock(ROW));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Connection::new(&server, 0x1000 + round).lock(ROW));
            while TOLD.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            ENDING.store(true, Ordering::SeqCst);
            drop(blocker);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(TOLD_OF_THE_DEAD.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn connections_come_and_go_while_others_wait_for_them() {
    let _alone = ALONE.lock().unwrap();
    let server = Server::open("come-and-go");
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..60 {
                    let host = next.fetch_add(1, Ordering::SeqCst) as usize;
                    assert!(Connection::new(&server, host).lock(ROW));
                }
            });
        }
    });
    assert_eq!(TOLD_OF_THE_DEAD.load(Ordering::SeqCst), 0);
}
