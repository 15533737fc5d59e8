//! Reports on transactions, locks and deadlocks, for `information_schema`.

use crate::database::firn_db;
use crate::error::{firn_status, guard};
use crate::session::firn_isolation;
use firn::catalog::KeyDescription;
use firn::db::Db;
use firn::txn::{Isolation, LockMode, TransactionPhase, WaitInfo};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null;

/// Largest number of locks that a report lists. The merged locks of a transaction in one index
/// count as one.
const LOCKS_MAX: usize = 100_000;

/// How far a transaction is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum firn_trx_state {
    /// It may read and write.
    FIRN_TRX_RUNNING = 0,
    /// It waits for a lock.
    FIRN_TRX_LOCK_WAIT = 1,
    /// Its changes are in the log, and it waits for its outcome.
    FIRN_TRX_PREPARED = 2,
    /// Its changes are visible, and it waits for the log.
    FIRN_TRX_COMMITTING = 3,
}

/// An open transaction of a session.
#[repr(C)]
pub struct firn_trx_info {
    /// Names the transaction while it is open.
    pub id: u64,
    /// The number of its session; 0 for none.
    pub session: u64,
    /// How far it is.
    pub state: firn_trx_state,
    /// Its isolation level.
    pub isolation: firn_isolation,
    /// When it began, microseconds since 1970.
    pub begun_us: u64,
    /// When the transaction's lock wait began, microseconds since 1970; 0 if it does not wait.
    pub wait_begun_us: u64,
    /// Keys locked.
    pub rows_locked: u64,
    /// Ranges locked against inserts.
    pub gaps_locked: u64,
    /// Rows changed.
    pub rows_changed: u64,
    /// Estimated cost of rolling the transaction back. Of the transactions in a deadlock, the one
    /// with the smallest weight becomes the victim, unless the server prefers another one.
    pub weight: u64,
    /// Memory of its own writes, bytes.
    pub write_bytes: u64,
    /// When the transaction took its snapshot, microseconds since 1970; 0 if it keeps none.
    pub snapshot_us: u64,
    /// Number of commits since the transaction took its snapshot.
    pub snapshot_commits: u64,
    /// The SQL text that the transaction's session executes; NULL if there is none.
    pub statement: *const c_char,
}

/// Makes a C string of `text`, up to its first zero byte.
fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

fn c_optional(text: Option<&String>) -> Option<CString> {
    text.map(|text| c_text(text))
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(null(), |text| text.as_ptr())
}

/// Calls `each` for every open transaction of a session.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_transactions(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_trx_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let db = unsafe { firn_db::get(db) }?;
        let visible = db.context().super_versions.visible();
        for one in db.transactions() {
            let statement = c_optional(db.statement_of(&one).as_ref());
            let wait_begun_us = one.owner.waits_since_us();
            let (seqno, snapshot_us) = one.snapshot.unwrap_or((visible, 0));
            let info = firn_trx_info {
                id: one.owner.id(),
                session: one.owner.session(),
                state: match (one.phase, wait_begun_us) {
                    (TransactionPhase::Prepared, _) => firn_trx_state::FIRN_TRX_PREPARED,
                    (TransactionPhase::Committed, _) => firn_trx_state::FIRN_TRX_COMMITTING,
                    (TransactionPhase::Active, Some(_)) => firn_trx_state::FIRN_TRX_LOCK_WAIT,
                    (TransactionPhase::Active, None) => firn_trx_state::FIRN_TRX_RUNNING,
                },
                isolation: match one.isolation {
                    Isolation::ReadCommitted => firn_isolation::FIRN_READ_COMMITTED,
                    Isolation::RepeatableRead => firn_isolation::FIRN_REPEATABLE_READ,
                    Isolation::Serializable => firn_isolation::FIRN_SERIALIZABLE,
                },
                begun_us: one.begun_us,
                wait_begun_us: wait_begun_us.unwrap_or(0),
                rows_locked: one.owner.locks_held() as u64,
                gaps_locked: one.owner.gaps_held() as u64,
                rows_changed: one.owner.changed_rows(),
                weight: one.owner.weight(),
                write_bytes: one.write_bytes,
                snapshot_us,
                snapshot_commits: visible.saturating_sub(seqno),
                statement: pointer(&statement),
            };
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}

