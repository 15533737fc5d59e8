//! The memory that idle sessions keep. This is the only test of its process, because others would
//! allocate and free beside it.

#![cfg(feature = "jemalloc")]

use firn::base::allocator_stats::AllocatorStats;
use firn_capi::allocator::CoreAllocator;
use firn_capi::cursor::{
    firn_cursor, firn_cursor_close, firn_cursor_open, firn_cursor_park, firn_cursor_reset,
    firn_read_mode, firn_wait,
};
use firn_capi::cursor_reads::{firn_cursor_first, firn_cursor_get, firn_cursor_next};
use firn_capi::database::{firn_close, firn_config, firn_db, firn_open};
use firn_capi::ddl::firn_create_table;
use firn_capi::error::{firn_last_error, firn_status};
use firn_capi::host_callbacks::firn_host;
use firn_capi::row_writes::{firn_insert, firn_update};
use firn_capi::schema::{
    FIRN_COLUMN_CHAR, FIRN_COLUMN_FIXED, FIRN_NONE, FIRN_PART_INT, firn_column, firn_index,
    firn_key_part, firn_table_def,
};
use firn_capi::session::{
    firn_begin_statement, firn_commit, firn_isolation, firn_session, firn_session_free,
    firn_session_new,
};
use firn_capi::storage_reports::{firn_list_memory, firn_named_pair};
use firn_capi::table::{firn_table, firn_table_close, firn_table_open};
use firn_capi::table_maintenance::firn_optimize_table;
use std::ffi::{CStr, CString, c_void};
use std::mem::zeroed;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Barrier;

const SESSIONS: i32 = 200;
/// Rows that a session reads in a scan.
const SCANNED: usize = 100;
/// Bytes of a record: null bits, id INT, k INT, c CHAR(120).
const RECORD_LEN: usize = 1 + 4 + 4 + 120;
type Record = [u8; RECORD_LEN];

fn check(status: firn_status) {
    // SAFETY: the message is a C string of this thread, valid until its next call.
    let message = unsafe { CStr::from_ptr(firn_last_error()) };
    assert_eq!(status, firn_status::FIRN_OK, "{message:?}");
}

fn record(id: i32, k: i32) -> Record {
    let mut record = [b'x'; RECORD_LEN];
    record[0] = 0;
    record[1..5].copy_from_slice(&id.to_le_bytes());
    record[5..9].copy_from_slice(&k.to_le_bytes());
    record
}

#[derive(Clone, Copy)]
struct Handles {
    db: *mut firn_db,
    table: *mut firn_table,
}

// SAFETY: handles of a database and of a table may be used by all threads.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

fn open(dir: &Path) -> Handles {
    let dir = CString::new(dir.to_str().expect("UTF-8")).expect("no NUL");
    let config = firn_config {
        dir: dir.as_ptr(),
        block_cache_size: 32 << 20,
        memtable_size: 8 << 20,
        flush_log_at_trx_commit: 0,
        background_jobs: 1,
        // SAFETY: the structure holds integers, flags and pointers only. All zeros is a valid value
        // of each; it stands for the default, or for none.
        ..unsafe { zeroed() }
    };
    // SAFETY: the structure holds optional functions only, and zeros stand for none.
    let host: firn_host = unsafe { zeroed() };
    let mut db = null_mut();
    // SAFETY: both structures are valid, and the handle may be written.
    check(unsafe { firn_open(&config, &host, &mut db) });
    let column = |name: &'static CStr, kind, type_code, offset, len| firn_column {
        name: name.as_ptr(),
        kind,
        type_code,
        offset,
        len,
        len_bytes: 0,
        chars: if kind == FIRN_COLUMN_CHAR { len } else { 0 },
        interpretation: 0,
        null_offset: 0,
        null_mask: 0,
        stored: true,
        pad_len: 1,
        pad: [b' ', 0, 0, 0],
    };
    let columns = [
        column(c"id", FIRN_COLUMN_FIXED, 3, 1, 4),
        column(c"k", FIRN_COLUMN_FIXED, 3, 5, 4),
        column(c"c", FIRN_COLUMN_CHAR, 254, 9, 120),
    ];
    let part = |column| firn_key_part {
        column,
        kind: FIRN_PART_INT,
        prefix: 0,
        image_len: 4,
        desc: false,
        collation: null(),
    };
    let (id, k) = (part(0), part(1));
    let index = |name: &'static CStr, parts, unique| firn_index {
        name: name.as_ptr(),
        parts,
        part_count: 1,
        unique,
    };
    let indexes = [index(c"PRIMARY", &id, true), index(c"k", &k, false)];
    let definition = firn_table_def {
        record_len: RECORD_LEN as u32,
        null_bytes: 1,
        columns: columns.as_ptr(),
        column_count: columns.len() as u32,
        indexes: indexes.as_ptr(),
        index_count: 2,
        primary: 0,
        auto_increment: FIRN_NONE,
        optimistic: false,
        collator: null(),
        default_record: null(),
    };
    let (name, mut table) = (c"d/t".as_ptr(), null_mut());
    // SAFETY: the definition and all it points to live until both calls are over.
    unsafe {
        check(firn_create_table(
            db,
            name,
            &definition,
            null(),
            0,
            null(),
            0,
            0,
            null(),
        ));
        check(firn_table_open(db, name, &definition, &mut table));
    }
    Handles { db, table }
}

