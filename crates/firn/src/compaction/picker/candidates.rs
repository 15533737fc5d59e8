//! Finds the files of a level that a job may begin with, without a visit to each file.

use super::{PickerContext, RestOrder};
use crate::base::key::{index_id_of, index_prefix};
use crate::base::key_range::KeyRange;
use crate::base::{IndexId, Seqno};
use crate::compaction::drop_rule::droppable;
use crate::version::{FileHandle, FileList, FileMeta, FileSums, LAST_LEVEL, MoveGroup};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Number of files of a level that are compared with each other: the cheapest ones as the version
/// orders them. That order may be a little old, see [`Version::cheapest_moves`].
///
/// [`Version::cheapest_moves`]: crate::version::Version::cheapest_moves
pub(super) const COMPARED: usize = 8;

/// The files that a job is sought for.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// All files.
    All,
    /// Files of mostly deletions.
    ManyDeletions,
    /// Files that refer to blobs.
    Blobs,
    /// Files with dead entries in a range.
    DeadIn(&'a KeyRange),
    /// Files of an order to bring ranges to rest.
    Order(&'a RestOrder),
}

impl Wanted<'_> {
    pub(super) fn accepts(&self, file: &FileMeta) -> bool {
        match self {
            Self::All => true,
            Self::ManyDeletions => file.has_many_deletions(),
            Self::Blobs => !file.blobs.is_empty(),
            Self::DeadIn(range) => {
                file.droppable_entries_min() > 0 && file.overlaps(&range.smallest, &range.largest)
            }
            Self::Order(order) => order.wants(file),
        }
    }

    /// The smallest group of files that has all wanted ones.
    fn group(&self) -> MoveGroup {
        match self {
            Self::ManyDeletions => MoveGroup::ManyDeletions,
            Self::Blobs => MoveGroup::Blobs,
            Self::DeadIn(_) => MoveGroup::Dead,
            Self::All | Self::Order(_) => MoveGroup::All,
        }
    }

    /// Whether a wanted file may be among those with these sums.
    fn may_be_in(&self, sums: &FileSums) -> bool {
        match self {
            Self::All => true,
            Self::ManyDeletions => sums.with_many_deletions > 0,
            Self::Blobs => sums.with_blobs > 0,
            Self::DeadIn(_) => sums.dead[0] < Seqno::MAX,
            Self::Order(order) => sums.min_seqno <= order.until,
        }
    }

    /// The positions of the files that share a key with the wanted ranges, ascending.
    pub(super) fn positions(&self, files: &FileList) -> Vec<Range<usize>> {
        let of = |range: &KeyRange| positions_over(files, range);
        let of_all = 0..files.len();
        match self {
            Self::All | Self::ManyDeletions | Self::Blobs => vec![of_all],
            Self::DeadIn(range) => vec![of(range)],
            Self::Order(order) => {
                let mut all: Vec<_> = order.ranges.iter().map(of).collect();
                all.sort_by_key(|positions| positions.start);
                let mut end = 0;
                // A file with keys of two ranges counts once.
                for positions in &mut all {
                    positions.start = positions.start.max(end);
                    positions.end = positions.end.max(positions.start);
                    end = positions.end;
                }
                all
            }
        }
    }
}

/// The parts of `free` that are not in `busy`. The ranges of both ascend.
fn without(free: Vec<Range<usize>>, busy: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut left = Vec::with_capacity(free.len());
    let mut busy = busy.filter(|positions| !positions.is_empty()).peekable();
    for mut part in free {
        while let Some(next) = busy.peek().filter(|next| next.start < part.end) {
            left.push(part.start..next.start.max(part.start));
            part.start = part.start.max(next.end);
            if next.end >= part.end {
                // It may also reach into the next part.
                break;
            }
            busy.next();
        }
        left.push(part);
    }
    left.retain(|part| !part.is_empty());
    left
}

fn positions_over(files: &FileList, range: &KeyRange) -> Range<usize> {
    let from = files.partition_point(|f| f.largest < range.smallest);
    let to = files.partition_point(|f| f.smallest <= range.largest);
    from..to.max(from)
}

