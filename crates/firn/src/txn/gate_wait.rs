//! A session that waits at the write stall gate.

use super::lock_table::{LockOwner, LockTable};
use crate::base::parker::Parker;
use crate::write::GateWaiter;
use std::sync::Arc;
use std::time::Duration;

/// Connects a session that waits at the stall gate with its lock owner: a kill of the session wakes
/// the waiting thread, and the host learns when the thread sleeps.
///
/// The session waits no longer than it would for a row lock, because others wait for the locks that
/// it holds. With a lock wait timeout of 0 it waits at the gate as long as necessary: this value
/// means that the session does not want to wait for other sessions' locks, not that a delay of a
/// millisecond should fail a statement.
pub(super) struct GateWait<'a> {
    pub(super) owner: &'a LockOwner,
    pub(super) locks: &'a LockTable,
    pub(super) timeout_us: u64,
}

impl GateWaiter for GateWait<'_> {
    fn is_interrupted(&self) -> bool {
        self.owner.is_interrupted()
    }

    fn parks(&self, parker: Option<Arc<Parker>>) {
        self.owner.set_parked(parker);
    }

    fn timeout(&self) -> Option<Duration> {
        (self.timeout_us > 0).then(|| Duration::from_micros(self.timeout_us))
    }

    fn sleeps(&self) {
        self.locks.report_stall(self.owner, true);
    }

    fn wakes(&self) {
        self.locks.report_stall(self.owner, false);
    }
}
