//! Which files of the last level leave a disk that runs full, although they were read lately.
//!
//! Files that come back leave room on the disk ([`kept_free`]). Files leave when less than three
//! quarters of that is free, until all of it is free. So a file that comes back does not leave at
//! once, and one that has left finds no room to come back.
//!
//! A move need not make room: a file with a second name keeps its blocks, so it stays; and a
//! snapshot of the file system keeps those of all files, so moves stop for a time when they have
//! freed nothing. Whatever else grows on the disk meanwhile looks the same: so a stop is short, and
//! nothing stops when the disk is nearly full.

use crate::env::DiskRoom;
use crate::store::kept_free;
use crate::version::{FileHandle, LAST_LEVEL, Version};
use std::collections::{BinaryHeap, HashSet};
use std::sync::{Arc, Weak};

/// A look at all files keeps this many of the coldest ones.
const COLDEST_MAX: usize = 1024;

/// Time between two looks at all files, microseconds, unless the last one has found as many files
/// as it keeps.
const LOOK_US: u64 = 60_000_000;

/// Time between two looks if a file has left since the last one, microseconds: others may have
/// replaced those that it has found.
const NEXT_LOOK_US: u64 = 1_000_000;

/// Whether moves free room is measured each time the local copies of this many files are gone.
const MEASURED_FILES: u64 = 8;

/// How long files stay after such a measurement has found no more room, microseconds; twice as long
/// each time.
const STOP_US: u64 = 60_000_000;
const STOP_MAX_US: u64 = 10 * 60_000_000;

/// A file that may leave, by the time at which it was last read.
struct Candidate {
    read_s: u64,
    file: Weak<FileHandle>,
}

/// The bytes of local files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LocalBytes {
    /// Of those in the tree.
    pub tables: u64,
    /// Of those that wait for their deletion.
    pub obsolete: u64,
}

/// Files whose moves have freed no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FreedNothing {
    pub files: u64,
    pub bytes: u64,
    /// How long no file leaves, microseconds.
    pub stop_us: u64,
}

/// Measures whether moves free room.
#[derive(Debug, Default)]
struct Measurement {
    /// The disk and its free room, and at least how much all local files had, when it began.
    begun: Option<(DiskRoom, u64)>,
    /// Files that have left, and whose local copies are gone, since it began.
    files: u64,
    bytes: u64,
    /// No file leaves before this time, microseconds.
    stopped_until_us: u64,
    /// The length of that stop; 0 if the last measurement has found room.
    stop_us: u64,
}

impl Measurement {
    fn begin(&mut self, room: DiskRoom, least: u64) {
        self.begun = Some((room, least));
        (self.files, self.bytes) = (0, 0);
    }

    /// `least` and `most` bound the bytes of all local files. No move was to free what the tables
    /// have grown by.
    fn end(&mut self, now_us: u64, room: DiskRoom, least: u64, most: u64) -> Option<FreedNothing> {
        let (before, least_before) = *self.begun.get_or_insert((room, least));
        if before.total != room.total {
            // The disk is larger or smaller than it was.
            self.begin(room, least);
        }
        if self.files < MEASURED_FILES {
            return None;
        }
        let expected = i128::from(before.free) + i128::from(least_before) - i128::from(most);
        let (files, bytes) = (self.files, self.bytes);
        self.begin(room, least);
        if i128::from(room.free) + i128::from(bytes / 2) >= expected {
            self.stop_us = 0;
            return None;
        }
        self.stop_us = (self.stop_us * 2).clamp(STOP_US, STOP_MAX_US);
        self.stopped_until_us = now_us + self.stop_us;
        Some(FreedNothing {
            files,
            bytes,
            stop_us: self.stop_us,
        })
    }
}

