//! The C ABI as a client in Rust sees it: tables of lists, sessions, cursors.
//!
//! A record is a byte of NULL bits, five numbers of eight bytes, the elements and a filling. The
//! first number is the primary key but of the table of lists in the primary key; it may change in
//! the table with a unique index of lists. The last one tells which row it is.

use super::{LEVEL_TIMEOUT_US, bug};
use firn::db::Db;
use firn_capi::cursor::{
    firn_cursor, firn_cursor_close, firn_cursor_end_range, firn_cursor_open,
    firn_cursor_set_semi_consistent, firn_cursor_unlock_row, firn_cursor_was_semi_consistent,
    firn_read_mode, firn_wait,
};
use firn_capi::cursor_reads::{
    firn_cursor_get, firn_cursor_next, firn_cursor_next_same, firn_cursor_prev, firn_cursor_seek,
};
use firn_capi::database::{firn_close, firn_db};
use firn_capi::ddl::firn_create_table;
use firn_capi::error::firn_status::{self, FIRN_END, FIRN_NO_ROW, FIRN_OK, FIRN_TABLE_EXISTS};
use firn_capi::row_writes::{firn_delete, firn_insert, firn_update};
use firn_capi::schema::{
    FIRN_COLUMN_FIXED, FIRN_COLUMN_VARCHAR, FIRN_NONE, FIRN_PART_INT, firn_column, firn_index,
    firn_key_part, firn_table_def,
};
use firn_capi::session::{
    firn_begin_statement, firn_clear_kill, firn_commit, firn_commit_ordered,
    firn_consistent_snapshot, firn_end_statement, firn_isolation, firn_kill, firn_prepare,
    firn_rollback, firn_rollback_statement, firn_rollback_to_savepoint, firn_savepoint,
    firn_session, firn_session_free, firn_session_new,
};
use firn_capi::table::{firn_table, firn_table_close, firn_table_open};
use firn_history::{IsolationLevel, Row};
use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// What a call came to, if it did not succeed.
pub(super) type Outcome<T> = Result<T, firn_status>;

const LOG_MAX: usize = 8000;
const PAD_MAX: usize = 4000;
const NAME_AT: usize = 33;
const LOG_AT: usize = NAME_AT + 8;
const PAD_AT: usize = LOG_AT + 2 + LOG_MAX;
const RECORD_LEN: usize = PAD_AT + 2 + PAD_MAX;

/// Position of the index that orders a list: the primary one of table 0, the second one of others.
pub(super) fn list_index(table: usize) -> u32 {
    u32::from(table > 0)
}

/// Tables: lists in the primary key, in a secondary index, in a unique one.
pub(super) const TABLES: usize = 3;
const NAMES: [&CStr; TABLES] = [c"test/p", c"test/s", c"test/u"];

/// Seeks, as the server numbers them.
#[derive(Clone, Copy)]
pub(super) enum Find {
    Exact = 0,
    AtOrAfter = 1,
    LastAtOrBefore = 7,
}

fn ok(status: firn_status) -> Outcome<()> {
    match status {
        FIRN_OK => Ok(()),
        other => Err(other),
    }
}

/// The key image of these numbers.
pub(super) fn key(parts: &[i64]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.to_le_bytes()).collect()
}

fn number(record: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"))
}

pub(super) fn row_of(record: &[u8]) -> Row {
    let len = usize::from(u16::from_le_bytes([record[LOG_AT], record[LOG_AT + 1]]));
    let log = record[LOG_AT + 2..LOG_AT + 2 + len].chunks_exact(4);
    let element = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Row {
        id: number(record, NAME_AT) as u64,
        list: number(record, 9) as u64,
        pos: number(record, 17),
        amount: number(record, 25),
        log: log.map(|bytes| u64::from(element(bytes))).collect(),
    }
}

/// The primary key of a row that was read, where lists are in another index.
pub(super) fn primary_of(record: &[u8]) -> i64 {
    number(record, 1)
}