/// A session with a cursor, for one thread.
struct Session {
    handles: Handles,
    session: *mut firn_session,
    cursor: *mut firn_cursor,
    statement: u64,
}

impl Session {
    fn new(handles: Handles) -> Self {
        let (mut session, mut cursor) = (null_mut(), null_mut());
        // SAFETY: the handles are live, and the caller closes them after the session.
        unsafe {
            check(firn_session_new(handles.db, null_mut(), 0, &mut session));
            check(firn_cursor_open(
                session,
                handles.table,
                0,
                firn_read_mode::FIRN_READ_SNAPSHOT,
                firn_wait::FIRN_WAIT,
                &mut cursor,
            ));
        }
        Self {
            handles,
            session,
            cursor,
            statement: 0,
        }
    }

    /// Runs `f` as a statement on an index, and commits.
    fn statement(&mut self, index: u32, mode: firn_read_mode, f: impl FnOnce(&mut Self)) {
        self.statement += 1;
        // SAFETY: session and cursor are live, and this thread alone uses them.
        unsafe {
            check(firn_begin_statement(
                self.session,
                self.statement,
                firn_isolation::FIRN_REPEATABLE_READ,
                1_000_000,
                true,
            ));
            check(firn_cursor_reset(
                self.cursor,
                self.session,
                index,
                mode,
                firn_wait::FIRN_WAIT,
            ));
        }
        f(self);
        // SAFETY: session and cursor are live, and this thread alone uses them.
        unsafe {
            firn_cursor_park(self.cursor);
            check(firn_commit(self.session));
        }
    }

    fn insert(&mut self, record: &Record) {
        let mut duplicate = 0;
        // SAFETY: the handles are live, and this thread alone uses them; the buffer has the length
        // of a record.
        check(unsafe {
            firn_insert(
                self.session,
                self.handles.table,
                record.as_ptr(),
                0,
                &mut duplicate,
                null_mut(),
            )
        });
    }