/// A file that has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leaving {
    id: u64,
    bytes: u64,
    /// It has left because the disk ran full.
    by_room: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct ColdestFiles {
    is_short: bool,
    /// Less than a quarter of the room to keep is free: files leave although moves seem to free
    /// nothing.
    is_scarce: bool,
    /// The coldest file is the last one.
    coldest: Vec<Candidate>,
    /// When the warmest of them was read, if the last look has found warmer ones, too.
    bound_s: Option<u64>,
    /// Whether a file has left since the last look.
    has_left: bool,
    /// When all files were looked at last, microseconds, and whether there were more.
    looked: Option<(u64, bool)>,
    /// Files that looks pass over, because they had to wait, and since when, microseconds. They are
    /// forgotten after a time, so that each is asked again.
    passed: HashSet<u64>,
    passed_us: u64,
    /// Files that have left, and whose local copies may be there yet.
    leaving: Vec<Leaving>,
    measurement: Measurement,
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
    /// Whether the disk runs full. `has_local_copy` says whether a file that has left is there yet:
    /// its room, and that of obsolete files, will be free.
    pub(super) fn is_short(
        &mut self,
        now_us: u64,
        room: DiskRoom,
        local: LocalBytes,
        has_local_copy: impl Fn(u64) -> bool,
    ) -> (bool, Option<FreedNothing>) {
        let was_short = self.is_short;
        let was_idle = self.leaving.iter().all(|file| !file.by_room);
        let measurement = &mut self.measurement;
        self.leaving.retain(|file| {
            let stays = has_local_copy(file.id);
            if !stays && file.by_room {
                measurement.files += 1;
                measurement.bytes += file.bytes;
            }
            stays
        });
        let leaving = self.leaving.iter().map(|file| file.bytes).sum::<u64>();
        // Some of the leaving ones are obsolete already.
        let least = leaving.max(local.obsolete);
        let most = leaving.saturating_add(local.obsolete);
        let free = room.free.saturating_add(least);
        let kept = kept_free(room);
        self.is_short = match self.is_short {
            true => free < kept,
            false => free < kept / 4 * 3,
        };
        self.is_scarce = free < kept / 4;
        let (least, most) = (local.tables + least, local.tables.saturating_add(most));
        // Files that have left by room are measured even if there seems to be room until their
        // copies are gone. The growth of the disk during a stop does not count against the moves
        // behind it.
        let is_stopped = now_us < measurement.stopped_until_us;
        if was_idle && (is_stopped || !(was_short && self.is_short)) {
            measurement.begin(room, least);
        }
        let freed_nothing = match self.is_short {
            true => measurement.end(now_us, room, least, most),
            false => None,
        };
        (self.is_short, freed_nothing)
    }

    /// The last answer of [`Self::is_short`].
    pub(super) fn was_short(&self) -> bool {
        self.is_short
    }

    /// Whether files leave that were read: the disk runs full, and moves free room.
    pub(super) fn may_leave(&self, now_us: u64) -> bool {
        self.is_short && (self.is_scarce || now_us >= self.measurement.stopped_until_us)
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
        if now_us.saturating_sub(self.passed_us) >= LOOK_US {
            self.passed.clear();
            self.passed_us = now_us;
        }
        if let Some(file) = self.pop(version, &may_leave, &waits) {
            return Some(file);
        }
        let pause_us = match self.has_left {
            true => NEXT_LOOK_US,
            false => LOOK_US,
        };
        let is_due = |(at_us, more): (u64, bool)| more || now_us.saturating_sub(at_us) >= pause_us;
        if !self.looked.is_none_or(is_due) {
            return None;
        }
        self.look(version, &may_leave);
        self.looked = Some((now_us, self.coldest.len() == COLDEST_MAX));
        self.pop(version, &may_leave, &waits)
    }

    /// A candidate may have been read, replaced or moved since it was found.
    fn pop(
        &mut self,
        version: &Version,
        may_leave: &impl Fn(&FileHandle) -> bool,
        waits: &impl Fn(&FileHandle) -> bool,
    ) -> Option<Arc<FileHandle>> {
        let last = &version.levels[LAST_LEVEL - 1];
        while let Some(candidate) = self.coldest.pop() {
            let Some(file) = candidate.file.upgrade() else {
                continue;
            };
            let is_live = last
                .find(&file.smallest)
                .is_some_and(|live| Arc::ptr_eq(live, &file));
            if !is_live || !may_leave(&file) {
                continue;
            }
            let read_s = file.last_read_s();
            if read_s != candidate.read_s {
                self.put_back(Candidate {
                    read_s,
                    ..candidate
                });
                continue;
            }
            if !waits(&file) {
                return Some(file);
            }
            self.passed.insert(file.file_id);
        }
        None
    }

    /// A file that was read since it was found is a candidate yet, unless files that were not kept
    /// may be colder.
    fn put_back(&mut self, candidate: Candidate) {
        if self
            .bound_s
            .is_some_and(|bound_s| candidate.read_s > bound_s)
        {
            return;
        }
        let warmer = |other: &Candidate| other.read_s > candidate.read_s;
        let at = self.coldest.partition_point(warmer);
        self.coldest.insert(at, candidate);
    }

    fn look(&mut self, version: &Version, may_leave: &impl Fn(&FileHandle) -> bool) {
        let files = &version.levels[LAST_LEVEL - 1].files;
        // Time and position: the warmest is on top, and goes first.
        let mut found: BinaryHeap<(u64, usize)> = BinaryHeap::new();
        for (at, file) in files.iter().enumerate() {
            if !may_leave(file) || self.passed.contains(&file.file_id) {
                continue;
            }
            found.push((file.last_read_s(), at));
            if found.len() > COLDEST_MAX {
                found.pop();
            }
        }
        let has_all = found.len() < COLDEST_MAX;
        let warmest = found.peek().map(|(read_s, _)| *read_s);
        self.bound_s = warmest.filter(|_| !has_all);
        self.has_left = false;
        let found = found.into_sorted_vec();
        let candidates = found.into_iter().rev().filter_map(|(read_s, at)| {
            let file = Arc::downgrade(files.get(at)?);
            Some(Candidate { read_s, file })
        });
        self.coldest = candidates.collect();
    }

    /// A file has left, `by_room` because the disk runs full; its local copy goes when nobody reads
    /// it any more.
    pub(super) fn has_left(&mut self, file: &FileHandle, by_room: bool) {
        self.leaving.push(Leaving {
            id: file.file_id,
            bytes: file.size,
            by_room,
        });
        self.has_left = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn leaving(id: u64, gibibytes: u64) -> Leaving {
        Leaving {
            id,
            bytes: gibibytes * GIB,
            by_room: true,
        }
    }

    #[test]
    fn files_leave_below_one_bound_and_until_another() {
        let mut coldest = ColdestFiles::default();
        // Of 200 GiB, ten stay free.
        let mut is_short = |free: u64, obsolete: u64| {
            let room = DiskRoom {
                free: free * GIB,
                total: 200 * GIB,
            };
            let local = LocalBytes {
                tables: 0,
                obsolete: obsolete * GIB,
            };
            coldest.is_short(0, room, local, |_| false).0
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
            leaving: vec![leaving(1, 3), leaving(2, 2)],
            ..ColdestFiles::default()
        };
        let room = DiskRoom {
            free: 5 * GIB,
            total: 200 * GIB,
        };
        let local = LocalBytes::default();
        assert!(!coldest.is_short(0, room, local, |_| true).0);
        assert!(!coldest.is_short(0, room, local, |id| id == 1).0);
        assert_eq!(coldest.leaving, [leaving(1, 3)]);
        assert!(coldest.is_short(0, room, local, |_| false).0, "it is gone");
    }

    /// A disk on which files of a gibibyte leave.
    struct Disk {
        coldest: ColdestFiles,
        free: u64,
        tables: u64,
    }

    impl Disk {
        fn new() -> Self {
            Self {
                coldest: ColdestFiles::default(),
                free: 20 * GIB,
                tables: 900 * GIB,
            }
        }

        /// Ten files leave, each of which frees `freed` bytes, while tables grow by `grown` bytes
        /// for each. Returns what is found, and whether files leave afterwards.
        fn leave_ten(&mut self, now_us: u64, freed: u64, grown: u64) -> (Vec<FreedNothing>, bool) {
            let mut found = Vec::new();
            for id in 0..10 {
                let room = DiskRoom {
                    free: self.free,
                    total: 1000 * GIB,
                };
                let local = LocalBytes {
                    tables: self.tables,
                    obsolete: 0,
                };
                let (is_short, nothing) = self.coldest.is_short(now_us, room, local, |_| false);
                assert!(is_short);
                found.extend(nothing);
                self.coldest.leaving.push(leaving(id, 1));
                self.free = self.free + freed - grown;
                self.tables = self.tables - GIB + grown;
            }
            (found, self.coldest.may_leave(now_us))
        }
    }

    #[test]
    fn moves_that_free_nothing_stop_for_a_time() {
        let stop = |stop_us| FreedNothing {
            files: MEASURED_FILES,
            bytes: MEASURED_FILES * GIB,
            stop_us,
        };
        assert_eq!(Disk::new().leave_ten(0, GIB, 0), (Vec::new(), true));
        // Tables that grow as fast are no reason to stop.
        assert_eq!(Disk::new().leave_ten(0, GIB, GIB), (Vec::new(), true));
        let mut disk = Disk::new();
        assert_eq!(disk.leave_ten(5, 0, 0), (vec![stop(STOP_US)], false));
        assert!(!disk.coldest.may_leave(STOP_US + 4));
        assert!(disk.coldest.may_leave(STOP_US + 5));
        // A second time in a row, the stop is longer.
        let again = disk.leave_ten(2 * STOP_US, 0, 0);
        assert_eq!(again, (vec![stop(2 * STOP_US)], false));
    }
    /// The disk may fill with whatever else while no file leaves.
    #[test]
    fn growth_during_a_stop_does_not_count_against_moves() {
        let mut disk = Disk::new();
        assert!(!disk.leave_ten(0, 0, 0).1);
        disk.free -= 6 * GIB;
        let room = DiskRoom {
            free: disk.free,
            total: 1000 * GIB,
        };
        let local = LocalBytes {
            tables: disk.tables,
            obsolete: 0,
        };
        for now_us in [STOP_US / 2, STOP_US - 1] {
            assert!(disk.coldest.is_short(now_us, room, local, |_| false).0);
            assert!(!disk.coldest.may_leave(now_us));
        }
        assert_eq!(disk.leave_ten(STOP_US, GIB, 0), (Vec::new(), true));
    }

    #[test]
    fn nothing_stops_when_the_disk_is_nearly_full() {
        let mut disk = Disk::new();
        assert!(!disk.leave_ten(0, 0, 0).1);
        let room = |free: u64| DiskRoom {
            free: free * GIB,
            total: 1000 * GIB,
        };
        for (free, leaves) in [(13, false), (12, true)] {
            let local = LocalBytes::default();
            assert!(disk.coldest.is_short(1, room(free), local, |_| false).0);
            assert_eq!(disk.coldest.may_leave(1), leaves, "{free}");
        }
    }
}