/// The record of a row with this primary key, and with a filling.
///
/// # Panics
/// If the row has too many elements.
pub(super) fn record_of(row: &Row, primary: i64, pad: usize) -> Vec<u8> {
    let mut record = vec![0; RECORD_LEN];
    let name = row.id as i64;
    let numbers = [primary, row.list as i64, row.pos, row.amount, name];
    record[1..LOG_AT].copy_from_slice(&key(&numbers));
    let log: Vec<u8> = row
        .log
        .iter()
        .flat_map(|&e| (e as u32).to_le_bytes())
        .collect();
    assert!(
        log.len() <= LOG_MAX,
        "a row with {} elements",
        row.log.len()
    );
    record[LOG_AT..LOG_AT + 2].copy_from_slice(&(log.len() as u16).to_le_bytes());
    record[LOG_AT + 2..LOG_AT + 2 + log.len()].copy_from_slice(&log);
    let pad = pad.min(PAD_MAX);
    record[PAD_AT..PAD_AT + 2].copy_from_slice(&(pad as u16).to_le_bytes());
    // Not compressible: a run of one byte would fill no memtable.
    let filling = (row.id as u8).wrapping_mul(31);
    for (i, byte) in record[PAD_AT + 2..PAD_AT + 2 + pad].iter_mut().enumerate() {
        *byte = filling ^ (i as u8).wrapping_mul(167);
    }
    record
}

fn column(name: &'static CStr, at: usize, text_max: usize) -> firn_column {
    let text = text_max > 0;
    firn_column {
        name: name.as_ptr(),
        kind: if text {
            FIRN_COLUMN_VARCHAR
        } else {
            FIRN_COLUMN_FIXED
        },
        type_code: if text { 15 } else { 8 },
        offset: at as u32,
        len: if text { text_max as u32 } else { 8 },
        len_bytes: if text { 2 } else { 0 },
        chars: 0,
        interpretation: 0,
        null_offset: 0,
        null_mask: 0,
        stored: true,
        pad_len: 0,
        pad: [0; 4],
    }
}

fn part(column: u32) -> firn_key_part {
    firn_key_part {
        column,
        kind: FIRN_PART_INT,
        prefix: 0,
        image_len: 8,
        desc: false,
        collation: null(),
    }
}

/// Calls `f` with the definition of a table, which lives as long as the call.
fn with_definition<T>(table: usize, f: impl FnOnce(&firn_table_def) -> T) -> T {
    let columns = [
        column(c"id", 1, 0),
        column(c"list", 9, 0),
        column(c"pos", 17, 0),
        column(c"amount", 25, 0),
        column(c"name", NAME_AT, 0),
        column(c"log", LOG_AT, LOG_MAX),
        column(c"pad", PAD_AT, PAD_MAX),
    ];
    let (id, place, name) = ([part(0)], [part(1), part(2)], [part(4)]);
    let index = |name: &'static CStr, parts: &[firn_key_part], unique| firn_index {
        name: name.as_ptr(),
        parts: parts.as_ptr(),
        part_count: parts.len() as u32,
        unique,
    };
    let indexes = match table {
        0 => vec![index(c"PRIMARY", &place, true)],
        1 => vec![index(c"PRIMARY", &id, true), index(c"lp", &place, false)],
        _ => vec![
            index(c"PRIMARY", &id, true),
            index(c"lp", &place, true),
            index(c"name", &name, true),
        ],
    };
    let definition = firn_table_def {
        record_len: RECORD_LEN as u32,
        null_bytes: 1,
        columns: columns.as_ptr(),
        column_count: columns.len() as u32,
        indexes: indexes.as_ptr(),
        index_count: indexes.len() as u32,
        primary: 0,
        auto_increment: FIRN_NONE,
        collator: null(),
        default_record: null(),
    };
    f(&definition)
}

/// An open database with its tables.
pub(super) struct Server {
    db: *mut firn_db,
    tables: Vec<*mut firn_table>,
}

// SAFETY: the handles are shared by the threads of the host by design; only sessions and cursors
// belong to one thread at a time.
unsafe impl Sync for Server {}

impl Server {
    /// Makes the tables unless they are there, and opens them.
    pub(super) fn new(db: &Arc<Db>) -> Outcome<Self> {
        let raw = firn_db::over(Arc::clone(db));
        let mut server = Self {
            db: raw,
            tables: Vec::new(),
        };
        for (table, name) in NAMES.iter().enumerate() {
            with_definition(table, |definition| {
                // SAFETY: all pointers are valid during the calls.
                let made = unsafe {
                    firn_create_table(raw, name.as_ptr(), definition, null(), 0, null(), 0, 1)
                };
                if made != FIRN_TABLE_EXISTS {
                    ok(made)?;
                }
                let mut opened = null_mut();
                // SAFETY: as above.
                ok(unsafe { firn_table_open(raw, name.as_ptr(), definition, &mut opened) })?;
                server.tables.push(opened);
                Ok(())
            })?;
        }
        Ok(server)
    }

