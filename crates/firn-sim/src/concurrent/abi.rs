//! Safe wrappers around the C ABI: tables of lists, sessions, cursors.
//!
//! A record has these bytes:
//!
//! ```text
//! 0      NULL bits
//! 1      id: the primary key in tables 1 and 2
//! 9      list
//! 17     pos: list and pos are the primary key of table 0, index `lp` of the others
//! 25     amount
//! 33     name: identifies the row for ever
//! 41     log: length (2 bytes), then the elements, 4 bytes each
//! 8043   pad: length (2 bytes), then a filling
//! ```
//!
//! Numbers are little-endian, of 8 bytes. Only in table 2 may `id` differ from `name`, and change.

use super::{LEVEL_TIMEOUT_US, bug};
use firn::db::Db;
use firn_capi::cursor::{
    firn_cursor, firn_cursor_close, firn_cursor_end_range, firn_cursor_forget_row,
    firn_cursor_open, firn_cursor_set_semi_consistent, firn_cursor_unlock_row,
    firn_cursor_was_semi_consistent, firn_read_mode, firn_wait,
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

/// The result of a call; the error is its status.
pub(super) type Outcome<T> = Result<T, firn_status>;

const LOG_MAX: usize = 8000;
const PAD_MAX: usize = 4000;
const NAME_AT: usize = 33;
const LOG_AT: usize = NAME_AT + 8;
const PAD_AT: usize = LOG_AT + 2 + LOG_MAX;
const RECORD_LEN: usize = PAD_AT + 2 + PAD_MAX;

/// Number of the index on list and position: the primary index in table 0, the second one in the
/// others.
pub(super) fn list_index(table: usize) -> u32 {
    u32::from(table > 0)
}

/// Number of tables. Lists are ranges of the primary key in table 0, of a secondary index in table
/// 1, of a unique secondary index in table 2.
pub(super) const TABLES: usize = 3;
const NAMES: [&CStr; TABLES] = [c"test/p", c"test/s", c"test/u"];

/// Seek modes, with the server's numbers (`ha_rkey_function`).
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

/// The key image of `parts`.
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

/// The `id` column of a record.
pub(super) fn primary_of(record: &[u8]) -> i64 {
    number(record, 1)
}

/// The record of a row with `primary` in its column `id` and `pad` bytes of padding in its column
/// for padding.
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
    // Vary the bytes: a run of one byte would compress to almost nothing in the stored files.
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

/// Calls `f` with the definition of a table. The definition's pointers are valid during the call.
fn with_definition<T>(table: usize, optimistic: bool, f: impl FnOnce(&firn_table_def) -> T) -> T {
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
        optimistic,
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

// SAFETY: database and table handles may be used by all threads of a host at once; the C ABI binds
// only sessions and cursors to one thread. Closing needs `&mut self`, in `drop`.
unsafe impl Sync for Server {}

impl Server {
    /// Opens the tables, and creates those that do not exist; `optimistic` says which ones are
    /// optimistic.
    pub(super) fn new(db: &Arc<Db>, optimistic: [bool; TABLES]) -> Outcome<Self> {
        let raw = firn_db::over(Arc::clone(db));
        let mut server = Self {
            db: raw,
            tables: Vec::new(),
        };
        for (table, name) in NAMES.iter().enumerate() {
            with_definition(table, optimistic[table], |definition| {
                // SAFETY: `raw` is open; the name is static; `with_definition` keeps the
                // definition's pointers valid; a NULL image has the length 0.
                let made = unsafe {
                    firn_create_table(
                        raw,
                        name.as_ptr(),
                        definition,
                        null(),
                        0,
                        null(),
                        0,
                        1,
                        null(),
                    )
                };
                if made != FIRN_TABLE_EXISTS {
                    ok(made)?;
                }
                let mut opened = null_mut();
                // SAFETY: as for `firn_create_table` above; `opened` is a local that may be
                // written.
                ok(unsafe { firn_table_open(raw, name.as_ptr(), definition, &mut opened) })?;
                server.tables.push(opened);
                Ok(())
            })?;
        }
        Ok(server)
    }

    pub(super) fn session(&self, level: IsolationLevel) -> Session<'_> {
        let mut raw = null_mut();
        // SAFETY: `self.db` is open until `drop`; `raw` is a local that may be written.
        let made = unsafe { firn_session_new(self.db, null_mut(), 0, &mut raw) };
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
            // SAFETY: the table is open and closed only here. Sessions, and through them cursors,
            // borrow the server, so none is left that could use it.
            unsafe { firn_table_close(table) };
        }
        // SAFETY: the database is open, and closed only here. Its tables are closed, and sessions
        // borrow the server, so nothing is left that could use it. After a death of the environment
        // the close fails; the error does not matter here.
        unsafe { firn_close(self.db) };
    }
}

