//! The session of a DDL statement, as it crosses the C ABI.

use crate::session::{firn_session, session_mut};
use firn::catalog::DdlSession;

/// The session of a DDL statement: the statement waits for locks for at most `lock_timeout_us`, or
/// until `session` is killed. If `session` is NULL, a lock that is not free makes it fail at once.
///
/// # Safety
/// `session` must be NULL, or live and used by this thread alone.
pub(crate) unsafe fn ddl_session<'a>(
    session: *mut firn_session,
    checks: bool,
    lock_timeout_us: u64,
) -> DdlSession<'a> {
    // SAFETY: the pointer is NULL, or a live session that only this thread uses.
    let session = unsafe { session_mut(session) }.ok();
    DdlSession {
        checks,
        owner: session.map(|session| &**session.transaction.owner()),
        lock_timeout_us,
    }
}