    pub(super) fn session(&self, level: IsolationLevel) -> Session<'_> {
        let mut raw = null_mut();
        // SAFETY: the database is open.
        let made = unsafe { firn_session_new(self.db, null_mut(), &mut raw) };
        assert_eq!(made, FIRN_OK);
        Session {
            server: self,
            raw,
            level,
            statement: 0,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for &table in &self.tables {
            // SAFETY: it is open, and sessions and cursors borrow the server.
            unsafe { firn_table_close(table) };
        }
        // SAFETY: likewise. After a crash of the environment the close fails, as it must.
        unsafe { firn_close(self.db, null_mut()) };
    }
}

/// A connection.
pub(super) struct Session<'s> {
    server: &'s Server,
    raw: *mut firn_session,
    pub(super) level: IsolationLevel,
    statement: u64,
}

// SAFETY: a session moves to the thread that uses it.
unsafe impl Send for Session<'_> {}

/// Kills what a session does.
pub(super) struct Killer(*mut firn_session);

// SAFETY: firn_kill may be called from any thread while the session lives.
unsafe impl Send for Killer {}

impl Killer {
    /// # Safety
    /// The session lives.
    pub(super) unsafe fn kill(&self) {
        // SAFETY: as the caller promises.
        unsafe { firn_kill(self.0) };
    }
}

impl<'s> Session<'s> {
    pub(super) fn killer(&self) -> Killer {
        Killer(self.raw)
    }

    fn call(&mut self, f: impl FnOnce(*mut firn_session) -> firn_status) -> Outcome<()> {
        bug(f(self.raw))
    }

    pub(super) fn begin_statement(&mut self, autocommit: bool) {
        self.statement += 1;
        let level = match self.level {
            IsolationLevel::ReadCommitted => firn_isolation::FIRN_READ_COMMITTED,
            IsolationLevel::RepeatableRead => firn_isolation::FIRN_REPEATABLE_READ,
        };
        let id = self.statement;
        // SAFETY: the session is this thread's.
        let begun = self.call(|raw| unsafe {
            firn_clear_kill(raw);
            firn_begin_statement(raw, id, level, LEVEL_TIMEOUT_US, autocommit)
        });
        begun.expect("a statement begins");
    }

    pub(super) fn end_statement(&mut self) {
        // SAFETY: the session is this thread's.
        let ended = self.call(|raw| unsafe { firn_end_statement(raw) });
        ended.expect("a statement ends");
    }

    pub(super) fn rollback_statement(&mut self) {
        // SAFETY: the session is this thread's.
        let ended = self.call(|raw| unsafe { firn_rollback_statement(raw) });
        ended.expect("a statement is rolled back");
    }

    pub(super) fn consistent_snapshot(&mut self) -> Outcome<()> {
        // SAFETY: the session is this thread's.
        self.call(|raw| unsafe { firn_consistent_snapshot(raw) })
    }

    /// In one step, or in two with a number that is unique.
    pub(super) fn commit(&mut self, two_phases: Option<u64>) -> Outcome<()> {
        if let Some(xid) = two_phases {
            let xid = xid.to_be_bytes();
            // SAFETY: the session is this thread's, the xid is valid during the call.
            self.call(|raw| unsafe { firn_prepare(raw, xid.as_ptr(), xid.len(), false) })?;
            // SAFETY: likewise.
            self.call(|raw| unsafe { firn_commit_ordered(raw, null(), 0) })?;
        }
        // SAFETY: the session is this thread's.
        self.call(|raw| unsafe { firn_commit(raw) })
    }

    pub(super) fn rollback(&mut self) -> Outcome<()> {
        // SAFETY: the session is this thread's.
        self.call(|raw| unsafe { firn_rollback(raw) })
    }

    pub(super) fn savepoint(&mut self) -> Outcome<u64> {
        let mut mark = 0;
        // SAFETY: the session is this thread's.
        self.call(|raw| unsafe { firn_savepoint(raw, &mut mark) })?;
        Ok(mark)
    }

    pub(super) fn rollback_to(&mut self, mark: u64) -> Outcome<()> {
        // SAFETY: the session is this thread's.
        self.call(|raw| unsafe { firn_rollback_to_savepoint(raw, mark) })
    }

    pub(super) fn insert(&mut self, table: usize, record: &[u8]) -> Outcome<()> {
        let table = self.server.tables[table];
        // SAFETY: the handles are live, the record has the table's length.
        self.call(|raw| unsafe {
            firn_insert(raw, table, record.as_ptr(), 0, null_mut(), null_mut())
        })
    }