    /// Reads a row, scans, and updates the row, as one connection of many does.
    fn work(&mut self, id: i32, k: i32) {
        let mut buffer = record(0, 0);
        for index in [0, 1] {
            self.statement(index, firn_read_mode::FIRN_READ_SNAPSHOT, |session| {
                // SAFETY: the cursor is live, and the buffer has the length of a record.
                check(unsafe { firn_cursor_first(session.cursor, buffer.as_mut_ptr()) });
                for _ in 0..SCANNED {
                    // SAFETY: as above.
                    check(unsafe { firn_cursor_next(session.cursor, buffer.as_mut_ptr()) });
                }
            });
        }
        self.statement(0, firn_read_mode::FIRN_READ_LOCK_EXCLUSIVE, |session| {
            let key = id.to_le_bytes();
            let mut duplicate = 0;
            let new = record(id, k);
            // SAFETY: the handles are live, and the buffers have the length of a record.
            unsafe {
                check(firn_cursor_get(
                    session.cursor,
                    key.as_ptr(),
                    4,
                    buffer.as_mut_ptr(),
                ));
                check(firn_update(
                    session.session,
                    session.handles.table,
                    buffer.as_ptr(),
                    new.as_ptr(),
                    null(),
                    0,
                    &mut duplicate,
                ));
            }
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: both handles are live, and this is their last use.
        unsafe {
            firn_cursor_close(self.cursor);
            firn_session_free(self.session);
        }
    }
}

unsafe extern "C" fn go_on(_context: *mut c_void, _done: u64, _total: u64) -> bool {
    false
}

unsafe extern "C" fn note_sessions(context: *mut c_void, pair: *const firn_named_pair) {
    // SAFETY: the core passes a valid pair, and the context that `counted` has given it.
    unsafe {
        if CStr::from_ptr((*pair).name) == c"sessions" {
            *context.cast::<u64>() = (*pair).first;
        }
    }
}

/// The memory of sessions that the database counts, bytes.
fn counted(db: *mut firn_db) -> u64 {
    let mut bytes = u64::MAX;
    // SAFETY: the database is open, and the context outlives the call.
    check(unsafe { firn_list_memory(db, note_sessions, (&raw mut bytes).cast()) });
    bytes
}

/// A cursor that is refused leaves no charge.
fn refuse_index(session: &Session) {
    let before = counted(session.handles.db);
    let mut cursor = null_mut();
    // SAFETY: the handles are live, and this thread alone uses the session.
    let status = unsafe {
        firn_cursor_open(
            session.session,
            session.handles.table,
            99,
            firn_read_mode::FIRN_READ_SNAPSHOT,
            firn_wait::FIRN_WAIT,
            &mut cursor,
        )
    };
    assert_eq!(status, firn_status::FIRN_INVALID);
    assert_eq!(counted(session.handles.db), before);
}

/// Each idle session, with its thread and a cursor, takes less than 14 KiB, and the database counts
/// what session and cursor take of it.
#[test]
fn idle_sessions_keep_little() {
    let dir = tempfile::tempdir().expect("a directory");
    let handles = open(dir.path());
    let mut first = Session::new(handles);
    first.statement(0, firn_read_mode::FIRN_READ_LOCK_EXCLUSIVE, |session| {
        (0..4 * SESSIONS).for_each(|id| session.insert(&record(id, id)));
    });
    // SAFETY: the table is live.
    check(unsafe { firn_optimize_table(handles.table, go_on, null_mut()) });
    (0..SESSIONS).for_each(|id| first.work(id, -1));
    let (worked, read) = (
        Barrier::new(SESSIONS as usize + 1),
        Barrier::new(SESSIONS as usize + 1),
    );
    let before = CoreAllocator.read();
    std::thread::scope(|scope| {
        for id in 0..SESSIONS {
            let (worked, read) = (&worked, &read);
            scope.spawn(move || {
                let handles = handles;
                let mut session = Session::new(handles);
                session.work(id, -2);
                worked.wait();
                read.wait();
            });
        }
        worked.wait();
        let (idle, during) = (CoreAllocator.read(), counted(handles.db));
        read.wait();
        // Not the pages in use: how many gaps they have depends on the number of processors.
        let a_session = (idle.allocated - before.allocated) / SESSIONS as u64;
        println!("{a_session} bytes a session");
        assert!(a_session < 14 << 10, "{a_session}: {before:?} {idle:?}");
        assert!((5 << 10..a_session).contains(&(during / (SESSIONS as u64 + 1))));
    });
    refuse_index(&first);
    drop(first);
    assert_eq!(counted(handles.db), 0);
    // SAFETY: no session is left that could use the handles.
    unsafe {
        firn_table_close(handles.table);
        firn_close(handles.db);
    }
}