/// A connection.
pub(super) struct Session<'s> {
    server: &'s Server,
    raw: *mut firn_session,
    pub(super) level: IsolationLevel,
    statement: u64,
}

// SAFETY: the C ABI allows a session to be used by any one thread at a time. All calls but `kill`
// need `&mut` access to the session, which one thread has.
unsafe impl Send for Session<'_> {}

/// Kills the running statement of a session, from another thread.
pub(super) struct Killer(*mut firn_session);

// SAFETY: `firn_kill` may be called from any thread while the session lives; that it lives is the
// contract of `kill`.
unsafe impl Send for Killer {}

impl Killer {
    /// # Safety
    /// The session must not have been dropped.
    pub(super) unsafe fn kill(&self) {
        // SAFETY: the caller promises that the session is not dropped, so the pointer is live.
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
            IsolationLevel::RepeatableRead | IsolationLevel::Serializable => {
                firn_isolation::FIRN_REPEATABLE_READ
            }
        };
        let id = self.statement;
        // SAFETY: `raw` is live until `drop`, and `&mut self` proves that this thread alone uses
        // it.
        let begun = self.call(|raw| unsafe {
            firn_clear_kill(raw);
            firn_begin_statement(raw, id, level, LEVEL_TIMEOUT_US, autocommit)
        });
        begun.expect("a statement begins");
    }

    pub(super) fn end_statement(&mut self) {
        // SAFETY: `raw` is live until `drop`, and `&mut self` proves that this thread alone uses
        // it.
        let ended = self.call(|raw| unsafe { firn_end_statement(raw) });
        ended.expect("a statement ends");
    }

    pub(super) fn rollback_statement(&mut self) {
        // SAFETY: `raw` is live until `drop`, and `&mut self` proves that this thread alone uses
        // it.
        let ended = self.call(|raw| unsafe { firn_rollback_statement(raw) });
        ended.expect("a statement is rolled back");
    }

    pub(super) fn consistent_snapshot(&mut self) -> Outcome<()> {
        // SAFETY: `raw` is live until `drop`, and `&mut self` proves that this thread alone uses
        // it.
        self.call(|raw| unsafe { firn_consistent_snapshot(raw) })
    }

    /// Commits, in two phases if `two_phases` gives a unique number for the xid.
    pub(super) fn commit(&mut self, two_phases: Option<u64>) -> Outcome<()> {
        if let Some(xid) = two_phases {
            let xid = xid.to_be_bytes();
            // SAFETY: `raw` is live, and this thread alone uses it; `xid` is an array of the length
            // given.
            self.call(|raw| unsafe { firn_prepare(raw, xid.as_ptr(), xid.len(), false) })?;
            // SAFETY: `raw` is live, and this thread alone uses it; a NULL binlog file is allowed.
            self.call(|raw| unsafe { firn_commit_ordered(raw, null(), 0) })?;
        }
        // SAFETY: `raw` is live until `drop`, and `&mut self` proves that this thread alone uses
        // it.
        self.call(|raw| unsafe { firn_commit(raw) })
    }

    pub(super) fn rollback(&mut self) -> Outcome<()> {
        // SAFETY: `raw` is live until `drop`, and `&mut self` proves that this thread alone uses
        // it.
        self.call(|raw| unsafe { firn_rollback(raw) })
    }

    pub(super) fn savepoint(&mut self) -> Outcome<u64> {
        let mut mark = 0;
        // SAFETY: `raw` is live, and this thread alone uses it; `mark` is a local that may be
        // written.
        self.call(|raw| unsafe { firn_savepoint(raw, &mut mark) })?;
        Ok(mark)
    }

    pub(super) fn rollback_to(&mut self, mark: u64) -> Outcome<()> {
        // SAFETY: `raw` is live until `drop`, and `&mut self` proves that this thread alone uses
        // it.
        self.call(|raw| unsafe { firn_rollback_to_savepoint(raw, mark) })
    }

    pub(super) fn insert(&mut self, table: usize, record: &[u8]) -> Outcome<()> {
        let table = self.server.tables[table];
        // SAFETY: session and table are live, since the session borrows the server. The callers
        // pass records of `record_of`, which have the table's length. NULL outputs are allowed.
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
        // SAFETY: session and table are live. The cursor borrows the session, which so stays valid
        // until the cursor is closed; `raw` is a local that may be written.
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
        // SAFETY: freed only here. Cursors borrow the session, so none is left; killers must not be
        // used any more by the contract of `Killer::kill`.
        unsafe { firn_session_free(self.raw) };
    }
}

