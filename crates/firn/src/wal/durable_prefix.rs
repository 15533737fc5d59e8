//! Which groups are written and which are durable, when several are under way at once.
//!
//! Writes finish in any order. A commit may be acknowledged only if its group *and all before it*
//! are durable: replay stops at the first group that is missing. So [`DurablePrefix`] keeps the
//! ends of two prefixes of the log: `written` stands before the first group that the operating
//! system does not have yet, `durable` before the first group that is not on the device yet.

use super::{GroupNumber, Lsn, SegmentId};
use std::collections::VecDeque;

/// The last group of a prefix of the log, and the log position behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrefixEnd {
    pub group: GroupNumber,
    pub lsn: Lsn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Writing,
    Written,
    Durable,
}

/// A log group that is not yet part of the durable prefix. Adjacent groups of stage `Written` are
/// merged into one such entry.
#[derive(Debug)]
struct PendingGroup {
    last: PrefixEnd,
    segment: SegmentId,
    stage: Stage,
}

#[derive(Debug)]
pub(super) struct DurablePrefix {
    entries: VecDeque<PendingGroup>,
    written: PrefixEnd,
    durable: PrefixEnd,
    writing: usize,
}

impl DurablePrefix {
    pub(super) fn new(start: PrefixEnd) -> Self {
        Self {
            entries: VecDeque::new(),
            written: start,
            durable: start,
            writing: 0,
        }
    }

    /// The end of the log prefix that was handed to the operating system.
    pub(super) fn written(&self) -> PrefixEnd {
        self.written
    }

    /// The end of the log prefix that is on the device.
    pub(super) fn durable(&self) -> PrefixEnd {
        self.durable
    }

    /// Number of group writes that have begun and not finished.
    pub(super) fn writing(&self) -> usize {
        self.writing
    }

    /// The lowest segment with a group that is not part of the durable prefix.
    pub(super) fn oldest_segment(&self) -> Option<SegmentId> {
        self.entries.front().map(|e| e.segment)
    }

    /// Whether the durable prefix ends at a group that waits for a sync of its file.
    pub(super) fn needs_sync(&self) -> bool {
        self.entries
            .front()
            .is_some_and(|e| e.stage == Stage::Written)
    }

    /// Notes that the write of the next group begins: the group that ends at `last` and lies in
    /// `segment`.
    pub(super) fn begin(&mut self, last: PrefixEnd, segment: SegmentId) {
        self.writing += 1;
        self.entries.push_back(PendingGroup {
            last,
            segment,
            stage: Stage::Writing,
        });
    }

    /// Notes that the write of `group` has finished; `durable` says whether the group is then on
    /// the device, or only in the page cache.
    pub(super) fn finish(&mut self, group: GroupNumber, durable: bool) {
        let at = self.entries.partition_point(|e| e.last.group < group);
        debug_assert_eq!(self.entries[at].last.group, group);
        self.entries[at].stage = if durable {
            Stage::Durable
        } else {
            Stage::Written
        };
        self.writing -= 1;
        self.advance();
    }

    /// Notes that a rewrite of the last group begins, which adds records up to `lsn` to the group.
    /// The group must be in the page cache and not durable. A sync that begins during this rewrite
    /// makes neither this group durable nor the written groups that share its entry in `entries`.
    pub(super) fn grow(&mut self, group: GroupNumber, lsn: Lsn) {
        let last = self.entries.back_mut().expect("the group is not durable");
        debug_assert!(last.last.group == group && last.stage == Stage::Written);
        last.last.lsn = lsn;
        last.stage = Stage::Writing;
        self.writing += 1;
        self.advance();
    }

    /// Notes a finished sync of the segment files. `upto` is the end of the written prefix as it
    /// was before the sync began, so all groups up to it are durable.
    pub(super) fn synced(&mut self, upto: PrefixEnd) {
        while let Some(front) = self.entries.front() {
            if front.last.group > upto.group {
                break;
            }
            self.entries.pop_front();
        }
        if upto.group > self.durable.group {
            self.durable = upto;
        }
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(front) = self.entries.front()
            && front.stage == Stage::Durable
        {
            self.durable = front.last;
            self.entries.pop_front();
        }
        // If no committer ever asks for a sync, the list would grow with every group. So two
        // entries of stage `Written` at its front are merged. The merged entry keeps the lower
        // segment id, because that segment must not be released before its groups are durable.
        while self.entries.len() > 1
            && self.entries[0].stage == Stage::Written
            && self.entries[1].stage == Stage::Written
        {
            let front = self.entries.pop_front().expect("two entries");
            self.entries[0].segment = front.segment;
        }
        let finished = self
            .entries
            .iter()
            .take_while(|e| e.stage != Stage::Writing);
        self.written = finished.last().map_or(self.durable, |e| e.last);
    }
}

#[cfg(test)]
mod tests;
