//! Background work on a full disk.

use super::BackgroundWork;
use crate::base::event_listener::Severity;
use crate::base::health::FullDisk;
use crate::base::{Error, ErrorKind};
use crate::store::ReservePart;

impl BackgroundWork {
    /// Refills the used parts of the disk reserve. While the disk is full, also tries again to get
    /// room for the next log segment, and flushes the active memtable if it is small: then
    /// compactions can free room by the deletions in it. Flushes a large memtable, too, if the log
    /// lacks room and the memtable keeps old log segments, which may be much larger than its SST.
    pub(in crate::db) fn recheck_full_disk(&self) {
        if self.health.check().is_err() {
            return;
        }
        let report = |error: Error| {
            // A stop interrupts the flush.
            if ![ErrorKind::NoSpace, ErrorKind::Interrupted].contains(error.kind()) {
                let message = format!("room for a full disk: {error}");
                self.options.listener.log(Severity::Warning, &message);
            }
        };
        self.versions.fill_reserve().unwrap_or_else(report);
        self.versions.refill_reserve().unwrap_or_else(report);
        if !self.health.is_full(None) {
            return;
        }
        self.wal.retry_next_segment().unwrap_or_else(report);
        let super_version = self.super_versions.pin();
        // Flush only while L0 is shallow: compactions cannot run on a full disk, so small L0 runs
        // would pile up.
        let l0_runs = self.backlog(&super_version.version).l0_runs;
        let shallow = l0_runs < 2 * self.options.l0_compaction_runs;
        let small = shallow && super_version.active.size_bytes() <= ReservePart::Table.bytes();
        let holds_log = super_version.active.min_segment() < self.wal.current_segment();
        let frees_log = self.health.is_full(Some(FullDisk::Log)) && holds_log;
        // If there are frozen memtables, do not freeze and flush the active one: the flush thread
        // tries again and again to flush the frozen ones.
        if (small || frees_log)
            && super_version.active.entries() > 0
            && super_version.frozen.is_empty()
        {
            self.flush_all().unwrap_or_else(report);
        }
    }
}