/// The kinds of locks.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum firn_lock_kind {
    /// A key, shared.
    FIRN_LOCK_SHARED = 0,
    /// A key, exclusive.
    FIRN_LOCK_EXCLUSIVE = 1,
    /// A range of keys, against inserts.
    FIRN_LOCK_GAP = 2,
    /// An insert that waits because other transactions have locked the gap of its key.
    FIRN_LOCK_INSERT_INTENTION = 3,
}

fn kind_of(mode: LockMode) -> firn_lock_kind {
    match mode {
        LockMode::Shared => firn_lock_kind::FIRN_LOCK_SHARED,
        LockMode::Exclusive => firn_lock_kind::FIRN_LOCK_EXCLUSIVE,
    }
}

/// A lock that a transaction holds, or that it waits for.
#[repr(C)]
pub struct firn_lock_info {
    /// The transaction, as [`firn_trx_info::id`] names it.
    pub trx: u64,
    /// Number of its session; 0 if it has none or is not known.
    pub session: u64,
    /// Kind of the lock.
    pub kind: firn_lock_kind,
    /// Whether the transaction has the lock; otherwise it waits for it.
    pub granted: bool,
    /// Number of keys locked; 0 for a gap.
    pub rows: u64,
    /// `database/table`.
    pub table_name: *const c_char,
    /// Name of the index; empty for a hidden primary key.
    pub index_name: *const c_char,
    /// The key, or the first of several, in words.
    pub key: *const c_char,
    /// The last of several keys; for a gap, the key at which the gap ends. NULL for a single key.
    pub last_key: *const c_char,
    /// When the wait began, microseconds since 1970; 0 for a lock that is held.
    pub wait_begun_us: u64,
    /// One transaction that blocks the request; 0 for a lock that is held. If several transactions
    /// block the request, it is listed once for each of them.
    pub blocker: u64,
    /// Number of the blocker's session.
    pub blocker_session: u64,
}

/// The texts of a key.
struct KeyText {
    table: CString,
    index: CString,
    values: CString,
}

/// The text by which a description shows a zero byte behind a whole key. The key with this byte is
/// the next one after the entry's key, and a gap behind the entry begins there.
const KEY_SUCCESSOR_BYTE: &str = "0x00";

impl KeyText {
    fn of(db: &Db, key: &[u8]) -> Self {
        let KeyDescription {
            table,
            index,
            mut values,
        } = db.catalog().describe_key(key);
        // Bounds of ranges: the key right after an entry.
        let after =
            values.len() > 1 && values.last().is_some_and(|last| last == KEY_SUCCESSOR_BYTE);
        if after {
            values.pop();
        }
        let values = values.join(", ");
        let values = if after {
            format!("after {values}")
        } else {
            values
        };
        Self {
            table: c_text(&table),
            index: c_text(&index),
            values: c_text(&values),
        }
    }
}

type LockCallback = unsafe extern "C" fn(context: *mut c_void, info: *const firn_lock_info);

/// Calls `each` for the locks that transactions hold, at most 100,000; the locks of a large
/// statement count as one for each index. With `waits`, calls it instead for every request that
/// waits.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_locks(
    db: *const firn_db,
    waits: bool,
    each: LockCallback,
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let db = unsafe { firn_db::get(db) }?;
        let open = db.transactions();
        let sessions: HashMap<u64, u64> = open
            .iter()
            .map(|one| (one.owner.id(), one.owner.session()))
            .collect();
        let session = |trx: u64| sessions.get(&trx).copied().unwrap_or(0);
        if waits {
            for wait in db.lock_waits() {
                // SAFETY: the host keeps callback and context valid during the call.
                unsafe { list_wait(db, &wait, &session, each, context) };
            }
            return Ok(());
        }
        for lock in db.locks(LOCKS_MAX) {
            let key = KeyText::of(db, &lock.key);
            let last = lock.last.as_ref().map(|last| {
                match last.starts_with(&lock.key[..4.min(lock.key.len())]) {
                    true => KeyText::of(db, last).values,
                    // The gap lies behind the last entry of its index, so it ends at the first key
                    // of the next index. Do not name a key of that other index.
                    false => c_text("the end"),
                }
            });
            let info = firn_lock_info {
                trx: lock.owner,
                session: session(lock.owner),
                kind: match lock.is_gap {
                    true => firn_lock_kind::FIRN_LOCK_GAP,
                    false => kind_of(lock.mode),
                },
                granted: true,
                rows: lock.rows,
                table_name: key.table.as_ptr(),
                index_name: key.index.as_ptr(),
                key: key.values.as_ptr(),
                last_key: pointer(&last),
                wait_begun_us: 0,
                blocker: 0,
                blocker_session: 0,
            };
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}