impl PickerContext<'_> {
    /// Ranges of positions in `level` that have the wanted files. Leaves out the files on which a
    /// job into `output` would conflict with a running job, and those that overlap a file in
    /// quarantine of `level` or `output`.
    pub(super) fn free_positions(
        &self,
        level: u8,
        output: u8,
        wanted: Wanted<'_>,
    ) -> Vec<Range<usize>> {
        let files = self.files(level);
        let mut free = wanted.positions(files);
        for level in level..=output {
            let damaged = self.version.damaged_ranges(level).as_slice().iter();
            free = without(free, damaged.map(|range| positions_over(files, range)));
        }
        let mut cut = |range: &KeyRange| {
            let busy = positions_over(files, range);
            let cut = std::mem::take(&mut free).into_iter().flat_map(|part| {
                let left = part.start..part.end.min(busy.start);
                let right = part.start.max(busy.end)..part.end;
                [left, right]
            });
            free = cut.filter(|part| !part.is_empty()).collect();
            // If no file of `level` lies in the zone, the range of busy positions is empty. Then
            // the cut may divide a free range of positions into two adjacent ones, which does no
            // harm.
        };
        for zone in self.running.zones() {
            if level > zone.bottom || output < zone.top {
                continue;
            }
            // Leave out the files that overlap the zone. If a file of the output level overlaps the
            // zone, also leave out the files that overlap that file, because a job on one of them
            // would rewrite it.
            let mut range = zone.range.clone();
            if output != level {
                let lower = self.overlap(output, &range);
                lower
                    .first()
                    .into_iter()
                    .chain(lower.last())
                    .for_each(|f| range.extend(&f.range()));
            }
            cut(&range);
        }
        free.retain(|part| !part.is_empty());
        free
    }

    /// Up to [`COMPARED`] wanted files of `level`, by position, that a job into `output` may begin
    /// with: the cheapest ones. It is empty only if there is none.
    pub(super) fn candidates(&self, level: u8, output: u8, wanted: Wanted<'_>) -> Vec<usize> {
        let files = self.files(level);
        if files.is_empty() || usize::from(level) == LAST_LEVEL {
            return Vec::new();
        }
        // The version has the cost of moving each file down by one level. That is enough: the base
        // level, into which L0 is compacted, never lies below a level that has files, so each job
        // from `level` writes to the level right below it.
        debug_assert_eq!(output, level + 1);
        let free = self.free_positions(level, output, wanted);
        // A file with which a job was given up is no candidate. Otherwise a few such jobs, if they
        // are the cheapest ones, would keep all others of the level from running.
        let accepted = |at: &usize| {
            let file = &files[*at];
            let free = self.is_free(file) && !self.running.is_given_up_with(file.file_id);
            free && wanted.accepts(file)
        };
        let group = wanted.group();
        let mut found = self.version.cheapest_moves(level, &free, group, COMPARED);
        found.retain(accepted);
        if found.is_empty() {
            found.extend(free.into_iter().find_map(|part| {
                let mut from = part.start;
                while let Some(at) = files
                    .position_from(from, |sums| wanted.may_be_in(sums))
                    .filter(|at| *at < part.end)
                {
                    if accepted(&at) {
                        return Some(at);
                    }
                    from = at + 1;
                }
                None
            }));
        }
        found
    }

    /// Retired indexes that no read can need any more and of which some file has entries,
    /// ascending.
    pub(super) fn droppable_indexes(&self) -> Vec<IndexId> {
        let all = self.retired.keys().copied();
        let all = all.filter(|index| droppable(self.retired, *index, self.oldest_read));
        all.filter(|index| self.version.index_stats(*index).entries > 0)
            .collect()
    }

    /// The first position from `from` on of a file with entries of `indexes`, which are ascending.
    ///
    /// It alternates between two steps: skip the indexes below the file, and skip the files below
    /// the next index. So the number of steps is at most that of the files or that of the indexes,
    /// whichever is less.
    pub(super) fn next_of_indexes(
        &self,
        files: &FileList,
        from: usize,
        indexes: &[IndexId],
    ) -> Option<usize> {
        let mut at = from;
        let first = |file: &Arc<FileHandle>| index_id_of(&file.smallest).unwrap_or(0);
        let mut index = 0;
        loop {
            let file = files.get(at)?;
            index += indexes[index..].partition_point(|index| *index < first(file));
            if indexes[index..]
                .iter()
                .take_while(|i| index_prefix(**i)[..] <= file.largest[..])
                .any(|i| file.index(*i).is_some())
            {
                return Some(at);
            }
            index += indexes[index..].partition_point(|i| index_prefix(*i)[..] <= file.largest[..]);
            let prefix = index_prefix(*indexes.get(index)?);
            at = (at + 1).max(files.partition_point(|f| f.largest[..] < prefix[..]));
        }
    }

    /// The files of `level`, which is not L0.
    pub(super) fn files(&self, level: u8) -> &FileList {
        &self.version.levels[usize::from(level) - 1].files
    }

    /// The files of `level` that share a key with `range`.
    pub(super) fn overlap(&self, level: u8, range: &KeyRange) -> crate::version::FileSpan<'_> {
        let upper = Bound::Included(range.largest.as_slice());
        self.version.levels[usize::from(level) - 1].overlapping(&range.smallest, upper)
    }
}

#[cfg(test)]
mod tests;
