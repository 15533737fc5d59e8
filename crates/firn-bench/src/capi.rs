//! Uses the C ABI as the handler does, on a table like sysbench's.

use crate::engine::Result;
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
use firn_capi::table::{firn_table, firn_table_close, firn_table_open};
use firn_capi::table_maintenance::firn_optimize_table;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::zeroed;
use std::path::Path;
use std::ptr::{null, null_mut};

/// Bytes of a record: null bits, id INT, k INT, c CHAR(120), pad CHAR(60).
pub const RECORD_LEN: usize = 1 + 4 + 4 + 120 + 60;

/// The record buffer of one row.
pub type Record = [u8; RECORD_LEN];

/// The record of the row with this id, with digits and dashes as sysbench makes them.
pub fn row(id: i32, k: i32, digits: &mut dyn FnMut() -> u64) -> Record {
    let mut record = [b' '; RECORD_LEN];
    record[0] = 0;
    record[1..5].copy_from_slice(&id.to_le_bytes());
    record[5..9].copy_from_slice(&k.to_le_bytes());
    for group in 0..10 {
        put_digits(&mut record[9 + group * 12..], digits(), group < 9);
    }
    for group in 0..5 {
        put_digits(&mut record[129 + group * 12..], digits(), group < 4);
    }
    record
}

fn put_digits(at: &mut [u8], mut number: u64, dash: bool) {
    for digit in &mut at[..11] {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    if dash {
        at[11] = b'-';
    }
}

fn check(status: firn_status) -> Result<()> {
    if status == firn_status::FIRN_OK {
        return Ok(());
    }
    // SAFETY: the message is a C string of this thread, valid until its next call.
    let message = unsafe { CStr::from_ptr(firn_last_error()) };
    Err(format!("{status:?}: {}", message.to_string_lossy()).into())
}

/// An open database with one table.
pub struct Database {
    db: *mut firn_db,
    table: *mut firn_table,
}

// SAFETY: handles of a database and of a table may be used by all threads.
unsafe impl Sync for Database {}

unsafe extern "C" fn go_on(_context: *mut c_void, _done: u64, _total: u64) -> bool {
    false
}

impl Database {
    /// Opens a new database in `dir` and creates a table in it. Commits only hand their log records
    /// to the operating system.
    pub fn create(dir: &Path, cache: u64, memtable: u64) -> Result<Self> {
        let dir = CString::new(dir.to_string_lossy().as_bytes())?;
        let config = firn_config {
            dir: dir.as_ptr(),
            block_cache_size: cache,
            memtable_size: memtable,
            flush_log_at_trx_commit: 2,
            background_jobs: 1,
            // SAFETY: the structure holds integers, flags and pointers only. All zeros is a valid
            // value of each; it stands for the default, or for none.
            ..unsafe { zeroed() }
        };
        let host = firn_host {
            log: None,
            lock_wait_reports: None,
            lock_wait: None,
            order_is_fixed: None,
            preferred_victim: None,
            wait_begins: None,
            wait_ends: None,
            stall_begins: None,
            stall_ends: None,
            commit_wait_begins: None,
            commit_wait_ends: None,
            may_hold_answer: None,
    hold_answer: None,
            release_answer: None,
            statement: None,
            collation: None,
            holds_metadata_lock: None,
            compute_virtual: None,
        };
        let mut database = Self {
            db: null_mut(),
            table: null_mut(),
        };
        // SAFETY: both structures are valid, and the handle may be written.
        check(unsafe { firn_open(&config, &host, &mut database.db) })?;
        database.create_table()?;
        Ok(database)
    }

    fn create_table(&mut self) -> Result<()> {
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
            column(c"pad", FIRN_COLUMN_CHAR, 254, 129, 60),
        ];
        let part = firn_key_part {
            column: 0,
            kind: FIRN_PART_INT,
            prefix: 0,
            image_len: 4,
            desc: false,
            collation: null(),
        };
        let index = firn_index {
            name: c"PRIMARY".as_ptr(),
            parts: &part,
            part_count: 1,
            unique: true,
        };
        let definition = firn_table_def {
            record_len: RECORD_LEN as u32,
            null_bytes: 1,
            columns: columns.as_ptr(),
            column_count: columns.len() as u32,
            indexes: &index,
            index_count: 1,
            primary: 0,
            auto_increment: FIRN_NONE,
            optimistic: false,
            collator: null(),
            default_record: null(),
        };
        let name: *const c_char = c"bench/sbtest".as_ptr();
        // SAFETY: the definition and all it points to live until both calls are over.
        unsafe {
            check(firn_create_table(
                self.db,
                name,
                &definition,
                null(),
                0,
                null(),
                0,
                0,
                null(),
            ))?;
            check(firn_table_open(self.db, name, &definition, &mut self.table))
        }
    }

    /// Flushes and compacts the table.
    pub fn compact(&self) -> Result<()> {
        // SAFETY: the handles are live.
        check(unsafe { firn_optimize_table(self.table, go_on, null_mut()) })
    }

    /// A session with a cursor on the primary key.
    pub fn session(&self, mode: firn_read_mode) -> Result<Session<'_>> {
        let mut session = Session {
            database: self,
            session: null_mut(),
            cursor: null_mut(),
            statement: 0,
            mode,
        };
        // SAFETY: the handles are live, and outlive the session by its lifetime.
        unsafe {
            check(firn_session_new(
                self.db,
                null_mut(),
                0,
                &mut session.session,
            ))?;
            check(firn_cursor_open(
                session.session,
                self.table,
                0,
                mode,
                firn_wait::FIRN_WAIT,
                &mut session.cursor,
            ))?;
        }
        Ok(session)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: sessions borrow the database, so no session is left that could use the handles.
        unsafe {
            firn_table_close(self.table);
            firn_close(self.db);
        }
    }
}

