//! Which files of the last level leave a disk that runs full, although they were read lately.
//!
//! Files that come back leave room on the disk ([`kept_free`]). Files leave when less than three
//! quarters of that is free, until all of it is free. So a file that comes back does not leave at
//! once, and one that has left finds no room to come back.

use crate::env::DiskRoom;
use crate::store::kept_free;
use crate::version::{FileHandle, LAST_LEVEL, Version};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

/// A look at all files keeps this many of the coldest ones.
const COLDEST_MAX: usize = 1024;

/// Time between two looks at all files, microseconds, unless the last one has found as many files
/// as it keeps.
const LOOK_US: u64 = 60_000_000;

/// A file that may leave, by the time at which it was last read.
struct Candidate {
    read_s: u64,
    file: Weak<FileHandle>,
}

/// See the module.
#[derive(Default)]
pub(super) struct ColdestFiles {
    is_short: bool,
    /// The coldest file is the last one.
    coldest: Vec<Candidate>,
    /// When all files were looked at last, microseconds, and whether there were more.
    looked: Option<(u64, bool)>,
    /// Id and size of files that have left, and whose local copies may be there yet.
    leaving: Vec<(u64, u64)>,
}

impl std::fmt::Debug for ColdestFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} candidates, {} leaving",
            self.coldest.len(),
            self.leaving.len()
        )
    }
}

impl ColdestFiles {
    /// Whether files leave because the disk runs full. `obsolete` are the bytes of local files that
    /// wait for their deletion, and `has_local_copy` says whether a file that has left is on the
    /// disk yet: both will be free.
    pub(super) fn is_short(
        &mut self,
        room: DiskRoom,
        obsolete: u64,
        has_local_copy: impl Fn(u64) -> bool,
    ) -> bool {
        self.leaving.retain(|(id, _)| has_local_copy(*id));
        let leaving = self.leaving.iter().map(|(_, size)| size).sum::<u64>();
        // Some of the leaving ones are obsolete already.
        let free = room.free.saturating_add(leaving.max(obsolete));
        let kept = kept_free(room);
        self.is_short = match self.is_short {
            true => free < kept,
            false => free < kept / 4 * 3,
        };
        self.is_short
    }

    /// The last answer of [`Self::is_short`].
    pub(super) fn was_short(&self) -> bool {
        self.is_short
    }

    /// The coldest file of the last level that `may_leave` accepts, for which `waits` is false.
    /// Only few files are asked whether they wait.
    pub(super) fn next(
        &mut self,
        version: &Version,
        now_us: u64,
        may_leave: impl Fn(&FileHandle) -> bool,
        waits: impl Fn(&FileHandle) -> bool,
    ) -> Option<Arc<FileHandle>> {
        let moves = |file: &FileHandle| may_leave(file) && !waits(file);
        if let Some(file) = self.pop(version, &moves) {
            return Some(file);
        }
        let is_due = |(at_us, more): (u64, bool)| more || now_us.saturating_sub(at_us) >= LOOK_US;
        if !self.looked.is_none_or(is_due) {
            return None;
        }
        self.look(version, &may_leave);
        self.looked = Some((now_us, self.coldest.len() == COLDEST_MAX));
        self.pop(version, &moves)
    }

    /// A candidate may have been read, replaced or moved since it was found.
    fn pop(
        &mut self,
        version: &Version,
        moves: &impl Fn(&FileHandle) -> bool,
    ) -> Option<Arc<FileHandle>> {
        let last = &version.levels[LAST_LEVEL - 1];
        while let Some(candidate) = self.coldest.pop() {
            let Some(file) = candidate.file.upgrade() else {
                continue;
            };
            let is_live = last
                .find(&file.smallest)
                .is_some_and(|live| Arc::ptr_eq(live, &file));
            if is_live && file.last_read_s() == candidate.read_s && moves(&file) {
                return Some(file);
            }
        }
        None
    }

    fn look(&mut self, version: &Version, may_leave: &impl Fn(&FileHandle) -> bool) {
        let files = &version.levels[LAST_LEVEL - 1].files;
        // Time and position: the warmest is on top, and goes first.
        let mut found: BinaryHeap<(u64, usize)> = BinaryHeap::new();
        for (at, file) in files.iter().enumerate() {
            if !may_leave(file) {
                continue;
            }
            found.push((file.last_read_s(), at));
            if found.len() > COLDEST_MAX {
                found.pop();
            }
        }
        let found = found.into_sorted_vec();
        let candidates = found.into_iter().rev().filter_map(|(read_s, at)| {
            let file = Arc::downgrade(files.get(at)?);
            Some(Candidate { read_s, file })
        });
        self.coldest = candidates.collect();
    }

    /// A file has left; its local copy goes when nobody reads it any more.
    pub(super) fn has_left(&mut self, file: &FileHandle) {
        self.leaving.push((file.file_id, file.size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn files_leave_below_one_bound_and_until_another() {
        let mut coldest = ColdestFiles::default();
        // Of 200 GiB, ten stay free.
        let mut is_short = |free: u64, obsolete: u64| {
            let room = DiskRoom {
                free: free * GIB,
                total: 200 * GIB,
            };
            coldest.is_short(room, obsolete * GIB, |_| false)
        };
        for (free, obsolete, expected) in [
            (50, 0, false),
            (8, 0, false),
            (7, 0, true),
            (9, 0, true),
            (10, 0, false),
            (8, 0, false),
            (5, 3, false),
            (5, 2, true),
            (5, 5, false),
        ] {
            assert_eq!(is_short(free, obsolete), expected, "{free}, {obsolete}");
        }
    }

    #[test]
    fn files_that_have_left_count_as_free() {
        let mut coldest = ColdestFiles {
            leaving: vec![(1, 3 * GIB), (2, 2 * GIB)],
            ..ColdestFiles::default()
        };
        let room = DiskRoom {
            free: 5 * GIB,
            total: 200 * GIB,
        };
        assert!(!coldest.is_short(room, 0, |_| true));
        assert!(!coldest.is_short(room, 0, |id| id == 1));
        assert_eq!(coldest.leaving, [(1, 3 * GIB)]);
        assert!(coldest.is_short(room, 0, |_| false), "it is gone");
    }
}
