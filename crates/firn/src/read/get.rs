//! Point reads.

use super::super_version::SuperVersion;
use crate::base::key::SEQNO_MAX;
use crate::base::{InternalIterator, InternalKey, Result, Seqno, Value};
use crate::cache::KeyHash;
use crate::env::ReadClass;
use crate::version::Flushable;

/// Calls `f` with the newest version of `user_key` whose seqno is at most `seqno`; that version may
/// be a deletion. The search goes through the sources, newest first, and stops at the first hit: no
/// older source has a newer version of a key. `class` is the purpose of the reads of files.
///
/// Between the memtables (with the ingested runs that wait for their edit) and the files it
/// searches the row cache, which holds the newest flushed version of frequently read rows. A
/// version that is found in the files is offered to the row cache.
///
/// # Errors
/// Those of reading the files: `Corruption`, `Unsupported`, `Io`.
#[allow(clippy::missing_panics_doc)] // No caller can cause it.
pub fn get<R>(
    super_version: &SuperVersion,
    user_key: &[u8],
    seqno: Seqno,
    class: ReadClass,
    f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
) -> Result<Option<R>> {
    let mut f = Some(f);
    let mut found = |key: InternalKey<'_>, value: Value<'_>| {
        let f = f.take().expect("the search ends at the first hit");
        f(key, value)
    };
    if !super_version.active.is_empty()
        && let Some(result) = super_version.active.get(user_key, seqno, &mut found)
    {
        return Ok(Some(result));
    }
    for queued in &super_version.frozen {
        let result = match queued {
            Flushable::Memtable(memtable) => memtable.get(user_key, seqno, &mut found),
            Flushable::Run(run) => match run.run().find(user_key) {
                Some(file) => {
                    let hash = KeyHash::of(user_key);
                    file.reader()?
                        .get(user_key, hash, seqno, class, &mut found)?
                }
                None => None,
            },
        };
        if result.is_some() {
            return Ok(result);
        }
    }
    let hash = KeyHash::of(user_key);
    let rows = Some(&super_version.rows).filter(|rows| rows.is_enabled());
    if let Some(rows) = rows
        && let Some(result) = rows.get(hash, user_key, seqno, super_version.active.id(), &mut found)
    {
        return Ok(Some(result));
    }
    let mut found = |key: InternalKey<'_>, value: Value<'_>| {
        if let Some(rows) = rows {
            rows.offer(hash, super_version.sealed, seqno, key, value);
        }
        found(key, value)
    };
    for run in super_version
        .version
        .l0
        .iter()
        .chain(&super_version.version.levels)
    {
        if let Some(file) = run.find(user_key)
            && let Some(result) = file
                .reader()?
                .get(user_key, hash, seqno, class, &mut found)?
        {
            return Ok(Some(result));
        }
    }
    Ok(None)
}

/// Whether a commit after `since` may have written or deleted a user key `k` with
/// `lower ≤ k < upper`. The super version must be the current one, as for [`changed_since`].
pub fn range_changed_since(
    super_version: &SuperVersion,
    lower: &[u8],
    upper: &[u8],
    since: Seqno,
) -> bool {
    if super_version.has_files_after(since) {
        return true;
    }
    let mut grown = super_version
        .memtables()
        .filter(|m| m.last_commit() > since);
    grown.any(|memtable| {
        let mut entries = memtable.iter();
        let mut more = entries.seek(lower, SEQNO_MAX).unwrap_or(false);
        while more && entries.key().user_key < upper {
            if entries.key().seqno > since {
                return true;
            }
            more = entries.next().unwrap_or(false);
        }
        false
    })
}

/// Whether a commit after `since`, up to `seqno`, may have written or deleted `user_key`. Both
/// seqnos must have been visible while `super_version` was current. Then its memtables have the
/// entries of all these commits, except for ingested runs, whose files are in it before their
/// commit becomes visible. Files are not searched: if they may hold a commit after `since`, the
/// answer is `true`.
pub fn changed_since(
    super_version: &SuperVersion,
    user_key: &[u8],
    since: Seqno,
    seqno: Seqno,
) -> bool {
    if super_version.has_files_after(since) {
        return true;
    }
    let mut grown = super_version
        .memtables()
        .filter(|m| m.last_commit() > since);
    grown.any(|memtable| {
        let newest = memtable.get(user_key, seqno, |key, _| key.seqno);
        newest.is_some_and(|newest| newest > since)
    })
}