/// A session and its cursor, for one thread.
pub struct Session<'a> {
    database: &'a Database,
    session: *mut firn_session,
    cursor: *mut firn_cursor,
    statement: u64,
    mode: firn_read_mode,
}

impl Session<'_> {
    /// Begins an autocommit statement, as `external_lock` does.
    pub fn begin(&mut self) -> Result<()> {
        self.statement += 1;
        let isolation = firn_isolation::FIRN_REPEATABLE_READ;
        // SAFETY: session and cursor are live, and this thread alone uses them.
        unsafe {
            check(firn_begin_statement(
                self.session,
                self.statement,
                isolation,
                1_000_000,
                true,
            ))?;
            check(firn_cursor_reset(
                self.cursor,
                self.session,
                0,
                self.mode,
                firn_wait::FIRN_WAIT,
            ))
        }
    }

    /// Ends the statement and commits, as the server does at the end of an autocommit statement.
    pub fn commit(&mut self) -> Result<()> {
        // SAFETY: session and cursor are live, and this thread alone uses them.
        unsafe {
            firn_cursor_park(self.cursor);
            check(firn_commit(self.session))
        }
    }

    /// Reads the row with this id.
    pub fn get(&mut self, id: i32, record: &mut Record) -> Result<()> {
        let key = id.to_le_bytes();
        // SAFETY: session and cursor are live, and this thread alone uses them; the buffer has the
        // length of a record.
        check(unsafe { firn_cursor_get(self.cursor, key.as_ptr(), 4, record.as_mut_ptr()) })
    }

    /// Reads the first row, or the next one. Returns whether there is one.
    pub fn step(&mut self, first: bool, record: &mut Record) -> Result<bool> {
        let step = if first {
            firn_cursor_first
        } else {
            firn_cursor_next
        };
        // SAFETY: session and cursor are live, and this thread alone uses them; the buffer has the
        // length of a record.
        match unsafe { step(self.cursor, record.as_mut_ptr()) } {
            firn_status::FIRN_END => Ok(false),
            status => check(status).map(|()| true),
        }
    }

    /// Inserts a row.
    pub fn insert(&mut self, record: &Record) -> Result<()> {
        let mut duplicate = 0;
        // SAFETY: the handles are live, and this thread alone uses them; the buffer has the length
        // of a record.
        check(unsafe {
            firn_insert(
                self.session,
                self.database.table,
                record.as_ptr(),
                0,
                &mut duplicate,
                null_mut(),
            )
        })
    }

    /// Updates a row that was read under an exclusive lock.
    pub fn update(&mut self, old: &Record, new: &Record) -> Result<()> {
        let mut duplicate = 0;
        // SAFETY: the handles are live, and this thread alone uses them; both buffers have the
        // length of a record.
        check(unsafe {
            firn_update(
                self.session,
                self.database.table,
                old.as_ptr(),
                new.as_ptr(),
                null(),
                0,
                &mut duplicate,
            )
        })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: the handles belong to this session, and nobody uses them afterwards.
        unsafe {
            firn_cursor_close(self.cursor);
            firn_session_free(self.session);
        }
    }
}