/// A cursor on an index. After a successful move, `record` holds the row.
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

    /// Ends forward scans after the entries that begin with this key.
    pub(super) fn end_range(&mut self, key: &[u8]) -> Outcome<()> {
        const AFTER_KEY: u32 = 3;
        let len = key.len() as u32;
        // SAFETY: the cursor is live until `drop`; `key` is a slice of the length given.
        bug(unsafe { firn_cursor_end_range(self.raw, key.as_ptr(), len, AFTER_KEY) })
    }

    pub(super) fn seek(&mut self, key: &[u8], find: Find) -> Outcome<bool> {
        let (len, find) = (key.len() as u32, find as u32);
        // SAFETY: the cursor is live until `drop`; it borrows the session mutably, so this thread
        // alone uses both. `record` has `RECORD_LEN` bytes, the table's record length; `key` is a
        // slice of the length given.
        self.moved(|raw, record| unsafe { firn_cursor_seek(raw, key.as_ptr(), len, find, record) })
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Outcome<bool> {
        let len = key.len() as u32;
        // SAFETY: as for `seek`.
        self.moved(|raw, record| unsafe { firn_cursor_get(raw, key.as_ptr(), len, record) })
    }

    pub(super) fn next(&mut self) -> Outcome<bool> {
        // SAFETY: as for `seek`.
        self.moved(|raw, record| unsafe { firn_cursor_next(raw, record) })
    }

    pub(super) fn prev(&mut self) -> Outcome<bool> {
        // SAFETY: as for `seek`.
        self.moved(|raw, record| unsafe { firn_cursor_prev(raw, record) })
    }

    pub(super) fn next_same(&mut self, key: &[u8]) -> Outcome<bool> {
        let len = key.len() as u32;
        // SAFETY: as for `seek`.
        self.moved(|raw, record| unsafe { firn_cursor_next_same(raw, key.as_ptr(), len, record) })
    }

    pub(super) fn set_semi_consistent(&mut self) {
        // SAFETY: the cursor is live until `drop`, and belongs to this thread.
        let set = bug(unsafe { firn_cursor_set_semi_consistent(self.raw, true) });
        set.expect("semi-consistent reading is turned on");
    }

    pub(super) fn was_semi_consistent(&self) -> bool {
        // SAFETY: the cursor is live until `drop`, and belongs to this thread.
        unsafe { firn_cursor_was_semi_consistent(self.raw) }
    }

    pub(super) fn unlock_row(&mut self) -> Outcome<()> {
        // SAFETY: as for `seek`: cursor and session are live, and this thread alone uses them.
        bug(unsafe { firn_cursor_unlock_row(self.raw) })
    }

    pub(super) fn forget_row(&mut self) -> Outcome<()> {
        // SAFETY: as for `seek`: cursor and session are live, and this thread alone uses them.
        bug(unsafe { firn_cursor_forget_row(self.raw) })
    }

    /// Updates the row last read.
    pub(super) fn update(&mut self, new: &[u8]) -> Outcome<()> {
        let (old, new) = (self.record.as_ptr(), new.as_ptr());
        let session = self.session.raw;
        // SAFETY: session and table are live; `record`, and `new` from `record_of`, have the
        // table's record length. The tables have primary keys, so the NULL reference is allowed.
        bug(unsafe { firn_update(session, self.table, old, new, null(), 0, null_mut()) })
    }

    /// Deletes the row last read.
    pub(super) fn delete(&mut self) -> Outcome<()> {
        let session = self.session.raw;
        // SAFETY: as for `update`.
        bug(unsafe { firn_delete(session, self.table, self.record.as_ptr(), null(), 0) })
    }
}

impl Drop for Cursor<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: the cursor was opened by `Session::cursor` and is closed only here.
        unsafe { firn_cursor_close(self.raw) };
    }
}