/// # Safety
/// The requirements are those of [`firn_list_locks`].
unsafe fn list_wait(
    db: &Db,
    wait: &WaitInfo,
    session: &impl Fn(u64) -> u64,
    each: LockCallback,
    context: *mut c_void,
) {
    let key = KeyText::of(db, &wait.key);
    for blocker in &wait.blockers {
        let info = firn_lock_info {
            trx: wait.owner,
            session: session(wait.owner),
            kind: match wait.is_insert {
                true => firn_lock_kind::FIRN_LOCK_INSERT_INTENTION,
                false => kind_of(wait.mode),
            },
            granted: false,
            rows: 1,
            table_name: key.table.as_ptr(),
            index_name: key.index.as_ptr(),
            key: key.values.as_ptr(),
            last_key: null(),
            wait_begun_us: wait.since_us,
            blocker: *blocker,
            blocker_session: session(*blocker),
        };
        // SAFETY: the host keeps callback and context valid during the call.
        unsafe { each(context, &info) };
    }
}

/// A transaction in a deadlock.
#[repr(C)]
pub struct firn_deadlock_info {
    /// Number of the deadlock since the database was opened.
    pub number: u64,
    /// When it was found, microseconds since 1970.
    pub at_us: u64,
    /// The transaction, as [`firn_trx_info::id`] named it.
    pub trx: u64,
    /// Number of its session.
    pub session: u64,
    /// Whether it was rolled back.
    pub is_victim: bool,
    /// Estimated cost of its rollback.
    pub weight: u64,
    /// Kind of the lock that it waited for.
    pub kind: firn_lock_kind,
    /// `database/table`.
    pub table_name: *const c_char,
    /// Name of the index; empty for a hidden primary key.
    pub index_name: *const c_char,
    /// The key in words.
    pub key: *const c_char,
    /// The transaction that blocked it.
    pub blocker: u64,
    /// The SQL text that it executed; NULL if it could not be had.
    pub statement: *const c_char,
}

/// Calls `each` for every transaction of the last ten deadlocks, the oldest deadlock first.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_deadlocks(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_deadlock_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let db = unsafe { firn_db::get(db) }?;
        for deadlock in db.deadlocks() {
            for (at, member) in deadlock.members.iter().enumerate() {
                let key = KeyText::of(db, &member.key);
                let statement = c_optional(member.statement.as_ref());
                let next = (at + 1) % deadlock.members.len();
                let info = firn_deadlock_info {
                    number: deadlock.number,
                    at_us: deadlock.at_us,
                    trx: member.owner,
                    session: member.session,
                    is_victim: at == deadlock.victim,
                    weight: member.weight,
                    kind: match member.is_insert {
                        true => firn_lock_kind::FIRN_LOCK_INSERT_INTENTION,
                        false => kind_of(member.mode),
                    },
                    table_name: key.table.as_ptr(),
                    index_name: key.index.as_ptr(),
                    key: key.values.as_ptr(),
                    blocker: deadlock.members[next].owner,
                    statement: pointer(&statement),
                };
                // SAFETY: the host keeps callback and context valid during the call.
                unsafe { each(context, &info) };
            }
        }
        Ok(())
    })
}
