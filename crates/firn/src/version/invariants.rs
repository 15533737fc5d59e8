//! Named invariants of a version, checked before it is installed.

use super::{Edit, FileMeta, Version};
use crate::base::invariant;
use crate::base::key::SEQNO_COMMITTED_MAX;
use crate::base::work_count::uncounted;
use crate::sst::IndexStats;
use std::collections::HashSet;

impl Version {
    /// The first invariant that the files of `edit` violate, in words; `None` if they violate none.
    /// The version must be the result of `edit` on a version without violations. If costly checks
    /// are enabled, all files are checked, and the totals too.
    pub fn check(&self, edit: &Edit) -> Option<String> {
        if invariant::enabled() {
            return uncounted(|| self.check_all().or_else(|| self.totals_difference()));
        }
        let mut added = edit.added.iter();
        self.runs_ordered_by_number().or_else(|| {
            added.find_map(|(level, run, file)| self.neighbours_disjoint(*level, *run, file))
        })
    }

    /// Checks that an added file shares no key with its neighbours in its run.
    fn neighbours_disjoint(&self, level: u8, number: u64, file: &FileMeta) -> Option<String> {
        let mut runs = self.runs(level).iter();
        let at = runs.find(|run| run.number == number);
        let at = at.and_then(|run| Some((&run.files, run.position(file)?)));
        let Some((files, at)) = at else {
            return Some(format!("L{level}: file {} is in disorder", file.file_id));
        };
        let from = at.saturating_sub(1);
        let near = files.range(from..(at + 2).min(files.len())).to_vec();
        let bad = near.windows(2).find(|p| p[0].largest >= p[1].smallest)?;
        let (a, b) = (bad[0].file_id, bad[1].file_id);
        Some(format!("L{level}: files {a} and {b} share a user key"))
    }

    /// The first violated invariant, in words; `None` if all hold.
    pub fn check_all(&self) -> Option<String> {
        self.runs_ordered_by_number()
            .or_else(|| self.runs_sorted_and_disjoint())
            .or_else(|| self.files_placed_once())
            .or_else(|| self.files().find_map(|(_, file)| bounds_hold(file)))
            .or_else(|| {
                self.files()
                    .find_map(|(_, file)| index_statistics_add_up(file))
            })
    }

    fn runs_ordered_by_number(&self) -> Option<String> {
        if let Some(pair) = self.l0.windows(2).find(|p| p[0].number <= p[1].number) {
            let (a, b) = (pair[0].number, pair[1].number);
            return Some(format!("L0 run {a} stands before run {b}"));
        }
        let bad = self
            .l0
            .iter()
            .find(|run| run.number == 0 || run.files.is_empty());
        bad.map(|run| format!("L0 run {} is empty or has no number", run.number))
    }

    fn runs_sorted_and_disjoint(&self) -> Option<String> {
        (0..super::LEVELS as u8).find_map(|level| {
            let runs = self.runs(level).iter();
            let mut pairs = runs.flat_map(|run| run.files.iter().zip(run.files.iter().skip(1)));
            let bad = pairs.find(|(a, b)| a.largest >= b.smallest)?;
            let (a, b) = (bad.0.file_id, bad.1.file_id);
            Some(format!("L{level}: files {a} and {b} share a user key"))
        })
    }

    fn files_placed_once(&self) -> Option<String> {
        let mut seen = HashSet::new();
        let twice = self.files().find(|(_, file)| !seen.insert(file.file_id));
        twice.map(|(level, file)| format!("file {} of L{level} is placed twice", file.file_id))
    }
}

/// Larger than any size or count of a real file. Sums of such numbers over all files fit into 64
/// bits. Blob bytes of a file may be 65,536 times as large, so their sums saturate instead.
const COUNT_MAX: u64 = 1 << 44;

fn bounds_hold(file: &FileMeta) -> Option<String> {
    let numbers = [
        file.size,
        file.entries,
        file.raw_bytes,
        file.deletes,
        file.superseded,
        file.blob_bytes() >> 16,
    ];
    let blobs = &file.blobs;
    let broken = if blobs.windows(2).any(|p| p[0].file >= p[1].file) {
        "its list of blob files is out of order"
    } else if file.smallest > file.largest {
        "its smallest key is above its largest"
    } else if file.min_seqno > file.max_seqno {
        "its smallest seqno is above its largest"
    } else if file.max_seqno > SEQNO_COMMITTED_MAX {
        "it holds an uncommitted seqno"
    } else if file
        .external_seqno
        .is_some_and(|seqno| (file.min_seqno, file.max_seqno) != (seqno, seqno))
    {
        "its seqnos contradict its external one"
    } else if file.entries == 0 || file.deletes > file.entries || file.superseded > file.entries {
        "its counts contradict each other"
    } else if file.tail_len > file.size {
        "its tail is longer than the file"
    } else if numbers.iter().any(|&n| n > COUNT_MAX) {
        "its size or counts are impossible"
    } else {
        return None;
    };
    Some(format!("file {}: {broken}", file.file_id))
}

fn index_statistics_add_up(file: &FileMeta) -> Option<String> {
    let ascending = file.per_index.windows(2).all(|p| p[0].index < p[1].index);
    let small = |s: &IndexStats| s.raw_bytes.max(s.stored_bytes) <= COUNT_MAX;
    let sum = |number: fn(&IndexStats) -> u64| {
        let mut numbers = file.per_index.iter().map(number);
        numbers.try_fold(0u64, |sum, n| sum.checked_add(n))
    };
    let adds_up = ascending
        && file.per_index.iter().all(small)
        && sum(|s| s.entries) == Some(file.entries)
        && sum(|s| s.deletes) == Some(file.deletes);
    (!adds_up).then(|| format!("file {}: its index statistics do not add up", file.file_id))
}