    pub(super) fn cursor(
        &mut self,
        table: usize,
        index: u32,
        mode: firn_read_mode,
        wait: firn_wait,
    ) -> Outcome<Cursor<'_, 's>> {
        let mut raw = null_mut();
        let opened = self.server.tables[table];
        // SAFETY: the handles are live.
        bug(unsafe { firn_cursor_open(self.raw, opened, index, mode, wait, &mut raw) })?;
        Ok(Cursor {
            session: self,
            table: opened,
            raw,
            record: vec![0; RECORD_LEN],
        })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more; cursors borrow it.
        unsafe { firn_session_free(self.raw) };
    }
}

/// A position in an index; after a move that succeeded `record` has the row.
pub(super) struct Cursor<'c, 's> {
    session: &'c mut Session<'s>,
    table: *mut firn_table,
    raw: *mut firn_cursor,
    pub(super) record: Vec<u8>,
}

impl Cursor<'_, '_> {
    fn moved(&mut self, f: impl FnOnce(*mut firn_cursor, *mut u8) -> firn_status) -> Outcome<bool> {
        match f(self.raw, self.record.as_mut_ptr()) {
            FIRN_NO_ROW | FIRN_END => Ok(false),
            other => bug(other).map(|()| true),
        }
    }

    /// The scan ends after the entries with this key.
    pub(super) fn end_range(&mut self, key: &[u8]) -> Outcome<()> {
        const AFTER_KEY: u32 = 3;
        let len = key.len() as u32;
        // SAFETY: the cursor is live, the key as long as is said.
        bug(unsafe { firn_cursor_end_range(self.raw, key.as_ptr(), len, AFTER_KEY) })
    }

    pub(super) fn seek(&mut self, key: &[u8], find: Find) -> Outcome<bool> {
        let (len, find) = (key.len() as u32, find as u32);
        // SAFETY: cursor and session are live and this thread's; record and key are as long as is
        // said.
        self.moved(|raw, record| unsafe { firn_cursor_seek(raw, key.as_ptr(), len, find, record) })
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Outcome<bool> {
        let len = key.len() as u32;
        // SAFETY: as for seek.
        self.moved(|raw, record| unsafe { firn_cursor_get(raw, key.as_ptr(), len, record) })
    }

    pub(super) fn next(&mut self) -> Outcome<bool> {
        // SAFETY: as for seek.
        self.moved(|raw, record| unsafe { firn_cursor_next(raw, record) })
    }

    pub(super) fn prev(&mut self) -> Outcome<bool> {
        // SAFETY: as for seek.
        self.moved(|raw, record| unsafe { firn_cursor_prev(raw, record) })
    }

    pub(super) fn next_same(&mut self, key: &[u8]) -> Outcome<bool> {
        let len = key.len() as u32;
        // SAFETY: as for seek.
        self.moved(|raw, record| unsafe { firn_cursor_next_same(raw, key.as_ptr(), len, record) })
    }

    pub(super) fn set_semi_consistent(&mut self) {
        // SAFETY: the cursor is live.
        let set = bug(unsafe { firn_cursor_set_semi_consistent(self.raw, true) });
        set.expect("semi-consistent reading is turned on");
    }

    pub(super) fn was_semi_consistent(&self) -> bool {
        // SAFETY: the cursor is live.
        unsafe { firn_cursor_was_semi_consistent(self.raw) }
    }

    pub(super) fn unlock_row(&mut self) -> Outcome<()> {
        // SAFETY: cursor and session are live and this thread's.
        bug(unsafe { firn_cursor_unlock_row(self.raw) })
    }

    /// Changes the row last read.
    pub(super) fn update(&mut self, new: &[u8]) -> Outcome<()> {
        let (old, new) = (self.record.as_ptr(), new.as_ptr());
        let session = self.session.raw;
        // SAFETY: the handles are live, the records have the table's length.
        bug(unsafe { firn_update(session, self.table, old, new, null(), 0, null_mut()) })
    }

    /// Deletes the row last read.
    pub(super) fn delete(&mut self) -> Outcome<()> {
        let session = self.session.raw;
        // SAFETY: likewise.
        bug(unsafe { firn_delete(session, self.table, self.record.as_ptr(), null()) })
    }
}

impl Drop for Cursor<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { firn_cursor_close(self.raw) };
    }
}
